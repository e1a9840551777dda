// Pass hetero-partition and ops that have blocks.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/all_ops.h"
#include "proto/text/program_text.h"
#include "transpiler/testing/message_lines.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kVars[] = R"(
    var x : fp32[-1, 2] need_check_feed
    var c : bool[1] need_check_feed
    var w : fp32[2, 3] parameter persistable
    var y, z : fp32[-1, 3]
)";

Program WithVars(absl::string_view ops) {
  return testing::CompactProgram(absl::StrCat(kVars, ops));
}

absl::StatusOr<TranspileResult> Place(absl::string_view rules, Program* main,
                                      absl::optional<int64_t> device_memory = absl::nullopt) {
  ProgramPair programs{main, nullptr};
  TranspileOptions options;
  options.mode = "none";
  options.placement.place = std::string(rules);
  options.placement.device_memory = device_memory;
  if (device_memory.has_value()) options.placement.batch = 4;
  options.explain = true;
  return Transpile(options, programs);
}

// "block 1, op 0 (scale)": the ops of which a note says that they stay.
std::vector<std::string> StayingOps(const TranspileResult& result) {
  std::vector<std::string> ops;
  for (absl::string_view note : testing::ResultLines(result.messages)) {
    const size_t end = note.find(" stays on the accelerator");
    if (end == absl::string_view::npos) continue;
    constexpr absl::string_view kBegin = "note: place: ";
    EXPECT_TRUE(absl::StartsWith(note, kBegin)) << note;
    ops.emplace_back(note.substr(kBegin.size(), end - kBegin.size()));
  }
  return ops;
}

// The devices of the ops of a type, in all blocks.
std::vector<std::string> DevicesOf(const Program& program, absl::string_view type) {
  std::vector<std::string> devices;
  for (const Op& op : AllOps(program)) {
    if (op.type() == type) devices.emplace_back(op.StringAttr("op_device").value_or(""));
  }
  return devices;
}

constexpr char kBranch[] = R"(
    Out=[y] = mul(X=[x], Y=[w])
    Out=[w], Scope=[] = conditional_block(Cond=[c], Input=[w]) {sub_block=block(1), is_scalar_condition=true}
    Out=[z] = relu(X=[y])
  block 1:
    Out=[w] = scale(X=[w]) {scale=2.0}
    Out=[w] = assign(X=[w])
)";

TEST(HeteroBlocks, BlockOnTheHostTakesItsOps) {
  Program main = WithVars(kBranch);
  WEFT_ASSERT_OK(Place("type:conditional_block=cpu", &main).status());
  const std::string text = ProgramText(main);
  EXPECT_THAT(text, HasSubstr("scale(X=[w])"));
  EXPECT_THAT(text, HasSubstr("mul(X=[x], Y=[w@SIM])"));
  EXPECT_THAT(DevicesOf(main, "scale"), ElementsAre("cpu"));
}

TEST(HeteroBlocks, RuleForAnOpOfABlockPlacesTheBlock) {
  Program main = WithVars(kBranch);
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Place("type:scale=cpu", &main));
  for (OpId id : main.block(1).ops()) EXPECT_EQ(main.op(id).StringAttr("op_device"), "cpu");
  EXPECT_THAT(ProgramText(main), HasSubstr("mul(X=[x], Y=[w@SIM])"));
  EXPECT_EQ(result.remarks[0].subject, "op 1 (conditional_block)");
  EXPECT_EQ(result.remarks[0].what, "on the host");
  EXPECT_EQ(result.remarks[0].why,
            "a rule puts block 1, op 0 (scale) there, and ops of a block run together");
}

TEST(HeteroBlocks, RulesForOneBlockNameOneDevice) {
  Program main = WithVars(kBranch);
  EXPECT_THAT(
      Place("type:scale=cpu,type:assign=sim", &main).status(),
      IsInvalidArgument(
          "rules of place put block 1, op 0 (scale) on the host and block 1, op 1 (assign) on the "
          "accelerator: expected one device for the blocks of op 1 (conditional_block)"));
  main = WithVars(kBranch);
  EXPECT_THAT(Place("type:scale=cpu,type:conditional_block=sim", &main).status(),
              IsInvalidArgument("block 1, op 0 (scale): expected to run where its block runs"));
}

// --- Blocks that cannot run on the host ----------------------------------------------------------

std::string Loop(absl::string_view branch) {
  return absl::StrReplaceAll(
      branch, {{"Scope=[] = conditional_block(Cond=[c], Input=[w]) {sub_block=block(1), "
                "is_scalar_condition=true}",
                "StepScopes=[] = while(Condition=[c], X=[w]) {sub_block=block(1)}"}});
}

TEST(HeteroBlocks, OpOfALoopStaysWithANote) {
  Program main = WithVars(Loop(kBranch));
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result,
                            Place("type:scale=cpu,type:relu=cpu", &main));
  EXPECT_THAT(ProgramText(main), HasSubstr("relu(X=[y@CPU])"));
  EXPECT_THAT(testing::ResultLines(result.messages),
              Contains(HasSubstr("note: place: block 1, op 0 (scale) stays on the accelerator with "
                                 "its block: op 1 (while): expected an op that can run on the "
                                 "host: the conditions of loops")));
  main = WithVars(Loop(kBranch));
  EXPECT_THAT(Place("type:scale=cpu", &main).status(),
              IsInvalidArgument("place: block 1, op 0 (scale) stays on the accelerator"));
}

TEST(HeteroBlocks, EveryRuledOpOfALoopIsNotedInAllItsBlocks) {
  const std::string branches = R"(
    Out=[w], Scope=[] = conditional_block(Cond=[c], Input=[w]) {sub_block=block(2), is_scalar_condition=true}
    Out=[w], Scope=[] = conditional_block(Cond=[c], Input=[w]) {sub_block=block(3), is_scalar_condition=true}
  block 2 parent=1:
    Out=[w] = assign(X=[w])
    Out=[w] = scale(X=[w]) {scale=3.0}
  block 3 parent=1:
    Out=[w] = scale(X=[w]) {scale=4.0}
)";
  const std::string loop = Loop(kBranch);
  Program main = WithVars(absl::StrCat(loop, branches));
  WEFT_ASSERT_OK_AND_ASSIGN(TranspileResult result, Place("type:scale=cpu,type:relu=cpu", &main));
  EXPECT_THAT(StayingOps(result), ElementsAre("block 1, op 0 (scale)", "block 2, op 1 (scale)",
                                              "block 3, op 0 (scale)"));
  const std::string without =
      absl::StrReplaceAll(loop, {{"Out=[w] = scale(X=[w]) {scale=2.0}", ""}});
  main = WithVars(absl::StrCat(without, branches));
  WEFT_ASSERT_OK_AND_ASSIGN(result, Place("type:scale=cpu,type:relu=cpu", &main));
  EXPECT_THAT(StayingOps(result), ElementsAre("block 2, op 1 (scale)", "block 3, op 0 (scale)"));
}

// 64 KB on the accelerator, of which 12 are the velocity.
constexpr char kMomentum[] = R"(
    var x : fp32[-1, 3] need_check_feed
    var c : bool[1] need_check_feed
    var w : fp32[3, 1000] parameter persistable
    var v : fp32[3, 1000] persistable
    var lr, s : fp32[1] persistable
    Out=[s], StepScopes=[] = while(Condition=[c], X=[s]) {sub_block=block(1)}
    Out=[y] = mul(X=[x], Y=[w])
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    ParamOut=[w], VelocityOut=[v] = momentum(Grad=[w@GRAD], LearningRate=[lr], Param=[w], Velocity=[v]) role=optimize {mu=0.9}
  block 1:
    Out=[s] = scale(X=[s]) {scale=0.5}
)";

TEST(HeteroBlocks, OpOfALoopStaysWithANoteWhateverTheMemory) {
  Program main = testing::CompactProgram(kMomentum);
  WEFT_ASSERT_OK_AND_ASSIGN(TranspileResult result, Place("type:scale=cpu", &main, 55000));
  EXPECT_THAT(StayingOps(result), ElementsAre("block 1, op 0 (scale)"));
  EXPECT_THAT(testing::ResultLines(result.messages), Contains(HasSubstr("on the host 1 update")));
  EXPECT_THAT(DevicesOf(main, "momentum"), ElementsAre("cpu"));
  main = testing::CompactProgram(kMomentum);
  WEFT_ASSERT_OK_AND_ASSIGN(result, Place("type:scale=cpu", &main, 1000000));
  EXPECT_THAT(StayingOps(result), ElementsAre("block 1, op 0 (scale)"));
  EXPECT_THAT(DevicesOf(main, "momentum"), ElementsAre(""));
}

// --- Branches that update ------------------------------------------------------------------------

// A gradient that is merged, as Paddle writes it: the branch has a scope, and its block names
// itself as its forward block.
constexpr char kMerged[] = R"(
    var scope : step_scopes
    var x : fp32[-1, 3] need_check_feed
    var c : bool[1] need_check_feed
    var w : fp32[3, 1000] parameter persistable
    var v, w@MERGED : fp32[3, 1000] persistable
    var lr : fp32[1] persistable
    Out=[y] = mul(X=[x], Y=[w])
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y], X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    Out=[w@MERGED] = elementwise_add(X=[w@GRAD], Y=[w@MERGED]) role=backward
    Out=[w, v, w@MERGED], Scope=[scope] = conditional_block(Cond=[c], Input=[w, v, w@MERGED, lr]) {sub_block=block(1), is_scalar_condition=true}
  block 1 parent=0 forward=1:
    ParamOut=[w], VelocityOut=[v] = momentum(Grad=[w@MERGED], LearningRate=[lr], Param=[w], Velocity=[v]) role=optimize {mu=0.9}
    Out=[w@MERGED] = fill_constant() role=optimize {shape=longs[3, 1000], dtype=5, value=0.0}
)";

TEST(HeteroBlocks, BranchThatUpdatesLeavesFirstWithTheOpThatMerges) {
  for (const char* block : {"block 1 parent=0 forward=1:", "block 1:"}) {
    SCOPED_TRACE(block);
    Program main = testing::CompactProgram(
        absl::StrReplaceAll(kMerged, {{"block 1 parent=0 forward=1:", block}}));
    WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Place("", &main, 55000));
    EXPECT_THAT(testing::ResultLines(result.messages),
                Contains(HasSubstr("on the host 1 update; ")));
    for (const char* type : {"elementwise_add", "conditional_block", "momentum"}) {
      EXPECT_THAT(DevicesOf(main, type), ElementsAre("cpu")) << type;
    }
    EXPECT_THAT(DevicesOf(main, "mul_grad"), ElementsAre(""));
  }
}

// The scope of a branch that another op reads cannot be copied.
TEST(HeteroBlocks, BranchWhoseScopeAnotherOpReadsStays) {
  Program main = testing::CompactProgram(absl::StrReplaceAll(
      kMerged, {{"  block 1", "    Out=[scope] = assign(X=[scope])\n  block 1"}}));
  const absl::StatusOr<TranspileResult> result = Place("", &main, 55000);
  EXPECT_THAT(result.status(), IsResourceExhausted("device memory: expected at least "));
}

// --- Branches and their gradients ----------------------------------------------------------------

// A branch with two gradients; each block has one op of its own type.
constexpr char kGradients[] = R"(
    var scope : step_scopes
    var y@GRAD, a@GRAD, b@GRAD : fp32[-1, 3]
    Out=[y] = mul(X=[x], Y=[w])
    Out=[z], Scope=[scope] = conditional_block(Cond=[c], Input=[y]) {sub_block=block(1), is_scalar_condition=true}
    Out=[z@GRAD] = scale(X=[z]) role=backward
    Input@GRAD=[a@GRAD] = conditional_block_grad(Cond=[c], Input=[y], Out=[z], Out@GRAD=[z@GRAD], Scope=[scope]) role=backward {sub_block=block(2), is_scalar_condition=true}
    Input@GRAD=[b@GRAD] = conditional_block_grad(Cond=[c], Input=[y], Out=[z], Out@GRAD=[z@GRAD], Scope=[scope]) role=backward {sub_block=block(3), is_scalar_condition=true}
    Out=[y] = sigmoid(X=[b@GRAD]) role=backward
  block 1:
    var h : fp32[-1, 3]
    Out=[h] = tanh(X=[y])
    Out=[z] = relu(X=[h])
  block 2 parent=0 forward=1:
    var y@GRAD : fp32[-1, 3]
    X@GRAD=[y@GRAD] = relu_grad(Out=[h], Out@GRAD=[z@GRAD]) role=backward
  block 3 parent=0 forward=1:
    var y@GRAD : fp32[-1, 3]
    X@GRAD=[y@GRAD] = tanh_grad(Out=[h], Out@GRAD=[z@GRAD]) role=backward
)";

TEST(HeteroBlocks, RuleForAnyOpOfABranchOrItsGradientsPlacesAllOfThem) {
  for (const char* rule : {"type:tanh=cpu", "type:relu_grad=cpu", "type:tanh_grad=cpu",
                           "type:tanh_grad=cpu,type:relu_grad=cpu"}) {
    SCOPED_TRACE(rule);
    Program main = WithVars(kGradients);
    WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Place(rule, &main));
    for (const char* type : {"conditional_block", "tanh", "relu", "relu_grad", "tanh_grad"}) {
      EXPECT_THAT(DevicesOf(main, type), ElementsAre("cpu")) << type;
    }
    EXPECT_THAT(DevicesOf(main, "conditional_block_grad"), ElementsAre("cpu", "cpu"));
    EXPECT_THAT(DevicesOf(main, "mul"), ElementsAre(""));
    EXPECT_THAT(StayingOps(result), IsEmpty());
  }
}

// What the message says to do works.
TEST(HeteroBlocks, GradientOfALoopIsLeftOutByAFirstRule) {
  const std::string loop = absl::StrReplaceAll(
      kGradients,
      {{"Scope=[scope] = conditional_block(Cond=[c], Input=[y]) {sub_block=block(1), "
        "is_scalar_condition=true}",
        "StepScopes=[scope] = while(Condition=[c], X=[y]) {sub_block=block(1)}"},
       {"Input@GRAD=[a@GRAD] = conditional_block_grad(Cond=[c], Input=[y], Out=[z], "
        "Out@GRAD=[z@GRAD], Scope=[scope]) role=backward {sub_block=block(2), "
        "is_scalar_condition=true}",
        "X@GRAD=[a@GRAD] = while_grad(X=[y], Out=[z], Out@GRAD=[z@GRAD], StepScopes=[scope]) "
        "role=backward {sub_block=block(2), original_output_grad=strings[\"z@GRAD\"]}"},
       {"Input@GRAD=[b@GRAD] = conditional_block_grad(Cond=[c], Input=[y], Out=[z], "
        "Out@GRAD=[z@GRAD], Scope=[scope]) role=backward {sub_block=block(3), "
        "is_scalar_condition=true}",
        "X@GRAD=[b@GRAD] = while_grad(X=[y], Out=[z], Out@GRAD=[z@GRAD], StepScopes=[scope]) "
        "role=backward {sub_block=block(3), original_output_grad=strings[\"z@GRAD\"]}"}});
  Program main = WithVars(loop);
  EXPECT_THAT(
      Place("type:sigmoid=cpu,type:*_grad=cpu", &main).status(),
      IsInvalidArgument(AllOf(HasSubstr("(while_grad): expected to run on the accelerator as op 1 "
                                        "(while)"),
                              HasSubstr("leave it on the accelerator, with a first rule "
                                        "type:while_grad=sim: "),
                              HasSubstr("the conditions of loops"))));
  main = WithVars(loop);
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result,
                            Place("type:while_grad=sim,type:sigmoid=cpu,type:*_grad=cpu", &main));
  EXPECT_THAT(StayingOps(result),
              ElementsAre("block 2, op 0 (relu_grad)", "block 3, op 0 (tanh_grad)"));
  EXPECT_THAT(DevicesOf(main, "sigmoid"), ElementsAre("cpu"));
  main = WithVars(loop);
  EXPECT_THAT(Place("type:while*=cpu", &main).status(),
              IsUnimplemented("; leave it on the accelerator, with a first rule type:while=sim"));
}

TEST(HeteroBlocks, RuleThatPutsThemOnOneDeviceIsNamed) {
  for (const auto& [rules, first] :
       {std::make_pair("type:*_grad=cpu", "type:conditional_block=cpu"),
        std::make_pair("type:*block=cpu,type:*block_grad=sim", "type:conditional_block=sim"),
        std::make_pair("type:*block=sim,type:*=cpu", "type:conditional_block=cpu")}) {
    SCOPED_TRACE(rules);
    Program main = WithVars(kGradients);
    EXPECT_THAT(Place(rules, &main).status(),
                IsInvalidArgument(absl::StrCat("; place both, with a first rule ", first)));
  }
  Program main = WithVars(kGradients);
  WEFT_EXPECT_OK(Place("type:conditional_block=cpu,type:*_grad=cpu", &main).status());
}

TEST(HeteroBlocks, BranchAndGradientsStayTogetherIfOneOfThemCannotMove) {
  const std::pair<const char*, const char*> draws[] = {
      {"Out=[h] = tanh(X=[y])", "block 1, op 0 (uniform_random): expected an op that can run"},
      {"X@GRAD=[y@GRAD] = relu_grad(Out=[h], Out@GRAD=[z@GRAD]) role=backward",
       "block 2, op 0 (uniform_random): expected an op that can run"}};
  for (const auto& [line, why] : draws) {
    SCOPED_TRACE(line);
    const std::string drawn = absl::StrReplaceAll(
        kGradients,
        {{line, absl::StrCat("Out=[h] = uniform_random() {shape=longs[1, 3]}\n", line)}});
    ASSERT_NE(drawn, kGradients);
    Program main = WithVars(drawn);
    WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result,
                              Place("type:tanh=cpu,type:tanh_grad=cpu,type:sigmoid=cpu", &main));
    EXPECT_THAT(StayingOps(result), ElementsAre(HasSubstr("(tanh)"), "block 3, op 0 (tanh_grad)"));
    EXPECT_THAT(testing::ResultLines(result.messages),
                Contains(AllOf(HasSubstr("(tanh_grad) stays"), HasSubstr(why))));
    EXPECT_THAT(DevicesOf(main, "conditional_block"), ElementsAre(""));
    EXPECT_THAT(DevicesOf(main, "conditional_block_grad"), ElementsAre("", ""));
    EXPECT_THAT(DevicesOf(main, "sigmoid"), ElementsAre("cpu"));
  }
}

}  // namespace
}  // namespace weft::testing
