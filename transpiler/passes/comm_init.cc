#include "transpiler/passes/comm_init.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/op_traits.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/passes/rings.h"
#include "transpiler/pipeline/facts.h"

namespace weft {
namespace {

absl::Status RefuseRingsInUse(const Program& startup, int nrings) {
  OpTraits traits(startup);
  for (OpId id : startup.block(0).ops()) {
    const Op op = startup.op(id);
    if (!traits.Has(op, Trait::kRingSetup) || op.type() == "c_gen_nccl_id") continue;
    const auto ring = op.FindAttr("ring_id");
    int64_t ring_id = 0;
    if (ring.has_value()) ring_id = ring->type() == pb::LONG ? ring->l() : ring->i();
    if (ring_id >= nrings) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("startup program: ", op.DebugName(), ": sets ring ", ring_id, " up already"));
  }
  return absl::OkStatus();
}

// nccl_id_0, nccl_id_1, ...: the first numbers that the program does not use, as Paddle counts.
class IdNames {
 public:
  explicit IdNames(const Program& program) : program_(program) {}
  std::string Next() {
    std::string name;
    do {
      name = absl::StrCat("nccl_id_", next_++);
    } while (program_.FindSymbol(name).valid());
    return name;
  }

 private:
  const Program& program_;
  int next_ = 0;
};

pb::VarDesc IdVar(const std::string& name) {
  pb::VarDesc var;
  var.set_name(name);
  var.mutable_type()->set_type(pb::VarType::RAW);
  var.set_persistable(true);
  var.set_stop_gradient(true);
  return var;
}

void AddRingOverEndpoints(const PassContext& context, int ring, const std::string& id,
                          Rewriter* rewriter) {
  const Participants& who = context.participants;
  rewriter->AddVar(0, IdVar(id));
  NewOp gen{"c_gen_nccl_id",
            {},
            {{"Out", {id}}},
            {{"rank", who.rank()},
             {"endpoint", who.current_endpoint()},
             {"other_endpoints", who.other_endpoints()}},
            kRoleForward};
  if (context.dialect == Dialect::kWeft) gen.attrs.push_back({"ring_id", ring});
  rewriter->Append(0, BuildOp(gen, context.dialect));
  rewriter->Append(0, BuildOp({"c_comm_init",
                               {{"X", {id}}},
                               {},
                               {{"nranks", *who.nranks()}, {"rank", who.rank()}, {"ring_id", ring}},
                               kRoleForward},
                              context.dialect));
}

}  // namespace

void CommInit::Options::Bind(OptionBinder& bind) { BindRings(bind, &nrings); }

const Contract& CommInit::contract() const {
  static const auto* contract = new Contract{{kRingsSetUp}, {}, {kRingsSetUp}};
  return *contract;
}

absl::StatusOr<bool> CommInit::Run(PassContext& context, ProgramPair& programs) const {
  const bool has_endpoints = context.participants.has_endpoints();
  if (context.dialect == Dialect::kPaddle && !has_endpoints) {
    return absl::InvalidArgumentError("the paddle dialect needs the endpoints of all ranks");
  }
  if (programs.startup == nullptr) return false;
  WEFT_RETURN_IF_ERROR(RefuseRingsInUse(*programs.startup, options_.nrings));
  Rewriter rewriter(programs.startup);
  IdNames names(*programs.startup);
  for (int ring = 0; ring < options_.nrings; ++ring) {
    if (has_endpoints) {
      AddRingOverEndpoints(context, ring, names.Next(), &rewriter);
    } else {
      rewriter.Append(0, BuildOp({"c_comm_init_all",
                                  {},
                                  {},
                                  {{"ring_id", ring}},
                                  kRoleForward,
                                  context.participants.nranks()},
                                 context.dialect));
    }
    if (context.notes != nullptr) {
      context.notes->push_back({std::string(kName),
                                absl::StrCat("ring ", ring),
                                "set up",
                                has_endpoints ? "over the endpoints" : "over all ranks of the run",
                                {}});
    }
  }
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return true;
}

}  // namespace weft
