#include "transpiler/passes/paddle/paddle_gradients.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/compact_program.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::weft::testing::CompactProgram;
using ::weft::testing::StatusIs;

constexpr char kBackward[] = R"(
  Out=[c@GRAD] = g2() role=backward vars=[c, c@GRAD, e, @EMPTY@]
  Out=[a@GRAD, b@GRAD] = g1() role=backward vars=[a, a@GRAD, b, b@GRAD]
  Out=[lr2] = scale(X=[lr]) role=optimize
)";

TEST(PaddleGradients, AreWalkedFromTheLastOpToTheFirst) {
  const Program program = CompactProgram(kBackward);
  PassContext context;
  context.distributed_params = {"b"};
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
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has no gradients")));
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
  context.distributed_params = {"b"};
  context.remarks = &remarks;
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<PaddleGradient> gradients,
                            WalkGradients(program, context));
  ExplainCollectives("test", "reduced", program, gradients, 2, context);
  std::vector<std::string> texts;
  for (const Remark& remark : remarks)
    texts.push_back(absl::StrCat(remark.subject, " ", remark.what));
  EXPECT_THAT(texts, ElementsAre("a@GRAD reduced", "c@GRAD reduced", "b@GRAD not reduced"));
  remarks.clear();
  ExplainNothing("test", "reduced", gradients, "because", context);
  ASSERT_EQ(remarks.size(), 3);
  EXPECT_EQ(remarks[0].what, "not reduced");
}

}  // namespace
}  // namespace weft
