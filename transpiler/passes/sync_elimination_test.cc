#include "transpiler/passes/sync_elimination.h"

#include <string>
#include <utility>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/streams.h"
#include "proto/testing/program_builder.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/run_passes.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::weft::testing::ContextWithRanks;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::OnRanks;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RunPasses;

TEST(SyncElimination, WaitsThatAreNeededStay) {
  ExpectRewrite("sync-elimination", R"(
    Out=[g] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[g] = c_wait_compute(X=[g]) {ring_id=0}
    Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0}
    Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
    Out=[y] = scale(X=[g]) {scale=2.0}
  )",
                R"(
    Out=[g] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[g] = c_wait_compute(X=[g])
    Out=[g] = c_allreduce_sum(X=[g])
    Out=[g] = c_wait_comm(X=[g])
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
    Out=[h] = c_wait_compute(X=[h]) {ring_id=0}
    Out=[h] = c_allreduce_sum(X=[h]) {ring_id=0}
    Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
    Out=[h] = c_wait_comm(X=[h]) {ring_id=0}
    Out=[y] = scale(X=[g]) {scale=2.0}
    Out=[y] = scale(X=[h]) {scale=2.0}
  )",
                R"(
    Out=[g] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[h] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[g] = c_wait_compute(X=[g])
    Out=[g] = c_allreduce_sum(X=[g])
    Out=[h] = c_allreduce_sum(X=[h])
    Out=[g] = c_wait_comm(X=[g])
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
    Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
    Out=[h] = c_allreduce_sum(X=[h]) {ring_id=0}
    Out=[h] = c_wait_comm(X=[h]) {ring_id=0}
    Out=[y] = scale(X=[g]) {scale=2.0}
    Out=[y] = scale(X=[h]) {scale=2.0}
  )",
                R"(
    Out=[g] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[h] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[g] = c_wait_compute(X=[g])
    Out=[g] = c_allreduce_sum(X=[g])
    Out=[h] = c_allreduce_sum(X=[h])
    Out=[h] = c_wait_comm(X=[h])
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
                R"(
    Out=[w] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[w] = c_wait_compute(X=[w])
    Out=[w] = c_allreduce_sum(X=[w])
    Out=[w] = c_wait_comm(X=[w])
  )",
                OnRanks(2));
}

TEST(SyncElimination, StartupProgramIsTreatedToo) {
  ExpectRewrite("sync-elimination", {"", R"(
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[w] = c_wait_compute(X=[w]) {ring_id=0}
    Out=[w] = c_wait_compute(X=[w]) {ring_id=0}
    Out=[w] = c_allreduce_sum(X=[w]) {ring_id=0}
    Out=[w] = c_wait_comm(X=[w]) {ring_id=0}
  )"},
                {"", R"(
    Out=[w] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[w] = c_wait_compute(X=[w])
    Out=[w] = c_allreduce_sum(X=[w])
    Out=[w] = c_wait_comm(X=[w])
  )"},
                OnRanks(2));
}

// Whoever runs the block needs its wait; whoever skips it, the one after.
TEST(SyncElimination, WaitsInBlocksAndAfterThemAreToldApart) {
  ExpectRewrite("sync-elimination", R"(
    var due : bool[1] persistable
    var y : fp32[2, 2]
    Out=[g] = fill_constant() {shape=longs[2, 2], dtype=5, value=0.5}
    Out=[g] = c_wait_compute(X=[g]) {ring_id=0}
    Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0}
    conditional_block(Cond=[due], Input=[g]) {sub_block=block(1), is_scalar_condition=true}
    Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
    Out=[y] = scale(X=[g]) {scale=2.0}
    block 1:
    Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
    Out=[g] = c_wait_comm(X=[g]) {ring_id=0}
    Out=[y] = scale(X=[g]) {scale=2.0}
  )",
                R"(
    Out=[g] = fill_constant() {shape=longs[2, 2], value=0.5}
    Out=[g] = c_wait_compute(X=[g])
    Out=[g] = c_allreduce_sum(X=[g])
    conditional_block(Cond=[due], Input=[g]) {is_scalar_condition=true, sub_block=block(1)}
    Out=[g] = c_wait_comm(X=[g])
    Out=[y] = scale(X=[g]) {scale=2.0}
    block 1:
    Out=[g] = c_wait_comm(X=[g])
    Out=[y] = scale(X=[g]) {scale=2.0}
  )",
                OnRanks(2));
}

void Wait(ProgramBuilder* p, const std::string& type, const std::string& variable, int ring = 0) {
  p->Op(type, {{"X", {variable}}}, {{"Out", {variable}}}).IntAttr("ring_id", ring);
}

void Make(ProgramBuilder* p, const std::string& variable) {
  p->Op("fill_constant", {}, {{"Out", {variable}}});
}

void AllReduce(ProgramBuilder* p, const std::string& variable, int ring = 0) {
  p->Op("c_allreduce_sum", {{"X", {variable}}}, {{"Out", {variable}}}).IntAttr("ring_id", ring);
}

void Use(ProgramBuilder* p, const std::string& variable) {
  p->Op("scale", {{"X", {variable}}}, {{"Out", {"y"}}});
}

// The ops after the pass. What it leaves has no race, and a second run changes nothing.
std::vector<std::string> After(const ProgramBuilder& builder,
                               std::vector<Remark>* remarks = nullptr) {
  Program program = builder.Build();
  PassContext context = ContextWithRanks(2);
  context.remarks = remarks;
  WEFT_EXPECT_OK(RunPasses("sync-elimination", context, &program));
  EXPECT_THAT(AnalyzeStreams(program).races, IsEmpty());
  const int revision = program.revision();
  WEFT_EXPECT_OK(RunPasses("sync-elimination", ContextWithRanks(2), &program));
  EXPECT_EQ(program.revision(), revision);
  return OpTexts(program);
}

TEST(SyncElimination, EveryRemovalIsNotedWithItsReason) {
  ProgramBuilder p;
  Make(&p, "g");
  Wait(&p, "c_sync_calc_stream", "g");
  Wait(&p, "c_wait_compute", "g");
  AllReduce(&p, "g");
  Wait(&p, "c_wait_comm", "g", 1);
  Wait(&p, "c_wait_comm", "g");
  AllReduce(&p, "h");
  Wait(&p, "c_wait_comm", "h");
  Use(&p, "h");
  std::vector<Remark> remarks;
  After(p, &remarks);
  std::vector<std::pair<std::string, std::string>> told;
  for (const Remark& remark : remarks) told.push_back({remark.subject, remark.why});
  EXPECT_THAT(
      told,
      ElementsAre(Pair("op 2 (c_wait_compute)", "an earlier wait covers the same work"),
                  Pair("op 4 (c_wait_comm)", "the ring has no stream"),
                  Pair("op 5 (c_wait_comm)", "the program orders the same accesses without it")));
}

TEST(SyncElimination, ProgramWithARaceIsLeftAlone) {
  ProgramBuilder p;
  Make(&p, "g");
  AllReduce(&p, "g");
  Wait(&p, "c_wait_comm", "g");
  Wait(&p, "c_wait_comm", "g");
  Use(&p, "g");
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("sync-elimination", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program), OpTexts(p.Build()));
}

TEST(SyncElimination, UnknownOpThatNamesARingKeepsEverything) {
  ProgramBuilder p;
  Make(&p, "g");
  Wait(&p, "c_wait_compute", "g");
  Wait(&p, "c_wait_compute", "g");
  p.Op("mystery", {{"X", {"g"}}}, {{"Out", {"g"}}}).IntAttr("ring_id", 0);
  EXPECT_EQ(After(p), OpTexts(p.Build()));
}

}  // namespace
}  // namespace weft
