#include "transpiler/passes/updates/update_slice.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr char kBackward[] = R"(
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
)";
constexpr char kSgd[] = R"(
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
)";

std::vector<std::string> Names(const Program& program, const std::vector<Symbol>& symbols) {
  std::vector<std::string> names;
  for (Symbol symbol : symbols) names.emplace_back(program.name(symbol));
  return names;
}

std::vector<std::string> Types(const Program& program, const std::vector<OpId>& ops) {
  std::vector<std::string> types;
  for (OpId op : ops) types.emplace_back(program.op(op).type());
  return types;
}

TEST(UpdateSlice, OpsOfTheUpdateReadWhatLastsAndGradients) {
  const Program program = CompactProgram(absl::StrCat(kBackward, R"(
    Out=[c] = clip(X=[w@GRAD]) role=optimize {max=1.0, min=-1.0}
    ParamOut=[w] = sgd(Param=[w], Grad=[c], LearningRate=[lr]) role=optimize
  )"));
  WEFT_ASSERT_OK_AND_ASSIGN(const UpdateSlice part, FindUpdateSlice(program));
  ASSERT_THAT(part.gradients, SizeIs(1));
  EXPECT_EQ(program.name(part.gradients[0].param), "w");
  EXPECT_EQ(program.name(part.gradients[0].grad), "w@GRAD");
  EXPECT_EQ(program.op(part.gradients[0].completed_by).type(), "mul_grad");
  EXPECT_EQ(ToString(part.gradients[0].type), "fp32[2, 2]");
  EXPECT_THAT(Types(program, part.ops), ElementsAre("clip", "sgd"));
  EXPECT_THAT(Names(program, part.reads), ElementsAre("w@GRAD", "w", "lr"));
  EXPECT_THAT(Names(program, part.writes), ElementsAre("c", "w"));
}

TEST(UpdateSlice, CastOfAGradientBelongsToEveryStep) {
  const Program program = CompactProgram(absl::StrCat(R"(
    var x : fp16[2, 2] need_check_feed
    Out=[w16] = cast(X=[w]) {in_dtype=5, out_dtype=4}
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=4, value=1.0}
    Y@GRAD=[w16@GRAD] = mul_grad(X=[x], Y=[w16], Out@GRAD=[y@GRAD]) role=backward vars=[w, w16@GRAD]
    Out=[w@GRAD] = cast(X=[w16@GRAD]) role=optimize {in_dtype=4, out_dtype=5}
  )",
                                                      kSgd));
  WEFT_ASSERT_OK_AND_ASSIGN(const UpdateSlice part, FindUpdateSlice(program));
  ASSERT_THAT(part.gradients, SizeIs(1));
  EXPECT_EQ(program.name(part.gradients[0].paired), "w16@GRAD");
  EXPECT_EQ(program.name(part.gradients[0].grad), "w@GRAD");
  EXPECT_EQ(program.op(part.gradients[0].completed_by).type(), "cast");
  EXPECT_THAT(Types(program, part.ops), ElementsAre("sgd"));
}

TEST(UpdateSlice, TargetNetworksFollowInEveryStep) {
  const Program program = CompactProgram(
      absl::StrCat("var target : fp32[2, 2] parameter persistable\nOut=[target] = assign(X=[w])",
                   kBackward, kSgd));
  WEFT_ASSERT_OK_AND_ASSIGN(const UpdateSlice part, FindUpdateSlice(program));
  ASSERT_THAT(part.updated_in_every_step, SizeIs(1));
  EXPECT_EQ(program.name(part.updated_in_every_step[0].param), "target");
}

TEST(UpdateSlice, WhatWouldComputeSomethingElseIsRefused) {
  const std::string step = absl::StrCat(kBackward, kSgd);
  const auto add = [](absl::string_view addend) {
    return absl::StrCat(kBackward, "Out=[c] = elementwise_add(X=[w@GRAD], Y=[", addend,
                        "]) role=optimize\n",
                        "ParamOut=[w] = sgd(Param=[w], Grad=[c], LearningRate=[lr]) role=optimize");
  };
  const std::pair<std::string, const char*> cases[] = {
      {"Out=[y] = relu(X=[x])", "no gradient to accumulate"},
      {absl::StrCat(kBackward, "Out=[z] = relu(X=[w@GRAD])", kSgd),
       "op 2 (relu) uses gradient w@GRAD in every step"},
      {step + "Out=[z] = relu(X=[w])",
       "op 3 (relu) reads w in every step, after op 2 (sgd), which is of the update, writes it"},
      {step + "Out=[lr] = scale(X=[lr]) {scale=0.5}",
       "op 3 (scale) writes lr in every step, after op 2 (sgd), which is of the update, reads it"},
      {"Out=[b] = relu(X=[x])" + add("b"), "reads b, which op 0 (relu) computes in every step"},
      {add("x"), "op 2 (elementwise_add) reads x, which is fed"},
      {"Out=[w] = scale(X=[w@GRAD]) role=backward" + step, "in every step, by what backward"},
  };
  for (const auto& [program, message] : cases) {
    EXPECT_THAT(FindUpdateSlice(CompactProgram(program)), IsFailedPrecondition(message)) << program;
  }
}

}  // namespace
}  // namespace weft::testing
