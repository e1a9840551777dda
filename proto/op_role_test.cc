#include "proto/op_role.h"

#include <string>
#include <utility>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

Program WithRole(int role) { return ProgramBuilder().Op("x", {}, {}, role).Build(); }

Op FirstOp(const Program& program) { return program.op(program.block(0).ops()[0]); }

TEST(OpRoleTest, RolesAreBits) {
  const Program forward = WithRole(kRoleForward), backward = WithRole(kRoleBackward),
                optimize = WithRole(kRoleOptimize), both = WithRole(3);
  EXPECT_FALSE(IsBackward(FirstOp(forward)) || IsOptimize(FirstOp(forward)));
  EXPECT_TRUE(IsBackward(FirstOp(backward)));
  EXPECT_FALSE(IsOptimize(FirstOp(backward)));
  EXPECT_TRUE(IsOptimize(FirstOp(optimize)));
  EXPECT_FALSE(IsBackward(FirstOp(optimize)));
  EXPECT_TRUE(IsBackward(FirstOp(both)) && IsOptimize(FirstOp(both)));
}

TEST(OpRoleTest, LearningRateMultipliersAreOptimize) {
  EXPECT_TRUE(IsOptimize(FirstOp(WithRole(kRoleOptimize | kRoleLrSched))));
}

TEST(OpRoleTest, LossGradientIsBackwardAndLoss) {
  EXPECT_TRUE(IsLossGrad(FirstOp(WithRole(kRoleBackward | kRoleLoss))));
  EXPECT_FALSE(IsLossGrad(FirstOp(WithRole(kRoleBackward))));
  EXPECT_FALSE(IsLossGrad(FirstOp(WithRole(kRoleLoss))));
}

TEST(OpRoleTest, OpWithoutRoleIsNeitherBackwardNorOptimize) {
  const Program program = WithRole(kRoleNotSpecified);
  EXPECT_FALSE(IsBackward(FirstOp(program)) || IsOptimize(FirstOp(program)));
  EXPECT_FALSE(IsLossGrad(FirstOp(program)));
}

TEST(RoleNameTest, EveryRoleThatPaddleWritesHasAName) {
  EXPECT_EQ(RoleName(0), "forward");
  EXPECT_EQ(RoleName(1), "backward");
  EXPECT_EQ(RoleName(2), "optimize");
  EXPECT_EQ(RoleName(4), "rpc");
  EXPECT_EQ(RoleName(8), "dist");
  EXPECT_EQ(RoleName(0x10), "lr_sched");
  EXPECT_EQ(RoleName(0x12), "optimize|lr_sched");
  EXPECT_EQ(RoleName(0x100), "loss");
  EXPECT_EQ(RoleName(0x101), "backward|loss");
  EXPECT_EQ(RoleName(0x1000), "not_specified");
}

TEST(RoleNameTest, OtherBitsGiveANumber) {
  EXPECT_EQ(RoleName(0x2000), "0x2000");
  EXPECT_EQ(RoleName(0x2001), "0x2001");
  EXPECT_EQ(RoleName(-1), "0xffffffff");
}

std::vector<std::pair<std::string, std::string>> Pairs(const Op& op) {
  const absl::StatusOr<std::vector<ParamGrad>> pairs = ParamGrads(op);
  WEFT_EXPECT_OK(pairs);
  std::vector<std::pair<std::string, std::string>> result;
  if (!pairs.ok()) return result;
  for (const ParamGrad& pair : *pairs) result.emplace_back(pair.param, pair.grad);
  return result;
}

TEST(ParamGradsTest, PairsComeInOrder) {
  const Program program =
      ProgramBuilder().Op("mul_grad", {}, {}).Pairs({"w", "w@GRAD", "b", "b@GRAD@RENAME"}).Build();
  EXPECT_THAT(Pairs(FirstOp(program)),
              ElementsAre(Pair("w", "w@GRAD"), Pair("b", "b@GRAD@RENAME")));
}

TEST(ParamGradsTest, OpWithoutPairsGivesNone) {
  const Program none = WithRole(kRoleBackward);
  EXPECT_THAT(Pairs(FirstOp(none)), IsEmpty());
  const Program empty = ProgramBuilder().Op("mul_grad", {}, {}).Pairs({}).Build();
  EXPECT_THAT(Pairs(FirstOp(empty)), IsEmpty());
}

TEST(ParamGradsTest, LastOfRepeatedAttributesCounts) {
  const Program program =
      ProgramBuilder().Op("mul_grad", {}, {}).Pairs({"w", "g"}).Pairs({"b", "h"}).Build();
  EXPECT_THAT(Pairs(FirstOp(program)), ElementsAre(Pair("b", "h")));
}

TEST(ParamGradsTest, OddNumberOfNamesIsRefused) {
  const Program program =
      ProgramBuilder().Op("x", {}, {}).Op("mul_grad", {}, {}).Pairs({"w", "w@GRAD", "b"}).Build();
  EXPECT_THAT(ParamGrads(program.op(program.block(0).ops()[1])),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "op 1 (mul_grad): attribute op_role_var: expected pairs of parameter and "
                       "gradient, found 3 names: w, w@GRAD, b"));
}

}  // namespace
}  // namespace weft::testing
