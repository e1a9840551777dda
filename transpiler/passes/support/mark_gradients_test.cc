#include "transpiler/passes/support/mark_gradients.h"

#include <string>
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/training/gradients.h"
#include "ops/analysis/training/losses.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kStep[] = R"(program {
  block 0 parent=-1 {
    var x : fp32[-1, 4] need_check_feed
    var w : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    var h : fp32[-1, 1]
    var loss : fp32[]
    var loss@GRAD : fp32[]
    var h@GRAD : fp32[-1, 1]
    var w@GRAD : fp32[4, 1]
    var half : fp32[4, 1]
    Out=[h] = mul(X=[x], Y=[w]) role=forward
    Out=[loss] = reduce_mean(X=[h]) role=forward {dim=ints[], reduce_all=true, keep_dim=false}
    Out=[loss@GRAD] = fill_any_like(X=[loss]) role=backward {value=1.0, dtype=5}
    X@GRAD=[h@GRAD] = reduce_mean_grad(X=[h], Out@GRAD=[loss@GRAD]) role=backward {dim=ints[], reduce_all=true, keep_dim=false}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward
    Out=[half] = scale(X=[w@GRAD]) role=forward {scale=0.5}
    ParamOut=[w] = sgd(Param=[w], Grad=[half], LearningRate=[lr]) role=optimize
  }
})";

Program Parse(const std::string& text) { return ParseProgramText(text).value(); }

TEST(MarkGradientsTest, GradientsAndLossesAreFoundByWhatOpsDo) {
  Program program = Parse(kStep);
  WEFT_ASSERT_OK_AND_ASSIGN(const bool has_changed, MarkGradients(&program));
  EXPECT_TRUE(has_changed);
  WEFT_ASSERT_OK_AND_ASSIGN(const GradientAnalysis analysis, AnalyzeGradients(program, {}));
  ASSERT_EQ(analysis.gradients.size(), 1u);
  EXPECT_EQ(program.name(analysis.gradients[0].grad), "w@GRAD");
  EXPECT_EQ(program.op(analysis.gradients[0].first_use).type(), "scale");
  ASSERT_EQ(FindLosses(program).size(), 1u);
  EXPECT_EQ(program.name(FindLosses(program)[0]), "loss");
  // Once.
  EXPECT_FALSE(MarkGradients(&program).value());
}

TEST(MarkGradientsTest, OtherProgramsAreLeftAlone) {
  const std::pair<std::string, std::string> changes[] = {
      // The gradient of a vector of ones is that of a sum.
      {"var loss : fp32[]", "var loss : fp32[-1]"},
      {"value=1.0", "value=0.0"},
      {"role=backward {value", "role=backward|loss {value"},
      {"Out@GRAD=[h@GRAD]) role=backward", "Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]"},
      {"= sgd(", "= my_update("},
  };
  for (const auto& change : changes) {
    const std::string text = absl::StrReplaceAll(kStep, {change});
    ASSERT_THAT(text, HasSubstr(change.second));
    Program program = Parse(text);
    EXPECT_FALSE(MarkGradients(&program).value()) << change.second;
    EXPECT_EQ(ProgramText(program), ProgramText(Parse(text)));
  }
}

}  // namespace
}  // namespace weft::testing
