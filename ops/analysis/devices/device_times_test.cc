#include "ops/analysis/devices/device_times.h"

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

// One second for each 8 bytes of arguments on the host, half of that on the accelerator, a second
// for each 4 bytes that are copied.
DeviceSpeeds Speeds() {
  DeviceSpeeds speeds;
  speeds.host.bytes_per_second = 8;
  speeds.accelerator_speed = 2;
  speeds.copy_bandwidth = 4;
  speeds.copy_latency = 10;
  return speeds;
}

double Seconds(ProgramBuilder& builder) {
  return EstimateStepSeconds(builder.Build(), Speeds(),
                             [](int64_t bytes) { return static_cast<double>(bytes); });
}

void SetString(ProgramBuilder& builder, const std::string& name, const std::string& value) {
  pb::OpDesc::Attr* const attr = builder.last_op().add_attrs();
  attr->set_name(name);
  attr->set_type(pb::STRING);
  attr->set_s(value);
}

void Add(ProgramBuilder& builder, const std::string& in, const std::string& out,
         const std::string& device = "") {
  builder.Op("relu", {{"X", {in}}}, {{"Out", {out}}});
  SetString(builder, "op_device", device);
}

void Wait(ProgramBuilder& builder, const std::string& stream, const std::string& awaited) {
  builder.Op("stream_wait", {{"X", {"a"}}}, {{"Out", {"a"}}});
  SetString(builder, "stream", stream);
  SetString(builder, "awaited", awaited);
}

TEST(DeviceTimes, OneDeviceRunsOpsInTurn) {
  ProgramBuilder builder;
  builder.Var("a", {1}).Var("b", {1}).Var("c", {1});
  Add(builder, "a", "b");
  Add(builder, "b", "c");
  EXPECT_DOUBLE_EQ(Seconds(builder), 2 * 0.5);
}

TEST(DeviceTimes, StreamsRunAtTheSameTimeUnlessTheyWait) {
  const auto seconds = [](bool waits) {
    ProgramBuilder builder;
    builder.Var("a", {1}).Var("a@CPU", {1}).Var("b", {1}).Var("c", {100}).Var("d", {100});
    Add(builder, "c", "d");  // 50 s on the accelerator
    if (waits) Wait(builder, "d2h", "compute");
    builder.Op("memcpy_d2h", {{"X", {"a"}}}, {{"Out", {"a@CPU"}}});  // 11 s
    Wait(builder, "cpu", "d2h");
    Add(builder, "a@CPU", "b", "cpu");  // 1 s
    return Seconds(builder);
  };
  EXPECT_DOUBLE_EQ(seconds(false), 50);
  EXPECT_DOUBLE_EQ(seconds(true), 50 + 11 + 1);
}

TEST(DeviceTimes, CollectivesTakeWhatTheirBytesTake) {
  ProgramBuilder builder;
  builder.Var("a", {3});
  builder.Op("c_allreduce_sum", {{"X", {"a"}}}, {{"Out", {"a"}}});
  builder.IntAttr("ring_id", 0);
  EXPECT_DOUBLE_EQ(Seconds(builder), 12);
}

}  // namespace
}  // namespace weft::testing
