#include "transpiler/passes/device_order.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

constexpr DeviceKind kA = DeviceKind::kAccelerator, kH = DeviceKind::kHost;

// Backward of three layers, then the updates in the order of the layers.
const std::vector<PlacedOp>& Training() {
  static const auto* const ops = new std::vector<PlacedOp>{
      {kA, {}}, {kA, {0}}, {kA, {1}}, {kH, {2}}, {kH, {1}}, {kH, {0}},
  };
  return *ops;
}

TEST(DeviceOrder, UpdatesFollowTheirGradients) {
  EXPECT_THAT(OrderOps(Training(), DeviceOrder::kEarlyStart), ElementsAre(0, 5, 1, 4, 2, 3));
}

TEST(DeviceOrder, FewSwitchesRunOneDeviceAsLongAsPossible) {
  const std::vector<int> order = OrderOps(Training(), DeviceOrder::kFewSwitches);
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 5, 4, 3));
  EXPECT_EQ(NumSegments(Training(), order), 2);
}

TEST(DeviceOrder, TheDeviceThatNeedsFewerSwitchesBegins) {
  // The accelerator's first op can run at once, but the second needs the host.
  const std::vector<PlacedOp> ops = {{kA, {}}, {kH, {}}, {kA, {1}}, {kA, {0, 2}}};
  const std::vector<int> order = OrderOps(ops, DeviceOrder::kFewSwitches);
  EXPECT_THAT(order, ElementsAre(1, 0, 2, 3));
  EXPECT_EQ(NumSegments(ops, order), 2);
}

TEST(DeviceOrder, HostOpsKeepTheirOrderIfReadyTogether) {
  const std::vector<PlacedOp> ops = {{kA, {}}, {kH, {0}}, {kH, {0}}, {kH, {1}}};
  EXPECT_THAT(OrderOps(ops, DeviceOrder::kEarlyStart), ElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace weft
