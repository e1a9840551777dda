#include "transpiler/passes/paddle/paddle_comm_init.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/paddle/paddle_ops.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"

namespace weft {
namespace {

using Over = PaddleCommInit::Over;

// The communication library of a kind of device, as in names of ops and variables.
const char* Library(TargetDevice kind) {
  switch (kind) {
    case TargetDevice::kXpu:
      return "bkcl";
    case TargetDevice::kCustom:
      return "xccl";
    default:
      return "nccl";
  }
}

bool ConnectsSeveral(Over over, const Cluster& who) {
  if (over == Over::kRanks) return true;
  return over == Over::kHosts ? who.hosts() > 1 : who.endpoints().size() > 1;
}

NewOp GenId(TargetDevice kind, const Cluster& who, const std::string& id) {
  return {absl::StrCat("c_gen_", Library(kind), "_id"),
          {},
          {{"Out", {id}}},
          {{"rank", who.rank()},
           {"endpoint", who.current_endpoint()},
           {"other_endpoints", who.other_endpoints()}},
          kRoleForward};
}

NewOp JoinRing(TargetDevice kind, Over over, const Cluster& who, const std::string& id, int ring) {
  const int trainers = static_cast<int>(who.endpoints().size());
  if (kind == TargetDevice::kCuda && over != Over::kRanks) {
    return {"c_comm_init_multitrainer",
            {{"X", {id}}},
            {},
            {{"ntrainers", trainers}, {"trainer_id", who.rank()}, {"ring_id", ring}},
            kRoleForward};
  }
  NewOp op{"c_comm_init",
           {{"X", {id}}},
           {},
           {{"nranks", trainers}, {"rank", who.rank()}, {"ring_id", ring}},
           kRoleForward};
  if (kind != TargetDevice::kCuda) {
    op.attrs.push_back({"endpoints", absl::StrJoin(who.endpoints(), ",")});
  }
  return op;
}

}  // namespace

void PaddleCommInit::Options::Bind(OptionBinder& bind) {
  BindRings(bind, &nrings);
  bind.Choice("over", &over, "what a ring connects",
              {{"ranks", Over::kRanks}, {"trainers", Over::kTrainers}, {"hosts", Over::kHosts}});
  bind.Bool("list_devices", &list_devices, "a single trainer lists its devices");
}

Contract PaddleCommInit::contract() const { return Contract().ProvidesOnce(kRingsSetUp); }

absl::StatusOr<bool> PaddleCommInit::Run(const PassContext& context, ProgramPair& programs) const {
  const Cluster& who = context.target.cluster;
  if (!who.has_endpoints()) {
    return absl::InvalidArgumentError(
        "the paddle dialect needs the endpoints of all ranks (option:endpoints)");
  }
  if (options_.list_devices) WEFT_RETURN_IF_ERROR(RequireDevices(context));
  if (programs.startup == nullptr) return false;
  const bool several = ConnectsSeveral(options_.over, who);
  const TargetDevice kind = context.target.device_kind;
  if (kind == TargetDevice::kCpu) {
    if (several) return false;
    return absl::UnimplementedError(
        "expected endpoints of several trainers or hosts, as Paddle has no kernel on the CPU for "
        "c_comm_init_all, which sets up the ring of a single one; Paddle's transpiler throws");
  }
  const int nrings = several ? options_.nrings : 1;
  WEFT_RETURN_IF_ERROR(RefuseRingsInUse(*programs.startup, nrings));
  Rewriter rewriter(programs.startup);
  const auto append = [&](const NewOp& op) { rewriter.Append(0, BuildOp(op, Dialect::kPaddle)); };
  UniqueNames names(*programs.startup);
  for (int ring = 0; ring < nrings; ++ring) {
    if (several) {
      const std::string id = names.Next(absl::StrCat(Library(kind), "_id"));
      rewriter.AddVar(0, RingIdVar(id));
      append(GenId(kind, who, id));
      append(JoinRing(kind, options_.over, who, id, ring));
    } else {
      NewOp op{"c_comm_init_all", {}, {}, {{"ring_id", ring}}, kRoleForward};
      if (options_.list_devices) op.attrs.push_back({"devices", *who.devices()});
      append(op);
    }
    context.sink.Explain(kName, absl::StrCat("ring ", ring), "set up",
                         several ? "over the endpoints" : "over the devices of the trainer");
  }
  return CommitEdits(&rewriter);
}

}  // namespace weft
