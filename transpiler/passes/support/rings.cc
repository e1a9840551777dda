#include "transpiler/passes/support/rings.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"

namespace weft {

pb::VarDesc RingIdVar(const std::string& name) {
  pb::VarDesc var;
  var.set_name(name);
  var.mutable_type()->set_type(pb::VarType::RAW);
  var.set_persistable(true);
  var.set_stop_gradient(true);
  return var;
}

const RankGroup* FindGroup(const ParamAttrsByName& params, const std::string& param) {
  const auto attrs = params.find(param);
  const bool has_group = attrs != params.end() && attrs->second.group.has_value();
  return has_group ? &*attrs->second.group : nullptr;
}

absl::Status RefuseRingsInUse(const Program& startup, int nrings) {
  OpTraits traits(startup);
  for (OpId id : startup.block(0).ops()) {
    const Op op = startup.op(id);
    // An op with an output creates the id of a ring, not the ring.
    if (!traits.Has(op, Trait::kRingSetup) || !op.output_args().empty()) continue;
    const int64_t ring_id = op.IntAttr("ring_id").value_or(0);
    if (ring_id >= nrings) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("startup program: ", op.DebugName(), " already sets up ring ", ring_id));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RankGroup>> EqualGroups(const PassContext& context, int size) {
  WEFT_RETURN_IF_ERROR(RefuseGroups(context));
  const Cluster& cluster = context.target.cluster;
  const int nranks = cluster.nranks().value_or(0);
  if (cluster.has_endpoints() || cluster.devices().has_value() || nranks <= size ||
      nranks % size != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "option group_size: expected option:nranks, without endpoints and devices, and a multiple "
        "of ",
        size, " above it, found ",
        cluster.has_endpoints()         ? "endpoints"
        : cluster.devices().has_value() ? "devices"
        : nranks == 0                   ? "none"
                                        : absl::StrCat(nranks)));
  }
  std::vector<RankGroup> groups(nranks / size);
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].index = static_cast<int>(i);
    groups[i].name = absl::StrCat(i);
    for (int rank = 0; rank < size; ++rank) {
      groups[i].ranks.push_back(static_cast<int>(i) * size + rank);
    }
  }
  return groups;
}

absl::Status RefuseGroups(const PassContext& context) {
  const std::vector<RankGroup>& groups = context.target.groups;
  if (groups.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "group '", groups[0].name,
      "' of ranks: expected no groups, as this pass exchanges values between all ranks"));
}

}  // namespace weft
