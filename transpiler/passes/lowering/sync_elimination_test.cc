#include "transpiler/passes/lowering/sync_elimination.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

TEST(SyncElimination, WaitsThatAreNeededStay) {
  ExpectRewrite("sync-elimination", R"(
    Out=[g] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[g] = c_wait_compute(X=[g]) {ring_id=0}
    Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0}
    Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
    Out=[y] = scale(X=[g]) {scale=2.0}
  )",
                OnRanks(2));
}

TEST(SyncElimination, RepeatedWaitIsRemoved) {
  ExpectRewrite("sync-elimination", R"(
    Out=[g] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[h] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[g] = c_wait_compute(X=[g]) {ring_id=0}
    Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0}
  - Out=[h] = c_wait_compute(X=[h]) {ring_id=0}
    Out=[h] = c_allreduce_sum(X=[h]) {ring_id=0}
    Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
  - Out=[h] = c_wait_comm(X=[h]) {ring_id=0}
    Out=[y] = scale(X=[g]) {scale=2.0}
    Out=[y] = scale(X=[h]) {scale=2.0}
  )",
                OnRanks(2));
}

TEST(SyncElimination, WaitThatALaterOneMakesRedundantGoes) {
  ExpectRewrite("sync-elimination", R"(
    Out=[g] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[h] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[g] = c_wait_compute(X=[g]) {ring_id=0}
    Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0}
  - Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
    Out=[h] = c_allreduce_sum(X=[h]) {ring_id=0}
    Out=[h] = c_wait_comm(X=[h]) {ring_id=0}
    Out=[y] = scale(X=[g]) {scale=2.0}
    Out=[y] = scale(X=[h]) {scale=2.0}
  )",
                OnRanks(2));
}

TEST(SyncElimination, LastWaitOfAProgramStays) {
  ExpectRewrite("sync-elimination", R"(
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[w] = c_wait_compute(X=[w]) {ring_id=0}
    Out=[w] = c_allreduce_sum(X=[w]) {ring_id=0}
    Out=[w] = c_wait_comm(X=[w]) {ring_id=0}
  )",
                OnRanks(2));
}

TEST(SyncElimination, StartupProgramIsTreatedToo) {
  ExpectRewrite("sync-elimination", R"(
    startup:
    c_comm_init_all()
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[w] = c_wait_compute(X=[w]) {ring_id=0}
  - Out=[w] = c_wait_compute(X=[w]) {ring_id=0}
    Out=[w] = c_allreduce_sum(X=[w]) {ring_id=0}
    Out=[w] = c_wait_comm(X=[w]) {ring_id=0}
  )",
                OnRanks(2));
}

// Whoever runs the block needs its wait; whoever skips it, the one after.
TEST(SyncElimination, WaitsInBlocksAndAfterThemAreToldApart) {
  ExpectRewrite("sync-elimination", R"(
    var due : bool[1] persistable
    Out=[g] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[g] = c_wait_compute(X=[g]) {ring_id=0}
    Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0}
    conditional_block(Cond=[due], Input=[g]) {sub_block=block(1), is_scalar_condition=true}
    Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
    Out=[y] = scale(X=[g]) {scale=2.0}
    block 1:
    Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
  - Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
    Out=[y] = scale(X=[g]) {scale=2.0}
  )",
                OnRanks(2));
}

TEST(SyncElimination, EveryRemovalIsNotedWithItsReason) {
  EXPECT_THAT(
      RemarkTexts(ExpectRewrite("sync-elimination", R"(
    Out=[g] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[h] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[g] = c_sync_calc_stream(X=[g])
  - Out=[g] = c_wait_compute(X=[g])
    Out=[g] = c_allreduce_sum(X=[g])
  - Out=[g] = c_wait_comm(X=[g]) {ring_id=1}
  - Out=[g] = c_wait_comm(X=[g])
    Out=[h] = c_allreduce_sum(X=[h])
    Out=[h] = c_wait_comm(X=[h])
    Out=[y] = scale(X=[h])
  )",
                                OnRanks(2))),
      ElementsAre(
          "op 3 (c_wait_compute) removed: an earlier wait covers the same work program=main ring=0",
          "op 5 (c_wait_comm) removed: the ring has no stream program=main ring=1",
          "op 6 (c_wait_comm) removed: the program orders the same accesses without it "
          "program=main ring=0"));
}

TEST(SyncElimination, ProgramWithARaceIsLeftAlone) {
  RewriteOptions options = OnRanks(2);
  options.verification = Verification::kNever;
  ExpectNoRewrite("sync-elimination", R"(
    Out=[g] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[g] = c_allreduce_sum(X=[g])
    Out=[g] = c_wait_comm(X=[g])
    Out=[g] = c_wait_comm(X=[g])
    Out=[y] = scale(X=[g])
  )",
                  options);
}

TEST(SyncElimination, UnknownOpThatNamesARingKeepsEverything) {
  ExpectNoRewrite("sync-elimination", R"(
    Out=[g] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[g] = c_wait_compute(X=[g])
    Out=[g] = c_wait_compute(X=[g])
    Out=[g] = mystery(X=[g]) {ring_id=0}
  )",
                  OnRanks(2));
}

}  // namespace
}  // namespace weft::testing
