#include "executor/streams/sim_device.h"

#include <chrono>
#include <memory>
#include <new>

#include "gtest/gtest.h"
#include "ops/tensor.h"

namespace weft {
namespace {

TEST(SimDevice, MemoryIsLimited) {
  SimDeviceOptions options;
  options.memory_bytes = 100;
  const auto device = NewSimDevice(options);
  auto first = device->memory()->Allocate(60);
  EXPECT_THROW(device->memory()->Allocate(41), std::bad_alloc);
  first = nullptr;
  EXPECT_NE(device->memory()->Allocate(100), nullptr);
}

TEST(SimDevice, TensorsMayOutliveIt) {
  SimDeviceOptions options;
  options.memory_bytes = 1000;
  auto device = NewSimDevice(options);
  const std::shared_ptr<void> block = device->memory()->Allocate(1000);
  device = nullptr;
  static_cast<char*>(block.get())[999] = 1;
}

TEST(SimDevice, CopiesTakeLatencyAndBandwidth) {
  using std::chrono::microseconds;
  SimDeviceOptions options;
  EXPECT_EQ(NewSimDevice(options)->CopyTime(1000), microseconds(0));
  options.copy_latency_s = 1e-5;
  options.copy_bytes_per_s = 1e6;
  EXPECT_EQ(NewSimDevice(options)->CopyTime(1000), microseconds(1010));
}

TEST(SimDevice, ItsMemoryIsNotThatOfTheHost) {
  const auto device = NewSimDevice({});
  EXPECT_NE(device->memory(), HostMemory());
  Tensor host, there(device->memory());
  host.Resize(DType::kFloat32, {2});
  host.data<float>()[1] = 3;
  ASSERT_TRUE(there.CopyFrom(host).ok());
  EXPECT_FALSE(there.SharesBufferWith(host));
  EXPECT_EQ(there.data<float>()[1], 3);
}

}  // namespace
}  // namespace weft
