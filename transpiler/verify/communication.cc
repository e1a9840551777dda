#include "transpiler/verify/communication.h"

#include <set>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/num_ranks.h"
#include "ops/analysis/op_traits.h"
#include "ops/analysis/updates.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/tensor_type.h"
#include "transpiler/verify/example_program.h"
#include "transpiler/verify/reporter.h"

namespace weft {
namespace {

constexpr char kOwnWhenTrainingBegins[] =
    "itself is own to each rank when training begins: the startup program does not broadcast it";

class CollectiveChecker {
 public:
  CollectiveChecker(const Program& program, absl::optional<int> nranks, ProgramRef ref,
                    Findings* findings)
      : program_(program),
        traits_(program),
        nranks_(nranks),
        reporter_(CommunicationRules(), ref, findings),
        has_nranks_(program.num_layouts(), -1) {}

  // Rings that the startup program sets up are there for the main program.
  void AddRings(const Program& startup) {
    OpTraits traits(startup);
    for (OpId id : startup.block(0).ops()) {
      const Op op = startup.op(id);
      if (traits.Has(op, Trait::kRingSetup)) AddRing(op);
    }
    knows_rings_ = true;
  }
  // Rings have to be set up by this program, before they are used.
  void ExpectRings() { knows_rings_ = true; }

  void Check() {
    for (int block = 0; block < program_.num_blocks(); ++block) {
      for (OpId id : program_.block(block).ops()) {
        const Op op = program_.op(id);
        CheckNumRanks(op);
        if (traits_.Has(op, Trait::kRingSetup)) {
          AddRing(op);
          CheckOwnRank(op);
        }
        if (traits_.Has(op, Trait::kStreamSync)) CheckRing(op);
        if (!traits_.Has(op, Trait::kCollective)) continue;
        CheckRing(op);
        CheckCollective(op, *FindCollectiveOp(op.type()));
      }
    }
  }

 private:
  // Ops that make something exchange ids, before the ring is there.
  void AddRing(const Op& op) {
    if (op.output_args().empty()) rings_.insert(op.IntAttr("ring_id").value_or(0));
  }

  // The size of a ring that is said by devices, and the rank that joins it.
  void CheckOwnRank(const Op& op) {
    const absl::optional<int> size = RingSize(op);
    if (size.has_value() && nranks_.has_value() && *size != *nranks_ &&
        !op.HasAttr(kNumRanksAttr)) {
      Report("W302", op, "",
             absl::StrCat(": expected a ring of ", *nranks_, ", the number of ranks, found one of ",
                          *size));
    }
    if (!op.HasAttr("rank") || !op.HasAttr(kNumRanksAttr)) return;
    const int64_t rank = op.IntAttr("rank").value_or(0);
    const int64_t nranks = op.IntAttr(kNumRanksAttr).value_or(0);
    if (rank >= 0 && rank < nranks) return;
    Report(
        "W303", op, "",
        absl::StrCat(" attribute rank: expected 0 or more and below ", nranks, ", found ", rank));
  }

  void Report(const char* rule, const Op& op, absl::string_view variable,
              absl::string_view message) {
    reporter_.Add(rule, op.id(), variable, [&] { return absl::StrCat(op.DebugName(), message); });
  }

  void CheckRing(const Op& op) {
    if (!knows_rings_) return;
    if (traits_.Has(op, Trait::kStreamSync) && !op.HasAttr("ring_id")) {
      if (FindStreamSyncOp(op.type()) == StreamSync::kAllWaitForCompute) return;
    }
    const int64_t ring = op.IntAttr("ring_id").value_or(0);
    if (rings_.count(ring) > 0) return;
    Report("W301", op, "",
           absl::StrCat(": uses ring ", ring,
                        ", which no op of the startup program sets up; expected c_comm_init or "
                        "c_comm_init_all with ring_id ",
                        ring));
  }

  void CheckNumRanks(const Op& op) {
    if (!nranks_.has_value()) return;
    char& has = has_nranks_[op.layout_id()];
    if (has < 0) has = op.HasAttr(kNumRanksAttr) ? 1 : 0;
    if (has == 0) return;
    const int64_t nranks = op.IntAttr(kNumRanksAttr).value_or(0);
    if (nranks == *nranks_) return;
    Report("W302", op, "",
           absl::StrCat(" attribute nranks: expected ", *nranks_, ", the number of ranks, found ",
                        nranks));
  }

  void CheckCollective(const Op& op, const CollectiveOp& collective) {
    if (!collective.root_attr.empty()) {
      const int64_t root = op.IntAttr(collective.root_attr).value_or(0);
      if (root < 0 || (nranks_.has_value() && root >= *nranks_)) {
        Report("W303", op, "",
               absl::StrCat(" attribute ", collective.root_attr, ": expected a rank, 0 or more",
                            nranks_.has_value() ? absl::StrCat(" and below ", *nranks_) : "",
                            ", found ", root));
      }
    }
    const bool reduces = collective.kind == CollectiveKind::kAllReduce ||
                         collective.kind == CollectiveKind::kReduce ||
                         collective.kind == CollectiveKind::kReduceScatter;
    const bool resizes = collective.kind == CollectiveKind::kAllGather ||
                         collective.kind == CollectiveKind::kReduceScatter;
    const absl::Span<const Symbol> out = op.Output("Out");
    for (Symbol name : op.Input("X")) {
      const VarId var = program_.block(op.block()).Resolve(name);
      if (!var.valid()) continue;
      const std::string variable(program_.name(name));
      const absl::optional<TensorType> type = DeclaredType(program_.var(var));
      if (type.has_value() && reduces && !CanReduce(type->dtype)) {
        Report("W304", op, variable,
               absl::StrCat(" input X (", variable, "): expected numbers that can be ",
                            "reduced, found ", DTypeName(type->dtype)));
      }
      const bool sums =
          collective.kind == CollectiveKind::kAllReduce &&
          (collective.reduction == Reduction::kSum || collective.reduction == Reduction::kAvg);
      if (type.has_value() && type->layout == TensorType::Layout::kSelectedRows && !sums) {
        Report("W306", op, variable,
               absl::StrCat(" input X (", variable,
                            "): expected a dense tensor, found SelectedRows, of which ranks have "
                            "different numbers"));
      }
      if (resizes && !out.empty() && out[0] == name) {
        Report("W305", op, variable,
               absl::StrCat(" output Out: expected another variable than X (", variable,
                            "), as it has another shape"));
      }
    }
  }

  static bool CanReduce(DType dtype) {
    switch (dtype) {
      case DType::kBool:
      case DType::kInt16:
      case DType::kComplex64:
      case DType::kComplex128:
        return false;
      default:
        return true;
    }
  }

  const Program& program_;
  OpTraits traits_;
  const absl::optional<int> nranks_;
  Reporter reporter_;
  std::vector<char> has_nranks_;  // by layout; -1: not looked yet
  bool knows_rings_ = false;
  std::set<int64_t> rings_;
};

}  // namespace

void CheckCollectives(const Program& program, const Program* startup, absl::optional<int> nranks,
                      ProgramRef ref, Findings* findings) {
  CollectiveChecker checker(program, nranks, ref, findings);
  if (ref.is_startup) checker.ExpectRings();
  if (startup != nullptr) checker.AddRings(*startup);
  checker.Check();
}

UpdateChecker::UpdateChecker(const Program& program, std::set<std::string> distributed_params,
                             const absl::flat_hash_map<std::string, RankValue>* start,
                             ProgramRef ref)
    : program_(program),
      distributed_params_(std::move(distributed_params)),
      start_(start),
      ref_(ref) {}

void UpdateChecker::OnUpdate(const Op& op, const RankValue& param, const RankValue& grad) {
  uint32_t index = 0;
  if (!updates_.empty() && updates_.back().op == op.id()) index = updates_.back().index + 1;
  updates_.push_back({op.id(), index, param, grad});
}

void UpdateChecker::Check(const RankValues& values, Findings* findings) const {
  Reporter reporter(CommunicationRules(), ref_, findings);
  std::set<VarId> updated;
  absl::optional<RankDivergence> divergence;  // where it is needed
  for (const Update& update : updates_) {
    CheckUpdate(update, values, &divergence, &reporter);
    const Op op = program_.op(update.op);
    updated.insert(program_.block(op.block()).Resolve(op.Input("Param")[update.index]));
  }
  // Whatever the optimizer keeps of its own goes the way of the parameter.
  for (const ParamUpdate& update : FindUpdates(program_)) {
    for (Symbol state : update.states) updated.insert(program_.block(0).FindVar(state));
  }
  // Running statistics are called parameters, too, and may be own to each rank.
  for (Symbol statistic : FindRunningStatistics(program_)) {
    updated.insert(program_.block(0).FindVar(statistic));
  }
  // Parameters that something else than an optimizer writes.
  for (VarId id : program_.block(0).vars()) {
    const Var var = program_.var(id);
    const RankValue& end = values.AtEnd(id);
    if (!var.is_parameter() || !values.IsWritten(id) || updated.count(id) > 0) continue;
    if (end.IsSame() || end.has_met || distributed_params_.count(std::string(var.name())) > 0) {
      continue;
    }
    reporter.Add("W310", end.bent_by, var.name(), [&] {
      return absl::StrCat("parameter ", var.name(), " is ", ToString(end.place),
                          " after a step: what it is updated by is never reduced");
    });
  }
}

void UpdateChecker::CheckUpdate(const Update& update, const RankValues& values,
                                absl::optional<RankDivergence>* divergence,
                                Reporter* reporter) const {
  const Op op = program_.op(update.op);
  const Symbol param_name = op.Input("Param")[update.index];
  const std::string param(program_.name(param_name));
  if (distributed_params_.count(param) > 0) return;
  const std::string grad(program_.name(op.Input("Grad")[update.index]));
  const VarId var = program_.block(op.block()).Resolve(param_name);
  const RankValue& value = update.grad;

  const auto report = [&](const char* rule, absl::FunctionRef<std::string()> why) {
    const auto message = [&] {
      return absl::StrCat(op.DebugName(), " updates ", param, " by ", grad, ", ", why());
    };
    reporter->Add(rule, update.op, grad, message, value.bent_by);
  };
  using Place = RankValue::Place;
  // LocalSGD: ranks go on by themselves until parameters are averaged.
  const bool meets = var.valid() && values.AtEnd(var).has_met;
  if (value.place == Place::kLocal) {
    if (meets) {
      if (IsOwnAtFirst(param)) {
        report("W317", [&] { return absl::StrCat("but the parameter ", kOwnWhenTrainingBegins); });
      }
      if (value.power != 0 && !value.is_zero) {
        report("W314", [&]() -> std::string {
          return "which is divided by the number of ranks, although each rank updates by its own";
        });
      }
      return;
    }
    if (value.bent_by.valid()) {
      return report("W310", [&]() -> std::string {
        return absl::StrCat("which is own to each rank: it is never reduced, and ",
                            program_.op(value.bent_by).DebugName(), " is not linear in it");
      });
    }
    return report(
        "W310", [&]() -> std::string { return "which is own to each rank: it is never reduced"; });
  }
  if (value.place == Place::kShard && update.param.place != Place::kShard) {
    return report("W311", [&]() -> std::string {
      return "of which each rank has a part, where the parameter is whole";
    });
  }
  if (!value.IsSame()) return;
  if (value.place == Place::kOfRanks || value.place == Place::kGathered) {
    return report("W311", [&]() -> std::string {
      return value.rank >= 0 ? absl::StrCat("the gradient of rank ", value.rank,
                                            " alone; expected the mean over all ranks")
                             : absl::StrCat("which is not the mean over all ranks, but ",
                                            ToString(value.place));
    });
  }
  if (value.bent_by.valid()) {
    return report("W313", [&]() -> std::string {
      return absl::StrCat("which is reduced after ", program_.op(value.bent_by).DebugName(),
                          ", which is not linear in it; expected the mean over all "
                          "ranks before that");
    });
  }
  if (value.is_zero) return;
  if (value.power > 0 && value.reductions > 1) {
    return report("W312", [&]() -> std::string {
      return absl::StrCat("which is summed over the ranks ", value.power,
                          " times more often than it is divided by their number: it "
                          "goes through ",
                          value.reductions, " collectives");
    });
  }
  if (value.power > 0) {
    return report("W312", [&]() -> std::string {
      return "which is the sum over the ranks, and never divided by their number: as many "
             "times too large";
    });
  }
  if (value.power < 0) {
    return report("W314", [&]() -> std::string {
      return absl::StrCat("which is divided by the number of ranks ", -value.power,
                          " times more often than it is summed over them");
    });
  }
  if (value.unscaled_in.valid()) {
    return report("W313", [&]() -> std::string {
      return absl::StrCat("which is divided by the number of ranks after ",
                          program_.op(value.unscaled_in).DebugName(),
                          ", which is not linear in it; expected that before");
    });
  }
  if (value.is_mixed) {
    return report("W315", [&]() -> std::string {
      return "which adds what is divided by the number of ranks, or reduced, to what is not";
    });
  }
  if (value.reductions > 1) {
    report("W316", [&]() -> std::string {
      return absl::StrCat("which goes through ", value.reductions, " collectives; one is enough");
    });
  }
  if (value.place == Place::kReplicated && var.valid() &&
      values.AtStart(var).place == Place::kLocal && !meets) {
    ReportOwnParameter(update, values, divergence, reporter);
  }
}

// The gradient is the same on all ranks, but not what it is added to.
void UpdateChecker::ReportOwnParameter(const Update& update, const RankValues& values,
                                       absl::optional<RankDivergence>* divergence,
                                       Reporter* reporter) const {
  const Op op = program_.op(update.op);
  const Symbol param = op.Input("Param")[update.index];
  const Symbol grad = op.Input("Grad")[update.index];
  RankDivergence::Cause cause;
  if (!IsOwnAtFirst(program_.name(param))) {
    if (!divergence->has_value()) divergence->emplace(program_, values);
    cause = (*divergence)->Of(program_.block(op.block()).Resolve(param));
  }
  const auto message = [&] {
    const std::string start = absl::StrCat(op.DebugName(), " updates ", program_.name(param),
                                           " by ", program_.name(grad), ", but the parameter ");
    if (!cause.op.valid()) return absl::StrCat(start, kOwnWhenTrainingBegins);
    const std::string name = program_.op(cause.op).DebugName();
    const std::string becomes = absl::StrCat(start, "itself becomes own to each rank in a step: ");
    if (!cause.variable.valid()) return absl::StrCat(becomes, name, " makes it so");
    const absl::string_view own = program_.name(cause.variable);
    return cause.is_condition ? absl::StrCat(becomes, name, " runs its block on condition ", own,
                                             ", which is own to each rank")
                              : absl::StrCat(becomes, name, " computes it from ", own,
                                             ", which is own to each rank");
  };
  reporter->Add("W317", update.op, program_.name(grad), message, cause.op);
}

bool UpdateChecker::IsOwnAtFirst(absl::string_view param) const {
  if (start_ == nullptr) return false;
  const auto start = start_->find(param);
  return start != start_->end() && !start->second.IsSame();
}

namespace {

constexpr Rule kRules[] = {
    {"W301", Severity::kError, "a collective uses a ring that is not set up",
     "The collective fails, or waits for ever. Every ring that the main program uses needs ring "
     "set-up ops in the startup program.",
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=1, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END,
     nullptr,
     R"(program {
  block 0 parent=-1 {
    var w : fp32[1, 1] parameter persistable
    Out=[w] = fill_constant() {shape=longs[1, 1], dtype=5, value=1.0}
    c_comm_init_all() {ring_id=0}
  }
})"},
    {"W302", Severity::kError, "an op is written for another number of ranks",
     "Gradients would be divided by the wrong number, or buffers have the wrong size. Transpile "
     "again, for the number of ranks of the run.",
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD
     R"(    Out=[y@GRAD] = scale(X=[y@GRAD]) role=backward {scale=0.25, nranks=4}
)" WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W303", Severity::kError,
     "the root of a collective, or the rank that joins a ring, is no rank",
     "Nobody sends, or somebody is missing: all wait for ever.",
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
    Out=[w@GRAD] = c_broadcast(X=[w@GRAD]) {ring_id=0, root=2, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W304", Severity::kError, "a reduction of elements that cannot be reduced",
     "Collective libraries do not add booleans, 16-bit integers and complex numbers.",
     WEFT_EXAMPLE_VARS
     R"(    var flag : bool[1] persistable
)" WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
    Out=[flag] = c_allreduce_max(X=[flag]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W305", Severity::kError, "a collective that changes the shape works in place",
     "The result is larger, or smaller, than the variable that it is written to.",
     WEFT_EXAMPLE_VARS
     R"(    var stats : fp32[4] persistable
)" WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
    Out=[stats] = c_allgather(X=[stats]) {nranks=2, ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W306", Severity::kError, "a collective that takes dense tensors only is given SelectedRows",
     "Ranks have different rows, and different numbers of them. Sums and means of rows over all "
     "ranks are known; anything else needs a dense tensor.",
     WEFT_EXAMPLE_VARS
     R"(    var rows : selected_rows<fp32[4, 1]> persistable
)" WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
    Out=[rows] = c_broadcast(X=[rows]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W310", Severity::kError, "a parameter is updated by a gradient that was never reduced",
     "Ranks would drift apart without a word. Parameters that ranks hold parts of are to be named "
     "as distributed; parameters that are averaged later (LocalSGD) are fine.",
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD WEFT_EXAMPLE_UPDATE
         WEFT_EXAMPLE_END},
    {"W311", Severity::kError, "a parameter is updated by the gradient of some ranks only",
     "What the other ranks have learned is lost.",
     WEFT_EXAMPLE_VARS
     R"(    var all : fp32[2, 1]
    var other : fp32[1, 1]
)" WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[all] = c_allgather(X=[w@GRAD]) {nranks=2, ring_id=0, use_calc_stream=true}
    Out=[w@GRAD, other] = split(X=[all]) {num=2, axis=0}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W312", Severity::kError, "a gradient is summed over the ranks, but not divided",
     "The step is as many times too large as there are ranks, or as their power where it is "
     "reduced "
     "twice. Adaptive optimizers hide it.",
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W313", Severity::kError,
     "a gradient is reduced, or divided, after an op that is not linear in it",
     "Clipping, norms and optimizers give something else on the gradient of one rank than on the "
     "mean of all: reduce before them.",
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = clip_by_norm(X=[w@GRAD]) {max_norm=1.0}
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W314", Severity::kError, "a gradient is divided by the number of ranks too often",
     "The step is too small.",
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD
     R"(    Out=[y@GRAD] = scale(X=[y@GRAD]) role=backward {scale=0.5, nranks=2}
)" WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W315", Severity::kError,
     "a gradient adds parts that are divided, or reduced, to parts that are not",
     "A part of the gradient counts too much: a regularization term added before the sum over "
     "ranks, or an accumulated gradient that is reduced again in every step.",
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD
     R"(    Out=[y@GRAD] = scale(X=[y@GRAD]) role=backward {scale=0.5, nranks=2}
)" WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = sum(X=[w@GRAD, w])
    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W316", Severity::kWarning, "a gradient is reduced twice, to no effect",
     "The second collective averages what is the same on all ranks already.",
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END},
    {"W317", Severity::kError,
     "parameters are not the same on all ranks when training begins, or do not stay so",
     "Equal updates of different parameters keep them different. Broadcast them in the startup "
     "program; compute learning rates, and conditions on which parameters are updated, from what "
     "is the same on all ranks.",
     WEFT_EXAMPLE_VARS WEFT_EXAMPLE_LOSS_GRAD
     R"(    Out=[y@GRAD] = scale(X=[y@GRAD]) role=backward {scale=0.5, nranks=2}
)" WEFT_EXAMPLE_BACKWARD
     R"(    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0, use_calc_stream=true}
)" WEFT_EXAMPLE_UPDATE WEFT_EXAMPLE_END,
     nullptr,
     R"(program {
  block 0 parent=-1 {
    var w : fp32[1, 1] parameter persistable
    var id : raw
    Out=[w] = uniform_random() {shape=longs[1, 1], dtype=5, min=-1.0, max=1.0}
    Out=[id] = c_gen_nccl_id() {endpoint="10.0.0.1:6170", other_endpoints=strings["10.0.0.2:6170"], rank=0}
    c_comm_init(X=[id]) {nranks=2, rank=0, ring_id=0}
  }
})"},
};

}  // namespace

absl::Span<const Rule> CommunicationRules() { return kRules; }

}  // namespace weft
