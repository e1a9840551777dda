#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(CollectiveTest, AllReduceKeepsTheType) {
  EXPECT_THAT(
      InferenceCase("c_allreduce_sum").In("Cond", {}).In("X", {"fp16[2, 3]"}).Out("Out").Infer(),
      IsOkAndHolds("Out: fp16[2, 3]"));
}

TEST(CollectiveTest, SumOfSeveralVariablesKeepsTheirTypes) {
  EXPECT_THAT(Infer("c_allreduce_xsum(X: fp16[2, 3] | fp32[5]) -> Out*2"),
              IsOkAndHolds("Out: fp16[2, 3] | fp32[5]"));
}

TEST(CollectiveTest, AllGatherStacksTheRowsOfAllRanks) {
  EXPECT_THAT(Infer("c_allgather(X: fp32[2, 3]) -> Out", {{"nranks", 4}}),
              IsOkAndHolds("Out: fp32[8, 3]"));
  EXPECT_THAT(Infer("c_allgather(X: fp32[-1, 3]) -> Out", {{"nranks", 4}}),
              IsOkAndHolds("Out: fp32[-1, 3]"));
}

TEST(CollectiveTest, AllGatherOfScalarsIsAVector) {
  EXPECT_THAT(Infer("c_allgather(X: fp32[]) -> Out", {{"nranks", 4}}),
              IsOkAndHolds("Out: fp32[4]"));
}

TEST(CollectiveTest, AllGatherOfHugeRowsDoesNotOverflow) {
  EXPECT_THAT(Infer("c_allgather(X: fp32[281474976710656]) -> Out", {{"nranks", 2147483647}}),
              IsOkAndHolds("Out: fp32[281474976710656]"));
}

TEST(CollectiveTest, ReduceScatterGivesEachRankItsShareOfTheRows) {
  EXPECT_THAT(Infer("c_reducescatter(X: fp32[8, 3]) -> Out", {{"nranks", 4}}),
              IsOkAndHolds("Out: fp32[2, 3]"));
}

TEST(CollectiveTest, RowsThatCannotBeSharedAreAnError) {
  EXPECT_THAT(Infer("c_reducescatter(X: fp32[9, 3]) -> Out", {{"nranks", 4}}),
              IsInvalidArgument("op 0 (c_reducescatter) input X (X_0): expected rows in a multiple "
                                "of 4, found fp32[9, 3]"));
  EXPECT_THAT(Infer("c_reducescatter(X: fp32[]) -> Out", {{"nranks", 4}}),
              IsInvalidArgument("rows in a multiple of 4"));
}

TEST(CollectiveTest, NumberOfRanksMustBePositive) {
  EXPECT_THAT(Infer("c_allgather(X: fp32[2]) -> Out", {{"nranks", 0}}),
              IsInvalidArgument("attribute nranks: expected 1 or more, found 0"));
  EXPECT_THAT(Infer("c_allgather(X: fp32[2]) -> Out"),
              IsInvalidArgument("attribute nranks: expected INT, found none"));
}

TEST(CollectiveTest, OpsOfPaddle3InferAsThoseOfPaddle2) {
  EXPECT_THAT(Infer("all_reduce(x: fp16[2, 3]) -> out"), IsOkAndHolds("out: fp16[2, 3]"));
  EXPECT_THAT(Infer("all_to_all(x: fp32[4, 3]) -> out"), IsOkAndHolds("out: fp32[4, 3]"));
  EXPECT_THAT(Infer("all_gather(x: fp32[2, 3]) -> out", {{"nranks", 4}}),
              IsOkAndHolds("out: fp32[8, 3]"));
  EXPECT_THAT(Infer("reduce_scatter(x: fp32[8, 3]) -> out", {{"nranks", 4}}),
              IsOkAndHolds("out: fp32[2, 3]"));
  EXPECT_THAT(
      Infer("reduce_scatter(x: fp32[9]) -> out", {{"nranks", 4}}),
      IsInvalidArgument("op 0 (reduce_scatter) input x (x_0): expected rows in a multiple of 4"));
}

TEST(MessageTest, ReceivedIsWhatTheAttributesSay) {
  const auto receive = [](std::vector<int> shape) {
    return InferenceCase("recv_v2").Out("Out").Attr("out_shape", std::move(shape));
  };
  EXPECT_THAT(receive({2, 3}).Attr("dtype", 4).Infer(), IsOkAndHolds("Out: fp16[2, 3]"));
  for (const std::vector<int>& shape : {std::vector<int>{}, std::vector<int>{2, -1}}) {
    EXPECT_THAT(
        receive(shape).Infer(),
        IsInvalidArgument(
            "attribute out_shape: expected one or more dimensions, all 1 or more, found ["));
  }
  EXPECT_THAT(receive({}).Attr("dynamic_shape", true).Infer(), IsOk());
}

TEST(MessageTest, PeersAreNotNegative) {
  EXPECT_THAT(InferenceCase("send_v2").In("X", {"fp32[2]"}).Attr("peer", -1).Infer(),
              IsInvalidArgument("attribute peer: expected 0 or more, found -1"));
}

TEST(CollectiveTest, ReductionsHaveNumbersFrom0To4) {
  EXPECT_THAT(Infer("all_reduce(x: fp32[2]) -> out", {{"reduce_type", 4}}),
              IsOkAndHolds("out: fp32[2]"));
  for (const char* type : {"all_reduce", "reduce"}) {
    EXPECT_THAT(Infer(absl::StrCat(type, "(x: fp32[2]) -> out"), {{"reduce_type", 5}}),
                IsInvalidArgument("attribute reduce_type: expected 0 (sum), 1 (maximum), 2 "
                                  "(minimum), 3 (product) or 4 (mean), found 5"));
  }
}

TEST(CoalesceTensorTest, MembersArePaddedToTheAlignment) {
  EXPECT_THAT(
      Infer("coalesce_tensor(Input: fp32[3] | fp32[8, 16] | fp32[65]) -> Output*3, FusedOutput",
            {{"align_size", 256}, {"dtype", 5}}),
      IsOkAndHolds("FusedOutput: fp32[320], Output: fp32[3] | fp32[8, 16] | fp32[65]"));
}

TEST(CoalesceTensorTest, WithoutAlignmentMembersAreAdjacent) {
  EXPECT_THAT(Infer("coalesce_tensor(Input: fp16[3] | fp16[5]) -> FusedOutput",
                    {{"dtype", 4}, {"use_align", false}}),
              IsOkAndHolds("FusedOutput: fp16[8]"));
}

TEST(CoalesceTensorTest, GivenElementSizeReplacesThatOfTheType) {
  EXPECT_THAT(Infer("coalesce_tensor(Input: fp16[3]) -> FusedOutput",
                    {{"align_size", 8}, {"dtype", 4}, {"user_defined_size_of_dtype", 4}}),
              IsOkAndHolds("FusedOutput: fp16[4]"));
}

TEST(CoalesceTensorTest, AlignmentOfTheDeviceLeavesTheSizeUnknown) {
  EXPECT_THAT(Infer("coalesce_tensor(Input: fp32[3]) -> Output, FusedOutput", {{"dtype", 5}}),
              IsOkAndHolds("Output: fp32[3]"));
}

TEST(CoalesceTensorTest, MemberOfUnknownSizeLeavesTheSizeUnknown) {
  EXPECT_THAT(Infer("coalesce_tensor(Input: fp32[3] | ?) -> Output*2, FusedOutput",
                    {{"align_size", 256}, {"dtype", 5}}),
              IsOkAndHolds("Output: fp32[3]"));
  EXPECT_THAT(Infer("coalesce_tensor(Input: fp32[3] | fp32[-1]) -> FusedOutput",
                    {{"align_size", 256}, {"dtype", 5}}),
              IsOkAndHolds("FusedOutput: fp32[-1]"));
}

TEST(CoalesceTensorTest, InputGivesSizesOnlyUnlessItIsCopied) {
  EXPECT_THAT(Infer("coalesce_tensor(Input: fp32[3]) -> Output, FusedOutput",
                    {{"align_size", 16}, {"dtype", 4}}),
              IsOkAndHolds("FusedOutput: fp16[8], Output: fp16[3]"));
}

TEST(CoalesceTensorTest, CopiedMemberOfAnotherElementTypeIsAnError) {
  EXPECT_THAT(Infer("coalesce_tensor(Input: fp32[3] | fp16[3]) -> FusedOutput",
                    {{"copy_data", true}, {"dtype", 5}}),
              IsInvalidArgument("op 0 (coalesce_tensor) input Input (Input_1): expected fp32 as "
                                "attribute dtype, found fp16[3]"));
}

TEST(CoalesceTensorTest, InputsAndOutputsMustPair) {
  EXPECT_THAT(Infer("coalesce_tensor(Input: fp32[3] | fp32[3]) -> Output", {{"dtype", 5}}),
              IsInvalidArgument("expected as many variables as Output has, 1"));
}

}  // namespace
}  // namespace weft::testing
