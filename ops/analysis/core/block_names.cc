#include "ops/analysis/core/block_names.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ops/schema/weft_attrs.h"
#include "proto/op_role.h"

namespace weft {

VarId ResolveArgument(const Program& program, int block, Symbol name) {
  int first_forward = -1;
  for (int at = block; at >= 0; at = program.block(at).parent_idx()) {
    VarId var = program.block(at).FindVar(name);
    const int forward = program.block(at).forward_block_idx();
    const bool has_forward = at > 0 && forward >= 0 && forward < program.num_blocks();
    if (!var.valid() && has_forward) {
      var = program.block(forward).FindVar(name);
      if (first_forward < 0) first_forward = forward;
    }
    if (var.valid()) return var;
  }
  return first_forward < 0 ? VarId() : program.block(first_forward).Resolve(name);
}

absl::StatusOr<BlockGradientNames> BlockGradientNames::Of(const Op& op) {
  const Program& program = op.program();
  BlockGradientNames names;
  if (const auto pairs = op.StringsAttr(kOriginalNamesAttr)) {
    if (pairs->size() % 2 != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(op.DebugName(), " attribute ", kOriginalNamesAttr,
                       ": expected pairs of new and old names, found ", pairs->size(), " names"));
    }
    for (size_t i = 0; i < pairs->size(); i += 2) names.originals_[(*pairs)[i]] = (*pairs)[i + 1];
  }
  const auto given = op.StringsAttr("original_output_grad");
  absl::flat_hash_set<absl::string_view> with_gradients;  // slots
  for (const OpSignature::Slot& out : op.signature().outputs) {
    absl::string_view slot = program.name(out.name);
    if (absl::ConsumeSuffix(&slot, kGradSuffix)) with_gradients.insert(slot);
  }
  for (const OpSignature::Slot& in : op.signature().inputs) {
    const absl::string_view slot = program.name(in.name);
    const bool has_gradients = with_gradients.contains(slot);
    if (!has_gradients && !(slot == "Out" && given.has_value())) continue;
    std::vector<std::string>& originals = names.inputs_[std::string(slot)];
    for (Symbol input : op.args(in)) {
      originals.emplace_back(names.Original(program.name(input)));
      if (has_gradients) names.inside_.insert(absl::StrCat(originals.back(), kGradSuffix));
    }
  }
  if (given.has_value()) names.inside_.insert(given->begin(), given->end());
  return names;
}

absl::string_view BlockGradientNames::Original(absl::string_view input) const {
  const auto found = originals_.find(input);
  return found == originals_.end() ? input : found->second;
}

}  // namespace weft
