// Names in the blocks of ops.
#ifndef WEFT_OPS_ANALYSIS_CORE_BLOCK_NAMES_H_
#define WEFT_OPS_ANALYSIS_CORE_BLOCK_NAMES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"

namespace weft {

// The variable that ops of the block see under the name; invalid if none is declared. A gradient
// block also sees the variables of its forward block, whose scopes Paddle keeps, before those of
// blocks around it. O(block depth).
VarId ResolveArgument(const Program& program, int block, Symbol name);

// What the block of a gradient op (Trait::kBlockGrad) calls the gradients that it gets and makes.
//
// For input w in a slot S, where the op has an output slot S@GRAD, the block makes w@GRAD: a
// variable of its own, also where it does not declare one and a block around has another of that
// name. A pass that renames w leaves w@GRAD alone, and notes the old name in attribute
// original_names. The gradients that a loop gets have the names of attribute original_output_grad.
class BlockGradientNames {
 public:
  // InvalidArgument: an attribute original_names that is no list of pairs. O(attributes + inputs).
  static absl::StatusOr<BlockGradientNames> Of(const Op& op);

  // The name of an input before passes renamed it.
  absl::string_view Original(absl::string_view input) const;
  // Whether the block gets or makes a gradient of that name.
  bool IsInside(absl::string_view name) const { return inside_.contains(name); }
  // By slot, the original names of the inputs after which gradients in the block are called: those
  // whose gradients the block makes; of a loop, also those in slot Out.
  const std::map<std::string, std::vector<std::string>>& inputs() const { return inputs_; }

 private:
  absl::flat_hash_map<std::string, std::string> originals_;
  absl::flat_hash_set<std::string> inside_;
  std::map<std::string, std::vector<std::string>> inputs_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_BLOCK_NAMES_H_
