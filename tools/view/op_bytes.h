// How many bytes ops communicate, from declared types.
#ifndef WEFT_TOOLS_VIEW_OP_BYTES_H_
#define WEFT_TOOLS_VIEW_OP_BYTES_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "ops/analysis/core/storage.h"
#include "proto/program.h"

namespace weft {

class OpBytes {
 public:
  // `batch` stands for the unknown dimensions of shapes.
  OpBytes(const Program& program, int64_t batch)
      : program_(program), storage_(program), batch_(batch) {}

  // Notes the buffers of an op that fuses variables: a buffer has the bytes of its members where
  // its declaration has fewer, or none. To be called for the ops of a program in order.
  void Remember(const Op& op);

  // What a rank passes to a collective or sends, or what it receives. Variables of unknown type
  // count as 0. O(arguments).
  int64_t OfCommunication(const Op& op) const;

 private:
  int64_t Of(const Op& op, Symbol var) const;

  const Program& program_;
  const Storage storage_;
  const int64_t batch_;
  absl::flat_hash_map<Symbol, int64_t> buffers_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_VIEW_OP_BYTES_H_
