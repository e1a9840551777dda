#include "transpiler/passes/devices/device_buckets.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

constexpr char kClipped[] = R"(
    var x : fp32[2, 2] need_check_feed
    var a, b, c, d : fp32[2, 2]
    FusedOutput=[fused], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5, copy_data=false}
    Out=[a] = relu(X=[x])
    Out=[b] = relu(X=[x])
    Out=[c] = clip(X=[a]) {min=-1.0, max=1.0}
    Out=[d] = clip(X=[b]) {min=-1.0, max=1.0}
    Out=[e] = tanh(X=[c])
    Out=[f] = tanh(X=[d])
)";

// The line of the new buffer, with ops of type tanh on the host; empty: there is none.
std::string Fused(const std::string& text) {
  Program program = CompactProgram(text);
  OpDevices devices(program.op_id_limit(), DeviceKind::kAccelerator);
  for (OpId id : program.block(0).ops()) {
    if (program.op(id).type() == "tanh") devices[id.value()] = DeviceKind::kHost;
  }
  ProgramPair programs{&program, nullptr};
  const absl::StatusOr<bool> changed = FuseValuesForHost(&devices, programs);
  EXPECT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(devices.size(), program.op_id_limit());
  const std::string after = CanonicalText(program.ToProto());
  const size_t begin = after.find("FusedOutput=[fused@SENT]");
  EXPECT_EQ(*changed, begin != std::string::npos);
  if (begin == std::string::npos) return "";
  EXPECT_LT(begin, after.find("clip(")) << "before what it holds is made";
  return after.substr(begin, after.find(" = ", begin) - begin);
}

TEST(DeviceBuckets, WhatIsMadeOfEachSliceTravelsInOneBuffer) {
  EXPECT_EQ(Fused(kClipped), "FusedOutput=[fused@SENT], Output=[c, d]");
}

TEST(DeviceBuckets, OtherValuesTravelAlone) {
  const std::pair<const char*, const char*> changes[] = {
      {"Out=[f] = tanh(X=[d])", ""},                       // the host reads one alone
      {"Out=[d] = clip(X=[b])", "Out=[d] = clip(X=[a])"},  // two of one slice
      {"Out=[d] = clip(X=[b])", "Out=[d] = clip(X=[x])"},  // one of no slice
      {"Out=[f] = tanh(X=[d])", "Out=[d] = tanh(X=[d])"},  // the host writes one
      {"var a, b, c, d : fp32[2, 2]", "var a, b, c : fp32[2, 2]\n    var d : fp16[2, 2]"},
      {"var a, b, c, d : fp32[2, 2]",  // of other dimensions than its slice
       "var a, b, c : fp32[2, 2]\n    var d : fp32[4]"},
  };
  for (const auto& [line, instead] : changes) {
    const std::string text = absl::StrReplaceAll(kClipped, {{line, instead}});
    ASSERT_NE(text, kClipped);
    EXPECT_EQ(Fused(text), "") << instead;
  }
}

// Before both are made.
TEST(DeviceBuckets, AnEarlyReaderKeepsThemApart) {
  const std::string text = absl::StrReplaceAll(
      kClipped, {{"    Out=[e] = tanh(X=[c])\n", ""},
                 {"    Out=[d] = clip", "    Out=[e] = tanh(X=[c])\n    Out=[d] = clip"}});
  EXPECT_EQ(Fused(text), "");
}

}  // namespace
}  // namespace weft::testing
