#include "transpiler/passes/support/device_accesses.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

// "x:r y:w c:": what op `i` reads, writes, or only names.
std::string Accesses(const Program& program, const DeviceAccesses& accesses, size_t i) {
  return absl::StrJoin(accesses.Of(program.block(0).ops()[i]), " ",
                       [&](std::string* text, const DeviceAccess& access) {
                         absl::StrAppend(text, program.var(access.var).name(), ":",
                                         access.reads ? "r" : "", access.writes ? "w" : "");
                       });
}

TEST(DeviceAccesses, EachVariableOnceInTheOrderOfArguments) {
  const Program program = CompactProgram(R"(
    var x : fp32[2, 2] need_check_feed
    Out=[y] = elementwise_add(X=[x], Y=[x])
    Out=[y] = elementwise_add(X=[x], Y=[y])
    Out=[y] = c_wait_compute(X=[y])
    Out=[y] = c_sync_calc_stream(X=[y])
  )");
  const DeviceAccesses accesses(program);
  EXPECT_EQ(Accesses(program, accesses, 0), "x:r y:w");
  EXPECT_EQ(Accesses(program, accesses, 1), "x:r y:rw");
  EXPECT_EQ(Accesses(program, accesses, 2), "") << "a synchronization accesses nothing";
  EXPECT_EQ(Accesses(program, accesses, 3), "");
}

TEST(DeviceAccesses, OpAccessesWhatItsBlocksDoAndMayLeaveWhatTheyWrite) {
  const Program program = CompactProgram(R"(
    var c : bool[1] need_check_feed
    var x : fp32[2, 2] need_check_feed
    var z : fp32[2, 2]
    Out=[z], Scope=[] = conditional_block(Cond=[c], Input=[]) {sub_block=block(1), is_scalar_condition=true}
  block 1:
    var inner : fp32[2, 2]
    Out=[inner] = relu(X=[x])
    Out=[z] = relu(X=[inner])
  )");
  const std::string found = Accesses(program, DeviceAccesses(program), 0);
  EXPECT_THAT(found, HasSubstr("c:r"));
  EXPECT_THAT(found, HasSubstr("x:r"));
  EXPECT_THAT(found, HasSubstr("z:rw"));
  EXPECT_THAT(found, Not(HasSubstr("inner"))) << "of the block alone";
}

TEST(DeviceAccesses, BuffersShareMemoryWithTheirSlices) {
  const Program program = CompactProgram(R"(
    var a, b : fp32[2, 2]
    var fused : fp32[128]
    FusedOutput=[fused], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5, copy_data=false}
    Out=[c] = relu(X=[fused])
  )");
  const DeviceAccesses accesses(program);
  const auto var = [&](const char* name) { return program.block(0).FindVar(name); };
  ASSERT_NE(accesses.FindBuffer(var("fused")), nullptr);
  EXPECT_EQ(accesses.FindBuffer(var("a")), nullptr);
  EXPECT_THAT(accesses.FindBuffer(var("fused"))->slices, ElementsAre(var("a"), var("b")));
  EXPECT_FALSE(accesses.FindBuffer(var("fused"))->has_values);
  EXPECT_THAT(accesses.BuffersOf(var("a")), ElementsAre(var("fused")));
  EXPECT_THAT(accesses.BuffersOf(var("c")), IsEmpty());
  EXPECT_THAT(accesses.SharedWith(var("fused")), ElementsAre(var("a"), var("b")));
  EXPECT_THAT(accesses.SharedWith(var("b")), ElementsAre(var("fused")));
  EXPECT_THAT(accesses.PartsOf(var("fused")), ElementsAre(var("a"), var("b")));
  EXPECT_THAT(accesses.PartsOf(var("c")), ElementsAre(var("c")));
}

TEST(DeviceAccesses, TensorsAndRowsAreCopied) {
  const Program program = CompactProgram(R"(
    var t : fp32[2]
    var rows : selected_rows<fp32[8, 1]>
    var scope : step_scopes
    var list : lod_tensor_array<fp32[2]>
  )");
  for (const auto& [name, is_copied] :
       {std::pair("t", true), {"rows", true}, {"scope", false}, {"list", false}}) {
    EXPECT_EQ(IsCopied(program.var(program.block(0).FindVar(name))), is_copied) << name;
  }
}

}  // namespace
}  // namespace weft::testing
