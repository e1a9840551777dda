#include "ops/analysis/training/lost_gradients.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {
namespace {

// By symbol: what depends on a parameter that the program updates.
std::vector<bool> TrainedValues(const Program& program, const OpTraits& traits) {
  std::vector<bool> trained(program.symbols().size(), false);
  for (const Op& op : AllOps(program)) {
    if (!traits.Has(op, Trait::kOptimizer)) continue;
    for (Symbol param : op.Input("Param")) trained[param.value()] = true;
  }
  const auto is_trained = [&](Symbol input) { return trained[input.value()]; };
  for (const Op& op : AllOps(program)) {
    if (absl::c_none_of(op.input_args(), is_trained)) continue;
    for (Symbol output : op.output_args()) trained[output.value()] = true;
  }
  return trained;
}

}  // namespace

std::vector<LostGradient> LostGradients(const Program& program, const OpTraits& traits) {
  std::vector<bool> is_read(program.symbols().size(), false), is_written = is_read;
  for (const Op& op : AllOps(program)) {
    for (Symbol input : op.input_args()) is_read[input.value()] = true;
    for (Symbol output : op.output_args()) is_written[output.value()] = true;
  }
  std::vector<LostGradient> lost;
  absl::optional<std::vector<bool>> trained;
  for (const Op& op : AllOps(program)) {
    if (!traits.Has(op, Trait::kCollective) || IsBackward(op) || IsOptimize(op)) continue;
    for (Symbol output : op.output_args()) {
      const Symbol gradient = program.FindSymbol(absl::StrCat(program.name(output), kGradSuffix));
      if (!gradient.valid() || !is_written[gradient.value()] || is_read[gradient.value()]) continue;
      if (!trained.has_value()) trained = TrainedValues(program, traits);
      if ((*trained)[output.value()]) lost.push_back({op.id(), output, gradient});
    }
  }
  return lost;
}

std::string ToString(const Program& program, const LostGradient& lost) {
  return absl::StrCat(program.op(lost.op).DebugName(), ": the gradient of its output, ",
                      program.name(lost.gradient),
                      ", is computed, but no op takes it back: parameters before it are not "
                      "trained through it");
}

}  // namespace weft
