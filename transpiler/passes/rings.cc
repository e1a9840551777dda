#include "transpiler/passes/rings.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "ops/analysis/op_traits.h"

namespace weft {

pb::VarDesc RingIdVar(const std::string& name) {
  pb::VarDesc var;
  var.set_name(name);
  var.mutable_type()->set_type(pb::VarType::RAW);
  var.set_persistable(true);
  var.set_stop_gradient(true);
  return var;
}

absl::Status RefuseRingsInUse(const Program& startup, int nrings) {
  OpTraits traits(startup);
  for (OpId id : startup.block(0).ops()) {
    const Op op = startup.op(id);
    // What has an output makes the id for a ring, not the ring.
    if (!traits.Has(op, Trait::kRingSetup) || !op.output_args().empty()) continue;
    const auto ring = op.FindAttr("ring_id");
    int64_t ring_id = 0;
    if (ring.has_value()) ring_id = ring->type() == pb::LONG ? ring->l() : ring->i();
    if (ring_id >= nrings) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("startup program: ", op.DebugName(), ": sets ring ", ring_id, " up already"));
  }
  return absl::OkStatus();
}

}  // namespace weft
