#include "transpiler/passes/devices/device_order.h"

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

// Two chains that visit the host, one after the other in the program, and their sum.
const std::vector<PlacedOp>& Chains() {
  static const auto* const ops = new std::vector<PlacedOp>{
      {kA, {}}, {kH, {0}}, {kA, {1}}, {kA, {}}, {kH, {3}}, {kA, {4}}, {kA, {2, 5}}};
  return *ops;
}

TEST(DeviceOrder, FewSwitchesVisitTheHostOnceForSeveralChains) {
  const std::vector<int> order = OrderOps(Chains(), DeviceOrder::kFewSwitches);
  EXPECT_THAT(order, ElementsAre(0, 3, 1, 4, 2, 5, 6));
  EXPECT_EQ(NumSegments(Chains(), order), 3);
}

TEST(DeviceOrder, AcceleratorBeginsAnotherChainWhileTheHostWorks) {
  EXPECT_THAT(OrderOps(Chains(), DeviceOrder::kEarlyStart), ElementsAre(0, 1, 3, 4, 2, 5, 6));
}

// What waits for the host's first op comes before what waits for its second one, and then in the
// order of the program.
TEST(DeviceOrder, AcceleratorWaitsForTheHostAsLateAsItCan) {
  const std::vector<PlacedOp> ops = {{kH, {}}, {kH, {}},  {kA, {1}}, {kA, {0}},
                                     {kA, {}}, {kA, {0}}, {kA, {4}}};
  EXPECT_THAT(OrderOps(ops, DeviceOrder::kEarlyStart), ElementsAre(0, 1, 4, 6, 3, 5, 2));
}

TEST(DeviceOrder, AcceleratorKeepsItsOrderIfNothingWaits) {
  const std::vector<PlacedOp> ops = {{kA, {}}, {kA, {}}, {kA, {0}}, {kH, {2}}, {kA, {1}}};
  EXPECT_THAT(OrderOps(ops, DeviceOrder::kEarlyStart), ElementsAre(0, 1, 2, 3, 4));
}

// Also past an op that could run first: the executor computes ops together that follow each other.
TEST(DeviceOrder, OpsOfOneDeviceKeepTheirOrder) {
  for (const DeviceKind device : {kA, kH}) {
    const std::vector<PlacedOp> ops = {{device, {}}, {device, {0}}, {device, {}}, {device, {1, 2}}};
    for (const DeviceOrder order : {DeviceOrder::kEarlyStart, DeviceOrder::kFewSwitches}) {
      EXPECT_THAT(OrderOps(ops, order), ElementsAre(0, 1, 2, 3));
    }
  }
}

TEST(DeviceOrder, HostOpsKeepTheirOrderIfReadyTogether) {
  const std::vector<PlacedOp> ops = {{kA, {}}, {kH, {0}}, {kH, {0}}, {kH, {1}}};
  EXPECT_THAT(OrderOps(ops, DeviceOrder::kEarlyStart), ElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace weft
