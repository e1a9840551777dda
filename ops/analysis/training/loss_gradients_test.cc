#include "ops/analysis/training/loss_gradients.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/op_role.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Scale {
  std::string in, out;
  int role = kRoleBackward;
  bool says_nranks = false;
};

// The positions of the ops that scale the gradient of a loss, after the op that fills it.
std::vector<size_t> ScaledBy(const std::vector<Scale>& scales,
                             const std::string& fill = "fill_constant") {
  ProgramBuilder p;
  p.Var("loss", {1}).Var("mean", {1});
  if (fill == "fill_constant") {
    p.Op(fill, {}, {{"Out", {"loss@GRAD"}}}, kRoleBackward | kRoleLoss);
  } else {
    p.Op(fill, {{"X", {"loss"}}}, {{"Out", {"loss@GRAD"}}}, kRoleBackward | kRoleLoss);
  }
  for (const Scale& scale : scales) {
    p.Op("scale", {{"X", {scale.in}}}, {{"Out", {scale.out}}}, scale.role);
    if (scale.says_nranks) p.IntAttr("nranks", 2);
  }
  const Program program = p.Build();
  LossGradients gradients(program);
  std::vector<size_t> found;
  for (size_t i = 0; i < program.block(0).ops().size(); ++i) {
    if (gradients.IsScaledBy(program.op(program.block(0).ops()[i]))) found.push_back(i);
  }
  return found;
}

TEST(LossGradients, AreScaledInPlaceOrAsAnotherGradientOfTheLoss) {
  EXPECT_THAT(ScaledBy({{"loss@GRAD", "loss@GRAD"}}), ElementsAre(1));
  EXPECT_THAT(ScaledBy({{"loss@GRAD", "loss@GRAD@RENAME@7"}}), ElementsAre(1));
}

TEST(LossGradients, MayTakeTheDimsOfTheLoss) {
  EXPECT_THAT(ScaledBy({{"loss@GRAD", "loss@GRAD"}}, "fill_any_like"), ElementsAre(1));
  EXPECT_THAT(ScaledBy({{"loss@GRAD", "loss@GRAD"}}, "relu"), IsEmpty());
}

// Whatever they are marked as.
TEST(LossGradients, AreScaledInPlaceByOpsOfAnyRole) {
  EXPECT_THAT(ScaledBy({{"loss@GRAD", "loss@GRAD", kRoleOptimize}}), ElementsAre(1));
  EXPECT_THAT(ScaledBy({{"mean", "mean", kRoleOptimize}}), IsEmpty());
}

// A second division counts, too: it makes an update too small.
TEST(LossGradients, AreScaledTwice) {
  EXPECT_THAT(
      ScaledBy({{"loss@GRAD", "loss@GRAD@RENAME@7"}, {"loss@GRAD@RENAME@7", "loss@GRAD@RENAME@8"}}),
      ElementsAre(1, 2));
}

// loss = mean / 2.
TEST(LossGradients, AScaleOfTheForwardPassHasAGradientOfItsOwn) {
  EXPECT_THAT(ScaledBy({{"loss@GRAD", "mean@GRAD"}}), IsEmpty());
  EXPECT_THAT(ScaledBy({{"loss@GRAD", "mean@GRAD"}, {"mean@GRAD", "mean@GRAD@RENAME@7"}}),
              ElementsAre(2));
}

// loss = mean / 2 on two ranks: what divides has the name of the gradient of the mean.
TEST(LossGradients, OneOfTwoEqualFactorsIsOfTheForwardPass) {
  const Scale division{"loss@GRAD", "mean@GRAD", kRoleBackward, /*says_nranks=*/true};
  EXPECT_THAT(ScaledBy({division, {"mean@GRAD", "mean@GRAD@RENAME@7"}}), ElementsAre(1));
  // A third one is too many.
  EXPECT_THAT(ScaledBy({division,
                        {"mean@GRAD", "mean@GRAD@RENAME@7"},
                        {"mean@GRAD@RENAME@7", "mean@GRAD@RENAME@8"}}),
              ElementsAre(1, 3));
}

TEST(LossGradients, AreNotWhatOtherGradientsAreScaledTo) {
  EXPECT_THAT(ScaledBy({{"mean@GRAD", "mean@GRAD@RENAME@7"}}), IsEmpty());
  EXPECT_THAT(ScaledBy({{"loss@GRAD", "other"}}), IsEmpty());
  EXPECT_THAT(ScaledBy({{"loss@GRAD", "loss@GRAD@RENAME@7", kRoleOptimize}}), IsEmpty());
}

}  // namespace
}  // namespace weft::testing
