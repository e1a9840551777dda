#include "ops/analysis/training/losses.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/op_role.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Losses(const ProgramBuilder& builder) {
  const Program program = builder.Build();
  std::vector<std::string> names;
  for (Symbol loss : FindLosses(program)) names.emplace_back(program.name(loss));
  return names;
}

ProgramBuilder& Unscale(ProgramBuilder& builder, const std::string& scale) {
  return builder.Op("check_finite_and_unscale", {{"X", {"g"}}, {"Scale", {scale}}},
                    {{"Out", {"g"}}, {"FoundInfinite", {"found"}}}, kRoleOptimize);
}

TEST(FindLosses, FactorOfTheGradientScale) {
  for (const bool scale_first : {false, true}) {
    const std::string x = scale_first ? "scale" : "loss", y = scale_first ? "loss" : "scale";
    ProgramBuilder builder;
    builder.Op("elementwise_mul", {{"X", {x}}, {"Y", {y}}}, {{"Out", {"scaled"}}}, kRoleLoss);
    Unscale(builder, "scale");
    EXPECT_THAT(Losses(builder), ElementsAre("loss"));
  }
}

TEST(FindLosses, ScaleOfUpdateLossScalingCountsToo) {
  ProgramBuilder builder;
  builder.Op("scale", {{"X", {"loss"}}, {"ScaleTensor", {"scale"}}}, {{"Out", {"scaled"}}},
             kRoleLoss);
  builder.Op("update_loss_scaling", {{"PrevLossScaling", {"scale"}}}, {{"LossScaling", {"scale"}}},
             kRoleOptimize);
  EXPECT_THAT(Losses(builder), ElementsAre("loss"));
}

TEST(FindLosses, CastsAndReshapesMayComeBetween) {
  ProgramBuilder builder;
  builder.Op("cast", {{"X", {"scale"}}}, {{"Out", {"half_scale"}}});
  builder.Op("elementwise_mul", {{"X", {"loss"}}, {"Y", {"half_scale"}}}, {{"Out", {"scaled"}}});
  builder.Op("cast", {{"X", {"scaled"}}}, {{"Out", {"scaled_fp32"}}});
  builder.Op("reshape2", {{"X", {"scaled_fp32"}}}, {{"Out", {"reported"}}, {"XShape", {"shape"}}},
             kRoleLoss);
  builder.Op("fill_constant", {}, {{"Out", {"reported@GRAD"}}}, kRoleLoss | kRoleBackward);
  Unscale(builder, "scale");
  EXPECT_THAT(Losses(builder), ElementsAre("loss"));
}

TEST(FindLosses, UnregisteredOpsAreLeftAlone) {
  ProgramBuilder builder;
  builder.Op("my_op", {{"X", {"loss"}}, {"Y", {"scale"}}}, {{"Out", {"out"}}}, kRoleLoss);
  Unscale(builder, "scale");
  EXPECT_THAT(Losses(builder), ElementsAre("out"));
}

TEST(FindLosses, OtherProductsAreLossesThemselves) {
  ProgramBuilder builder;
  builder.Op("elementwise_mul", {{"X", {"loss"}}, {"Y", {"weight"}}}, {{"Out", {"weighted"}}},
             kRoleLoss);
  Unscale(builder, "scale");
  EXPECT_THAT(Losses(builder), ElementsAre("weighted"));
}

// The op of the loss has lost its role; the one that fills the gradient has not.
TEST(FindLosses, GradientsNameTheirLosses) {
  ProgramBuilder builder;
  builder.Op("sqrt", {{"X", {"m"}}}, {{"Out", {"loss"}}});
  builder.Op("fill_constant", {}, {{"Out", {"loss@GRAD"}}}, kRoleLoss | kRoleBackward);
  EXPECT_THAT(Losses(builder), ElementsAre("loss"));
}

// The variable is overwritten after it was a loss.
TEST(FindLosses, OverwrittenVariableIsNotAScaledLoss) {
  ProgramBuilder builder;
  builder.Op("elementwise_mul", {{"X", {"a"}}, {"Y", {"scale"}}}, {{"Out", {"t"}}});
  builder.Op("relu", {{"X", {"b"}}}, {{"Out", {"t"}}});
  builder.Op("cast", {{"X", {"t"}}}, {{"Out", {"loss"}}}, kRoleLoss);
  Unscale(builder, "scale");
  EXPECT_THAT(Losses(builder), ElementsAre("loss"));
}

}  // namespace
}  // namespace weft::testing
