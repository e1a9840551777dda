#include <utility>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::weft::testing::InferenceCase;
using ::weft::testing::IsOk;
using ::weft::testing::IsOkAndHolds;
using ::weft::testing::StatusIs;

TEST(CollectiveTest, AllReduceKeepsTheType) {
  EXPECT_THAT(
      InferenceCase("c_allreduce_sum").In("Cond", {}).In("X", {"fp16[2, 3]"}).Out("Out").Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "fp16[2, 3]"))));
}

TEST(CollectiveTest, SumOfSeveralVariablesKeepsTheirTypes) {
  EXPECT_THAT(
      InferenceCase("c_allreduce_xsum").In("X", {"fp16[2, 3]", "fp32[5]"}).Out("Out", 2).Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "fp16[2, 3] | fp32[5]"))));
}

TEST(CollectiveTest, AllGatherStacksTheRowsOfAllRanks) {
  EXPECT_THAT(
      InferenceCase("c_allgather").In("X", {"fp32[2, 3]"}).Out("Out").Attr("nranks", 4).Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "fp32[8, 3]"))));
  EXPECT_THAT(
      InferenceCase("c_allgather").In("X", {"fp32[-1, 3]"}).Out("Out").Attr("nranks", 4).Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "fp32[-1, 3]"))));
}

TEST(CollectiveTest, AllGatherOfScalarsIsAVector) {
  EXPECT_THAT(InferenceCase("c_allgather").In("X", {"fp32[]"}).Out("Out").Attr("nranks", 4).Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[4]"))));
}

TEST(CollectiveTest, AllGatherOfHugeRowsDoesNotOverflow) {
  EXPECT_THAT(InferenceCase("c_allgather")
                  .In("X", {"fp32[281474976710656]"})
                  .Out("Out")
                  .Attr("nranks", 2147483647)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp32[281474976710656]"))));
}

TEST(CollectiveTest, ReduceScatterGivesEachRankItsShareOfTheRows) {
  EXPECT_THAT(
      InferenceCase("c_reducescatter").In("X", {"fp32[8, 3]"}).Out("Out").Attr("nranks", 4).Infer(),
      IsOkAndHolds(ElementsAre(Pair("Out", "fp32[2, 3]"))));
}

TEST(CollectiveTest, RowsThatCannotBeSharedAreAnError) {
  EXPECT_THAT(
      InferenceCase("c_reducescatter").In("X", {"fp32[9, 3]"}).Out("Out").Attr("nranks", 4).Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("op 0 (c_reducescatter) input X (X_0): expected rows in a multiple of 4, "
                         "found fp32[9, 3]")));
  EXPECT_THAT(
      InferenceCase("c_reducescatter").In("X", {"fp32[]"}).Out("Out").Attr("nranks", 4).Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rows in a multiple of 4")));
}

TEST(CollectiveTest, NumberOfRanksMustBePositive) {
  EXPECT_THAT(
      InferenceCase("c_allgather").In("X", {"fp32[2]"}).Out("Out").Attr("nranks", 0).Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("attribute nranks: expected 1 or more, found 0")));
  EXPECT_THAT(InferenceCase("c_allgather").In("X", {"fp32[2]"}).Out("Out").Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute nranks: expected INT, found none")));
}

TEST(CollectiveTest, OpsOfPaddle3InferAsThoseOfPaddle2) {
  EXPECT_THAT(InferenceCase("all_reduce").In("x", {"fp16[2, 3]"}).Out("out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("out", "fp16[2, 3]"))));
  EXPECT_THAT(InferenceCase("all_to_all").In("x", {"fp32[4, 3]"}).Out("out").Infer(),
              IsOkAndHolds(ElementsAre(Pair("out", "fp32[4, 3]"))));
  EXPECT_THAT(
      InferenceCase("all_gather").In("x", {"fp32[2, 3]"}).Out("out").Attr("nranks", 4).Infer(),
      IsOkAndHolds(ElementsAre(Pair("out", "fp32[8, 3]"))));
  EXPECT_THAT(
      InferenceCase("reduce_scatter").In("x", {"fp32[8, 3]"}).Out("out").Attr("nranks", 4).Infer(),
      IsOkAndHolds(ElementsAre(Pair("out", "fp32[2, 3]"))));
  EXPECT_THAT(
      InferenceCase("reduce_scatter").In("x", {"fp32[9]"}).Out("out").Attr("nranks", 4).Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("op 0 (reduce_scatter) input x (x_0): expected rows in a multiple of 4")));
}

TEST(MessageTest, ReceivedIsWhatTheAttributesSay) {
  const auto receive = [](std::vector<int> shape) {
    return InferenceCase("recv_v2").Out("Out").Attr("out_shape", std::move(shape));
  };
  EXPECT_THAT(receive({2, 3}).Attr("dtype", 4).Infer(),
              IsOkAndHolds(ElementsAre(Pair("Out", "fp16[2, 3]"))));
  for (const std::vector<int>& shape : {std::vector<int>{}, std::vector<int>{2, -1}}) {
    EXPECT_THAT(receive(shape).Infer(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("attribute out_shape: expected one or more dimensions, all 1 or "
                                   "more, found [")));
  }
  EXPECT_THAT(receive({}).Attr("dynamic_shape", true).Infer(), IsOk());
}

TEST(MessageTest, PeersAreNotNegative) {
  EXPECT_THAT(InferenceCase("send_v2").In("X", {"fp32[2]"}).Attr("peer", -1).Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute peer: expected 0 or more, found -1")));
}

TEST(CollectiveTest, ReductionsHaveNumbersFrom0To4) {
  EXPECT_THAT(
      InferenceCase("all_reduce").In("x", {"fp32[2]"}).Out("out").Attr("reduce_type", 4).Infer(),
      IsOkAndHolds(ElementsAre(Pair("out", "fp32[2]"))));
  for (const char* type : {"all_reduce", "reduce"}) {
    EXPECT_THAT(InferenceCase(type).In("x", {"fp32[2]"}).Out("out").Attr("reduce_type", 5).Infer(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("attribute reduce_type: expected 0 (sum), 1 (maximum), 2 "
                                   "(minimum), 3 (product) or 4 (mean), found 5")));
  }
}

TEST(CoalesceTensorTest, MembersArePaddedToTheAlignment) {
  EXPECT_THAT(InferenceCase("coalesce_tensor")
                  .In("Input", {"fp32[3]", "fp32[8, 16]", "fp32[65]"})
                  .Out("Output", 3)
                  .Out("FusedOutput")
                  .Attr("align_size", 256)
                  .Attr("dtype", 5)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("FusedOutput", "fp32[320]"),
                                       Pair("Output", "fp32[3] | fp32[8, 16] | fp32[65]"))));
}

TEST(CoalesceTensorTest, WithoutAlignmentMembersAreAdjacent) {
  EXPECT_THAT(InferenceCase("coalesce_tensor")
                  .In("Input", {"fp16[3]", "fp16[5]"})
                  .Out("FusedOutput")
                  .Attr("dtype", 4)
                  .Attr("use_align", false)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("FusedOutput", "fp16[8]"))));
}

TEST(CoalesceTensorTest, GivenElementSizeReplacesThatOfTheType) {
  EXPECT_THAT(InferenceCase("coalesce_tensor")
                  .In("Input", {"fp16[3]"})
                  .Out("FusedOutput")
                  .Attr("align_size", 8)
                  .Attr("dtype", 4)
                  .Attr("user_defined_size_of_dtype", 4)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("FusedOutput", "fp16[4]"))));
}

TEST(CoalesceTensorTest, AlignmentOfTheDeviceLeavesTheSizeUnknown) {
  EXPECT_THAT(InferenceCase("coalesce_tensor")
                  .In("Input", {"fp32[3]"})
                  .Out("Output")
                  .Out("FusedOutput")
                  .Attr("dtype", 5)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Output", "fp32[3]"))));
}

TEST(CoalesceTensorTest, MemberOfUnknownSizeLeavesTheSizeUnknown) {
  EXPECT_THAT(InferenceCase("coalesce_tensor")
                  .In("Input", {"fp32[3]", ""})
                  .Out("Output", 2)
                  .Out("FusedOutput")
                  .Attr("align_size", 256)
                  .Attr("dtype", 5)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("Output", "fp32[3]"))));
  EXPECT_THAT(InferenceCase("coalesce_tensor")
                  .In("Input", {"fp32[3]", "fp32[-1]"})
                  .Out("FusedOutput")
                  .Attr("align_size", 256)
                  .Attr("dtype", 5)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("FusedOutput", "fp32[-1]"))));
}

TEST(CoalesceTensorTest, MemberOfAnotherElementTypeIsAnError) {
  EXPECT_THAT(InferenceCase("coalesce_tensor")
                  .In("Input", {"fp32[3]", "fp16[3]"})
                  .Out("FusedOutput")
                  .Attr("dtype", 5)
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (coalesce_tensor) input Input (Input_1): expected fp32 as "
                                 "attribute dtype, found fp16[3]")));
}

TEST(CoalesceTensorTest, InputsAndOutputsMustPair) {
  EXPECT_THAT(InferenceCase("coalesce_tensor")
                  .In("Input", {"fp32[3]", "fp32[3]"})
                  .Out("Output")
                  .Attr("dtype", 5)
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected as many variables as Output has, 1")));
}

}  // namespace
}  // namespace weft
