#include "transpiler/verify/averaging_conditions.h"

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verify/testing/found.h"
#include "transpiler/verify/testing/training_steps.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::weft::testing::Errors;
using ::weft::testing::kEveryOtherStep;
using ::weft::testing::ProgramOf;

constexpr absl::string_view kOneDevice = R"(program {
  block 0 parent=-1 {
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var x : fp32[4] need_check_feed stop_gradient
    ParamOut=[w] = sgd(Param=[w], Grad=[x], LearningRate=[lr])
  }
})";

TEST(AveragingConditions, AveragesOnAConditionThatChanges) {
  const Program original = ProgramOf(kOneDevice), program = ProgramOf(kEveryOtherStep);
  EXPECT_THAT(Errors({{&program}}, &original), IsEmpty());
}

TEST(AveragingConditions, MayNotRelyOnAConstantCounter) {
  const Program original = ProgramOf(kOneDevice);
  const Program program =
      ProgramOf(kEveryOtherStep, {{"    Out=[step] = increment(X=[step]) {step=1.0}\n", ""}});
  EXPECT_THAT(Errors({{&program}}, &original),
              ElementsAre(AllOf(StartsWith("error: W605: variable w, last written by op 5"),
                                HasSubstr("which is the same in every step"))));
}

}  // namespace
}  // namespace weft
