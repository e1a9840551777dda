#include "transpiler/passes/local_sgd.h"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "ops/analysis/updates.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/fused_buffer.h"
#include "transpiler/passes/local_gradients.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/passes/reduction_problems.h"
#include "transpiler/passes/rings.h"
#include "transpiler/pipeline/facts.h"

namespace weft {
namespace {

// What happens where ranks meet.
struct Meeting {
  std::vector<FusedTensors> averaged;                      // by element type
  std::vector<std::pair<std::string, std::string>> casts;  // from master weight to parameter
  std::vector<std::pair<std::string, pb::OpDesc>> resets;  // state, the op that makes it
};

// Collects what is to be averaged: each variable once.
class Collector {
 public:
  Collector(const Program& program, const std::set<std::string>& distributed_params)
      : program_(program), distributed_params_(distributed_params) {}

  bool IsDistributed(Symbol param) const {
    return distributed_params_.count(std::string(program_.name(param))) > 0;
  }

  absl::Status Average(Symbol symbol) {
    const std::string name(program_.name(symbol));
    if (!seen_.insert(name).second) return absl::OkStatus();
    const VarId var = program_.block(0).FindVar(symbol);
    const absl::optional<TensorType> type =
        var.valid() ? DeclaredType(program_.var(var)) : absl::nullopt;
    if (!type.has_value() || type->layout != TensorType::Layout::kDense ||
        !IsFloating(type->dtype) || NumElements(type->dims) < 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "variable ", name, ": expected a dense floating-point tensor of a known shape, found ",
          type.has_value() ? ToString(*type) : "none"));
    }
    FusedTensors& group = groups_[type->dtype];
    group.dtype = type->dtype;
    group.names.push_back(name);
    group.dims.push_back(type->dims);
    return absl::OkStatus();
  }

  // Element types in the order of their numbers.
  std::vector<FusedTensors> Take() {
    std::vector<FusedTensors> all;
    for (auto& [dtype, group] : groups_) all.push_back(std::move(group));
    return all;
  }

 private:
  const Program& program_;
  const std::set<std::string>& distributed_params_;
  std::set<std::string> seen_;
  std::map<DType, FusedTensors> groups_;
};

// The op of the startup program that makes a state, to make it again in the main program.
absl::StatusOr<pb::OpDesc> InitializerOf(const Program* startup, const std::string& state) {
  if (startup == nullptr) {
    return absl::FailedPreconditionError(
        "state reset makes states again as the startup program does; give it");
  }
  const Symbol symbol = startup->FindSymbol(state);
  const auto refuse = [&](absl::string_view found) {
    return absl::FailedPreconditionError(absl::StrCat(
        "state ", state,
        ": expected one op of the startup program that makes it from nothing, found ", found));
  };
  if (!symbol.valid()) return refuse("none");
  OpId maker;
  for (OpId id : startup->block(0).ops()) {
    for (Symbol out : startup->op(id).output_args()) {
      if (out != symbol) continue;
      if (maker.valid() && maker != id) return refuse("several");
      maker = id;
    }
  }
  if (!maker.valid()) return refuse("none");
  const Op op = startup->op(maker);
  if (!op.input_args().empty() || op.output_args().size() != 1) {
    return refuse(op.DebugName());
  }
  pb::OpDesc desc = op.ToProto();
  for (pb::OpDesc::Attr& attr : *desc.mutable_attrs()) {
    if (attr.name() == kOpRoleAttr) attr.set_i(kRoleOptimize);
  }
  return desc;
}

absl::StatusOr<Meeting> Plan(const ProgramPair& programs, const PassContext& context,
                             const LocalSgd::Options& options) {
  const Program& main = *programs.main;
  WEFT_RETURN_IF_ERROR(CheckDistributedParams(main, context.distributed_params));
  Collector collector(main, context.distributed_params);
  Meeting meeting;
  bool any = false;
  for (const ParamUpdate& update : FindUpdates(main)) {
    if (collector.IsDistributed(update.param)) continue;
    any = true;
    WEFT_RETURN_IF_ERROR(collector.Average(update.master.valid() ? update.master : update.param));
    if (update.master.valid()) {
      meeting.casts.push_back(
          {std::string(main.name(update.master)), std::string(main.name(update.param))});
    }
    for (Symbol state : update.states) {
      if (options.state == LocalSgd::State::kAverage) {
        WEFT_RETURN_IF_ERROR(collector.Average(state));
      } else if (options.state == LocalSgd::State::kReset) {
        const std::string name(main.name(state));
        WEFT_ASSIGN_OR_RETURN(pb::OpDesc op, InitializerOf(programs.startup, name));
        meeting.resets.push_back({name, std::move(op)});
      }
    }
  }
  for (Symbol param : FindManuallyUpdatedParams(main)) {
    if (collector.IsDistributed(param)) continue;
    any = true;
    WEFT_RETURN_IF_ERROR(collector.Average(param));
  }
  if (!any) {
    return absl::FailedPreconditionError(
        "no op updates a replicated parameter: there is nothing to average");
  }
  if (options.statistics) {
    for (Symbol symbol : FindRunningStatistics(main)) {
      WEFT_RETURN_IF_ERROR(collector.Average(symbol));
    }
  }
  meeting.averaged = collector.Take();
  return meeting;
}

// Appends to one block.
class Writer {
 public:
  Writer(const Program& program, absl::optional<int> nranks, int block, Rewriter* rewriter)
      : program_(program), nranks_(nranks), block_(block), rewriter_(*rewriter) {}

  void Average(const FusedTensors& tensors, int ring) {
    std::vector<std::string> names = tensors.names;
    if (tensors.names.size() > 1) {
      const pb::VarDesc buffer = FusedBuffer(program_, tensors, "local_sgd_buffer", &next_buffer_);
      rewriter_.AddVar(block_, buffer);
      rewriter_.Append(block_, Coalesce(tensors, buffer.name(), /*copy=*/true, kRoleOptimize));
      names.push_back(buffer.name());
    }
    const std::vector<std::string> all = {names.back()};
    Append("c_wait_compute", names, {{"ring_id", ring}});
    Append(nranks_.has_value() ? "c_allreduce_sum" : "c_allreduce_avg", all,
           {{"ring_id", ring}, {"use_calc_stream", false}});
    waits_.push_back([this, names, ring] { Append("c_wait_comm", names, {{"ring_id", ring}}); });
    if (!nranks_.has_value()) return;
    waits_.push_back([this, all] {
      Append("scale", all, {{"scale", static_cast<float>(1.0 / *nranks_)}}, nranks_);
    });
  }

  // Reductions of different element types run beside each other.
  void WaitForAll() {
    for (const auto& wait : waits_) wait();
    waits_.clear();
  }

  void Cast(const std::string& from, const std::string& to, DType from_type, DType to_type) {
    rewriter_.Append(block_, BuildOp({"cast",
                                      {{"X", {from}}},
                                      {{"Out", {to}}},
                                      {{"in_dtype", static_cast<int>(from_type)},
                                       {"out_dtype", static_cast<int>(to_type)}},
                                      kRoleOptimize},
                                     Dialect::kWeft));
  }

 private:
  void Append(const std::string& type, const std::vector<std::string>& names,
              std::vector<std::pair<std::string, AttrValue>> attrs,
              absl::optional<int> nranks = absl::nullopt) {
    rewriter_.Append(
        block_,
        BuildOp({type, {{"X", names}}, {{"Out", names}}, std::move(attrs), kRoleOptimize, nranks},
                Dialect::kWeft));
  }

  const Program& program_;
  const absl::optional<int> nranks_;
  const int block_;
  Rewriter& rewriter_;
  std::vector<std::function<void()>> waits_;
  int next_buffer_ = 0;
};

// The step counter and the condition of the meeting.
class Schedule {
 public:
  Schedule(const ProgramPair& programs, Rewriter* main, Rewriter* startup)
      : programs_(programs), main_(*main), startup_(*startup) {}

  // Gives the name of the condition.
  std::string Write(const LocalSgd::Options& options) {
    const std::string step = Declare("local_sgd_step", pb::VarType::INT64, /*persistable=*/true);
    const pb::OpDesc zero = Fill(step, 0, kRoleForward);
    startup_.AddVar(0, VarOf(step, pb::VarType::INT64, true));
    startup_.Append(0, zero);
    Append("increment", {{"X", {step}}}, step, {{"step", 1.0f}});

    const std::string k = Constant("local_sgd_k", options.k_steps);
    const std::string rest = Declare("local_sgd_rest", pb::VarType::INT64);
    Append("elementwise_mod", {{"X", {step}}, {"Y", {k}}}, rest, {{"axis", -1}});
    const std::string none = Constant("local_sgd_none", 0);
    const std::string due = Declare("local_sgd_due", pb::VarType::BOOL);
    Append("equal", {{"X", {rest}}, {"Y", {none}}}, due, {});
    if (options.begin_step <= options.k_steps) return due;

    const std::string begin = Constant("local_sgd_begin", options.begin_step);
    const std::string begun = Declare("local_sgd_begun", pb::VarType::BOOL);
    Append("greater_equal", {{"X", {step}}, {"Y", {begin}}}, begun, {});
    const std::string both = Declare("local_sgd_condition", pb::VarType::BOOL);
    Append("logical_and", {{"X", {due}}, {"Y", {begun}}}, both, {});
    return both;
  }

 private:
  using Slots = std::vector<std::pair<std::string, std::vector<std::string>>>;

  static pb::VarDesc VarOf(const std::string& name, pb::VarType::Type dtype, bool persistable) {
    pb::VarDesc var;
    var.set_name(name);
    var.mutable_type()->set_type(pb::VarType::LOD_TENSOR);
    auto* tensor = var.mutable_type()->mutable_lod_tensor()->mutable_tensor();
    tensor->set_data_type(dtype);
    tensor->add_dims(1);
    var.set_persistable(persistable);
    var.set_stop_gradient(true);
    return var;
  }

  // Names that one of the programs has are passed over.
  std::string Declare(const std::string& wanted, pb::VarType::Type dtype,
                      bool persistable = false) {
    std::string name = wanted;
    const auto is_taken = [&] {
      return programs_.main->FindSymbol(name).valid() ||
             programs_.startup->FindSymbol(name).valid();
    };
    for (int i = 0; is_taken(); ++i) name = absl::StrCat(wanted, "_", i);
    main_.AddVar(0, VarOf(name, dtype, persistable));
    return name;
  }

  static pb::OpDesc Fill(const std::string& name, int value, int role) {
    return BuildOp({"fill_constant",
                    {},
                    {{"Out", {name}}},
                    {{"dtype", static_cast<int>(DType::kInt64)},
                     {"shape", std::vector<int64_t>{1}},
                     {"value", static_cast<float>(value)},
                     {"str_value", absl::StrCat(value)}},
                    role},
                   Dialect::kWeft);
  }

  std::string Constant(const std::string& wanted, int value) {
    std::string name = Declare(wanted, pb::VarType::INT64);
    main_.Append(0, Fill(name, value, kRoleOptimize));
    return name;
  }

  void Append(const std::string& type, const Slots& inputs, const std::string& out,
              std::vector<std::pair<std::string, AttrValue>> attrs) {
    main_.Append(0, BuildOp({type, inputs, {{"Out", {out}}}, std::move(attrs), kRoleOptimize},
                            Dialect::kWeft));
  }

  const ProgramPair& programs_;
  Rewriter& main_;
  Rewriter& startup_;
};

// The op that runs the block, and the variables that its ops read and write.
pb::OpDesc Branch(const std::string& condition, const Meeting& meeting, int block,
                  const std::string& scope) {
  std::vector<std::string> names;
  for (const FusedTensors& tensors : meeting.averaged) {
    names.insert(names.end(), tensors.names.begin(), tensors.names.end());
  }
  for (const auto& cast : meeting.casts) names.push_back(cast.second);
  for (const auto& reset : meeting.resets) names.push_back(reset.first);
  return BuildOp({"conditional_block",
                  {{"Cond", {condition}}, {"Input", names}},
                  {{"Out", names}, {"Scope", {scope}}},
                  {{"is_scalar_condition", true}, {"sub_block", BlockRef{block}}},
                  kRoleOptimize},
                 Dialect::kWeft);
}

DType TypeOf(const Program& program, const std::string& name) {
  return DeclaredType(program.var(program.block(0).FindVar(program.FindSymbol(name))))->dtype;
}

void Explain(const Meeting& meeting, const LocalSgd::Options& options, std::vector<Note>* notes) {
  const std::string pass(LocalSgd::kName);
  const std::string every =
      options.k_steps == 1 ? "every step" : absl::StrCat("every ", options.k_steps, " steps");
  for (size_t i = 0; i < meeting.averaged.size(); ++i) {
    for (const std::string& name : meeting.averaged[i].names) {
      notes->push_back({pass,
                        name,
                        "averaged",
                        "ranks train by themselves in between",
                        {{"when", every}, {"ring", absl::StrCat(i % options.nrings)}}});
    }
  }
  for (const auto& [master, param] : meeting.casts) {
    notes->push_back({pass, param, "cast", "its master weight is averaged", {{"from", master}}});
  }
  for (const auto& reset : meeting.resets) {
    notes->push_back({pass, reset.first, "reset", "as the startup program makes it", {}});
  }
}

}  // namespace

void LocalSgd::Options::Bind(OptionBinder& bind) {
  bind.Int("k_steps", &k_steps, "average every so many steps", /*min=*/1);
  bind.Int("begin_step", &begin_step, "not before this step; steps count from 1", /*min=*/1);
  BindRings(bind, &nrings);
  bind.Bool("statistics", &statistics, "average running statistics of normalization too");
  bind.Choice("state", &state, "what happens to the state of optimizers",
              {{"local", State::kLocal}, {"average", State::kAverage}, {"reset", State::kReset}});
}

const Contract& LocalSgd::contract() const {
  static const auto* contract =
      new Contract{{kParametersAveraged}, {}, {kGradientsReduced, kParametersAveraged}};
  return *contract;
}

absl::StatusOr<bool> LocalSgd::Run(PassContext& context, ProgramPair& programs) const {
  const Program& main = *programs.main;
  WEFT_RETURN_IF_ERROR(RefuseCompressedGradients(main));
  WEFT_ASSIGN_OR_RETURN(const Meeting meeting, Plan(programs, context, options_));
  const bool always = options_.k_steps == 1 && options_.begin_step == 1;
  if (!always && programs.startup == nullptr) {
    return absl::FailedPreconditionError(
        "counting steps needs the startup program, which sets the counter to 0; give it, or use "
        "k_steps 1");
  }
  Rewriter rewriter(programs.main);
  absl::optional<Rewriter> startup;
  int block = 0;
  if (!always) {
    startup.emplace(programs.startup);
    const std::string condition = Schedule(programs, &rewriter, &*startup).Write(options_);
    block = rewriter.AddBlock(0);
    pb::VarDesc scope;
    scope.set_name("local_sgd_scope");
    for (int i = 0; main.FindSymbol(scope.name()).valid(); ++i) {
      scope.set_name(absl::StrCat("local_sgd_scope_", i));
    }
    scope.mutable_type()->set_type(pb::VarType::STEP_SCOPES);
    rewriter.AddVar(0, scope);
    rewriter.Append(0, Branch(condition, meeting, block, scope.name()));
  }
  Writer writer(main, context.participants.nranks(), block, &rewriter);
  for (size_t i = 0; i < meeting.averaged.size(); ++i) {
    writer.Average(meeting.averaged[i], static_cast<int>(i) % options_.nrings);
  }
  writer.WaitForAll();
  for (const auto& [master, param] : meeting.casts) {
    writer.Cast(master, param, TypeOf(main, master), TypeOf(main, param));
  }
  for (const auto& reset : meeting.resets) rewriter.Append(block, reset.second);
  if (context.notes != nullptr) {
    Explain(meeting, options_, context.notes);
    WEFT_RETURN_IF_ERROR(ExplainLocalGradients(kName, main, context.notes));
  }
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  if (startup.has_value()) WEFT_RETURN_IF_ERROR(startup->Commit());
  return true;
}

}  // namespace weft
