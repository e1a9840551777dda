#include "transpiler/passes/support/startup_parameters.h"

#include <string>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

absl::StatusOr<std::vector<std::string>> ParametersOf(const std::string& main_text,
                                                      const std::string& startup_text) {
  Program main = CompactProgram(main_text), startup = CompactProgram(startup_text);
  return StartupParameters({&main, &startup});
}

TEST(StartupParameters, InTheOrderOfTheirInitializersThenByName) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto parameters, ParametersOf("var w : fp32[2] parameter", R"(
    var a, b : fp32[2] parameter
    var moment : fp32[2] persistable
    Out=[w] = fill_constant() {shape=longs[2], dtype=5}
    Out=[moment] = fill_constant() {shape=longs[2], dtype=5}
    Out=[b] = fill_constant() {shape=longs[2], dtype=5}
  )"));
  EXPECT_THAT(parameters, ElementsAre("w", "b", "a"));
}

// Files older than Paddle 2.2.
TEST(StartupParameters, WithoutMarksThePersistableVariablesThatAreTrained) {
  const std::string vars =
      "var paired : fp32[2] persistable\nvar updated : fp32[2] persistable\n"
      "var by_unknown_op : fp32[2] persistable\n"
      "var statistic : fp32[2] persistable\nvar temporary : fp32[2]\n";
  WEFT_ASSERT_OK_AND_ASSIGN(const auto parameters, ParametersOf(vars + R"(
    Out=[paired@GRAD] = relu_grad() role=backward vars=[paired, paired@GRAD]
    Out=[g] = relu_grad() role=backward vars=[temporary, g]
    ParamOut=[by_unknown_op] = my_sgd(Param=[by_unknown_op]) role=optimize
    ParamOut=[updated] = sgd(Param=[updated], Grad=[g], LearningRate=[lr]) role=optimize
  )",
                                                                vars));
  EXPECT_THAT(parameters, ElementsAre("by_unknown_op", "paired", "updated"));
}

TEST(StartupParameters, ParameterThatTheStartupProgramDoesNotDeclareIsRefused) {
  EXPECT_THAT(ParametersOf("var w : fp32[2] parameter", "var v : fp32[2] parameter").status(),
              IsInvalidArgument("parameter w of the main program is not declared"));
}

// As a teacher in a distillation.
TEST(StartupParameters, ParameterThatIsOnlyReadMayComeFromAFile) {
  const std::string main = "var w, t, y : fp32[2] parameter\n    Out=[y] = relu(X=[t])\n";
  const std::string startup = "var w, y : fp32[2] parameter";
  WEFT_ASSERT_OK_AND_ASSIGN(const auto parameters, ParametersOf(main, startup));
  EXPECT_THAT(parameters, ElementsAre("w", "y"));
  EXPECT_THAT(ParametersOf(main + "    Out=[t] = relu(X=[t])\n", startup).status(),
              IsInvalidArgument("parameter t of the main program is not declared"));
}

}  // namespace
}  // namespace weft::testing
