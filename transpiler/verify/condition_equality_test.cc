#include "transpiler/verify/condition_equality.h"

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

constexpr absl::string_view kStartup = R"(program {
  block 0 parent=-1 {
    var w : fp32[4] parameter persistable
    var lr : fp32[1] persistable
    var step : int64[1] persistable
    Out=[w] = fill_constant() {shape=longs[4], dtype=5, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
    Out=[step] = fill_constant() {shape=longs[1], dtype=3, value=0.0}
    c_comm_init_all() {ring_id=0, nranks=2}
  }
})";

TEST(ConditionEquality, ConditionsAreComputedAlikeOnAllRanks) {
  const Program program = ProgramOf(kEveryOtherStep), startup = ProgramOf(kStartup);
  EXPECT_THAT(Errors({{&program, &startup}, {&program, &startup}}), IsEmpty());
}

TEST(ConditionEquality, ConditionsMayNotDependOnAnotherNumber) {
  const Program one = ProgramOf(kEveryOtherStep);
  const Program other = ProgramOf(kEveryOtherStep, {{"dtype=3, value=2.0", "dtype=3, value=3.0"}});
  EXPECT_THAT(Errors({{&one}, {&other}}),
              ElementsAre(AllOf(StartsWith("W506 error: rank 1: op 5 (conditional_block): "),
                                HasSubstr("condition due is computed from fill_constant"))));
}

// In the first step the ranks agree.
TEST(ConditionEquality, ConditionsMayNotDependOnWhatAStepMakesDifferent) {
  const Program one = ProgramOf(kEveryOtherStep);
  const Program other = ProgramOf(kEveryOtherStep, {{"{step=1.0}", "{step=2.0}"}});
  EXPECT_THAT(Errors({{&one}, {&other}}),
              ElementsAre(HasSubstr("condition due depends on step, which a step makes something "
                                    "else on rank 1 than on rank 0")));
}

TEST(ConditionEquality, ConditionsMayNotBeginDifferently) {
  const Program program = ProgramOf(kEveryOtherStep), startup = ProgramOf(kStartup);
  const Program other = ProgramOf(kStartup, {{"dtype=3, value=0.0", "dtype=3, value=1.0"}});
  EXPECT_THAT(Errors({{&program, &startup}, {&program, &other}}),
              ElementsAre(HasSubstr("condition due depends on step, which the startup program "
                                    "makes something else on rank 1 than on rank 0")));
}

}  // namespace
}  // namespace weft
