#include "transpiler/verifier/structure/uninitialized_reads.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "proto/testing/program_builder.h"
#include "transpiler/verifier/structure/structure.h"
#include "transpiler/verifier/testing/found.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Check(const Program& program) {
  Findings findings;
  CheckUninitializedReads(program, ProgramRef(), &findings);
  return testing::RulesAndMessages(findings);
}

// Of a main program with the block in program text.
std::vector<std::string> CheckText(const std::string& block) {
  return Check(testing::BlockProgram(block));
}

// --- Variables that hold nothing ----------------------------------------------------------------

constexpr char kSgd[] =
    "var w : fp32[2] parameter persistable\n"
    "var g : fp32[2]\n"
    "var lr : fp32[1] persistable\n"
    "var x : fp32[2] need_check_feed\n"
    "var fused : fp32[64]\n";
constexpr char kUpdate[] =
    "ParamOut=[w] = sgd(Grad=[g], LearningRate=[lr], Param=[w]) role=optimize\n";

TEST(UninitializedReads, WriteBeforeReadIsAccepted) {
  EXPECT_THAT(CheckText(absl::StrCat(kSgd, "Out=[g] = relu(X=[x]) role=backward\n", kUpdate)),
              IsEmpty());
}

TEST(UninitializedReads, WriterAfterTheReaderIsTooLate) {
  EXPECT_THAT(CheckText(absl::StrCat(kSgd, kUpdate, "Out=[g] = relu(X=[x]) role=backward\n")),
              ElementsAre("W106 op 0 (sgd) input Grad: variable g has no value: it is only "
                          "written later, and it is neither persistable nor a feed variable"));
}

TEST(UninitializedReads, VariableIsReportedWhereItIsFirstRead) {
  EXPECT_THAT(CheckText(absl::StrCat(kSgd, kUpdate, kUpdate)),
              ElementsAre("W106 op 0 (sgd) input Grad: variable g has no value: no op writes it, "
                          "and it is neither persistable nor a feed variable"));
}

TEST(UninitializedReads, SynchronizationWritesNothing) {
  EXPECT_THAT(CheckText(absl::StrCat(
                  kSgd, "Out=[g] = c_wait_comm(X=[g]) role=backward {ring_id=0}\n", kUpdate)),
              ElementsAre(HasSubstr("W106 op 1 (sgd) input Grad: variable g has no value")));
}

TEST(UninitializedReads, OutputsOfAFeedOpAreWritten) {
  EXPECT_THAT(CheckText("var feed : feed_minibatch persistable\n"
                        "var x : fp32[2]\n"
                        "var y : fp32[2]\n"
                        "Out=[x] = feed(X=[feed]) role=forward {col=0}\n"
                        "Out=[y] = relu(X=[x]) role=forward\n"),
              IsEmpty());
}

TEST(UninitializedReads, ArraysAndScopesExistFromTheStart) {
  EXPECT_THAT(CheckText("var a : lod_tensor_array<fp32[-1]>\n"
                        "var y : fp32[2]\n"
                        "Out=[y] = my_op(X=[a]) role=backward\n"),
              IsEmpty());
}

// Programs of Paddle 1.8 mark no data, or some.
TEST(UninitializedReads, UnmarkedDataIsAcceptedIfItCanBeData) {
  const std::string relu =
      "var x : fp32[2]\nvar y : fp32[2]\n"
      "Out=[y] = relu(X=[x]) role=forward\n";
  EXPECT_THAT(CheckText(relu), IsEmpty());
  EXPECT_THAT(CheckText(relu + "var z : fp32[2] need_check_feed\n"),
              ElementsAre(HasSubstr("W107 op 0 (relu) input X: variable x has no value")));
  EXPECT_THAT(CheckText("var x : fp32[2]\nOut=[x] = relu(X=[x]) role=forward\n"), IsEmpty());
}

TEST(UninitializedReads, VariableWithAGradientIsNotUnmarkedData) {
  EXPECT_THAT(CheckText("var x : fp32[2]\nvar y : fp32[2]\nvar y@GRAD : fp32[2]\n"
                        "var x@GRAD : fp32[2]\n"
                        "Out=[y] = relu(X=[x]) role=forward\n"
                        "Out=[y@GRAD] = relu(X=[y]) role=backward\n"
                        "X@GRAD=[x@GRAD] = relu_grad(Out=[y], Out@GRAD=[y@GRAD]) role=backward\n"),
              ElementsAre(HasSubstr("W106 op 0 (relu) input X: variable x has no value")));
}

TEST(UninitializedReads, UnregisteredOpMayReadUnwrittenVariables) {
  EXPECT_THAT(CheckText("var g : fp32[2]\nvar y : fp32[2]\nOut=[y] = my_op(X=[g]) role=backward\n"),
              ElementsAre(HasSubstr("W107 op 0 (my_op) input X: variable g has no value")));
}

// --- Fused buffers ------------------------------------------------------------------------------

std::string Coalesce(const std::string& attrs) {
  return absl::StrCat("FusedOutput=[fused], Output=[g] = coalesce_tensor(Input=[g]) role=backward ",
                      "{dtype=5", attrs, "}\n");
}
constexpr char kMakeGrad[] = "Out=[g] = relu(X=[x]) role=backward\n";
constexpr char kReduce[] =
    "Out=[fused] = c_allreduce_sum(X=[fused]) role=backward {ring_id=0, use_calc_stream=true}\n";

TEST(UninitializedReads, MembersMayBeUnwrittenBeforeFusing) {
  EXPECT_THAT(CheckText(absl::StrCat(kSgd, Coalesce(""), kMakeGrad, kReduce, kUpdate)), IsEmpty());
}

TEST(UninitializedReads, BufferIsWrittenOnceItsMembersAre) {
  EXPECT_THAT(CheckText(absl::StrCat(kSgd, Coalesce(""), kReduce, kMakeGrad, kUpdate)),
              ElementsAre("W106 op 1 (c_allreduce_sum) input X: variable fused has no value: "
                          "no op has written its slice g"));
}

TEST(UninitializedReads, MembersThatAreNotCopiedLoseTheirValues) {
  const std::string update = absl::StrCat(kSgd, kMakeGrad, Coalesce(""), kUpdate);
  EXPECT_THAT(CheckText(update),
              ElementsAre("W106 op 2 (sgd) input Grad: variable g has no value: op 1 "
                          "(coalesce_tensor) gives it new memory, and no op writes it after "
                          "that"));
  for (const char* attr : {", copy_data=true", ", set_constant=true", ", persist_output=true"}) {
    EXPECT_THAT(CheckText(absl::StrCat(kSgd, kMakeGrad, Coalesce(attr), kUpdate)), IsEmpty())
        << attr;
  }
}

TEST(UninitializedReads, CopiedMembersMustBeWritten) {
  EXPECT_THAT(
      CheckText(absl::StrCat(kSgd, Coalesce(", copy_data=true"), kUpdate)),
      ElementsAre(HasSubstr("W106 op 0 (coalesce_tensor) input Input: variable g has no value")));
}

TEST(UninitializedReads, WhoeverWritesTheBufferWritesItsMembers) {
  EXPECT_THAT(CheckText(absl::StrCat(kSgd, Coalesce(""),
                                     "Out=[fused] = relu(X=[x]) role=backward\n", kUpdate)),
              IsEmpty());
}

// --- Blocks -------------------------------------------------------------------------------------

// A condition and x; block 1 is run by an op of that type, after which y is read.
ProgramBuilder WithBlock(const std::string& holder) {
  ProgramBuilder p;
  p.Param("x").Param("cond").Var("y");
  const bool is_loop = holder == "while";
  p.Op(holder, {{is_loop ? "Condition" : "Cond", {"cond"}}},
       {{is_loop ? "StepScopes" : "Scope", {}}});
  p.BlockAttr("sub_block", 1);
  p.Op("relu", {{"X", {"y"}}}, {{"Out", {"z"}}}, kRoleBackward);
  p.NewBlock(0);
  return p;
}

TEST(UninitializedReads, WhatABlockWritesMayNotBeThereAfterIt) {
  for (const std::string holder : {"conditional_block", "while"}) {
    ProgramBuilder p = WithBlock(holder);
    p.Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
    EXPECT_THAT(Check(p.Build()),
                ElementsAre(absl::StrCat(
                    "W107 op 1 (relu) input X: variable y may have no value, or the value of an "
                    "earlier step: op 0 (",
                    holder,
                    ") writes it in a block that may not run, and op 1 "
                    "(relu) does not run on the same condition")));
  }
}

TEST(UninitializedReads, ListedOutputsOfABranchAreNotWritten) {
  pb::ProgramDesc desc = WithBlock("conditional_block").desc();
  pb::OpDesc::Var* out = desc.mutable_blocks(0)->mutable_ops(0)->add_outputs();
  out->set_parameter("Out");
  out->add_arguments("y");
  absl::StatusOr<Program> program = Program::FromProto(desc);
  WEFT_ASSERT_OK(program);
  EXPECT_THAT(Check(*program),
              ElementsAre(HasSubstr("W106 op 1 (relu) input X: variable y has no value")));
}

TEST(UninitializedReads, BlockSeesWhatIsWrittenBeforeTheOpThatRunsIt) {
  ProgramBuilder p;
  p.Param("x").Param("cond").Var("y");
  p.Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  p.Op("conditional_block", {{"Cond", {"cond"}}}, {}).BlockAttr("sub_block", 1);
  p.NewBlock(0).Op("relu", {{"X", {"y"}}}, {{"Out", {"z"}}}, kRoleBackward);
  EXPECT_THAT(Check(p.Build()), IsEmpty());
  pb::ProgramDesc desc = p.desc();
  desc.mutable_blocks(0)->mutable_ops()->SwapElements(0, 1);
  absl::StatusOr<Program> program = Program::FromProto(desc);
  WEFT_ASSERT_OK(program);
  EXPECT_THAT(Check(*program), ElementsAre(HasSubstr("W106 block 1, op 0 (relu) input X")));
}

TEST(UninitializedReads, BodyOfALoopSeesWhatItWritesLater) {
  for (const bool is_loop : {true, false}) {
    ProgramBuilder p = WithBlock(is_loop ? "while" : "conditional_block");
    p.Op("relu", {{"X", {"y"}}}, {{"Out", {"inner"}}}, kRoleBackward);
    p.Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
    if (is_loop) {
      EXPECT_THAT(Check(p.Build()), ElementsAre(HasSubstr("W107 op 1 (relu) input X")))
          << "the loop may run zero times";
    } else {
      EXPECT_THAT(
          Check(p.Build()),
          ElementsAre(HasSubstr("W106 block 1, op 0 (relu) input X: variable y has no value"),
                      HasSubstr("W107 op 1 (relu) input X")));
    }
  }
}

TEST(UninitializedReads, GradientBlockSeesVariablesOfItsForwardBlock) {
  ProgramBuilder p = WithBlock("while");
  p.Op("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  p.Var("inner").Op("relu", {{"X", {"x"}}}, {{"Out", {"inner"}}});
  p.InBlock(0).Var("rounds").Op("while_grad", {{"StepScopes", {"rounds"}}}, {});
  p.BlockAttr("sub_block", 2);
  pb::OpDesc::Attr& inside = *p.last_op().add_attrs();
  inside.set_name("original_output_grad");
  inside.set_type(pb::STRINGS);
  p.NewBlock(0);
  p.Var("g");
  p.Op("relu", {{"X", {"x"}}}, {{"Out", {"g"}}}, kRoleBackward);
  p.last_op().mutable_inputs(0)->set_arguments(0, "inner");
  EXPECT_THAT(VerifyStructure(p.Build()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "block 2, op 0 (relu) input X: variable inner is not declared (W101)"));
  pb::ProgramDesc desc = p.desc();
  desc.mutable_blocks(2)->set_forward_block_idx(1);
  desc.mutable_blocks(0)->mutable_ops(0)->mutable_outputs(0)->add_arguments("rounds");
  absl::StatusOr<Program> program = Program::FromProto(desc);
  WEFT_ASSERT_OK(program);
  WEFT_EXPECT_OK(VerifyStructure(*program));
  EXPECT_THAT(Check(*program), ElementsAre(HasSubstr("W107 op 1 (relu) input X: variable y")));
}

// --- Memory without values -----------------------------------------------------------------------

constexpr char kEmpty[] = "Out=[g] = empty() role=backward {shape=longs[2], dtype=5}\n";
constexpr char kEmptyIsRead[] =
    "W106 op 1 (sgd) input Grad: variable g has no value: op 0 (empty) gives it memory without "
    "values, and no op writes it after that";

TEST(UninitializedReads, EmptyHasNoValue) {
  EXPECT_THAT(CheckText(absl::StrCat(kSgd, kEmpty, kUpdate)), ElementsAre(kEmptyIsRead));
  EXPECT_THAT(
      CheckText(absl::StrCat(kSgd, kEmpty, "Out=[g] = relu(X=[x]) role=backward\n", kUpdate)),
      IsEmpty());
  EXPECT_THAT(
      CheckText(absl::StrCat(kSgd, "Out=[g] = relu(X=[x]) role=backward\n", kEmpty, kUpdate)),
      ElementsAre(HasSubstr("op 2 (sgd) input Grad: variable g has no value: op 1 (empty)")));
}

TEST(UninitializedReads, PersistableVariableLosesItsValueToEmpty) {
  const std::string lr = "Out=[lr] = empty() role=optimize {shape=longs[1], dtype=5}\n";
  EXPECT_THAT(
      CheckText(absl::StrCat(kSgd, "Out=[g] = relu(X=[x]) role=backward\n", lr, kUpdate)),
      ElementsAre(HasSubstr("W106 op 2 (sgd) input LearningRate: variable lr has no value")));
}

TEST(UninitializedReads, WhatAStepLeavesEmptyTheNextOneDoesNotRead) {
  const std::string lr = "Out=[lr] = empty() role=optimize {shape=longs[1], dtype=5}\n";
  const std::string relu = "Out=[g] = relu(X=[x]) role=backward\n";
  const std::string fill =
      "Out=[lr] = fill_constant() role=optimize {shape=longs[1], dtype=5, value=1.0}\n";
  EXPECT_THAT(CheckText(absl::StrCat(kSgd, relu, kUpdate, lr)),
              ElementsAre("W106 op 1 (sgd) input LearningRate: variable lr has no value: step "
                          "before: op 2 (empty) gives it memory without values, and no op writes "
                          "it after that"));
  EXPECT_THAT(CheckText(absl::StrCat(kSgd, relu, kUpdate, lr, fill)), IsEmpty());
  EXPECT_THAT(CheckText(absl::StrCat(kSgd, relu, fill, kUpdate, lr)), IsEmpty());
}

// The root sends what it has.
TEST(UninitializedReads, ABroadcastFillsWhatIsEmptyOnOtherRanks) {
  const Program program = testing::BlockProgram(
      absl::StrCat(kSgd, kEmpty, "Out=[g] = c_broadcast(X=[g]) role=backward {root=1}\n", kUpdate));
  for (const absl::optional<int> rank :
       {absl::optional<int>(), absl::optional<int>(0), absl::optional<int>(1)}) {
    Findings findings;
    CheckUninitializedReads(program, ProgramRef(), &findings, rank);
    EXPECT_EQ(findings.HasErrors(), rank != 0);
  }
}

TEST(UninitializedReads, DimsOfEmptyAreReadAndPartsWritten) {
  for (const char* op :
       {"Out=[g] = fill_any_like(X=[g]) role=backward {value=0.0}\n",
        "Out=[g] = set_value(Input=[g]) role=backward {axes=longs[0], starts=longs[0], "
        "ends=longs[2], steps=longs[1], shape=longs[1], dtype=5, fp32_values=floats[1.0]}\n"}) {
    EXPECT_THAT(CheckText(absl::StrCat(kSgd, kEmpty, op, kUpdate)), IsEmpty());
  }
}

TEST(UninitializedReads, FillsInPlaceReadTheDimsOfEmpty) {
  for (const char* op :
       {"Out=[g] = uniform_random_inplace(X=[g]) role=backward {min=0.0, max=1.0}\n",
        "Out=[g] = exponential(X=[g]) role=backward {lambda=1.0}\n",
        "out=[g] = pd_op.full_(x=[g]) role=backward {value=1.0}\n",
        "out=[g] = pd_op.fill_(value=[lr], x=[g]) role=backward\n"}) {
    EXPECT_THAT(CheckText(absl::StrCat(kSgd, kEmpty, op, kUpdate)), IsEmpty()) << op;
  }
}

TEST(UninitializedReads, WhatFillsMustHaveValues) {
  const std::string lr = "Out=[lr] = empty() role=optimize {shape=longs[1], dtype=5}\n";
  for (const char* op :
       {"out=[g] = pd_op.fill_(value=[lr], x=[g]) role=backward\n",
        "Out=[g] = set_value(Input=[g], ValueTensor=[lr]) role=backward {axes=longs[0], "
        "starts=longs[0], ends=longs[2], steps=longs[1], shape=longs[1], dtype=5}\n"}) {
    EXPECT_THAT(CheckText(absl::StrCat(kSgd, kEmpty, lr, op)),
                Contains(HasSubstr("variable lr has no value: op 1 (empty)")))
        << op;
  }
}

TEST(CheckStartupKeeps, WhatBeginsEmptyIsWrittenBeforeItIsRead) {
  const std::string relu = "Out=[g] = relu(X=[x]) role=backward\n";
  const Program startup =
      testing::BlockProgram(absl::StrCat(kSgd, "Out=[lr] = empty() {shape=longs[1], dtype=5}\n"));
  const auto check = [&](const std::string& main) {
    const Program program = testing::BlockProgram(absl::StrCat(kSgd, relu, main));
    Findings findings;
    CheckStartupKeeps({&program, &startup}, {0, true}, &findings);
    std::vector<std::string> texts;
    for (const Finding& finding : findings.all()) {
      texts.push_back(absl::StrCat(finding.rule, " ", finding.message));
    }
    return texts;
  };
  EXPECT_THAT(check(kUpdate),
              ElementsAre("W107 op 1 (sgd) input LearningRate: variable lr has no value: startup "
                          "program: op 0 (empty) gives it memory without values, and no op writes "
                          "it after that"));
  EXPECT_THAT(check(absl::StrCat(
                  "Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=1.0}\n", kUpdate)),
              IsEmpty());
}

TEST(UninitializedReads, NothingIsReadInABlockThatNoOpRuns) {
  ProgramBuilder p;
  p.NewBlock(0).Op("relu", {{"X", {"g"}}}, {{"Out", {"z"}}}, kRoleBackward);
  EXPECT_THAT(Check(p.Build()), IsEmpty());
}

}  // namespace
}  // namespace weft::testing
