#include "transpiler/passes/devices/staging_slots.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

// The turns of the copies of these variables to the host, one after each op but the last, which is
// on the host: "0. 1 1." ends turns 0 and 1.
std::string TurnsOf(const std::string& text, const std::vector<std::string>& copied, int turns) {
  const Program program = CompactProgram(text);
  const DeviceAccesses accesses(program);
  std::vector<DeviceStep> steps;
  for (OpId op : program.block(0).ops()) steps.push_back({op, DeviceKind::kAccelerator});
  steps.back().device = DeviceKind::kHost;
  std::vector<std::vector<DeviceCopy>> copies(copied.size());
  for (size_t i = 0; i < copied.size(); ++i) {
    copies[i].push_back(
        {program.block(0).FindVar(copied[i]), DeviceKind::kAccelerator, steps.back().op});
  }
  EXPECT_EQ(TakeTurns(program, accesses, steps, &copies), turns);
  std::string found;
  for (const std::vector<DeviceCopy>& of_step : copies) {
    for (const DeviceCopy& copy : of_step) {
      absl::StrAppend(&found, found.empty() ? "" : " ", copy.turn, copy.ends_turn ? "." : "");
    }
  }
  return found;
}

constexpr char kVars[] = R"(
    var a : fp32[8]
    var b, c, d : fp32[2]
    var e : fp32[-1]
    Out=[f] = sum(X=[a, b, c, d, e])
)";

TEST(StagingSlots, ATurnHasAtLeastHalfOfTheLargest) {
  EXPECT_EQ(TurnsOf(kVars, {"a", "b", "c", "d"}, 3), "0. 1 1. 2");
  EXPECT_EQ(TurnsOf(kVars, {"b", "c", "a", "d"}, 3), "0 0. 1. 2");
  EXPECT_EQ(TurnsOf(kVars, {"b", "c", "d"}, 3), "0. 1. 2.");
  EXPECT_EQ(TurnsOf(kVars, {}, 0), "");
}

TEST(StagingSlots, UnknownSizesAndSecondArrivalsAreInNoTurn) {
  EXPECT_EQ(TurnsOf(kVars, {"e", "b"}, 1), "-1 0.");
  EXPECT_EQ(TurnsOf(kVars, {"b", "c", "b"}, 1), "-1 0. -1");
}

TEST(StagingSlots, WhatTheHostWritesIsInNoTurn) {
  EXPECT_EQ(TurnsOf(absl::StrCat(kVars, "Out=[b] = scale(X=[b]) {scale=2.0}\n"), {"b", "c"}, 1),
            "-1 0.");
}

}  // namespace
}  // namespace weft::testing
