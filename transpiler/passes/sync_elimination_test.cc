#include "transpiler/passes/sync_elimination.h"

#include <string>
#include <utility>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/streams.h"
#include "proto/program_builder.h"
#include "transpiler/testing/run_passes.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::weft::testing::ContextWithRanks;
using ::weft::testing::OpTexts;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::RunPasses;

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
std::vector<std::string> After(const ProgramBuilder& builder, std::vector<Note>* notes = nullptr) {
  Program program = builder.Build();
  PassContext context = ContextWithRanks(2);
  context.notes = notes;
  WEFT_EXPECT_OK(RunPasses("sync-elimination", context, &program));
  EXPECT_THAT(AnalyzeStreams(program).races, IsEmpty());
  const int revision = program.revision();
  WEFT_EXPECT_OK(RunPasses("sync-elimination", ContextWithRanks(2), &program));
  EXPECT_EQ(program.revision(), revision);
  return OpTexts(program);
}

TEST(SyncElimination, WaitsThatAreNeededStay) {
  ProgramBuilder p;
  Make(&p, "g");
  Wait(&p, "c_wait_compute", "g");
  AllReduce(&p, "g");
  Wait(&p, "c_wait_comm", "g");
  Use(&p, "g");
  EXPECT_EQ(After(p), OpTexts(p.Build()));
}

TEST(SyncElimination, SecondWaitForTheSameGoes) {
  ProgramBuilder p;
  Make(&p, "g");
  Make(&p, "h");
  Wait(&p, "c_wait_compute", "g");
  AllReduce(&p, "g");
  Wait(&p, "c_wait_compute", "h");
  AllReduce(&p, "h");
  Wait(&p, "c_wait_comm", "g");
  Wait(&p, "c_wait_comm", "h");
  Use(&p, "g");
  Use(&p, "h");
  EXPECT_THAT(After(p), ElementsAre("fill_constant( -> g)", "fill_constant( -> h)",
                                    "c_wait_compute@0(g -> g)", "c_allreduce_sum@0(g -> g)",
                                    "c_allreduce_sum@0(h -> h)", "c_wait_comm@0(g -> g)",
                                    "scale(g -> y)", "scale(h -> y)"));
}

TEST(SyncElimination, WaitThatALaterOneMakesNeedlessGoes) {
  ProgramBuilder p;
  Make(&p, "g");
  Make(&p, "h");
  Wait(&p, "c_wait_compute", "g");
  AllReduce(&p, "g");
  Wait(&p, "c_wait_comm", "g");
  AllReduce(&p, "h");
  Wait(&p, "c_wait_comm", "h");
  Use(&p, "g");
  Use(&p, "h");
  EXPECT_THAT(After(p), ElementsAre("fill_constant( -> g)", "fill_constant( -> h)",
                                    "c_wait_compute@0(g -> g)", "c_allreduce_sum@0(g -> g)",
                                    "c_allreduce_sum@0(h -> h)", "c_wait_comm@0(h -> h)",
                                    "scale(g -> y)", "scale(h -> y)"));
}

TEST(SyncElimination, LastWaitOfAProgramStays) {
  ProgramBuilder p;
  Make(&p, "w");
  Wait(&p, "c_wait_compute", "w");
  AllReduce(&p, "w");
  Wait(&p, "c_wait_comm", "w");
  EXPECT_EQ(After(p), OpTexts(p.Build()));
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
  std::vector<Note> notes;
  After(p, &notes);
  std::vector<std::pair<std::string, std::string>> told;
  for (const Note& note : notes) told.push_back({note.subject, note.why});
  EXPECT_THAT(
      told,
      ElementsAre(Pair("op 2 (c_wait_compute)", "what it waits for has been waited for before"),
                  Pair("op 4 (c_wait_comm)", "the ring has no stream of its own"),
                  Pair("op 5 (c_wait_comm)", "what it orders is ordered without it")));
}

TEST(SyncElimination, StartupProgramIsTreatedToo) {
  ProgramBuilder p;
  Make(&p, "w");
  Wait(&p, "c_wait_compute", "w");
  Wait(&p, "c_wait_compute", "w");
  AllReduce(&p, "w");
  Program main = ProgramBuilder().Build();
  Program startup = p.Build();
  WEFT_ASSERT_OK(RunPasses("sync-elimination", ContextWithRanks(2), &main, &startup));
  EXPECT_THAT(OpTexts(startup), ElementsAre("fill_constant( -> w)", "c_wait_compute@0(w -> w)",
                                            "c_allreduce_sum@0(w -> w)"));
}

// Whoever runs the block needs its wait; whoever skips it, the one behind.
TEST(SyncElimination, WaitsInBlocksAndBehindThemAreToldApart) {
  ProgramBuilder p;
  p.Var("g").Var("due").Var("scope");
  Make(&p, "g");
  Wait(&p, "c_wait_compute", "g");
  AllReduce(&p, "g");
  p.Op("conditional_block", {{"Cond", {"due"}}}, {{"Scope", {"scope"}}}).BlockAttr("sub_block", 1);
  Wait(&p, "c_wait_comm", "g");
  Use(&p, "g");
  p.NewBlock();
  Wait(&p, "c_wait_comm", "g");
  Wait(&p, "c_wait_comm", "g");
  Use(&p, "g");
  Program program = p.Build();
  WEFT_ASSERT_OK(RunPasses("sync-elimination", ContextWithRanks(2), &program));
  EXPECT_EQ(OpTexts(program), OpTexts(p.Build()));
  EXPECT_THAT(OpTexts(program, 1), ElementsAre("c_wait_comm@0(g -> g)", "scale(g -> y)"));
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
