#include "ops/analysis/training/num_ranks.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/op_role.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::Eq;
using ::testing::Optional;

ProgramBuilder LossGradient(float scale) {
  ProgramBuilder p;
  p.Var("loss@GRAD", {1});
  p.Op("fill_constant", {}, {{"Out", {"loss@GRAD"}}}, kRoleBackward | kRoleLoss);
  p.Op("scale", {{"X", {"loss@GRAD"}}}, {{"Out", {"loss@GRAD"}}}, kRoleBackward);
  p.FloatAttr("scale", scale);
  return p;
}

TEST(FindNumRanksTest, NothingSaysIt) {
  EXPECT_THAT(FindNumRanks(ProgramBuilder().Build(), nullptr), Eq(absl::nullopt));
}

TEST(FindNumRanksTest, RingSetUpSaysItFirst) {
  ProgramBuilder startup;
  startup.Op("c_comm_init", {}, {}).IntAttr("nranks", 8);
  const Program set_up = startup.Build();
  EXPECT_THAT(FindNumRanks(LossGradient(0.25f).Build(), &set_up), Optional(8));
}

TEST(FindNumRanksTest, AnAttributeSaysItBeforeTheDivision) {
  ProgramBuilder p = LossGradient(0.25f);
  p.IntAttr("nranks", 2);
  EXPECT_THAT(FindNumRanks(p.Build(), nullptr), Optional(2));
}

TEST(FindNumRanksTest, TheDivisionOfTheLossGradientSaysIt) {
  EXPECT_THAT(FindNumRanks(LossGradient(0.25f).Build(), nullptr), Optional(4));
  EXPECT_THAT(FindNumRanks(LossGradient(1.0f / 3).Build(), nullptr), Optional(3));
  // Paddle divides by 1 for one trainer with any number of devices.
  EXPECT_THAT(FindNumRanks(LossGradient(1).Build(), nullptr), Eq(absl::nullopt));
  EXPECT_THAT(FindNumRanks(LossGradient(0.3f).Build(), nullptr), Eq(absl::nullopt));
}

// PIR has no ops in place. What a loss has been multiplied by says nothing.
TEST(FindNumRanksTest, ADivisionIntoAnotherGradientOfTheLossSaysIt) {
  const auto scaled_to = [](const std::string& name) {
    ProgramBuilder p;
    p.Var("loss", {1}).Var("mean", {1});
    p.Op("fill_constant", {}, {{"Out", {"loss@GRAD"}}}, kRoleBackward | kRoleLoss);
    p.Op("scale", {{"X", {"loss@GRAD"}}}, {{"Out", {name}}}, kRoleBackward);
    p.FloatAttr("scale", 0.25f);
    return FindNumRanks(p.Build(), nullptr);
  };
  EXPECT_THAT(scaled_to("loss@GRAD@RENAME@7"), Optional(4));
  EXPECT_THAT(scaled_to("mean@GRAD"), Eq(absl::nullopt));
}

TEST(FindNumRanksTest, AnUnknownOpThatIsAloneInItsGroupSaysNothing) {
  const auto with = [](int nranks) {
    ProgramBuilder p;
    p.Op("class_center_sample", {}, {}).IntAttr("nranks", nranks);
    return FindNumRanks(p.Build(), nullptr);
  };
  EXPECT_THAT(with(1), Eq(absl::nullopt));
  EXPECT_THAT(with(2), Optional(2));
}

}  // namespace
}  // namespace weft::testing
