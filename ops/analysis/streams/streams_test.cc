#include "ops/analysis/streams/streams.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A program in few words.
class Writer {
 public:
  // On the compute stream.
  Writer& Compute(const std::vector<std::string>& in, const std::vector<std::string>& out) {
    builder_.Op("sum", {{"X", in}}, {{"Out", out}});
    return *this;
  }
  Writer& Ring(int ring, const std::string& in, const std::string& out,
               bool on_compute_stream = false) {
    builder_.Op("c_allreduce_sum", {{"X", {in}}}, {{"Out", {out}}});
    builder_.IntAttr("ring_id", ring).BoolAttr("use_calc_stream", on_compute_stream);
    return *this;
  }
  Writer& RingWaits(int ring = 0) { return Sync("c_wait_compute", ring); }
  Writer& ComputeWaits(int ring = 0) { return Sync("c_wait_comm", ring); }
  Writer& HostWaitsForCompute() { return Sync("c_sync_calc_stream", 0); }
  Writer& HostWaitsForRing(int ring = 0) { return Sync("c_sync_comm_stream", ring); }
  Writer& FuseTensors(const std::vector<std::string>& members, const std::string& buffer,
                      const std::string& attr = "") {
    builder_.Op("coalesce_tensor", {{"Input", members}},
                {{"Output", members}, {"FusedOutput", {buffer}}});
    if (!attr.empty()) builder_.BoolAttr(attr, true);
    return *this;
  }
  // What follows stands in block `block`, which an op of the root block runs where `due` holds.
  Writer& BeginBranch(int block) {
    builder_.Op("conditional_block", {{"Cond", {"due"}}, {"Input", {}}},
                {{"Out", {}}, {"Scope", {"scope"}}});
    builder_.BoolAttr("is_scalar_condition", true).BlockAttr("sub_block", block).NewBlock();
    return *this;
  }
  Writer& BeginLoop(int block, const std::vector<std::string>& in) {
    builder_.Op("while", {{"X", in}}, {{"Out", in}}).BlockAttr("sub_block", block).NewBlock();
    return *this;
  }
  Writer& End() {
    builder_.InBlock(0);
    return *this;
  }
  Writer& Op(const std::string& type, const ProgramBuilder::Slots& in,
             const ProgramBuilder::Slots& out) {
    builder_.Op(type, in, out);
    return *this;
  }
  // Declared in the root block, as ops of others use them.
  Writer& Vars(const std::vector<std::string>& names) {
    for (const std::string& name : names) builder_.Var(name);
    return *this;
  }
  ProgramBuilder& builder() { return builder_; }
  Program Build() const { return builder_.Build(); }

 private:
  Writer& Sync(const char* type, int ring) {
    builder_.Op(type, {{"X", {"x"}}}, {{"Out", {"x"}}}).IntAttr("ring_id", ring);
    return *this;
  }
  ProgramBuilder builder_;
};

// "read of g in op 2 after write in op 1". Ops are numbered through, one block after the other.
std::vector<std::string> Races(const Writer& writer, StepEnd end = StepEnd::kAllIdle) {
  const Program program = writer.Build();
  StreamOptions options;
  options.end = end;
  std::vector<std::string> texts;
  for (const Race& race : AnalyzeStreams(program, options).races) {
    EXPECT_EQ(race.second.valid(), end != StepEnd::kOtherProgram);
    const bool reads = race.kind == Race::Kind::kReadAfterWrite;
    const bool of_read = race.kind == Race::Kind::kWriteAfterRead;
    texts.push_back(
        absl::StrCat(race.is_after_end ? "later " : "", reads ? "read" : "write", " of ",
                     program.var(race.variable).name(),
                     race.second.valid() ? absl::StrCat(" in op ", race.second.value()) : "",
                     " after ", of_read ? "read" : "write", " in op ", race.first.value()));
  }
  return texts;
}

std::vector<SyncEffect> Effects(const Writer& writer, StepEnd end = StepEnd::kAllIdle) {
  StreamOptions options;
  options.end = end;
  options.find_redundant_syncs = true;
  std::vector<SyncEffect> effects;
  for (const SyncUse& sync : AnalyzeStreams(writer.Build(), options).syncs) {
    effects.push_back(sync.effect);
  }
  return effects;
}

// --- Data hazards --------------------------------------------------------------------------------

TEST(Streams, WaitsOnBothSidesOrderACollective) {
  EXPECT_THAT(Races(Writer()
                        .Compute({}, {"g"})
                        .RingWaits()
                        .Ring(0, "g", "g")
                        .ComputeWaits()
                        .Compute({"g"}, {})),
              IsEmpty());
}

TEST(Streams, RingThatDoesNotWaitReadsTooEarly) {
  EXPECT_THAT(
      Races(Writer().Compute({}, {"g"}).Ring(0, "g", "g").ComputeWaits().Compute({"g"}, {})),
      ElementsAre("read of g in op 1 after write in op 0"));
}

TEST(Streams, ComputeThatDoesNotWaitReadsTooEarly) {
  EXPECT_THAT(Races(Writer().Compute({}, {"g"}).RingWaits().Ring(0, "g", "g").Compute({"g"}, {})),
              ElementsAre("read of g in op 3 after write in op 2"));
}

TEST(Streams, WriteWhileARingReads) {
  EXPECT_THAT(Races(Writer().Compute({}, {"g"}).RingWaits().Ring(0, "g", "sum").Compute({}, {"g"})),
              ElementsAre("write of g in op 3 after read in op 2"));
}

TEST(Streams, WritesOnTwoStreams) {
  EXPECT_THAT(
      Races(Writer().Compute({}, {"g"}).RingWaits().Ring(0, "g", "sum").Compute({}, {"sum"})),
      ElementsAre("write of sum in op 3 after write in op 2"));
}

TEST(Streams, ReadsOnTwoStreamsNeedNoOrder) {
  EXPECT_THAT(
      Races(Writer().Compute({}, {"g"}).RingWaits().Ring(0, "g", "sum").Compute({"g"}, {"y"})),
      IsEmpty());
}

TEST(Streams, WaitAfterTheUseIsTooLate) {
  EXPECT_THAT(Races(Writer()
                        .Compute({}, {"g"})
                        .Ring(0, "g", "g")
                        .RingWaits()
                        .ComputeWaits()
                        .Compute({"g"}, {})),
              SizeIs(1));
}

TEST(Streams, OneAccessIsReportedWithTheFirstThatClashesOnly) {
  EXPECT_THAT(Races(Writer()
                        .Compute({}, {"g"})
                        .RingWaits()
                        .Ring(0, "g", "g")
                        .Compute({"g"}, {"a"})
                        .Compute({"g"}, {"b"})),
              ElementsAre("read of g in op 3 after write in op 2"));
}

// --- Streams -------------------------------------------------------------------------------------

TEST(Streams, RingThatUsesTheComputeStreamNeedsNoWaits) {
  EXPECT_THAT(Races(Writer()
                        .Compute({}, {"g"})
                        .Ring(0, "g", "g", /*on_compute_stream=*/true)
                        .Compute({"g"}, {})),
              IsEmpty());
}

TEST(Streams, WaitForAnotherRingDoesNotHelp) {
  const auto program = [](int ring) {
    return Writer()
        .Compute({}, {"g"})
        .RingWaits(0)
        .RingWaits(1)
        .Ring(0, "g", "g")
        .Ring(1, "h", "h")
        .ComputeWaits(ring)
        .Compute({"g"}, {});
  };
  EXPECT_THAT(Races(program(0)), IsEmpty());
  EXPECT_THAT(Races(program(1)), SizeIs(1));
}

TEST(Streams, TwoRingsAreOrderedThroughTheComputeStream) {
  const auto program = [](bool second_waits) {
    Writer writer;
    writer.Compute({}, {"g"}).RingWaits(0).Ring(0, "g", "g").ComputeWaits(0);
    if (second_waits) writer.RingWaits(1);
    return writer.Ring(1, "g", "g");
  };
  EXPECT_THAT(Races(program(true)), IsEmpty());
  EXPECT_THAT(Races(program(false)), SizeIs(1));
}

TEST(Streams, HostThatWaitsOrdersAllStreams) {
  EXPECT_THAT(Races(Writer()
                        .Compute({}, {"g"})
                        .HostWaitsForCompute()
                        .Ring(0, "g", "g")
                        .HostWaitsForRing(0)
                        .Ring(1, "g", "g")
                        .HostWaitsForRing(1)
                        .Compute({"g"}, {})),
              IsEmpty());
}

TEST(Streams, HostThatHasWaitedForComputeHasNotWaitedForTheRing) {
  EXPECT_THAT(Races(Writer()
                        .Compute({}, {"g"})
                        .HostWaitsForCompute()
                        .Ring(0, "g", "g")
                        .HostWaitsForCompute()
                        .Compute({"g"}, {})),
              SizeIs(1));
}

TEST(Streams, SettingARingUpWaitsForTheComputeStream) {
  EXPECT_THAT(Races(Writer().Compute({}, {"w"}).Op("c_comm_init_all", {}, {}).Ring(0, "w", "w")),
              IsEmpty());
}

TEST(Streams, UnregisteredOpComputes) {
  EXPECT_THAT(Races(Writer().Op("mystery", {}, {{"Out", {"g"}}}).Ring(0, "g", "g")), SizeIs(1));
  EXPECT_THAT(Races(Writer().Op("mystery", {}, {{"Out", {"g"}}}).RingWaits().Ring(0, "g", "g")),
              IsEmpty());
}

TEST(Streams, EmptyArgumentsHaveNoStorage) {
  Writer writer;
  writer.builder().Var("@EMPTY@");
  writer.Compute({}, {"@EMPTY@"}).Op("c_allreduce_sum", {{"X", {"@EMPTY@"}}}, {});
  EXPECT_THAT(Races(writer), IsEmpty());
}

// --- Buffers -------------------------------------------------------------------------------------

TEST(Streams, CollectiveOnABufferAccessesItsSlices) {
  const auto program = [](bool waits) {
    Writer writer;
    writer.FuseTensors({"g", "h"}, "buffer").Compute({}, {"g"}).Compute({}, {"h"}).RingWaits();
    writer.Ring(0, "buffer", "buffer");
    if (waits) writer.ComputeWaits();
    return writer.Compute({"h"}, {});
  };
  EXPECT_THAT(Races(program(true)), IsEmpty());
  EXPECT_THAT(Races(program(false)), ElementsAre("read of h in op 5 after write in op 4"));
}

TEST(Streams, SlicesAreApart) {
  EXPECT_THAT(Races(Writer()
                        .FuseTensors({"g", "h"}, "buffer")
                        .Compute({}, {"g"})
                        .RingWaits()
                        .Ring(0, "g", "g")
                        .Compute({"h"}, {"h"})),
              IsEmpty());
}

TEST(Streams, LayingOutAccessesStorageOnlyWithCopyOrConstant) {
  const auto program = [](const std::string& attr) {
    return Writer()
        .Compute({}, {"g"})
        .RingWaits()
        .Ring(0, "g", "g")
        .FuseTensors({"g", "h"}, "buffer", attr)
        .ComputeWaits()
        .Compute({"g"}, {});
  };
  EXPECT_THAT(Races(program("")), IsEmpty());
  EXPECT_THAT(Races(program("copy_data")), ElementsAre("read of g in op 3 after write in op 2"));
  EXPECT_THAT(Races(program("set_constant")),
              ElementsAre("write of g in op 3 after write in op 2"));
}

TEST(Streams, BufferThatHasLostASliceMustNotBeUsed) {
  const auto shared = [](const Writer& writer) {
    return AnalyzeStreams(writer.Build()).shared_slices;
  };
  Writer writer;
  writer.FuseTensors({"g", "h"}, "one").Compute({}, {"one"}).FuseTensors({"h", "i"}, "two");
  EXPECT_THAT(shared(writer.Compute({"two"}, {})), IsEmpty());
  const std::vector<SharedSlice> found = shared(writer.Compute({"one"}, {}).Compute({"one"}, {}));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].op, OpId(4));
  EXPECT_EQ(found[0].moved_by, OpId(2));
}

TEST(Streams, LayingOutTheSameAgainMovesNothing) {
  EXPECT_THAT(AnalyzeStreams(Writer()
                                 .FuseTensors({"g", "h"}, "buffer")
                                 .FuseTensors({"g", "h"}, "buffer")
                                 .Compute({"buffer"}, {})
                                 .Build())
                  .shared_slices,
              IsEmpty());
}

TEST(Streams, VariableTakesOnePlaceInABuffer) {
  EXPECT_THAT(AnalyzeStreams(Writer().FuseTensors({"g", "g"}, "buffer").Build()).shared_slices,
              SizeIs(1));
  EXPECT_THAT(AnalyzeStreams(Writer().FuseTensors({"g", "buffer"}, "buffer").Build()).shared_slices,
              SizeIs(1));
}

// --- Blocks --------------------------------------------------------------------------------------

TEST(Streams, CollectiveAndItsWaitsInABranch) {
  EXPECT_THAT(Races(Writer()
                        .Vars({"g", "due"})
                        .Compute({}, {"g", "due"})
                        .BeginBranch(1)
                        .Ring(0, "g", "g")
                        .ComputeWaits()
                        .Compute({"g"}, {"g"})
                        .End()
                        .Compute({"g"}, {})),
              IsEmpty());
}

TEST(Streams, WaitInABranchDoesNotOrderLaterOps) {
  const auto program = [](bool in_branch) {
    Writer writer;
    writer.Vars({"g", "due"}).Compute({}, {"g", "due"}).RingWaits().Ring(0, "g", "g");
    if (!in_branch) writer.ComputeWaits();
    writer.BeginBranch(1);
    if (in_branch) writer.ComputeWaits();
    return writer.Compute({"g"}, {"g"}).End().Compute({"g"}, {});
  };
  EXPECT_THAT(Races(program(false)), IsEmpty());
  EXPECT_THAT(Races(program(true)), ElementsAre("read of g in op 4 after write in op 2"));
}

// The host reads the condition, so all that computed it is done; the collective in the block needs
// no wait.
TEST(Streams, HostWaitsForTheConditionBeforeTheBlock) {
  EXPECT_THAT(Races(Writer()
                        .Vars({"g", "due"})
                        .Compute({}, {"g"})
                        .BeginBranch(1)
                        .Compute({}, {"due"})
                        .End()
                        .Ring(0, "g", "g")),
              IsEmpty());
}

TEST(Streams, ConditionThatARingStillWritesIsReadTooEarly) {
  EXPECT_THAT(Races(Writer().Vars({"due"}).Ring(0, "due", "due").BeginBranch(1).Compute({}, {"a"})),
              ElementsAre("read of due in op 1 after write in op 0"));
}

// In the first branch, the ring writes; in the second, the compute stream waits and writes. Where
// only the first one runs, nothing was waited for.
TEST(Streams, WriteInABranchDoesNotCoverOneInAnother) {
  EXPECT_THAT(Races(Writer()
                        .Vars({"g", "due"})
                        .BeginBranch(1)
                        .Ring(0, "g", "g")
                        .End()
                        .BeginBranch(2)
                        .ComputeWaits(0)
                        .Compute({}, {"g"})
                        .End()
                        .RingWaits(1)
                        .Ring(1, "g", "h")),
              ElementsAre("read of g in op 3 after write in op 4"));
}

TEST(Streams, NextTurnOfALoopMustWaitToo) {
  const auto program = [](bool waits) {
    Writer writer;
    writer.Vars({"g", "h", "due"}).Compute({}, {"g"}).BeginLoop(1, {"due"});
    writer.Compute({"g"}, {"h"}).RingWaits().Ring(0, "h", "h");
    if (waits) writer.ComputeWaits();
    return writer.Compute({}, {"due"}).End();
  };
  EXPECT_THAT(Races(program(true)), IsEmpty());
  EXPECT_THAT(Races(program(false)), ElementsAre("write of h in op 2 after write in op 4"));
}

TEST(Streams, LoopMayNotRunAtAll) {
  EXPECT_THAT(Races(Writer()
                        .Vars({"g", "due"})
                        .Ring(0, "g", "g")
                        .BeginLoop(1, {"due"})
                        .ComputeWaits()
                        .Compute({}, {"due"})
                        .End()
                        .Compute({"g"}, {})),
              ElementsAre("read of g in op 2 after write in op 0"));
}

// 2 to the power of 40 ways lead into the last block.
TEST(Streams, BlocksThatSeveralOpsRunAreNotFollowedTwice) {
  ProgramBuilder builder;
  builder.Var("due").Var("scope");
  constexpr int kDepth = 40;
  for (int block = 0; block < kDepth; ++block) {
    for (int i = 0; i < 2; ++i) {
      builder.Op(i == 0 ? "while" : "conditional_block", {{"Cond", {"due"}}}, {});
      builder.BlockAttr("sub_block", block + 1);
    }
    builder.NewBlock(block);
  }
  EXPECT_THAT(AnalyzeStreams(builder.Build()).not_followed, SizeIs(kDepth));
}

// Without bounds, the innermost block would be followed 2 to the power of 200 times.
TEST(Streams, LoopsInLoopsAreFollowedInReasonableTime) {
  Writer writer;
  writer.Vars({"g", "h"}).Compute({}, {"g"});
  constexpr int kDepth = 200;
  for (int block = 0; block < kDepth; ++block) {
    writer.builder().Op("while", {}, {}).BlockAttr("sub_block", block + 1).NewBlock(block);
  }
  writer.Compute({"g"}, {"h"}).RingWaits().Ring(0, "h", "h");
  EXPECT_THAT(Races(writer), SizeIs(1));
}

TEST(Streams, TooManyAccessesToSlicesAreReported) {
  std::vector<std::string> members;
  for (int i = 0; i < 2000; ++i) members.push_back(absl::StrCat("g", i));
  Writer writer;
  writer.FuseTensors(members, "buffer").Ring(0, "buffer", "buffer");
  for (int i = 0; i < 2000; ++i) writer.Compute({}, {"buffer"});
  const StreamReport report = AnalyzeStreams(writer.Build());
  EXPECT_TRUE(report.gave_up_at.valid());
  EXPECT_THAT(report.races, SizeIs(2000));
}

TEST(Streams, TooManyRingsAreReported) {
  Writer writer;
  for (int ring = 0; ring < kMaxStreams; ++ring) writer.Ring(ring, "g", "g");
  EXPECT_TRUE(AnalyzeStreams(writer.Build()).too_many_streams);
}

// --- After the end -------------------------------------------------------------------------------

// A step that averages parameter w on a ring, and before that uses it, and a temporary g.
Writer StepThatAverages() {
  Writer writer;
  writer.builder().Param("w").Var("g");
  return writer;
}

TEST(Streams, NextStepConflictsWithWhatNothingWaitsFor) {
  const auto step = [] {
    return StepThatAverages().Compute({"w"}, {"g"}).RingWaits().Ring(0, "w", "w");
  };
  EXPECT_THAT(Races(step()), IsEmpty());
  EXPECT_THAT(Races(step(), StepEnd::kNextStep),
              ElementsAre("later read of w in op 0 after write in op 2"));
  EXPECT_THAT(Races(step().ComputeWaits(), StepEnd::kNextStep), IsEmpty());
  EXPECT_THAT(Races(step().HostWaitsForRing(), StepEnd::kNextStep), IsEmpty());
}

TEST(Streams, NextStepMayBeginWithTheWait) {
  const auto step = [] {
    return StepThatAverages().ComputeWaits().Compute({"w"}, {"g"}).RingWaits().Ring(0, "w", "w");
  };
  EXPECT_THAT(Races(step(), StepEnd::kNextStep), IsEmpty());
  EXPECT_THAT(Effects(step()), ElementsAre(SyncEffect::kOrdersNothing, SyncEffect::kNeeded));
  EXPECT_THAT(Effects(step(), StepEnd::kNextStep),
              ElementsAre(SyncEffect::kNeeded, SyncEffect::kNeeded));
}

TEST(Streams, ComputeStreamIsDrainedAndTemporariesAreNew) {
  // The first op of the ring comes after the update in the step before.
  EXPECT_THAT(Races(StepThatAverages()
                        .Ring(0, "w", "w")
                        .ComputeWaits()
                        .Compute({"w"}, {"w"})
                        .RingWaits()
                        .Ring(0, "g", "g"),
                    StepEnd::kNextStep),
              IsEmpty());
}

TEST(Streams, ConflictsOfOneStepAreReportedOnce) {
  EXPECT_THAT(Races(StepThatAverages().RingWaits().Ring(0, "w", "w").Compute({"w"}, {"w"}),
                    StepEnd::kNextStep),
              ElementsAre("read of w in op 2 after write in op 1"));
}

TEST(Streams, BlockThatAveragesWaitsInItself) {
  const auto step = [](bool waits) {
    Writer writer = StepThatAverages();
    writer.Vars({"due", "scope"}).Compute({"w"}, {"w"}).BeginBranch(1).RingWaits();
    writer.Ring(0, "w", "w");
    if (waits) writer.ComputeWaits();
    return writer.End();
  };
  EXPECT_THAT(Races(step(true), StepEnd::kNextStep), IsEmpty());
  EXPECT_THAT(Races(step(false), StepEnd::kNextStep),
              ElementsAre("later read of w in op 0 after write in op 3"));
}

TEST(Streams, AnotherProgramUsesAllThatPersists) {
  const auto startup = [] {
    return StepThatAverages().Compute({}, {"w"}).RingWaits().Ring(0, "w", "w").Ring(0, "g", "g");
  };
  EXPECT_THAT(Races(startup(), StepEnd::kOtherProgram),
              ElementsAre("later read of w after write in op 2"));
  EXPECT_THAT(Races(startup().HostWaitsForRing(), StepEnd::kOtherProgram), IsEmpty());
}

// --- Synchronizations ----------------------------------------------------------------------------

TEST(Streams, WaitsThatAnAccessReliesOnAreNeeded) {
  EXPECT_THAT(Effects(Writer()
                          .Compute({}, {"g"})
                          .RingWaits()
                          .Ring(0, "g", "g")
                          .ComputeWaits()
                          .Compute({"g"}, {})),
              ElementsAre(SyncEffect::kNeeded, SyncEffect::kNeeded));
}

TEST(Streams, RepeatedWaitOrdersNothing) {
  EXPECT_THAT(
      Effects(Writer().RingWaits().Compute({}, {"g"}).RingWaits().RingWaits().Ring(0, "g", "g")),
      ElementsAre(SyncEffect::kOrdersNothing, SyncEffect::kNeeded, SyncEffect::kOrdersNothing));
}

TEST(Streams, OneOfTwoWaitsIsEnough) {
  EXPECT_THAT(Effects(Writer()
                          .Compute({}, {"g", "h"})
                          .RingWaits()
                          .Ring(0, "g", "g")
                          .ComputeWaits()
                          .Ring(0, "h", "h")
                          .ComputeWaits()
                          .Compute({"g", "h"}, {})),
              ElementsAre(SyncEffect::kNeeded, SyncEffect::kNotNeeded, SyncEffect::kNeeded));
}

TEST(Streams, WaitOnTheWayBetweenTwoRingsIsNeeded) {
  EXPECT_THAT(Effects(Writer().Ring(0, "g", "g").ComputeWaits(0).RingWaits(1).Ring(1, "g", "h")),
              ElementsAre(SyncEffect::kNeeded, SyncEffect::kNeeded));
}

TEST(Streams, LastWaitIsAPrecaution) {
  EXPECT_THAT(Effects(Writer().Compute({}, {"w"}).RingWaits().Ring(0, "w", "w").ComputeWaits()),
              ElementsAre(SyncEffect::kNeeded, SyncEffect::kPrecaution));
}

TEST(Streams, WaitAfterTheSetUpOfARingIsAPrecaution) {
  EXPECT_THAT(
      Effects(
          Writer().Compute({}, {"w"}).Op("c_comm_init_all", {}, {}).RingWaits().Ring(0, "w", "w")),
      ElementsAre(SyncEffect::kPrecaution));
}

TEST(Streams, RingWithoutAStreamIsReportedSeparately) {
  EXPECT_THAT(Effects(Writer().Ring(0, "g", "g", /*on_compute_stream=*/true).ComputeWaits(0)),
              ElementsAre(SyncEffect::kNoStream));
}

TEST(Streams, NothingIsRedundantWithAnUnregisteredOpThatNamesARing) {
  Writer writer;
  writer.Op("mystery", {{"X", {"g"}}}, {{"Out", {"g"}}});
  writer.builder().IntAttr("ring_id", 0);
  EXPECT_THAT(Effects(writer.ComputeWaits(0)), ElementsAre(SyncEffect::kNeeded));
}

TEST(Streams, WaitsInABranchAreKeptWhereTheBlockReliesOnThem) {
  EXPECT_THAT(Effects(Writer()
                          .Vars({"g", "due"})
                          .Compute({}, {"g", "due"})
                          .BeginBranch(1)
                          .Compute({"g"}, {"g"})
                          .RingWaits()
                          .Ring(0, "g", "g")
                          .ComputeWaits()
                          .End()
                          .Compute({"g"}, {})),
              ElementsAre(SyncEffect::kNeeded, SyncEffect::kNeeded));
}

}  // namespace
}  // namespace weft::testing
