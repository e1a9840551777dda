#include "transpiler/passes/devices/device_partition.h"

#include <map>
#include <string>

#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/schema/device_ops.h"

namespace weft::testing {
namespace {

constexpr char kChain[] = R"(
    var x : fp32[2, 2] need_check_feed
    Out=[a] = relu(X=[x])
    Out=[b] = tanh(X=[a])
    Out=[c] = sigmoid(X=[b])
)";

// The op at `position` on the host, others on an accelerator.
OpDevices OnHost(const Program& program, int position) {
  OpDevices devices(program.op_id_limit(), DeviceKind::kAccelerator);
  devices[program.block(0).ops()[position].value()] = DeviceKind::kHost;
  return devices;
}

TEST(DevicePartition, CountsRunsOfOpsAndCopies) {
  Program main = CompactProgram(kChain);
  ProgramPair programs{&main, nullptr};
  const PartitionOptions options{"gpu", DeviceOrder::kEarlyStart, Staging::kAll};
  WEFT_ASSERT_OK_AND_ASSIGN(const Partition partition,
                            PartitionProgram(OnHost(main, 1), options, programs));
  EXPECT_TRUE(partition.changed);
  EXPECT_EQ(partition.segments, 3);
  EXPECT_EQ(partition.copies, 2);
  // Mirrors have the name of their device.
  EXPECT_TRUE(main.block(0).FindVar("a@CPU").valid());
  EXPECT_TRUE(main.block(0).FindVar("b@GPU").valid());
}

TEST(DevicePartition, ProgramOnTheAcceleratorStays) {
  Program main = CompactProgram(kChain);
  const std::string before = CanonicalText(main.ToProto());
  ProgramPair programs{&main, nullptr};
  const OpDevices devices(main.op_id_limit(), DeviceKind::kAccelerator);
  WEFT_ASSERT_OK_AND_ASSIGN(const Partition partition,
                            PartitionProgram(devices, {"sim"}, programs));
  EXPECT_FALSE(partition.changed);
  EXPECT_EQ(partition.segments, 1);
  EXPECT_EQ(partition.copies, 0);
  EXPECT_EQ(CanonicalText(main.ToProto()), before);
}

// "gpu:0" stays where the op stays on the accelerator; "cpu" becomes the accelerator's name.
TEST(DevicePartition, OpDeviceSaysWhereAnOpRuns) {
  Program main = CompactProgram(R"(
    var x : fp32[2, 2] need_check_feed
    Out=[a] = relu(X=[x]) {op_device="gpu:0"}
    Out=[b] = tanh(X=[a]) {op_device="cpu"}
    Out=[c] = sigmoid(X=[a])
  )");
  ProgramPair programs{&main, nullptr};
  WEFT_ASSERT_OK(PartitionProgram(OnHost(main, 2), {"gpu"}, programs).status());
  std::map<std::string, std::string> devices;  // by type
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    devices[std::string(op.type())] = op.StringAttr("op_device").value_or("");
  }
  EXPECT_EQ(devices["relu"], "gpu:0");
  EXPECT_EQ(devices["tanh"], "gpu");
  EXPECT_EQ(devices["sigmoid"], "cpu");
}

}  // namespace
}  // namespace weft::testing
