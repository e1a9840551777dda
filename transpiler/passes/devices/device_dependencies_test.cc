#include "transpiler/passes/devices/device_dependencies.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

// The ops that must come before each, where only those named are on the host.
std::vector<std::vector<int>> After(const std::string& text, const std::vector<size_t>& on_host,
                                    const std::vector<std::string>& shared = {}) {
  const Program program =
      CompactProgram(absl::StrCat("var x : fp32[2, 2] need_check_feed\n", text));
  OpDevices devices(program.op_id_limit(), DeviceKind::kAccelerator);
  for (size_t i : on_host) devices[program.block(0).ops()[i].value()] = DeviceKind::kHost;
  SharedAtStart shared_at_start;
  if (!shared.empty()) {
    const VarId a = program.block(0).FindVar(shared[0]), b = program.block(0).FindVar(shared[1]);
    shared_at_start = {{a, {b}}, {b, {a}}};
  }
  std::vector<std::vector<int>> after;
  for (const PlacedOp& op :
       FindDependencies(program, devices, DeviceAccesses(program), shared_at_start)) {
    after.push_back(op.after);
  }
  return after;
}

TEST(DeviceDependencies, AccessesOfOneVariableKeepTheirOrderUnlessBothRead) {
  EXPECT_THAT(After(R"(
    Out=[a] = relu(X=[x])
    Out=[b] = tanh(X=[a])
    Out=[c] = tanh(X=[a])
    Out=[a] = relu(X=[x])
  )",
                    {1, 2}),
              ElementsAre(IsEmpty(), ElementsAre(0), ElementsAre(0), ElementsAre(0, 1, 2)));
}

TEST(DeviceDependencies, VariablesThatShareMemoryKeepTheirOrder) {
  const std::string text = R"(
    Out=[a] = relu(X=[x])
    Out=[b] = tanh(X=[x])
  )";
  EXPECT_THAT(After(text, {1}), ElementsAre(IsEmpty(), IsEmpty()));
  EXPECT_THAT(After(text, {1}, {"a", "b"}), ElementsAre(IsEmpty(), ElementsAre(0)));
}

TEST(DeviceDependencies, CollectivesAndDrawsKeepTheirOrder) {
  EXPECT_THAT(After(R"(
    Out=[a] = c_allreduce_sum(X=[a])
    Out=[b] = uniform_random() {shape=longs[2, 2]}
    Out=[c] = tanh(X=[x])
    Out=[d] = c_allreduce_sum(X=[d])
  )",
                    {1}),
              ElementsAre(IsEmpty(), ElementsAre(0), IsEmpty(), ElementsAre(1)));
}

// Of the accelerator; the host may run earlier.
TEST(DeviceDependencies, OpsDoNotChangePlacesWithBlocks) {
  EXPECT_THAT(After(R"(
    var c : bool[1] need_check_feed
    Out=[a] = relu(X=[x])
    Out=[z], Scope=[] = conditional_block(Cond=[c], Input=[]) {sub_block=block(1), is_scalar_condition=true}
    Out=[b] = relu(X=[x])
    Out=[d] = tanh(X=[x])
  block 1:
    Out=[z] = scale(X=[x])
  )",
                    {3}),
              ElementsAre(IsEmpty(), ElementsAre(0), ElementsAre(1), IsEmpty()));
}

TEST(DeviceDependencies, TheHostReadsSlicesOfAWholeBuffer) {
  const std::string text = R"(
    FusedOutput=[fused], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5, copy_data=false}
    Out=[a] = relu(X=[x])
    Out=[b] = relu(X=[x])
    Out=[d] = tanh(X=[a])
    Out=[e] = tanh(X=[b])
  )";
  EXPECT_THAT(After(text, {3, 4})[3], Contains(2)) << "which completes the buffer";
  EXPECT_THAT(After(text, {3})[3], Not(Contains(2))) << "b is not read there";
}

}  // namespace
}  // namespace weft::testing
