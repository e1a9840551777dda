#include "transpiler/passes/devices/device_values.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

// The values of a program of which only the ops named are on the host.
struct Placed {
  Placed(const std::string& text, const std::vector<size_t>& on_host, Staging staging)
      : program(CompactProgram(absl::StrCat("var x : fp32[2, 2] need_check_feed\n", text))),
        accesses(program) {
    for (OpId op : program.block(0).ops()) steps.push_back({op, DeviceKind::kAccelerator});
    for (size_t i : on_host) steps[i].device = DeviceKind::kHost;
    values.emplace_back(program, accesses, steps, staging);
  }

  // "2: a to the host, turn 0 ends": the copies, by the step before which they stand.
  std::vector<std::string> Copies() const {
    std::vector<std::string> texts;
    for (size_t i = 0; i <= steps.size(); ++i) {
      for (const DeviceCopy& copy : values[0].CopiesBefore(i)) {
        texts.push_back(absl::StrCat(
            i, ": ", program.var(copy.var).name(), " to the ",
            copy.from == DeviceKind::kHost ? "accelerator" : "host",
            copy.turn < 0 ? ""
                          : absl::StrCat(", turn ", copy.turn, copy.ends_turn ? " ends" : "")));
      }
    }
    return texts;
  }
  DeviceKind HomeOf(const char* name) const {
    return values[0].HomeOf(program.block(0).FindVar(name));
  }

  Program program;
  DeviceAccesses accesses;
  std::vector<DeviceStep> steps;
  std::vector<DeviceValues> values;
};

TEST(DeviceValues, HomeIsWhereTheLastWriteIs) {
  const Placed placed(R"(
    Out=[a] = relu(X=[x])
    Out=[b] = tanh(X=[a])
    Out=[a] = sigmoid(X=[a])
  )",
                      {1}, Staging::kAll);
  EXPECT_EQ(placed.HomeOf("a"), DeviceKind::kAccelerator);
  EXPECT_EQ(placed.HomeOf("b"), DeviceKind::kHost);
  EXPECT_EQ(placed.HomeOf("x"), DeviceKind::kAccelerator) << "that no op of the host reads";
  EXPECT_THAT(placed.Copies(), ElementsAre("1: a to the host"));
}

TEST(DeviceValues, AValueIsCopiedOncePerWriteThatTheOtherDeviceReads) {
  const Placed placed(R"(
    Out=[a] = relu(X=[x])
    Out=[b] = relu(X=[x])
    Out=[c] = tanh(X=[a])
    Out=[d] = tanh(X=[a])
    Out=[a] = sigmoid(X=[x])
    Out=[a] = sigmoid(X=[x])
    Out=[e] = tanh(X=[a])
    Out=[f] = relu(X=[e])
  )",
                      {2, 3, 6}, Staging::kAll);
  EXPECT_THAT(placed.Copies(),
              ElementsAre("1: a to the host", "6: a to the host", "7: e to the accelerator"));
}

constexpr char kGradients[] = R"(
    var a, b : fp32[2, 2]
    FusedOutput=[fused], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5, align_size=256, concated_ranks=longs[2, 2], concated_shapes=longs[2, 2, 2, 2]}
    Out=[a] = relu(X=[x])
    Out=[b] = relu(X=[x])
    Out=[c] = tanh(X=[a])
    Out=[d] = tanh(X=[b])
  )";

TEST(DeviceValues, ABufferIsCopiedWholeIfTheHostReadsAllSlices) {
  const Placed all(kGradients, {3, 4}, Staging::kAll), one(kGradients, {3}, Staging::kAll);
  EXPECT_THAT(all.Copies(), ElementsAre("3: fused to the host"));
  EXPECT_THAT(all.values[0].mirrored_buffers(), SizeIs(1));
  EXPECT_THAT(one.Copies(), ElementsAre("2: a to the host"));
  EXPECT_THAT(one.values[0].mirrored_buffers(), IsEmpty());
}

TEST(DeviceValues, ValuesTakeTurnsWithDoubleStagingAlone) {
  const std::string text = R"(
    Out=[a] = relu(X=[x])
    Out=[b] = relu(X=[x])
    Out=[c] = elementwise_add(X=[a], Y=[b])
  )";
  const Placed kept(text, {2}, Staging::kAll), turns(text, {2}, Staging::kDouble);
  EXPECT_EQ(kept.values[0].num_turns(), 0);
  EXPECT_EQ(turns.values[0].num_turns(), 2);
  EXPECT_THAT(turns.Copies(),
              ElementsAre("1: a to the host, turn 0 ends", "2: b to the host, turn 1 ends"));
}

}  // namespace
}  // namespace weft::testing
