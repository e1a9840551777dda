// Names of many ops, for notes.
#ifndef WEFT_TRANSPILER_PASSES_OP_NAMES_H_
#define WEFT_TRANSPILER_PASSES_OP_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/program.h"

namespace weft {

// Says what Op::DebugName says of ops of the root block ("op 17 (mul)"), without looking for their
// places: O(ops) once, then O(1). Valid until the next commit.
class OpNames {
 public:
  explicit OpNames(const Program& program) : program_(program), place_(program.op_id_limit()) {
    uint32_t place = 0;
    for (OpId id : program.block(0).ops()) place_[id.value()] = place++;
  }

  std::string operator()(OpId id) const {
    return absl::StrCat("op ", place_[id.value()], " (", absl::CEscape(program_.op(id).type()),
                        ")");
  }

 private:
  const Program& program_;
  std::vector<uint32_t> place_;  // by OpId
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_OP_NAMES_H_
