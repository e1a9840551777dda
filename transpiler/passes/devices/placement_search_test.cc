#include "transpiler/passes/devices/placement_search.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Two layers, whose gradients backward completes from the last to the first.
constexpr char kTwoLayers[] = R"(
    var x : fp32[-1, 8] need_check_feed
    var v, w : fp32[8, 8] parameter persistable
    var v_m1, v_m2, w_m1, w_m2 : fp32[8, 8] persistable
    Out=[h] = mul(X=[x], Y=[v])
    Out=[y] = mul(X=[h], Y=[w])
    Out=[loss] = mean(X=[y]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], value=1.0}
    X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward
    X@GRAD=[h@GRAD], Y@GRAD=[w@GRAD] = mul_grad(X=[h], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[h@GRAD]) role=backward vars=[v, v@GRAD]
    Beta1PowOut=[v_1], Beta2PowOut=[v_2], Moment1Out=[v_m1], Moment2Out=[v_m2], ParamOut=[v] = adam(Beta1Pow=[v_1], Beta2Pow=[v_2], Grad=[v@GRAD], LearningRate=[lr], Moment1=[v_m1], Moment2=[v_m2], Param=[v]) role=optimize
    Beta1PowOut=[w_1], Beta2PowOut=[w_2], Moment1Out=[w_m1], Moment2Out=[w_m2], ParamOut=[w] = adam(Beta1Pow=[w_1], Beta2Pow=[w_2], Grad=[w@GRAD], LearningRate=[lr], Moment1=[w_m1], Moment2=[w_m2], Param=[w]) role=optimize
)";

struct Search {
  explicit Search(const std::string& text) : program(CompactProgram(text)) {
    request.devices.assign(program.op_id_limit(), DeviceKind::kAccelerator);
    request.is_fixed.assign(program.op_id_limit(), false);
    request.partition.accelerator = "sim";
    request.speeds.host.batch = 4;
    request.collective_seconds = [](int64_t) { return 0.0; };
  }
  absl::StatusOr<PlacementChoice> In(int64_t memory_bytes) {
    request.memory_bytes = memory_bytes;
    return ChoosePlacement(request, {&program, nullptr});
  }

  Program program;
  PlacementRequest request;
};

constexpr int64_t kEnough = int64_t{1} << 40;

TEST(PlacementSearch, WhatFitsStaysOnTheAccelerator) {
  WEFT_ASSERT_OK_AND_ASSIGN(const PlacementChoice choice, Search(kTwoLayers).In(kEnough));
  EXPECT_THAT(choice.moved, IsEmpty());
  EXPECT_THAT(choice.devices, Each(DeviceKind::kAccelerator));
  EXPECT_THAT(choice.candidates, SizeIs(1));
}

TEST(PlacementSearch, LeastMemoryThatWouldDoIsNamedAndDoes) {
  Search search(kTwoLayers);
  const absl::Status refused = search.In(0).status();
  EXPECT_THAT(refused, IsResourceExhausted("which are sure to hold a step of 4 rows; found 0"));
  WEFT_ASSERT_OK_AND_ASSIGN(const PlacementChoice all, search.In(kEnough));
  // The candidates of a search in less memory than all need.
  WEFT_ASSERT_OK_AND_ASSIGN(const PlacementChoice less, search.In(all.first.bytes - 1));
  int64_t least = kEnough;
  for (const PlacementCandidate& of : less.candidates) least = std::min(least, of.bytes);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat("expected at least ", least, " bytes")));
  WEFT_ASSERT_OK_AND_ASSIGN(const PlacementChoice choice, search.In(least));
  EXPECT_EQ(choice.chosen.bytes, least);
  EXPECT_TRUE(absl::IsResourceExhausted(search.In(least - 1).status()));
}

TEST(PlacementSearch, OpsThatNeedTheAcceleratorSayWhy) {
  const Program program = CompactProgram(R"(
    Out=[a] = my_op(X=[x])
    Out=[b] = uniform_random() {shape=longs[2, 2]}
    Out=[c] = relu(X=[x])
  )");
  const auto why = [&](int op) { return WhyNotOnHost(program.op(program.block(0).ops()[op])); };
  EXPECT_THAT(why(0), HasSubstr("op 0 (my_op): expected an op that can run on the host: an "
                                "unregistered op"));
  EXPECT_THAT(why(1), HasSubstr("random numbers are drawn in the order of the program"));
  EXPECT_THAT(why(2), IsEmpty());
}

}  // namespace
}  // namespace weft::testing
