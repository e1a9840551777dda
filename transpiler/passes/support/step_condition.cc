#include "transpiler/passes/support/step_condition.h"

#include "absl/strings/str_cat.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {
namespace {

NewOp Fill(const std::string& name, int value, int role) {
  NewOp op = FillOp(name, DType::kInt64, {1}, value, role);
  op.attrs.push_back({"str_value", absl::StrCat(value)});
  return op;
}

struct NewBlock {
  int number;
  pb::OpDesc op;  // that runs it
};

// Adds a block to block `parent`, and declares what the op that runs it needs there.
NewBlock NewBranch(int parent, const std::string& condition, const BranchVariables& variables,
                   const std::string& scope, ProgramEdits* edits) {
  const int block = edits->main.AddBlock(parent);
  pb::VarDesc scopes;
  scopes.set_name(edits->names.Of(scope));
  scopes.mutable_type()->set_type(pb::VarType::STEP_SCOPES);
  edits->main.AddVar(parent, scopes);
  const NewOp branch = {"conditional_block",
                        {{"Cond", {condition}}, {"Input", variables.reads}},
                        {{"Out", variables.writes}, {"Scope", {scopes.name()}}},
                        {{"is_scalar_condition", true}, {"sub_block", BlockRef{block}}},
                        kRoleOptimize};
  return {block, BuildOp(branch)};
}

}  // namespace

StepCounter::StepCounter(absl::string_view prefix, OpId before, ProgramEdits* edits)
    : prefix_(prefix), before_(before), edits_(*edits) {
  counter_ = edits_.names.Of(absl::StrCat(prefix_, "_step"));
  edits_.AddState(counter_, DType::kInt64, {1}, Fill(counter_, 0, kRoleForward));
  const NewOp increment = InPlaceOp("increment", {counter_}, {{"step", 1.0f}}, kRoleOptimize);
  edits_.InsertBefore(before_, BuildOp(increment));
}

std::string StepCounter::Remainder(int period, absl::string_view suffix) {
  const std::string k = Constant(absl::StrCat("k", suffix), period);
  return Compute(absl::StrCat("remainder", suffix), DType::kInt64, "elementwise_mod", counter_, k,
                 /*has_axis=*/true);
}

std::string StepCounter::IsDue(const std::string& remainder, int phase, absl::string_view suffix) {
  const std::string expected = Constant(absl::StrCat(phase == 0 ? "zero" : "phase", suffix), phase);
  return Compute(absl::StrCat("is_due", suffix), DType::kBool, "equal", remainder, expected,
                 /*has_axis=*/false);
}

std::string StepCounter::AndNot(const std::string& condition, const std::string& remainder,
                                int phase) {
  const std::string other = Constant("other", phase);
  const std::string differs =
      Compute("differs", DType::kBool, "not_equal", remainder, other, /*has_axis=*/false);
  return Compute("condition", DType::kBool, "logical_and", condition, differs,
                 /*has_axis=*/false);
}

std::string StepCounter::IsFrom(int step) {
  const std::string first = Constant("first", step);
  return Compute("started", DType::kBool, "greater_equal", counter_, first, /*has_axis=*/false);
}

std::string StepCounter::Not(const std::string& condition) {
  std::string opposite = Declare("is_early", DType::kBool);
  edits_.InsertBefore(
      before_,
      BuildOp({"logical_not", {{"X", {condition}}}, {{"Out", {opposite}}}, {}, kRoleOptimize}));
  return opposite;
}

std::string StepCounter::FromStep(int first_step, const std::string& condition) {
  return Compute("condition", DType::kBool, "logical_and", condition, IsFrom(first_step),
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
  std::string free = edits_.names.Of(absl::StrCat(prefix_, "_", name));
  pb::VarDesc var = TensorVar(free, dtype, {1});
  var.set_stop_gradient(true);
  edits_.main.AddVar(0, var);
  return free;
}

std::string StepCounter::Constant(const std::string& name, int value) {
  std::string declared = Declare(name, DType::kInt64);
  edits_.InsertBefore(before_, BuildOp(Fill(declared, value, kRoleOptimize)));
  return declared;
}

std::string StepCounter::Compute(const std::string& name, DType dtype, const char* type,
                                 const std::string& x, const std::string& y, bool has_axis) {
  std::string declared = Declare(name, dtype);
  NewOp op = BinaryOp(type, x, y, declared, kRoleOptimize);
  if (has_axis) op.attrs.push_back({"axis", -1});
  edits_.InsertBefore(before_, BuildOp(op));
  return declared;
}

int WriteBranch(const std::string& condition, const BranchVariables& variables,
                const std::string& scope, OpId before, ProgramEdits* edits) {
  const auto [block, op] = NewBranch(0, condition, variables, scope, edits);
  edits->InsertBefore(before, op);
  return block;
}

int AppendBranch(int parent, const std::string& condition, const BranchVariables& variables,
                 const std::string& scope, ProgramEdits* edits) {
  const auto [block, op] = NewBranch(parent, condition, variables, scope, edits);
  edits->main.Append(parent, op);
  return block;
}

}  // namespace weft
