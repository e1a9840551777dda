#include "transpiler/passes/gradients/gradient_reduction.h"

#include <string>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr char kSound[] = R"(
  Y@GRAD=[w@GRAD] = mul_grad(Y=[w], Out@GRAD=[g]) role=backward vars=[w, w@GRAD]
  ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
)";

std::vector<std::string> Problems(const std::string& text,
                                  const std::set<std::string>& distributed = {}) {
  const Program program = CompactProgram(text);
  const auto analysis = AnalyzeGradients(program, distributed);
  if (!analysis.ok()) return {analysis.status().ToString()};
  std::vector<std::string> problems;
  for (const absl::Status& status : ReductionBlockers(program, *analysis, distributed)) {
    EXPECT_EQ(status.code(), kRefused);
    problems.emplace_back(status.message());
  }
  return problems;
}

TEST(ReductionProblems, SoundProgramHasNone) { EXPECT_THAT(Problems(kSound), IsEmpty()); }

TEST(ReductionProblems, OneOfEachKindIsReported) {
  EXPECT_THAT(Problems(std::string(kSound) + R"(
    var i@GRAD : int32[2]
    EncodeGrad=[e], Grad_out=[w@GRAD] = dgc(Grad=[w@GRAD]) role=backward vars=[w, w@GRAD]
    Y@GRAD=[i@GRAD] = mul_grad(Y=[i], Out@GRAD=[g]) role=backward vars=[i, i@GRAD]
    Output=[w@GRAD], FusedOutput=[f] = coalesce_tensor(Input=[w@GRAD]) {dtype=5}
    ParamOut=[lost] = sgd(Param=[lost], Grad=[g], LearningRate=[lr]) role=optimize
  )"),
              ElementsAre(HasSubstr("compresses gradient w@GRAD"), HasSubstr("found int32"),
                          HasSubstr("makes it share its storage"),
                          HasSubstr("lost is updated, but no backward op names its gradient")));
}

TEST(ReductionProblems, DistributedParameterMayBeUpdatedByItsOwnGradient) {
  EXPECT_THAT(
      Problems("ParamOut=[w] = sgd(Param=[w], Grad=[g], LearningRate=[lr]) role=optimize", {"w"}),
      IsEmpty());
}

TEST(GradientReduction, SaysWhatIsReducedAndWhetherItIsAveraged) {
  PassContext context;
  WEFT_ASSERT_OK_AND_ASSIGN(
      const GradientReduction reduction,
      AnalyzeReduction(CompactProgram(kSound), context, GradientScale::kAuto));
  EXPECT_EQ(reduction.analysis.gradients.size(), 1);
  EXPECT_TRUE(reduction.averages);
}

TEST(GradientReduction, ProgramWithoutGradientsOrWithAProblemIsRefused) {
  PassContext context;
  EXPECT_THAT(
      AnalyzeReduction(CompactProgram("Out=[y] = relu(X=[x])"), context, GradientScale::kAuto)
          .status(),
      StatusIs(kRefused, HasSubstr("has no gradients")));
  EXPECT_THAT(AnalyzeReduction(
                  CompactProgram(
                      std::string(kSound) +
                      "ParamOut=[v] = sgd(Param=[v], Grad=[g], LearningRate=[lr]) role=optimize"),
                  context, GradientScale::kAuto)
                  .status(),
              StatusIs(kRefused, HasSubstr("v is updated")));
}

}  // namespace
}  // namespace weft::testing
