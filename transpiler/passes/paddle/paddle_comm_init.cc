#include "transpiler/passes/paddle/paddle_comm_init.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/facts.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/passes/paddle/paddle_ops.h"
#include "transpiler/passes/rings.h"
#include "transpiler/passes/unique_names.h"

namespace weft {
namespace {

using DeviceKind = PaddleCommInit::DeviceKind;
using Over = PaddleCommInit::Over;

// The library that connects devices of a kind, as names of ops and variables have it.
const char* Library(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCuda:
      return "nccl";
    case DeviceKind::kXpu:
      return "bkcl";
    case DeviceKind::kCustom:
      return "xccl";
  }
  return "";
}

bool JoinsSeveral(Over over, const Cluster& who) {
  switch (over) {
    case Over::kRanks:
      return true;
    case Over::kTrainers:
      return who.endpoints().size() > 1;
    case Over::kHosts:
      return who.hosts() > 1;
  }
  return true;
}

NewOp GenId(DeviceKind kind, const Cluster& who, const std::string& id) {
  return {absl::StrCat("c_gen_", Library(kind), "_id"),
          {},
          {{"Out", {id}}},
          {{"rank", who.rank()},
           {"endpoint", who.current_endpoint()},
           {"other_endpoints", who.other_endpoints()}},
          kRoleForward};
}

NewOp JoinRing(const PaddleCommInit::Options& options, const Cluster& who, const std::string& id,
               int ring) {
  const int trainers = static_cast<int>(who.endpoints().size());
  if (options.device_kind == DeviceKind::kCuda && options.over != Over::kRanks) {
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
  if (options.device_kind != DeviceKind::kCuda) {
    op.attrs.push_back({"endpoints", absl::StrJoin(who.endpoints(), ",")});
  }
  return op;
}

}  // namespace

void PaddleCommInit::Options::Bind(OptionBinder& bind) {
  BindRings(bind, &nrings);
  bind.Choice("over", &over, "what a ring connects",
              {{"ranks", Over::kRanks}, {"trainers", Over::kTrainers}, {"hosts", Over::kHosts}});
  bind.Choice(
      "device_kind", &device_kind, "communication library",
      {{"cuda", DeviceKind::kCuda}, {"xpu", DeviceKind::kXpu}, {"custom", DeviceKind::kCustom}});
  bind.Bool("list_devices", &list_devices, "a trainer alone names its devices");
}

Contract PaddleCommInit::contract() const {
  return Contract().Provides(kRingsSetUp).ConflictsWith(kRingsSetUp);
}

absl::StatusOr<bool> PaddleCommInit::Run(PassContext& context, ProgramPair& programs) const {
  const Cluster& who = context.cluster;
  if (!who.has_endpoints()) {
    return absl::InvalidArgumentError("the paddle dialect needs the endpoints of all ranks");
  }
  if (options_.list_devices) WEFT_RETURN_IF_ERROR(RequireDevices(context));
  if (programs.startup == nullptr) return false;
  const bool several = JoinsSeveral(options_.over, who);
  const int nrings = several ? options_.nrings : 1;
  WEFT_RETURN_IF_ERROR(RefuseRingsInUse(*programs.startup, nrings));
  Rewriter rewriter(programs.startup);
  const auto append = [&](const NewOp& op) { rewriter.Append(0, BuildOp(op, Dialect::kPaddle)); };
  UniqueNames names(*programs.startup);
  for (int ring = 0; ring < nrings; ++ring) {
    if (several) {
      const std::string id = names.Next(absl::StrCat(Library(options_.device_kind), "_id"));
      rewriter.AddVar(0, RingIdVar(id));
      append(GenId(options_.device_kind, who, id));
      append(JoinRing(options_, who, id, ring));
    } else {
      NewOp op{"c_comm_init_all", {}, {}, {{"ring_id", ring}}, kRoleForward};
      if (options_.list_devices) op.attrs.push_back({"devices", *who.devices()});
      append(op);
    }
    if (context.remarks != nullptr) {
      context.remarks->push_back(
          {std::string(kName),
           absl::StrCat("ring ", ring),
           "set up",
           several ? "over the endpoints" : "over the devices of the trainer",
           {}});
    }
  }
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return true;
}

}  // namespace weft
