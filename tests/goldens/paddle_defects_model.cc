#include "tests/goldens/paddle_defects_model.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "executor/run/runner.h"
#include "ops/cpu/testing.h"
#include "ops/kernel.h"
#include "ops/schema/tensor_type.h"
#include "transpiler/modes.h"
#include "transpiler/testing/message_lines.h"

namespace weft::testing {

ProgramBuilder Data() {
  ProgramBuilder p;
  p.Var("x", {-1, 1});
  p.last_var().set_need_check_feed(true);
  p.Param("lr", {1});
  p.last_var().set_is_parameter(false);
  return p;
}

void AddLoss(ProgramBuilder* p, const std::string& param, const std::string& grad, int fill_role) {
  const std::string y = "y_" + param, y_grad = y + "@GRAD";
  const std::string loss = "loss_" + param, loss_grad = loss + "@GRAD";
  p->Param(param, {1, 1});
  p->Var(y, {-1, 1}).Var(loss, {}).Var(loss_grad, {}).Var(y_grad, {-1, 1}).Var(grad, {1, 1});
  p->Op("mul", {{"X", {"x"}}, {"Y", {param}}}, {{"Out", {y}}});
  p->Op("reduce_mean", {{"X", {y}}}, {{"Out", {loss}}}, kRoleForward | kRoleLoss);
  p->BoolAttr("reduce_all", true);
  p->Op("fill_constant", {}, {{"Out", {loss_grad}}}, fill_role);
  p->IntAttr("dtype", 5).FloatAttr("value", 1).LongsAttr("shape", {});
  p->Op("reduce_mean_grad", {{"X", {y}}, {"Out@GRAD", {loss_grad}}}, {{"X@GRAD", {y_grad}}},
        kRoleBackward);
  p->BoolAttr("reduce_all", true);
  p->Op("mul_grad", {{"X", {"x"}}, {"Y", {param}}, {"Out@GRAD", {y_grad}}}, {{"Y@GRAD", {grad}}},
        kRoleBackward);
}

ProgramBuilder PairedModel() {
  ProgramBuilder p = Data();
  AddLoss(&p, "w", "w@GRAD");
  p.Pairs({"w", "w@GRAD"});
  return p;
}

void AddSgd(ProgramBuilder* p, const std::string& param, const std::string& grad) {
  p->Op("sgd", {{"Param", {param}}, {"Grad", {grad}}, {"LearningRate", {"lr"}}},
        {{"ParamOut", {param}}}, kRoleOptimize);
  p->Pairs({param, grad});
}

const std::map<std::string, float>& BetaPowers() {
  static const auto* powers = new std::map<std::string, float>{{"b1", 0.9f}, {"b2", 0.999f}};
  return *powers;
}

void AddAdam(ProgramBuilder* p) {
  for (const char* state : {"m1", "m2"}) p->Param(state, {1, 1});
  for (const char* power : {"b1", "b2"}) p->Param(power, {1});
  p->Op("adam",
        {{"Param", {"w"}},
         {"Grad", {"w@GRAD"}},
         {"LearningRate", {"lr"}},
         {"Moment1", {"m1"}},
         {"Moment2", {"m2"}},
         {"Beta1Pow", {"b1"}},
         {"Beta2Pow", {"b2"}}},
        {{"ParamOut", {"w"}},
         {"Moment1Out", {"m1"}},
         {"Moment2Out", {"m2"}},
         {"Beta1PowOut", {"b1"}},
         {"Beta2PowOut", {"b2"}}},
        kRoleOptimize);
  p->Pairs({"w", "w@GRAD"});
}

ProgramBuilder TwoGradients(pb::VarType::Type dtype) {
  ProgramBuilder p = Data();
  for (const char* param : {"w", "b"}) {
    p.Var(param, {2, 2}, dtype);
    p.last_var().set_persistable(true);
    p.last_var().set_is_parameter(true);
  }
  for (const char* var : {"a", "z", "z@GRAD", "loss@GRAD", "w@GRAD", "b@GRAD"}) {
    p.Var(var, {2, 2}, dtype);
    p.last_var().set_need_check_feed(var == absl::string_view("a") ||
                                     var == absl::string_view("z"));
  }
  p.Op("fill_constant", {}, {{"Out", {"loss@GRAD"}}}, kRoleBackward | kRoleLoss);
  p.LongsAttr("shape", {2, 2}).IntAttr("dtype", dtype).FloatAttr("value", 1);
  p.Op("elementwise_add_grad", {{"Out@GRAD", {"loss@GRAD"}}, {"X", {"z"}}, {"Y", {"b"}}},
       {{"X@GRAD", {"z@GRAD"}}, {"Y@GRAD", {"b@GRAD"}}}, kRoleBackward);
  p.Pairs({"b", "b@GRAD"});
  p.Op("mul_grad", {{"Out@GRAD", {"z@GRAD"}}, {"X", {"a"}}, {"Y", {"w"}}}, {{"Y@GRAD", {"w@GRAD"}}},
       kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  AddSgd(&p, "w", "w@GRAD");
  AddSgd(&p, "b", "b@GRAD");
  return p;
}

Program StartupOfTwo() {
  ProgramBuilder p;
  p.Param("w").Param("b").Param("lr", {1});
  p.last_var().set_is_parameter(false);
  for (const char* name : {"w", "b"}) {
    p.Op("fill_constant", {}, {{"Out", {name}}}).LongsAttr("shape", {2, 2});
  }
  p.Op("fill_constant", {}, {{"Out", {"lr"}}}).LongsAttr("shape", {1});
  return p.Build();
}

TranspileOptions Weft(const std::string& mode) {
  TranspileOptions options;
  options.mode = mode;
  options.mode_flags = (*FindMode(mode))->required;
  options.cluster.nranks = 2;
  return options;
}

TranspileOptions Paddle(const std::string& mode) {
  TranspileOptions options;
  options.mode = mode;
  if (mode != "single_process_multi_thread") options.mode_flags["nrings"] = "1";
  options.dialect = Dialect::kPaddle;
  options.cluster.endpoints = {"a:1", "b:1"};
  return options;
}

absl::StatusOr<Rewritten> Rewrite(const Program& main, const TranspileOptions& options) {
  Rewritten result{main, ProgramBuilder().Build(), {}};
  ProgramPair programs{&result.main, nullptr};
  WEFT_ASSIGN_OR_RETURN(const TranspileResult rewritten, Transpile(options, programs));
  result.warnings = DefectLines(rewritten.messages);
  return result;
}

absl::StatusOr<Rewritten> Rewrite(const Program& main, const Program& startup,
                                  const TranspileOptions& options) {
  Rewritten result{main, startup, {}};
  ProgramPair programs{&result.main, &result.startup};
  WEFT_ASSIGN_OR_RETURN(const TranspileResult rewritten, Transpile(options, programs));
  result.warnings = DefectLines(rewritten.messages);
  return result;
}

Op FirstOp(const Program& program, absl::string_view type) {
  for (OpId id : program.block(0).ops()) {
    if (program.op(id).type() == type) return program.op(id);
  }
  std::fprintf(stderr, "FirstOp: the program has no %s\n", std::string(type).c_str());
  std::abort();
}

int IntOf(const Op& op, absl::string_view attr) { return op.FindAttr(attr)->i(); }

int Position(const Program& program, absl::string_view text) {
  int position = 0;
  for (const std::string& op : OpTexts(program)) {
    if (absl::StartsWith(op, text)) break;
    ++position;
  }
  return position;
}

namespace {

Program StartupOf(const Program& main, const std::map<std::string, float>& initial) {
  ProgramBuilder p;
  for (VarId id : main.block(0).vars()) {
    const Var var = main.var(id);
    if (!var.persistable()) continue;
    const std::string name(var.name());
    const Dims declared = DeclaredType(var)->dims;
    const std::vector<int64_t> dims(declared.begin(), declared.end());
    const auto value = initial.find(name);
    p.Param(name, dims).last_var().set_is_parameter(var.is_parameter());
    p.Op("fill_constant", {}, {{"Out", {name}}}).IntAttr("dtype", 5).LongsAttr("shape", dims);
    p.FloatAttr("value", value != initial.end() ? value->second : name == "lr" ? 1 : 0);
  }
  return p.Build();
}

}  // namespace

absl::StatusOr<Outcome> Train(const ProgramBuilder& builder, const TranspileOptions& options,
                              int steps, const std::map<std::string, float>& initial) {
  const Program original = builder.Build();
  WEFT_ASSIGN_OR_RETURN(const Rewritten rewritten,
                        Rewrite(original, StartupOf(original, initial), options));
  Outcome outcome;
  outcome.warnings = rewritten.warnings;
  outcome.w.resize(2);
  RunOptions run;
  run.kernels = &CpuKernels();
  run.nranks = 2;
  run.steps = steps;
  run.fetch = {"w"};
  run.strict_host_sync = options.dialect == Dialect::kPaddle;
  RunInputs inputs;
  inputs.main = &rewritten.main;
  inputs.startup = &rewritten.startup;
  inputs.feeds.variables = {"x"};
  inputs.feeds.read = [](int64_t) -> absl::StatusOr<std::vector<Tensor>> {
    return std::vector<Tensor>{Floats({2, 1}, {1, 2})};
  };
  inputs.on_result = [&outcome](const StepResult& result) {
    outcome.w[result.rank] = result.values[0].data<float>()[0];
    return absl::OkStatus();
  };
  WEFT_ASSIGN_OR_RETURN(const RunResult result, RunProgram(inputs, run));
  for (const auto& [name, tensor] : result.persistables) {
    if (tensor.dtype() == DType::kFloat32) outcome.state[name] = tensor.data<float>()[0];
  }
  return outcome;
}

}  // namespace weft::testing
