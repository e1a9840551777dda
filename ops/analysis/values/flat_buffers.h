// Tensors that lie one after the other in a value, where ops copy instead of sharing memory, as in
// programs that data orders.
#ifndef WEFT_OPS_ANALYSIS_VALUES_FLAT_BUFFERS_H_
#define WEFT_OPS_ANALYSIS_VALUES_FLAT_BUFFERS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "proto/program.h"

namespace weft {

struct FlatBuffer {
  struct Part {
    VarId flat;                      // of one dimension
    std::vector<VarId> others = {};  // what it is a reshape of, or what are reshapes of it
    int64_t elements = 0;
  };
  std::vector<Part> parts;
};

// Of collectives of the root block that give each rank a part, and that gather such parts:
//
//   Out=[flat] = reshape2(X=[w@GRAD])                  Out=[whole] = c_allgather(X=[share])
//   Out=[whole] = concat(X=[flat, b@GRAD]) {axis=0}    Out=[flat, b] = split(X=[whole]) {axis=0}
//   Out=[share] = c_reducescatter(X=[whole])           Out=[w] = reshape2(X=[flat])
//
// Each of these variables has one writer, so that it has one value in a step once that has run.
class FlatBuffers {
 public:
  FlatBuffers() = default;
  // O(arguments).
  explicit FlatBuffers(const Program& program);

  // What the buffer that a collective reads is made of; null: another value.
  const FlatBuffer* MadeOf(VarId whole) const {
    const auto found = made_.find(whole);
    return found == made_.end() ? nullptr : &found->second;
  }
  // What ops take out of the buffer that a collective writes, by op that splits it.
  absl::Span<const FlatBuffer> TakenApart(VarId whole) const {
    const auto found = taken_.find(whole);
    return found == taken_.end() ? absl::Span<const FlatBuffer>() : found->second;
  }

 private:
  absl::flat_hash_map<VarId, FlatBuffer> made_;
  absl::flat_hash_map<VarId, std::vector<FlatBuffer>> taken_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_FLAT_BUFFERS_H_
