#include "ops/analysis/devices/device_memory.h"

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

constexpr DeviceKind kAccelerator = DeviceKind::kAccelerator, kHost = DeviceKind::kHost;

ProgramBuilder& Relu(ProgramBuilder& builder, const std::string& in, const std::string& out) {
  return builder.Op("relu", {{"X", {in}}}, {{"Out", {out}}});
}

// 4096 bytes.
void Fill(ProgramBuilder& builder, const std::string& out) {
  builder.Op("fill_constant", {}, {{"Out", {out}}});
  builder.LongsAttr("shape", {1024}).IntAttr("dtype", pb::VarType::FP32);
}

void SetString(ProgramBuilder& builder, const std::string& name, const std::string& value) {
  pb::OpDesc::Attr* const attr = builder.last_op().add_attrs();
  attr->set_name(name);
  attr->set_type(pb::STRING);
  attr->set_s(value);
}

void Wait(ProgramBuilder& builder, const std::string& var, const std::string& stream,
          const std::string& awaited) {
  builder.Op("stream_wait", {{"X", {var}}}, {{"Out", {var}}});
  SetString(builder, "stream", stream);
  SetString(builder, "awaited", awaited);
}

// Room for one value of 4096 bytes.
constexpr int64_t kRoom = 4096 + 320;

TEST(DeviceMemory, ValuesLiveFromTheFirstOpToTheLast) {
  ProgramBuilder builder;
  builder.Param("w", {100}).Var("a", {1024}).Var("b", {1024}).Var("c", {1024}).Var("d", {1024});
  Fill(builder, "a");
  Relu(Relu(Relu(builder, "a", "b"), "b", "c"), "c", "d");
  const DeviceMemories memories = EstimateDeviceMemory(builder.Build(), {}, 1);
  EXPECT_EQ(memories.Of(kAccelerator).kept, 400);
  EXPECT_EQ(memories.Of(kAccelerator).step, 2 * kRoom + 2 * kRoom / 8);
  EXPECT_EQ(memories.Of(kAccelerator).bytes(), 400 + 2 * kRoom + 2 * kRoom / 8);
  EXPECT_EQ(memories.Of(kHost).bytes(), 0);
  EXPECT_EQ(memories.num_unknown, 0);
}

TEST(DeviceMemory, TypesFollowFromTheBatch) {
  ProgramBuilder builder;
  builder.Var("x", {-1, 2, 4}).last_var().set_need_check_feed(true);
  // 2 rows for each of x, declared as if there were one.
  builder.Var("y", {-1, 4}).Var("z", {-1, 4});
  builder.Op("flatten_contiguous_range", {{"X", {"x"}}}, {{"Out", {"y"}}});
  builder.IntAttr("start_axis", 0).IntAttr("stop_axis", 1);
  Relu(builder, "y", "z");
  const DeviceMemory memory = EstimateDeviceMemory(builder.Build(), {}, 16).Of(kAccelerator);
  EXPECT_EQ(memory.kept, 4 * 16 * 8);
  EXPECT_EQ(memory.step, 2 * (512 + 320) + 2 * (512 + 320) / 8);
}

TEST(DeviceMemory, CopiesThatNobodyWaitsForLiveToTheEnd) {
  const auto build = [](bool waits) {
    ProgramBuilder builder;
    builder.Var("a", {1024}).Var("a@CPU", {1024}).Var("b", {1024}).Var("c", {1024});
    Fill(builder, "a");
    Wait(builder, "a", "d2h", "compute");
    builder.Op("memcpy_d2h", {{"X", {"a"}}}, {{"Out", {"a@CPU"}}});
    if (waits) Wait(builder, "a", "compute", "d2h");
    Fill(builder, "b");
    Relu(builder, "b", "c");
    return EstimateDeviceMemory(builder.Build(), {}, 1);
  };
  EXPECT_EQ(build(true).Of(kAccelerator).step, 2 * kRoom + 2 * kRoom / 4);
  EXPECT_EQ(build(false).Of(kAccelerator).step, 3 * kRoom + 3 * kRoom / 4);
  EXPECT_EQ(build(false).Of(kHost).step, kRoom + kRoom / 4);
}

TEST(DeviceMemory, UnknownSizesAreCounted) {
  ProgramBuilder builder;
  builder.Var("a", {10}).Var("b", {10});
  builder.last_var().clear_type();
  builder.last_var().mutable_type()->set_type(pb::VarType::LOD_TENSOR);
  builder.Op("my_op", {{"X", {"a"}}}, {{"Out", {"b"}}});
  EXPECT_EQ(EstimateDeviceMemory(builder.Build(), {}, 1).num_unknown, 1);
}

}  // namespace
}  // namespace weft::testing
