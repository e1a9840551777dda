#include "transpiler/verifier/structure/structure.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/weft_attrs.h"
#include "proto/testing/block_text.h"
#include "proto/testing/program_builder.h"
#include "transpiler/verifier/testing/found.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// The program with a variable taken away from a block.
Program WithoutVar(pb::ProgramDesc desc, const std::string& name, int block = 0) {
  auto* vars = desc.mutable_blocks(block)->mutable_vars();
  for (int i = 0; i < vars->size(); ++i) {
    if ((*vars)[i].name() == name) vars->DeleteSubrange(i--, 1);
  }
  absl::StatusOr<Program> program = Program::FromProto(desc);
  EXPECT_TRUE(program.ok()) << program.status();
  return *std::move(program);
}

std::vector<std::string> Check(const Program& program) {
  Findings findings;
  CheckStructure(program, ProgramRef(), &findings);
  return testing::RulesAndMessages(findings);
}

// Of a main program with the block in program text.
std::vector<std::string> CheckText(const std::string& block) {
  return Check(testing::BlockProgram(block));
}

ProgramBuilder Relu() {
  ProgramBuilder p;
  p.Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  return p;
}

TEST(VerifyStructure, WellFormedProgramPasses) {
  WEFT_EXPECT_OK(VerifyStructure(Relu().Build()));
  WEFT_EXPECT_OK(VerifyStructure(ProgramBuilder().Build()));
}

// --- Variables -----------------------------------------------------------------------------------

TEST(VerifyStructure, UndeclaredInputNamesOpSlotAndVariable) {
  EXPECT_THAT(VerifyStructure(WithoutVar(Relu().desc(), "x")),
              StatusIs(kInvalid, "op 0 (relu) input X: variable x is not declared (W101)"));
}

// Of a block, Paddle 1 names gradients that no loss has.
TEST(CheckStructure, AGradientThatABlockIsGivenMayBeUndeclared) {
  EXPECT_THAT(CheckText("var s : step_scopes\n"
                        "recurrent_grad(outputs@GRAD=[y@GRAD], step_scopes=[s])\n"),
              ElementsAre(HasSubstr("W104")));  // no block
  EXPECT_THAT(CheckText("var x : fp32[2]\nX@GRAD=[x] = relu_grad(Out=[x], Out@GRAD=[y@GRAD])\n"),
              ElementsAre("W101 op 0 (relu_grad) input Out@GRAD: variable y@GRAD is not declared"));
}

TEST(VerifyStructure, UndeclaredOutputNamesOpSlotAndVariable) {
  EXPECT_THAT(VerifyStructure(WithoutVar(Relu().desc(), "y")),
              StatusIs(kInvalid, "op 0 (relu) output Out: variable y is not declared (W101)"));
}

TEST(VerifyStructure, EmptyVariableNeedsNoDeclaration) {
  ProgramBuilder p;
  p.Param("w").Param("x").Param("g");
  p.Op("mul_grad", {{"X", {"x"}}, {"Y", {"w"}}, {"Out@GRAD", {"g"}}},
       {{"X@GRAD", {"@EMPTY@"}}, {"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  WEFT_EXPECT_OK(VerifyStructure(p.Build()));
}

void RunBlock(ProgramBuilder* p, int block) {
  p->Param("cond");
  p->Op("conditional_block", {{"Cond", {"cond"}}}, {{"Scope", {"scope"}}});
  p->BlockAttr("sub_block", block);
}

TEST(VerifyStructure, SubBlockSeesVariablesOfItsAncestors) {
  ProgramBuilder p;
  p.Param("x");
  RunBlock(&p, 1);
  p.NewBlock(0).Op("relu", {{"X", {"x"}}}, {{"Out", {"inner"}}});
  p.Op("while", {{"X", {"x"}}, {"Condition", {"cond"}}}, {{"StepScopes", {"scope"}}});
  p.BlockAttr("sub_block", 2);
  p.NewBlock(1).Op("relu", {{"X", {"inner"}}}, {{"Out", {"x"}}});
  WEFT_EXPECT_OK(VerifyStructure(p.Build()));
}

TEST(VerifyStructure, RootDoesNotSeeVariablesOfASubBlock) {
  ProgramBuilder p = Relu();
  p.NewBlock(0).Var("y");
  EXPECT_THAT(VerifyStructure(WithoutVar(p.desc(), "y")),
              StatusIs(kInvalid, "op 0 (relu) output Out: variable y is not declared (W101)"));
}

TEST(VerifyStructure, UndeclaredVariableInASubBlockNamesTheBlock) {
  ProgramBuilder p;
  RunBlock(&p, 1);
  p.NewBlock(0).Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  EXPECT_THAT(
      VerifyStructure(WithoutVar(p.desc(), "x", 1)),
      StatusIs(kInvalid, "block 1, op 0 (relu) input X: variable x is not declared (W101)"));
}

TEST(VerifyStructure, BlockThatNoOpRunsIsNotChecked) {
  ProgramBuilder p = Relu();
  p.NewBlock().Op("relu", {{"X", {"missing"}}}, {{"Out", {"y"}}});
  WEFT_EXPECT_OK(VerifyStructure(p.Build()));
}

TEST(VerifyStructure, SecondRootDoesNotSeeTheFirst) {
  ProgramBuilder p;
  p.Var("x").Var("y");
  RunBlock(&p, 1);
  p.NewBlock(-1).Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  const Program without_x = WithoutVar(p.desc(), "x", 1);
  EXPECT_THAT(VerifyStructure(WithoutVar(without_x.ToProto(), "y", 1)),
              StatusIs(kInvalid, HasSubstr("x is not declared")));
}

// --- Slots ---------------------------------------------------------------------------------------

TEST(VerifyStructure, MissingInputNamesOpAndSlot) {
  ProgramBuilder p;
  p.Op("mul", {{"X", {"x"}}}, {{"Out", {"y"}}});
  EXPECT_THAT(VerifyStructure(p.Build()),
              StatusIs(kInvalid, "op 0 (mul) input Y: expected a variable, found none (W102)"));
}

TEST(VerifyStructure, EmptySlotIsAMissingInput) {
  ProgramBuilder p;
  p.Op("relu", {{"X", {}}}, {{"Out", {"y"}}});
  EXPECT_THAT(VerifyStructure(p.Build()),
              StatusIs(kInvalid, "op 0 (relu) input X: expected a variable, found none (W102)"));
}

TEST(VerifyStructure, OptionalSlotsMayBeEmptyOrMissing) {
  ProgramBuilder p;
  p.Op("scale", {{"ScaleTensor", {}}, {"X", {"x"}}}, {{"Out", {"x"}}});
  p.Op("scale", {{"X", {"x"}}}, {{"Out", {"x"}}});
  WEFT_EXPECT_OK(VerifyStructure(p.Build()));
}

TEST(VerifyStructure, TwoVariablesInASlotForOneAreAnError) {
  ProgramBuilder p;
  p.Op("relu", {{"X", {"x", "z"}}}, {{"Out", {"y"}}});
  EXPECT_THAT(VerifyStructure(p.Build()),
              StatusIs(kInvalid, "op 0 (relu) input X: expected one variable, found 2 (W103)"));
  ProgramBuilder q;
  q.Op("relu", {{"X", {"x"}}}, {{"Out", {"y", "z"}}});
  EXPECT_THAT(VerifyStructure(q.Build()),
              StatusIs(kInvalid, "op 0 (relu) output Out: expected one variable, found 2 (W103)"));
}

TEST(VerifyStructure, OpOfUnknownTypeMayHaveAnySlots) {
  ProgramBuilder p;
  p.Op("my_op", {{"Anything", {"x", "y"}}}, {}).IntAttr("whatever", 1);
  WEFT_EXPECT_OK(VerifyStructure(p.Build()));
}

// --- Attributes ----------------------------------------------------------------------------------

TEST(VerifyStructure, AttributeOfAnotherTypeSaysWhatWasExpectedAndFound) {
  ProgramBuilder p;
  p.Op("scale", {{"X", {"x"}}}, {{"Out", {"x"}}}).IntAttr("scale", 2);
  EXPECT_THAT(
      VerifyStructure(p.Build()),
      StatusIs(kInvalid, "op 0 (scale) attribute scale: expected type FLOAT, found INT (W105)"));
}

TEST(VerifyStructure, BooleansOfEarlyVersionsAreNamed) {
  ProgramBuilder p;
  p.Op("mean", {{"X", {"x"}}}, {{"Out", {"y"}}});
  p.Op("reduce_mean", {{"X", {"x"}}}, {{"Out", {"y"}}}).IntAttr("keep_dim", 0);
  EXPECT_THAT(VerifyStructure(p.Build()),
              StatusIs(kInvalid,
                       "op 1 (reduce_mean) attribute keep_dim: expected type BOOLEAN, "
                       "found INT, as Paddle before 1.8 wrote it: load and save it "
                       "there (W105)"));
}

TEST(VerifyStructure, HalfPrecisionIsAddedInOneOfTwoWays) {
  for (const char* type : {"fp32", "native", "nativ"}) {
    ProgramBuilder p;
    p.Op("c_allreduce_sum", {{"X", {"x"}}}, {{"Out", {"x"}}});
    *p.last_op().add_attrs() = MakeAttr(kAccumulateTypeAttr, std::string(type));
    if (type != absl::string_view("nativ")) {
      WEFT_EXPECT_OK(VerifyStructure(p.Build()));
      continue;
    }
    EXPECT_THAT(VerifyStructure(p.Build()),
                StatusIs(kInvalid,
                         "op 0 (c_allreduce_sum) attribute accumulate_type: expected "
                         "fp32 or native, found nativ (W105)"));
  }
}

TEST(VerifyStructure, OriginalNamesArePairs) {
  for (const std::vector<std::string>& names : {std::vector<std::string>{"x@SIM", "x"}, {"x"}}) {
    ProgramBuilder p;
    p.Op("scale", {{"X", {"x"}}}, {{"Out", {"x"}}});
    *p.last_op().add_attrs() = MakeAttr(kOriginalNamesAttr, names);
    if (names.size() == 2) {
      WEFT_EXPECT_OK(VerifyStructure(p.Build()));
      continue;
    }
    EXPECT_THAT(VerifyStructure(p.Build()),
                StatusIs(kInvalid,
                         "op 0 (scale) attribute original_names: expected pairs of new and old "
                         "names (W105)"));
  }
}

// Ops of one signature, of which the first is right.
TEST(VerifyStructure, ValuesOfAttributesAreCheckedInEveryOp) {
  ProgramBuilder p;
  for (const char* type : {"fp32", "nativ"}) {
    p.Op("c_allreduce_sum", {{"X", {"x"}}}, {{"Out", {"x"}}});
    *p.last_op().add_attrs() = MakeAttr(kAccumulateTypeAttr, std::string(type));
  }
  for (const std::vector<std::string>& names : {std::vector<std::string>{"x@SIM", "x"}, {"x"}}) {
    p.Op("scale", {{"X", {"x"}}}, {{"Out", {"x"}}});
    *p.last_op().add_attrs() = MakeAttr(kOriginalNamesAttr, names);
  }
  EXPECT_THAT(Check(p.Build()),
              ElementsAre(HasSubstr("W105 op 1 (c_allreduce_sum) attribute accumulate_type"),
                          HasSubstr("W105 op 3 (scale) attribute original_names")));
}

TEST(VerifyStructure, WiderAndNarrowerIntegersAndVariablesAreAccepted) {
  ProgramBuilder p;
  p.Op("softmax", {{"X", {"x"}}}, {{"Out", {"y"}}});
  auto* axis = p.last_op().add_attrs();
  axis->set_name("axis");
  axis->set_type(pb::LONG);
  axis->set_l(-1);
  p.Op("scale", {{"X", {"x"}}}, {{"Out", {"x"}}});
  auto* scale = p.last_op().add_attrs();
  scale->set_name("scale");
  scale->set_type(pb::VAR);
  scale->set_var_name("x");
  WEFT_EXPECT_OK(VerifyStructure(p.Build()));
}

TEST(VerifyStructure, MissingRequiredAttributeIsNamed) {
  ProgramBuilder p;
  p.Op("c_comm_init", {{"X", {"id"}}}, {}).IntAttr("nranks", 2);
  EXPECT_THAT(
      VerifyStructure(p.Build()),
      StatusIs(kInvalid, "op 0 (c_comm_init) attribute rank: expected a value, found none (W104)"));
}

TEST(VerifyStructure, AttributesThatTheSchemaDoesNotNameAreFree) {
  ProgramBuilder p = Relu();
  p.IntAttr("workspace_size_MB", 512);
  WEFT_EXPECT_OK(VerifyStructure(p.Build()));
}

// --- Findings -----------------------------------------------------------------------------------

TEST(CheckStructure, AllViolationsAreFound) {
  EXPECT_THAT(CheckText("var x : fp32[2] need_check_feed\n"
                        "Out=[y] = relu(X=[x, x]) role=forward\n"
                        "Out=[z] = relu(X=[]) role=forward\n"),
              ElementsAre("W101 op 0 (relu) output Out: variable y is not declared",
                          "W103 op 0 (relu) input X: expected one variable, found 2",
                          "W101 op 1 (relu) output Out: variable z is not declared",
                          "W102 op 1 (relu) input X: expected a variable, found none"));
}

TEST(CheckStructure, EveryOpOfAWrongSignatureIsReported) {
  ProgramBuilder p;
  for (int i = 0; i < 30; ++i) p.Op("relu", {{"X", {}}}, {{"Out", {"y"}}});
  Findings findings;
  CheckStructure(p.Build(), {/*rank=*/1, /*is_startup=*/true}, &findings);
  EXPECT_EQ(findings.all().size(), size_t{Findings::kMaxPerRule});
  EXPECT_EQ(findings.NumOmitted("W102"), 30 - Findings::kMaxPerRule);
  EXPECT_EQ(findings.all()[3].op, p.Build().block(0).ops()[3]);
  EXPECT_EQ(findings.all()[3].program, (ProgramRef{1, true}));
}

}  // namespace
}  // namespace weft::testing
