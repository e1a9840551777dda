#include "ops/analysis/streams/streams.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// A program in few words. Steps, each one op:
//   a b -> c                on the compute stream; "TYPE: a b -> c" is an op of that type
//   ring 0: g -> g          an all-reduce; "ring 0 on compute: g -> g" on the compute stream
//   ring 0 waits            for compute
//   compute waits for ring 0
//   host waits for compute, host waits for ring 0
//   fuse: g h -> buffer     "fuse ATTR: ..." sets attribute ATTR
//   branch, loop            what follows stands in the next block, which this op of the root block
//                           runs where `due` holds; "end" ends it
// "var g h" declares variables in the root block, as ops of others use them.
class Writer {
 public:
  explicit Writer(absl::string_view steps = "") {
    if (!steps.empty()) Add(steps);
  }
  Writer& Add(absl::string_view steps) {
    for (absl::string_view step : absl::StrSplit(steps, "; ")) {
      if (absl::StrContains(step, "->")) {
        AddOp(step);
      } else {
        AddStep(step);
      }
    }
    return *this;
  }
  ProgramBuilder& builder() { return builder_; }
  Program Build() const { return builder_.Build(); }

 private:
  static ProgramBuilder::Slots Slot(const char* name, absl::string_view args) {
    std::vector<std::string> names = absl::StrSplit(args, ' ', absl::SkipEmpty());
    return names.empty() ? ProgramBuilder::Slots() : ProgramBuilder::Slots{{name, names}};
  }
  static int Number(absl::string_view text) {
    int number = 0;
    EXPECT_TRUE(absl::SimpleAtoi(text, &number)) << text;
    return number;
  }
  void AddOp(absl::string_view step) {
    absl::string_view op = "sum";
    const size_t colon = step.find(": ");
    if (colon != absl::string_view::npos) {
      op = step.substr(0, colon);
      step.remove_prefix(colon + 2);
    }
    const std::pair<absl::string_view, absl::string_view> args = absl::StrSplit(step, "->");
    if (absl::ConsumePrefix(&op, "fuse")) {
      ProgramBuilder::Slots out = Slot("Output", args.first);
      out.push_back(Slot("FusedOutput", args.second)[0]);
      builder_.Op("coalesce_tensor", Slot("Input", args.first), out);
      if (absl::ConsumePrefix(&op, " ")) builder_.BoolAttr(std::string(op), true);
      return;
    }
    const bool is_ring = absl::ConsumePrefix(&op, "ring ");
    builder_.Op(is_ring ? "c_allreduce_sum" : std::string(op), Slot("X", args.first),
                Slot("Out", args.second));
    if (!is_ring) return;
    builder_.BoolAttr("use_calc_stream", absl::ConsumeSuffix(&op, " on compute"));
    builder_.IntAttr("ring_id", Number(op));
  }
  void AddStep(absl::string_view step) {
    const int next_block = builder_.desc().blocks_size();
    if (step == "branch") {
      builder_.Op("conditional_block", {{"Cond", {"due"}}, {"Input", {}}},
                  {{"Out", {}}, {"Scope", {"scope"}}});
      builder_.BoolAttr("is_scalar_condition", true).BlockAttr("sub_block", next_block).NewBlock();
    } else if (step == "loop") {
      builder_.Op("while", {{"X", {"due"}}}, {{"Out", {"due"}}});
      builder_.BlockAttr("sub_block", next_block).NewBlock();
    } else if (step == "end") {
      builder_.InBlock(0);
    } else if (absl::ConsumePrefix(&step, "var ")) {
      for (absl::string_view name : absl::StrSplit(step, ' ')) builder_.Var(std::string(name));
    } else if (step == "host waits for compute") {
      Sync("c_sync_calc_stream", 0);
    } else if (absl::ConsumePrefix(&step, "host waits for ring ")) {
      Sync("c_sync_comm_stream", Number(step));
    } else if (absl::ConsumePrefix(&step, "compute waits for ring ")) {
      Sync("c_wait_comm", Number(step));
    } else if (absl::ConsumePrefix(&step, "ring ") && absl::ConsumeSuffix(&step, " waits")) {
      Sync("c_wait_compute", Number(step));
    } else {
      ADD_FAILURE() << "not a step: " << step;
    }
  }
  void Sync(const char* type, int ring) {
    builder_.Op(type, {{"X", {"x"}}}, {{"Out", {"x"}}}).IntAttr("ring_id", ring);
  }
  ProgramBuilder builder_;
};

// "read of g in op 2 after write in op 1". Ops are numbered through, one block after the other.
std::vector<std::string> Races(const Writer& writer, StepEnd end = StepEnd::kAllIdle,
                               OpOrder order = OpOrder::kByStreams) {
  const Program program = writer.Build();
  StreamOptions options;
  options.end = end;
  options.order = order;
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
  EXPECT_THAT(Races(Writer("-> g; ring 0 waits; ring 0: g -> g; compute waits for ring 0; g ->")),
              IsEmpty());
}

TEST(Streams, RingThatDoesNotWaitReadsTooEarly) {
  EXPECT_THAT(Races(Writer("-> g; ring 0: g -> g; compute waits for ring 0; g ->")),
              ElementsAre("read of g in op 1 after write in op 0"));
}

TEST(Streams, ComputeThatDoesNotWaitReadsTooEarly) {
  EXPECT_THAT(Races(Writer("-> g; ring 0 waits; ring 0: g -> g; g ->")),
              ElementsAre("read of g in op 3 after write in op 2"));
}

TEST(Streams, WriteWhileARingReads) {
  EXPECT_THAT(Races(Writer("-> g; ring 0 waits; ring 0: g -> sum; -> g")),
              ElementsAre("write of g in op 3 after read in op 2"));
}

TEST(Streams, WritesOnTwoStreams) {
  EXPECT_THAT(Races(Writer("-> g; ring 0 waits; ring 0: g -> sum; -> sum")),
              ElementsAre("write of sum in op 3 after write in op 2"));
}

TEST(Streams, ReadsOnTwoStreamsNeedNoOrder) {
  EXPECT_THAT(Races(Writer("-> g; ring 0 waits; ring 0: g -> sum; g -> y")), IsEmpty());
}

TEST(Streams, WaitAfterTheUseIsTooLate) {
  EXPECT_THAT(Races(Writer("-> g; ring 0: g -> g; ring 0 waits; compute waits for ring 0; g ->")),
              SizeIs(1));
}

TEST(Streams, OneAccessIsReportedWithTheFirstThatClashesOnly) {
  EXPECT_THAT(Races(Writer("-> g; ring 0 waits; ring 0: g -> g; g -> a; g -> b")),
              ElementsAre("read of g in op 3 after write in op 2"));
}

// --- Streams -------------------------------------------------------------------------------------

TEST(Streams, RingThatUsesTheComputeStreamNeedsNoWaits) {
  EXPECT_THAT(Races(Writer("-> g; ring 0 on compute: g -> g; g ->")), IsEmpty());
}

TEST(Streams, WaitForAnotherRingDoesNotHelp) {
  const auto program = [](int ring) {
    return Writer(
        absl::StrCat("-> g; ring 0 waits; ring 1 waits; ring 0: g -> g; ring 1: h -> h; "
                     "compute waits for ring ",
                     ring, "; g ->"));
  };
  EXPECT_THAT(Races(program(0)), IsEmpty());
  EXPECT_THAT(Races(program(1)), SizeIs(1));
}

TEST(Streams, TwoRingsAreOrderedThroughTheComputeStream) {
  const auto program = [](bool second_waits) {
    Writer writer("-> g; ring 0 waits; ring 0: g -> g; compute waits for ring 0");
    if (second_waits) writer.Add("ring 1 waits");
    return writer.Add("ring 1: g -> g");
  };
  EXPECT_THAT(Races(program(true)), IsEmpty());
  EXPECT_THAT(Races(program(false)), SizeIs(1));
}

TEST(Streams, HostThatWaitsOrdersAllStreams) {
  EXPECT_THAT(Races(Writer("-> g; host waits for compute; ring 0: g -> g; host waits for ring 0; "
                           "ring 1: g -> g; host waits for ring 1; g ->")),
              IsEmpty());
}

TEST(Streams, HostThatHasWaitedForComputeHasNotWaitedForTheRing) {
  EXPECT_THAT(
      Races(Writer("-> g; host waits for compute; ring 0: g -> g; host waits for compute; g ->")),
      SizeIs(1));
}

TEST(Streams, SettingARingUpWaitsForTheComputeStream) {
  EXPECT_THAT(Races(Writer("-> w; c_comm_init_all: ->; ring 0: w -> w")), IsEmpty());
}

TEST(Streams, UnregisteredOpComputes) {
  EXPECT_THAT(Races(Writer("mystery: -> g; ring 0: g -> g")), SizeIs(1));
  EXPECT_THAT(Races(Writer("mystery: -> g; ring 0 waits; ring 0: g -> g")), IsEmpty());
}

TEST(Streams, EmptyArgumentsHaveNoStorage) {
  EXPECT_THAT(Races(Writer("var @EMPTY@; -> @EMPTY@; c_allreduce_sum: @EMPTY@ ->")), IsEmpty());
}

// --- Buffers -------------------------------------------------------------------------------------

TEST(Streams, CollectiveOnABufferAccessesItsSlices) {
  const auto program = [](bool waits) {
    Writer writer("fuse: g h -> buffer; -> g; -> h; ring 0 waits; ring 0: buffer -> buffer");
    if (waits) writer.Add("compute waits for ring 0");
    return writer.Add("h ->");
  };
  EXPECT_THAT(Races(program(true)), IsEmpty());
  EXPECT_THAT(Races(program(false)), ElementsAre("read of h in op 5 after write in op 4"));
}

TEST(Streams, SlicesAreApart) {
  EXPECT_THAT(Races(Writer("fuse: g h -> buffer; -> g; ring 0 waits; ring 0: g -> g; h -> h")),
              IsEmpty());
}

TEST(Streams, LayingOutAccessesStorageOnlyWithCopyOrConstant) {
  const auto program = [](const std::string& attr) {
    return Writer(absl::StrCat("-> g; ring 0 waits; ring 0: g -> g; fuse", attr,
                               ": g h -> buffer; compute waits for ring 0; g ->"));
  };
  EXPECT_THAT(Races(program("")), IsEmpty());
  EXPECT_THAT(Races(program(" copy_data")), ElementsAre("read of g in op 3 after write in op 2"));
  EXPECT_THAT(Races(program(" set_constant")),
              ElementsAre("write of g in op 3 after write in op 2"));
}

TEST(Streams, BufferThatHasLostASliceMustNotBeUsed) {
  const auto shared = [](const Writer& writer) {
    return AnalyzeStreams(writer.Build()).shared_slices;
  };
  Writer writer("fuse: g h -> one; -> one; fuse: h i -> two");
  EXPECT_THAT(shared(writer.Add("two ->")), IsEmpty());
  const std::vector<SharedSlice> found = shared(writer.Add("one ->; one ->"));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].op, OpId(4));
  EXPECT_EQ(found[0].moved_by, OpId(2));
}

TEST(Streams, LayingOutTheSameAgainMovesNothing) {
  EXPECT_THAT(AnalyzeStreams(Writer("fuse: g h -> buffer; fuse: g h -> buffer; buffer ->").Build())
                  .shared_slices,
              IsEmpty());
}

TEST(Streams, VariableTakesOnePlaceInABuffer) {
  EXPECT_THAT(AnalyzeStreams(Writer("fuse: g g -> buffer").Build()).shared_slices, SizeIs(1));
  EXPECT_THAT(AnalyzeStreams(Writer("fuse: g buffer -> buffer").Build()).shared_slices, SizeIs(1));
}

// --- Blocks --------------------------------------------------------------------------------------

TEST(Streams, CollectiveAndItsWaitsInABranch) {
  EXPECT_THAT(Races(Writer("var g due; -> g due; branch; ring 0: g -> g; compute waits for ring 0; "
                           "g -> g; end; g ->")),
              IsEmpty());
}

TEST(Streams, WaitInABranchDoesNotOrderLaterOps) {
  const auto program = [](bool in_branch) {
    Writer writer("var g due; -> g due; ring 0 waits; ring 0: g -> g");
    if (!in_branch) writer.Add("compute waits for ring 0");
    writer.Add("branch");
    if (in_branch) writer.Add("compute waits for ring 0");
    return writer.Add("g -> g; end; g ->");
  };
  EXPECT_THAT(Races(program(false)), IsEmpty());
  EXPECT_THAT(Races(program(true)), ElementsAre("read of g in op 4 after write in op 2"));
}

// The host reads the condition, so all that computed it is done; the collective in the block needs
// no wait.
TEST(Streams, HostWaitsForTheConditionBeforeTheBlock) {
  EXPECT_THAT(Races(Writer("var g due; -> g; branch; -> due; end; ring 0: g -> g")), IsEmpty());
}

TEST(Streams, ConditionThatARingStillWritesIsReadTooEarly) {
  EXPECT_THAT(Races(Writer("var due; ring 0: due -> due; branch; -> a")),
              ElementsAre("read of due in op 1 after write in op 0"));
}

// In the first branch, the ring writes; in the second, the compute stream waits and writes. Where
// only the first one runs, nothing was waited for.
TEST(Streams, WriteInABranchDoesNotCoverOneInAnother) {
  EXPECT_THAT(Races(Writer("var g due; branch; ring 0: g -> g; end; branch; compute waits for ring "
                           "0; -> g; end; ring 1 waits; ring 1: g -> h")),
              ElementsAre("read of g in op 3 after write in op 4"));
}

TEST(Streams, NextTurnOfALoopMustWaitToo) {
  const auto program = [](bool waits) {
    Writer writer("var g h due; -> g; loop; g -> h; ring 0 waits; ring 0: h -> h");
    if (waits) writer.Add("compute waits for ring 0");
    return writer.Add("-> due; end");
  };
  EXPECT_THAT(Races(program(true)), IsEmpty());
  EXPECT_THAT(Races(program(false)), ElementsAre("write of h in op 2 after write in op 4"));
}

TEST(Streams, LoopMayNotRunAtAll) {
  EXPECT_THAT(
      Races(Writer("var g due; ring 0: g -> g; loop; compute waits for ring 0; -> due; end; g ->")),
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
  Writer writer("var g h; -> g");
  constexpr int kDepth = 200;
  for (int block = 0; block < kDepth; ++block) {
    writer.builder().Op("while", {}, {}).BlockAttr("sub_block", block + 1).NewBlock(block);
  }
  writer.Add("g -> h; ring 0 waits; ring 0: h -> h");
  EXPECT_THAT(Races(writer), SizeIs(1));
}

TEST(Streams, TooManyAccessesToSlicesAreReported) {
  std::vector<std::string> members;
  for (int i = 0; i < 2000; ++i) members.push_back(absl::StrCat("g", i));
  Writer writer(
      absl::StrCat("fuse: ", absl::StrJoin(members, " "), " -> buffer; ring 0: buffer -> buffer"));
  for (int i = 0; i < 2000; ++i) writer.Add("-> buffer");
  const StreamReport report = AnalyzeStreams(writer.Build());
  EXPECT_TRUE(report.gave_up_at.valid());
  EXPECT_THAT(report.races, SizeIs(2000));
}

TEST(Streams, TooManyRingsAreReported) {
  Writer writer;
  for (int ring = 0; ring < kMaxStreams; ++ring) {
    writer.Add(absl::StrCat("ring ", ring, ": g -> g"));
  }
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
  const auto step = [] { return StepThatAverages().Add("w -> g; ring 0 waits; ring 0: w -> w"); };
  EXPECT_THAT(Races(step()), IsEmpty());
  EXPECT_THAT(Races(step(), StepEnd::kNextStep),
              ElementsAre("later read of w in op 0 after write in op 2"));
  EXPECT_THAT(Races(step().Add("compute waits for ring 0"), StepEnd::kNextStep), IsEmpty());
  EXPECT_THAT(Races(step().Add("host waits for ring 0"), StepEnd::kNextStep), IsEmpty());
}

TEST(Streams, NextStepMayBeginWithTheWait) {
  const auto step = [] {
    return StepThatAverages().Add("compute waits for ring 0; w -> g; ring 0 waits; ring 0: w -> w");
  };
  EXPECT_THAT(Races(step(), StepEnd::kNextStep), IsEmpty());
  EXPECT_THAT(Effects(step()), ElementsAre(SyncEffect::kOrdersNothing, SyncEffect::kNeeded));
  EXPECT_THAT(Effects(step(), StepEnd::kNextStep),
              ElementsAre(SyncEffect::kNeeded, SyncEffect::kNeeded));
}

TEST(Streams, ComputeStreamIsDrainedAndTemporariesAreNew) {
  // The first op of the ring comes after the update in the step before.
  EXPECT_THAT(
      Races(StepThatAverages().Add(
                "ring 0: w -> w; compute waits for ring 0; w -> w; ring 0 waits; ring 0: g -> g"),
            StepEnd::kNextStep),
      IsEmpty());
}

TEST(Streams, ConflictsOfOneStepAreReportedOnce) {
  EXPECT_THAT(
      Races(StepThatAverages().Add("ring 0 waits; ring 0: w -> w; w -> w"), StepEnd::kNextStep),
      ElementsAre("read of w in op 2 after write in op 1"));
}

TEST(Streams, BlockThatAveragesWaitsInItself) {
  const auto step = [](bool waits) {
    Writer writer = StepThatAverages();
    writer.Add("var due scope; w -> w; branch; ring 0 waits; ring 0: w -> w");
    if (waits) writer.Add("compute waits for ring 0");
    return writer.Add("end");
  };
  EXPECT_THAT(Races(step(true), StepEnd::kNextStep), IsEmpty());
  EXPECT_THAT(Races(step(false), StepEnd::kNextStep),
              ElementsAre("later read of w in op 0 after write in op 3"));
}

TEST(Streams, AnotherProgramUsesAllThatPersists) {
  const auto startup = [] {
    return StepThatAverages().Add("-> w; ring 0 waits; ring 0: w -> w; ring 0: g -> g");
  };
  EXPECT_THAT(Races(startup(), StepEnd::kOtherProgram),
              ElementsAre("later read of w after write in op 2"));
  EXPECT_THAT(Races(startup().Add("host waits for ring 0"), StepEnd::kOtherProgram), IsEmpty());
}

// --- Synchronizations ----------------------------------------------------------------------------

TEST(Streams, WaitsThatAnAccessReliesOnAreNeeded) {
  EXPECT_THAT(Effects(Writer("-> g; ring 0 waits; ring 0: g -> g; compute waits for ring 0; g ->")),
              ElementsAre(SyncEffect::kNeeded, SyncEffect::kNeeded));
}

TEST(Streams, RepeatedWaitOrdersNothing) {
  EXPECT_THAT(
      Effects(Writer("ring 0 waits; -> g; ring 0 waits; ring 0 waits; ring 0: g -> g")),
      ElementsAre(SyncEffect::kOrdersNothing, SyncEffect::kNeeded, SyncEffect::kOrdersNothing));
}

TEST(Streams, OneOfTwoWaitsIsEnough) {
  EXPECT_THAT(Effects(Writer("-> g h; ring 0 waits; ring 0: g -> g; compute waits for ring 0; ring "
                             "0: h -> h; compute waits for ring 0; g h ->")),
              ElementsAre(SyncEffect::kNeeded, SyncEffect::kNotNeeded, SyncEffect::kNeeded));
}

TEST(Streams, WaitOnTheWayBetweenTwoRingsIsNeeded) {
  EXPECT_THAT(
      Effects(Writer("ring 0: g -> g; compute waits for ring 0; ring 1 waits; ring 1: g -> h")),
      ElementsAre(SyncEffect::kNeeded, SyncEffect::kNeeded));
}

TEST(Streams, LastWaitIsAPrecaution) {
  EXPECT_THAT(Effects(Writer("-> w; ring 0 waits; ring 0: w -> w; compute waits for ring 0")),
              ElementsAre(SyncEffect::kNeeded, SyncEffect::kPrecaution));
}

TEST(Streams, WaitAfterTheSetUpOfARingIsAPrecaution) {
  EXPECT_THAT(Effects(Writer("-> w; c_comm_init_all: ->; ring 0 waits; ring 0: w -> w")),
              ElementsAre(SyncEffect::kPrecaution));
}

TEST(Streams, RingWithoutAStreamIsReportedSeparately) {
  EXPECT_THAT(Effects(Writer("ring 0 on compute: g -> g; compute waits for ring 0")),
              ElementsAre(SyncEffect::kNoStream));
}

TEST(Streams, NothingIsRedundantWithAnUnregisteredOpThatNamesARing) {
  Writer writer("mystery: g -> g");
  writer.builder().IntAttr("ring_id", 0);
  EXPECT_THAT(Effects(writer.Add("compute waits for ring 0")), ElementsAre(SyncEffect::kNeeded));
}

TEST(Streams, WaitsInABranchAreKeptWhereTheBlockReliesOnThem) {
  EXPECT_THAT(Effects(Writer("var g due; -> g due; branch; g -> g; ring 0 waits; ring 0: g -> g; "
                             "compute waits for ring 0; end; g ->")),
              ElementsAre(SyncEffect::kNeeded, SyncEffect::kNeeded));
}

// --- Executors that order ops by names -----------------------------------------------------------

std::vector<std::string> RacesByNames(const Writer& writer, StepEnd end = StepEnd::kAllIdle) {
  return Races(writer, end, OpOrder::kByNames);
}

TEST(StreamsByNames, CollectiveWaitsForWritersAndReadersForIt) {
  const Writer program("-> g; ring 0: g -> g; g -> w");
  EXPECT_THAT(Races(program), SizeIs(2));
  EXPECT_THAT(RacesByNames(program), IsEmpty());
  EXPECT_THAT(RacesByNames(Writer("g -> w; ring 0: g -> sum; -> g")), IsEmpty());
}

TEST(StreamsByNames, MemoryThatIsSharedHasTwoNames) {
  EXPECT_THAT(RacesByNames(Writer("-> g; share_data: g -> v; ring 0: g -> g; v -> w")),
              ElementsAre("read of g in op 3 after write in op 2"));
}

TEST(StreamsByNames, RaceWithPartOfABufferIsLeftToOthers) {
  const Writer program("fuse: g h -> f; -> g; ring 0: f -> f; g -> w");
  EXPECT_THAT(Races(program), SizeIs(2));
  EXPECT_THAT(RacesByNames(program), IsEmpty());
}

TEST(StreamsByNames, OpInABlockIsOrderedAsTheOpThatHasTheBlock) {
  // The loop names `due`, and not h.
  EXPECT_THAT(RacesByNames(Writer("var due h; ring 0: due -> due; loop; due -> y; end")),
              IsEmpty());
  EXPECT_THAT(RacesByNames(Writer("var due h; ring 0: h -> h; loop; h -> y; end")),
              ElementsAre("read of h in op 2 after write in op 0"));
  // The executor of the block does not let a ring wait for what is outside.
  EXPECT_THAT(RacesByNames(Writer("var due h; -> due; loop; ring 0: due -> y; end")),
              ElementsAre("read of due in op 2 after write in op 1"));
}

TEST(StreamsByNames, StepEndsBeforeACollectiveForWhichNothingWaits) {
  const auto program = [](const std::string& more) {
    Writer writer;
    writer.builder().Param("w");
    return writer.Add("w -> y; ring 0: w -> w" + more);
  };
  EXPECT_THAT(RacesByNames(program(""), StepEnd::kNextStep),
              ElementsAre("later read of w in op 0 after write in op 1"));
  EXPECT_THAT(RacesByNames(program(""), StepEnd::kOtherProgram), Not(IsEmpty()));
  EXPECT_THAT(RacesByNames(program("; w -> y"), StepEnd::kNextStep), IsEmpty());
  // A ring runs in order.
  EXPECT_THAT(RacesByNames(program("; ring 0: h -> h; h -> y"), StepEnd::kNextStep), IsEmpty());
  EXPECT_THAT(RacesByNames(program("; ring 1: h -> h; h -> y"), StepEnd::kNextStep), SizeIs(1));
}

}  // namespace
}  // namespace weft::testing
