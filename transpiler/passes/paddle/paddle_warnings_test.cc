#include "transpiler/passes/paddle/paddle_warnings.h"

#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/compact_program.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::weft::testing::CompactProgram;

std::vector<std::string> Warnings(const std::string& text,
                                  PaddleExchange exchange = PaddleExchange::kOneByOne) {
  std::vector<std::string> warnings;
  PassContext context;
  context.dialect = Dialect::kPaddle;
  context.warnings = &warnings;
  WEFT_EXPECT_OK(WarnAboutReduction("test", CompactProgram(text), exchange, context));
  return warnings;
}

constexpr char kSound[] = R"(
  Y@GRAD=[w@GRAD] = mul_grad(Y=[w], Out@GRAD=[g]) role=backward vars=[w, w@GRAD]
  ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
)";

TEST(PaddleWarnings, SoundProgramHasNone) {
  for (PaddleExchange exchange : {PaddleExchange::kOneByOne, PaddleExchange::kBeforeFirstOptimize,
                                  PaddleExchange::kBehindLastGradient}) {
    EXPECT_THAT(Warnings(kSound, exchange), IsEmpty());
  }
}

TEST(PaddleWarnings, PairThatIsNamedTwiceIsReducedTwice) {
  EXPECT_THAT(Warnings(R"(
    Y@GRAD=[w@GRAD] = mul_grad(Y=[w], Out@GRAD=[g]) role=backward vars=[w, w@GRAD, w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )"),
              ElementsAre(HasSubstr("is named in op_role_var a second time")));
}

TEST(PaddleWarnings, SecondUpdateIsNotWaitedFor) {
  EXPECT_THAT(Warnings(std::string(kSound) + R"(
    Y@GRAD=[v@GRAD] = mul_grad(Y=[v], Out@GRAD=[g]) role=backward vars=[v, v@GRAD]
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr]) role=optimize
  )"),
              ElementsAre(HasSubstr("gradient v@GRAD is not waited for")));
}

TEST(PaddleWarnings, SelectedRowsAndAccumulatedGradients) {
  EXPECT_THAT(Warnings(R"(
    var w@GRAD : selected_rows<fp32[8, 2]>
    W@GRAD=[w@GRAD] = lookup_table_v2_grad(W=[w], Out@GRAD=[g]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )"),
              Contains(HasSubstr("found SelectedRows")));
  EXPECT_THAT(Warnings(R"(
    var sum : fp32[2, 2] persistable
    Out=[sum] = elementwise_add(X=[g], Y=[sum]) role=backward vars=[w, sum]
    ParamOut=[w] = sgd(Param=[w], Grad=[sum], LearningRate=[lr]) role=optimize
  )"),
              Contains(HasSubstr("accumulated over several steps")));
}

}  // namespace
}  // namespace weft
