#include "transpiler/passes/support/properties.h"

#include <map>
#include <string>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

absl::StatusOr<std::map<std::string, std::string>> Detect(const ProgramBuilder& builder) {
  Program main = builder.Build();
  return DetectProperties({&main, nullptr});
}

// Backward computes the gradient of w.
ProgramBuilder OneGradient() {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w", "w@GRAD"});
  return p;
}

TEST(DetectProperties, NothingHoldsInAnOriginalProgram) {
  EXPECT_THAT(Detect(OneGradient()), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(Detect(ProgramBuilder()), IsOkAndHolds(IsEmpty()));
}

TEST(DetectProperties, CastGradientIsTheGradient) {
  ProgramBuilder p = OneGradient();
  p.Op("cast", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD@FP16"}}}, kRoleBackward);
  p.Op("c_allreduce_sum", {{"X", {"w@GRAD@FP16"}}}, {{"Out", {"w@GRAD@FP16"}}}, kRoleBackward);
  EXPECT_THAT(Detect(p), IsOkAndHolds(ElementsAre(
                             Pair(kGradientsReduced, "op 2 (c_allreduce_sum) takes w@GRAD@FP16"))));
}

TEST(DetectProperties, CollectiveOfAPairedGradientIsEvidenceOfAReduction) {
  ProgramBuilder p = OneGradient();
  p.Op("c_allreduce_sum", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
  EXPECT_THAT(
      Detect(p),
      IsOkAndHolds(ElementsAre(Pair(kGradientsReduced, "op 1 (c_allreduce_sum) takes w@GRAD"))));
}

TEST(DetectProperties, CollectiveOfABufferThatHoldsAGradientIsEvidenceToo) {
  ProgramBuilder p = OneGradient();
  p.Op("coalesce_tensor", {{"Input", {"w@GRAD"}}},
       {{"Output", {"w@GRAD"}}, {"FusedOutput", {"fused"}}}, kRoleBackward);
  p.Op("c_allreduce_sum", {{"X", {"fused"}}}, {{"Out", {"fused"}}}, kRoleBackward);
  EXPECT_THAT(
      Detect(p),
      IsOkAndHolds(ElementsAre(Pair(kGradientsReduced, "op 2 (c_allreduce_sum) takes fused"))));
}

// The gradient is what comes out, as in a written program of Paddle 3.
TEST(DetectProperties, ACollectiveBeforeTheFinishedGradientIsEvidence) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {{"Y@GRAD", {"part"}}}, kRoleBackward);
  p.Op("concat", {{"X", {"part", "other"}}}, {{"Out", {"fused"}}}, kRoleBackward);
  p.Op("all_reduce", {{"x", {"fused"}}}, {{"out", {"fused"}}}, kRoleBackward);
  p.Op("split", {{"X", {"fused"}}}, {{"Out", {"w@GRAD", "v@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  EXPECT_THAT(Detect(p),
              IsOkAndHolds(ElementsAre(Pair(kGradientsReduced, "op 2 (all_reduce) makes fused"))));
}

// Nothing passes through a gradient op.
TEST(DetectProperties, CollectivesOfTheBackwardPassOfActivationsDoNotCount) {
  ProgramBuilder p;
  p.Param("w").Op("all_reduce", {{"x", {"y@GRAD"}}}, {{"out", {"y@GRAD"}}}, kRoleBackward);
  p.Op("mul_grad", {{"Out@GRAD", {"y@GRAD"}}}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  EXPECT_THAT(Detect(p), IsOkAndHolds(IsEmpty()));
}

// A name may hold one thing after another.
TEST(DetectProperties, CollectivesOfWhatANameHeldBeforeDoNotCount) {
  ProgramBuilder p;
  p.Param("w").Op("all_reduce", {{"x", {"buffer"}}}, {{"out", {"buffer"}}}, kRoleBackward);
  p.Op("mul_grad", {{"Out@GRAD", {"buffer"}}}, {{"X@GRAD", {"y@GRAD"}}}, kRoleBackward);
  p.Op("concat", {{"X", {"part", "other"}}}, {{"Out", {"buffer"}}}, kRoleBackward);
  p.Op("split", {{"X", {"buffer"}}}, {{"Out", {"w@GRAD", "v@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  EXPECT_THAT(Detect(p), IsOkAndHolds(IsEmpty()));
}

TEST(DetectProperties, UnknownOpOfBackwardThatTakesAFinishedGradientMayHaveReducedIt) {
  ProgramBuilder p = OneGradient();
  p.Op("mystery_exchange", {{"x", {"w@GRAD"}}}, {{"out", {"reduced"}}}, kRoleBackward);
  EXPECT_THAT(Detect(p),
              IsOkAndHolds(ElementsAre(
                  Pair(kGradientsReduced,
                       HasSubstr("op 1 (mystery_exchange), an unregistered op, takes w@GRAD and "
                                 "may reduce it; if it does not communicate, pass option:assume "
                                 "'mystery_exchange: no_communication'")))));
  Program assumed = p.Build();
  assumed.set_setting(R"({"assumptions":{"mystery_exchange":"no_communication"}})");
  EXPECT_THAT(DetectProperties({&assumed, nullptr}), IsOkAndHolds(IsEmpty()));
  p.Op("c_allreduce_sum", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleBackward);
  EXPECT_THAT(
      Detect(p),
      IsOkAndHolds(ElementsAre(Pair(kGradientsReduced, HasSubstr("op 2 (c_allreduce_sum)")))));
}

TEST(DetectProperties, UnknownGradientOpsReadParametersAndDoNotAverageThem) {
  ProgramBuilder p = OneGradient();
  p.Op("mystery_grad", {{"W", {"w"}}, {"Out@GRAD", {"y@GRAD"}}}, {{"X@GRAD", {"x@GRAD"}}},
       kRoleBackward);
  EXPECT_THAT(Detect(p), IsOkAndHolds(IsEmpty()));
}

TEST(DetectProperties, UnknownOpWithARingMayHaveReducedIt) {
  ProgramBuilder p = OneGradient();
  p.Op("mystery", {{"X", {"w@GRAD"}}}, {}, kRoleOptimize).IntAttr("ring_id", 0);
  EXPECT_THAT(Detect(p),
              IsOkAndHolds(ElementsAre(Pair(kGradientsReduced, HasSubstr("op 1 (mystery)")))));
}

TEST(DetectProperties, UnknownProducersUpdatesAndFetchesAreNoEvidence) {
  ProgramBuilder p;
  p.Param("w").Op("mystery_grad", {}, {{"W@GRAD", {"w@GRAD"}}}, kRoleBackward);
  p.Pairs({"w", "w@GRAD"});
  p.Op("mystery_clip", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}}, kRoleOptimize);
  p.Op("mystery_fetch", {{"X", {"w@GRAD"}}}, {{"Out", {"fetched"}}});
  EXPECT_THAT(Detect(p), IsOkAndHolds(IsEmpty()));
}

TEST(DetectProperties, CollectiveInASubBlockCounts) {
  ProgramBuilder p = OneGradient();
  p.Op("conditional_block", {}, {}).BlockAttr("sub_block", 1);
  p.NewBlock(0);
  p.Op("c_allreduce_sum", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}});
  EXPECT_THAT(Detect(p), IsOkAndHolds(ElementsAre(Pair(
                             kGradientsReduced, "block 1, op 0 (c_allreduce_sum) takes w@GRAD"))));
}

TEST(DetectProperties, CollectivesOfActivationsDoNotCount) {
  ProgramBuilder p = OneGradient();
  p.Op("c_allreduce_sum", {{"X", {"hidden"}}}, {{"Out", {"hidden"}}});
  EXPECT_THAT(Detect(p), IsOkAndHolds(IsEmpty()));
}

TEST(DetectProperties, WrongPairsAreAnError) {
  ProgramBuilder p;
  p.Param("w").Op("mul_grad", {}, {{"Y@GRAD", {"w@GRAD"}}}, kRoleBackward).Pairs({"w"});
  EXPECT_THAT(Detect(p), IsInvalidArgument("op_role_var"));
}

}  // namespace
}  // namespace weft::testing
