#include "ops/analysis/training/num_ranks.h"

#include <cmath>
#include <vector>

#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/training/loss_gradients.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

absl::optional<int> Positive(int64_t number) {
  if (number < 1 || number > 1 << 20) return absl::nullopt;
  return static_cast<int>(number);
}

// Attribute nranks of the first op that has it. An op that nothing is known of, alone in its group,
// says nothing of others.
absl::optional<int> NumRanksOfAttrs(const Program& program) {
  std::vector<char> has_attr(program.num_signatures(), -1);
  for (const Op& op : AllOps(program)) {
    char& has = has_attr[op.signature_id()];
    if (has < 0) has = op.HasAttr(kNumRanksAttr) ? 1 : 0;
    if (has == 0) continue;
    const absl::optional<int> nranks = Positive(op.IntAttr(kNumRanksAttr).value_or(0));
    if (nranks == 1 && FindOpSchema(op.type()) == nullptr) continue;
    if (nranks.has_value()) return nranks;
  }
  return absl::nullopt;
}

// The divisor of a loss's gradient.
absl::optional<int> NumRanksOfDivision(const Program& program) {
  LossGradients loss_gradients(program);
  for (const Op& op : BlockOps(program, 0)) {
    if (!loss_gradients.IsScaledBy(op)) continue;
    const double scale = op.FloatAttr("scale").value_or(1);
    // Paddle writes a division by 1 for one trainer with any number of devices.
    if (scale > 0 && scale < 1 && std::abs(std::round(1 / scale) * scale - 1) < 1e-5) {
      return Positive(std::llround(1 / scale));
    }
  }
  return absl::nullopt;
}

}  // namespace

absl::optional<int> RingSize(const Op& op) {
  if (op.HasAttr(kNumRanksAttr)) return Positive(op.IntAttr(kNumRanksAttr).value_or(0));
  const auto devices = op.IntsAttr("devices");
  const int64_t num_devices = devices.has_value() ? devices->size() : 0;
  // Without a list, each trainer uses the devices that it finds.
  if (op.HasAttr("ntrainers")) {
    const absl::optional<int> trainers = Positive(op.IntAttr("ntrainers").value_or(0));
    return trainers.has_value() ? Positive(*trainers * num_devices) : absl::nullopt;
  }
  return Positive(num_devices);
}

absl::optional<int> FindNumRanks(const Program& main, const Program* startup, size_t num_programs) {
  for (const Program* program : {startup, &main}) {
    if (program == nullptr) continue;
    OpTraits traits(*program);
    for (const Op& op : BlockOps(*program, 0)) {
      if (!traits.Has(op, Trait::kRingSetup) || op.HasAttr(kGroupRanksAttr)) continue;
      const absl::optional<int> size = RingSize(op);
      if (size.has_value()) return size;
    }
  }
  if (num_programs > 1) return static_cast<int>(num_programs);
  const absl::optional<int> said = NumRanksOfAttrs(main);
  return said.has_value() ? said : NumRanksOfDivision(main);
}

}  // namespace weft
