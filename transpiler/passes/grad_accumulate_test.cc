#include "transpiler/passes/grad_accumulate.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::OnRanks;
using ::weft::testing::ProgramTexts;
using ::weft::testing::RemarkTexts;
using ::weft::testing::RewriteOptions;
using ::weft::testing::RewriteStatus;
using ::weft::testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

constexpr char kBackward[] = R"(
    Out=[y] = mul(X=[x], Y=[w])
    Out=[loss] = reduce_mean(X=[y]) role=loss {reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = reduce_mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward {reduce_all=true}
)";
constexpr char kPaired[] =
    "Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward "
    "vars=[w, w@GRAD]\n";
constexpr char kUnpaired[] =
    "Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward\n";
constexpr char kDeclarations[] = R"(
    var x : fp32[-1, 2] need_check_feed
    var y : fp32[-1, 2]
    var y@GRAD : fp32[-1, 2]
    var loss : fp32[]
    var loss@GRAD : fp32[]
)";
constexpr char kSgd[] =
    "ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize "
    "vars=[w, w@GRAD]\n";
constexpr char kStartup[] = R"(
    var w : fp32[2, 2] parameter persistable
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
)";

// With ops between backward and the update, and the update.
ProgramTexts Training(const std::string& update = kSgd, const std::string& declarations = "") {
  return {absl::StrCat(kDeclarations, declarations, kBackward, kPaired, update), kStartup};
}

// What the startup program begins with, and the main program counts by.
constexpr char kNewStates[] = R"(
    var w@GRAD@ACCUMULATED : fp32[2, 2] persistable stop_gradient
    var accumulate_step : int64[1] persistable stop_gradient
)";
constexpr char kInitialized[] = R"(
    Out=[w@GRAD@ACCUMULATED] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.0, str_value="0"}
    Out=[accumulate_step] = fill_constant() {shape=longs[1], dtype=3, value=0.0, str_value="0"}
)";
constexpr char kNewTemporaries[] = R"(
    var accumulate_k : int64[1]
    var accumulate_remainder : int64[1]
    var accumulate_zero : int64[1]
    var accumulate_is_due : bool[1]
    var accumulate_scope_0 : step_scopes
)";
// K stands for the number of steps.
constexpr char kAccumulated[] = R"(
    Out=[w@GRAD@ACCUMULATED] = elementwise_add(X=[w@GRAD@ACCUMULATED], Y=[w@GRAD]) role=backward vars=[w, w@GRAD@ACCUMULATED]
    Out=[accumulate_step] = increment(X=[accumulate_step]) role=optimize
    Out=[accumulate_k] = fill_constant() role=optimize {shape=longs[1], dtype=3, value=K.0, str_value="K"}
    Out=[accumulate_remainder] = elementwise_mod(X=[accumulate_step], Y=[accumulate_k]) role=optimize
    Out=[accumulate_zero] = fill_constant() role=optimize {shape=longs[1], dtype=3, value=0.0, str_value="0"}
    Out=[accumulate_is_due] = equal(X=[accumulate_remainder], Y=[accumulate_zero]) role=optimize
)";
constexpr char kReset[] =
    "Out=[w@GRAD@ACCUMULATED] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5, "
    "value=0.0, str_value=\"0\"}\n";

std::string Accumulated(int k) {
  return absl::StrReplaceAll(kAccumulated, {{"K", absl::StrCat(k)}});
}
std::string Startup() { return absl::StrCat(kStartup, kNewStates, kInitialized); }

// --- What is written -----------------------------------------------------------------------------

TEST(GradAccumulate, EveryFourthStepUpdatesByTheSumOfFour) {
  const auto result = ExpectRewrite(
      "grad-accumulate{k=4}", Training(),
      {absl::StrCat(kNewStates, kNewTemporaries, kBackward, kUnpaired, Accumulated(4), R"(
    Out=[w@GRAD@ACCUMULATED, w@GRAD, w], Scope=[accumulate_scope_0] = conditional_block(Cond=[accumulate_is_due], Input=[w@GRAD@ACCUMULATED, w, w@GRAD, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  block 1:
    Out=[w@GRAD] = scale(X=[w@GRAD@ACCUMULATED]) role=optimize
    )",
                    kSgd, kReset),
       Startup()});
  EXPECT_THAT(RemarkTexts(result),
              ElementsAre("w@GRAD accumulated: gradient of w in=w@GRAD@ACCUMULATED steps=4 scaled "
                          "by=1"));
}

}  // namespace
}  // namespace weft
