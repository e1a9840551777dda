#include "transpiler/passes/support/step_condition.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {
namespace {

pb::VarDesc ScalarVar(const std::string& name, DType dtype) {
  pb::VarDesc var = TensorVar(name, dtype, {1});
  var.set_stop_gradient(true);
  return var;
}

pb::OpDesc Fill(const std::string& name, int value, int role) {
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

void WriteAt(OpId before, const pb::OpDesc& op, Rewriter* main) {
  if (before.valid()) {
    main->InsertBefore(before, op);
  } else {
    main->Append(0, op);
  }
}

struct NewBlock {
  int number;
  pb::OpDesc op;  // that runs it
};

// Adds a block to block `parent`, and declares what the op that runs it needs there.
NewBlock NewBranch(int parent, const std::string& condition, const BranchVariables& variables,
                   const std::string& scope, UniqueNames* names, Rewriter* main) {
  const int block = main->AddBlock(parent);
  pb::VarDesc scopes;
  scopes.set_name(names->Of(scope));
  scopes.mutable_type()->set_type(pb::VarType::STEP_SCOPES);
  main->AddVar(parent, scopes);
  const NewOp branch = {"conditional_block",
                        {{"Cond", {condition}}, {"Input", variables.reads}},
                        {{"Out", variables.writes}, {"Scope", {scopes.name()}}},
                        {{"is_scalar_condition", true}, {"sub_block", BlockRef{block}}},
                        kRoleOptimize};
  return {block, BuildOp(branch, Dialect::kWeft)};
}

}  // namespace

StepCounter::StepCounter(absl::string_view prefix, OpId before, UniqueNames* names, Rewriter* main,
                         Rewriter* startup)
    : prefix_(prefix), before_(before), names_(*names), main_(*main) {
  counter_ = names_.Of(absl::StrCat(prefix_, "_step"));
  pb::VarDesc counter = ScalarVar(counter_, DType::kInt64);
  counter.set_persistable(true);
  startup->AddVar(0, counter);
  startup->Append(0, Fill(counter_, 0, kRoleForward));
  main_.AddVar(0, counter);
  const NewOp increment = InPlaceOp("increment", {counter_}, {{"step", 1.0f}}, kRoleOptimize);
  Write(BuildOp(increment, Dialect::kWeft));
}

std::string StepCounter::Remainder(int period) {
  const std::string k = Constant("k", period);
  return Compute("remainder", DType::kInt64, "elementwise_mod", counter_, k, /*has_axis=*/true);
}

std::string StepCounter::IsDue(const std::string& remainder, int phase, absl::string_view suffix) {
  const std::string expected = Constant(absl::StrCat(phase == 0 ? "zero" : "phase", suffix), phase);
  return Compute(absl::StrCat("is_due", suffix), DType::kBool, "equal", remainder, expected,
                 /*has_axis=*/false);
}

std::string StepCounter::FromStep(int first_step, const std::string& condition) {
  const std::string first = Constant("first", first_step);
  const std::string has_begun =
      Compute("started", DType::kBool, "greater_equal", counter_, first, /*has_axis=*/false);
  return Compute("condition", DType::kBool, "logical_and", condition, has_begun,
                 /*has_axis=*/false);
}

std::string StepCounter::OrBefore(int begin_step, const std::string& condition) {
  const std::string begin = Constant("begin", begin_step);
  const std::string is_early =
      Compute("is_early", DType::kBool, "less_than", counter_, begin, /*has_axis=*/false);
  return Compute("is_due_or_early", DType::kBool, "logical_or", condition, is_early,
                 /*has_axis=*/false);
}

std::string StepCounter::Declare(const std::string& name, DType dtype) {
  std::string free = names_.Of(absl::StrCat(prefix_, "_", name));
  main_.AddVar(0, ScalarVar(free, dtype));
  return free;
}

std::string StepCounter::Constant(const std::string& name, int value) {
  std::string declared = Declare(name, DType::kInt64);
  Write(Fill(declared, value, kRoleOptimize));
  return declared;
}

std::string StepCounter::Compute(const std::string& name, DType dtype, const char* type,
                                 const std::string& x, const std::string& y, bool has_axis) {
  std::string declared = Declare(name, dtype);
  NewAttrs attrs;
  if (has_axis) attrs.push_back({"axis", -1});
  const NewOp op = {
      type, {{"X", {x}}, {"Y", {y}}}, {{"Out", {declared}}}, std::move(attrs), kRoleOptimize};
  Write(BuildOp(op, Dialect::kWeft));
  return declared;
}

void StepCounter::Write(const pb::OpDesc& op) { WriteAt(before_, op, &main_); }

int WriteBranch(const std::string& condition, const std::vector<std::string>& variables,
                const std::string& scope, OpId before, UniqueNames* names, Rewriter* main) {
  const auto [block, op] = NewBranch(0, condition, {variables, variables}, scope, names, main);
  WriteAt(before, op, main);
  return block;
}

int AppendBranch(int parent, const std::string& condition, const BranchVariables& variables,
                 const std::string& scope, UniqueNames* names, Rewriter* main) {
  const auto [block, op] = NewBranch(parent, condition, variables, scope, names, main);
  main->Append(parent, op);
  return block;
}

}  // namespace weft
