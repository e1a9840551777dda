#include "transpiler/passes/paddle/paddle_gradients.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "transpiler/testing/message_lines.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kBackward[] = R"(
  Out=[c@GRAD] = g2() role=backward vars=[c, c@GRAD, e, @EMPTY@]
  Out=[a@GRAD, b@GRAD] = g1() role=backward vars=[a, a@GRAD, b, b@GRAD]
  Out=[lr2] = scale(X=[lr]) role=optimize
)";

TEST(PaddleGradients, AreWalkedFromTheLastOpToTheFirst) {
  const Program program = CompactProgram(kBackward);
  PassContext context;
  context.setting.distributed_params = {"b"};
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<PaddleGradient> gradients,
                            WalkGradients(program, context));
  std::vector<std::string> texts;
  for (const PaddleGradient& gradient : gradients) {
    texts.push_back(absl::StrCat(gradient.param, " ", gradient.grad,
                                 gradient.distributed ? " distributed" : ""));
  }
  EXPECT_THAT(texts, ElementsAre("a a@GRAD", "b b@GRAD distributed", "c c@GRAD"));
  EXPECT_EQ(CountReplicated(gradients), 2);
}

TEST(PaddleGradients, ProgramWithoutGradientsIsRefused) {
  EXPECT_THAT(RequireGradients(std::vector<PaddleGradient>()),
              IsFailedPrecondition("has no gradients"));
}

TEST(PaddleGradients, FirstOptimizeOpIsFoundByItsRole) {
  const Program program = CompactProgram(kBackward);
  EXPECT_EQ(program.op(FirstOptimizeOp(program)).type(), "scale");
  EXPECT_FALSE(FirstOptimizeOp(CompactProgram("Out=[y] = relu(X=[x])")).valid());
}

TEST(PaddleGradients, NotesTellWhatIsSentAndWhatIsLeftAlone) {
  const Program program = CompactProgram(kBackward);
  std::vector<Remark> remarks;
  PassContext context;
  context.setting.distributed_params = {"b"};
  context.sink.remarks = &remarks;
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<PaddleGradient> gradients,
                            WalkGradients(program, context));
  ExplainCollectives("test", "reduced", program, gradients, 2, context);
  std::vector<std::string> texts;
  for (const Remark& remark : remarks)
    texts.push_back(absl::StrCat(remark.subject, " ", remark.what));
  EXPECT_THAT(texts, ElementsAre("a@GRAD reduced", "c@GRAD reduced", "b@GRAD not reduced"));
  remarks.clear();
  ExplainSkipped("test", "reduced", gradients, "because", context);
  ASSERT_EQ(remarks.size(), 3);
  EXPECT_EQ(remarks[0].what, "not reduced");
}

std::vector<std::string> Warnings(const std::string& text,
                                  PaddleExchange exchange = PaddleExchange::kOneByOne) {
  std::vector<Message> messages;
  PassContext context;
  context.target.dialect = Dialect::kPaddle;
  context.sink.messages = &messages;
  WEFT_EXPECT_OK(WarnAboutReduction("test", CompactProgram(text), exchange, context));
  return testing::DefectLines(messages);
}

constexpr char kSound[] = R"(
  Y@GRAD=[w@GRAD] = mul_grad(Y=[w], Out@GRAD=[g]) role=backward vars=[w, w@GRAD]
  ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
)";

TEST(PaddleWarnings, SoundProgramHasNone) {
  for (PaddleExchange exchange : {PaddleExchange::kOneByOne, PaddleExchange::kBeforeFirstOptimize,
                                  PaddleExchange::kAfterLastGradient}) {
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
}  // namespace weft::testing
