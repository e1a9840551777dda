#include "tools/view/lanes.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

Program Parse(const std::string& lines) { return *ParseProgramText(testing::BlockText(lines)); }

// A gradient of 4,000 bytes is summed while another op computes.
constexpr char kOverlapped[] =
    "    var g : fp32[1000]\n"
    "    Out=[g] = relu(X=[x]) role=backward {}\n"
    "    Out=[g] = c_wait_compute(X=[g]) role=backward {ring_id=3}\n"
    "    Out=[g] = c_allreduce_sum(X=[g]) role=backward {ring_id=3}\n"
    "    Out=[h] = relu(X=[x]) role=backward {}\n"
    "    Out=[g] = c_wait_comm(X=[g]) role=backward {ring_id=3}\n"
    "    Out=[w] = relu(X=[g]) role=optimize {}\n";

// With an op of 2 us, synchronizations of none, and collectives of 1 us + 1 ns a byte.
Lanes Predict(const Program& program) {
  PredictOptions options;
  for (OpId id : program.block(0).ops()) {
    options.times.op_seconds.push_back(program.op(id).type() == "relu" ? 2e-6 : 0);
  }
  options.times.collective = *CollectiveTime::AlphaBeta(1e-6, 1e9);
  return PredictLanes(program, options);
}

// "compute: op 0 at 0-2000".
std::vector<std::string> Spans(const Lanes& lanes) {
  std::vector<std::string> lines;
  for (const LaneSpan& span : lanes.spans) {
    lines.push_back(absl::StrCat(lanes.lanes[span.lane].stream, ": op ", span.op, " at ",
                                 span.begin, "-", span.end));
  }
  return lines;
}

TEST(PredictLanesTest, CollectivesRunBesideComputationUntilAWait) {
  const Lanes lanes = Predict(Parse(kOverlapped));
  EXPECT_THAT(Spans(lanes), ElementsAre("compute: op 0 at 0-2000", "compute: op 3 at 2000-4000",
                                        "compute: op 5 at 7000-9000", "ring 3: op 2 at 2000-7000"));
  ASSERT_EQ(lanes.waits.size(), 2);
  EXPECT_EQ(lanes.waits[0].from_time, 2000);  // the ring for compute
  EXPECT_EQ(lanes.waits[1].begin, 4000);      // compute for the ring
  EXPECT_EQ(lanes.waits[1].end, 7000);
}

TEST(PredictLanesTest, MessagesCommunicate) {
  const Lanes lanes = Predict(
      Parse("    var x : fp32[1000]\n"
            "    send_v2(X=[x]) role=forward {peer=1, ring_id=3}\n"
            "    Out=[x] = recv_v2() role=forward {out_shape=ints[1000], peer=1, ring_id=3}\n"));
  EXPECT_EQ(lanes.totals.communication, 10000);
  EXPECT_EQ(lanes.totals.computation, 0);
}

TEST(PredictLanesTest, ExposedIsCommunicationWhileNothingComputes) {
  const LaneTotals totals = Predict(Parse(kOverlapped)).totals;
  EXPECT_EQ(totals.step, 9000);
  EXPECT_EQ(totals.computation, 6000);
  EXPECT_EQ(totals.communication, 5000);
  EXPECT_EQ(totals.exposed, 3000);
}

TEST(PredictLanesTest, BufferHasTheBytesOfItsMembers) {
  const Lanes lanes = Predict(Parse(
      "    var a : fp32[500]\n"
      "    var b : fp32[500]\n"
      "    var f : fp32[-1]\n"
      "    FusedOutput=[f], Output=[a, b] = coalesce_tensor(Input=[a, b]) role=backward {}\n"
      "    Out=[f] = c_allreduce_sum(X=[f]) role=backward {ring_id=0, use_calc_stream=true}\n"));
  EXPECT_THAT(Spans(lanes), ElementsAre("compute: op 0 at 0-0", "compute: op 1 at 0-5000"));
  EXPECT_EQ(lanes.spans[1].bytes, 4000);
}

TEST(PredictLanesTest, TimesOfHugeShapesEndSomewhere) {
  const std::string op = "    Out=[y] = matmul_v2(X=[x], Y=[x]) role=forward {}\n";
  const Lanes lanes = PredictLanes(Parse("    var x : fp32[16777216, 16777216]\n"
                                         "    var y : fp32[16777216, 16777216]\n" +
                                         op + op + op),
                                   {});
  ASSERT_EQ(lanes.spans.size(), 3);
  EXPECT_GE(lanes.spans[0].end, 0);
  EXPECT_EQ(lanes.spans[2].end, int64_t{1} << 52);
}

// The events of a trace, of the rows "compute" and "ring 3" of rank 0.
std::string Trace(const std::string& events) {
  return absl::StrCat(
      R"({"traceEvents":[{"name":"thread_name","ph":"M","pid":0,"tid":0,"args":{"name":"compute"}},)"
      R"({"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"ring 3"}})",
      events, "]}");
}
std::string OpEvent(int row, double begin, double duration, const std::string& op) {
  return absl::StrCat(R"(,{"ph":"X","pid":0,"tid":)", row, R"(,"ts":)", begin, R"(,"dur":)",
                      duration, R"(,"args":{"op":")", op, R"(","bytes":7}})");
}
std::string StepEvent(int step, double begin, double duration) {
  return absl::StrCat(R"(,{"ph":"X","pid":0,"tid":2,"cat":"step","ts":)", begin, R"(,"dur":)",
                      duration, R"(,"args":{"step":)", step, "}}");
}

TEST(ReadTraceTest, EventsOfOpsAreSpansOfTheirRows) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Lanes lanes,
                            ReadTrace(Trace(OpEvent(0, 1, 2, "op 0 (relu) with op 3 (relu)") +
                                            OpEvent(1, 3.5, 1.25, "op 2 (c_allreduce_sum)") +
                                            OpEvent(0, 9, 1, "the step")),
                                      Parse(kOverlapped)));
  EXPECT_THAT(Spans(lanes),
              ElementsAre("compute: op 0 at 1000-3000", "compute: op -1 at 9000-10000",
                          "ring 3: op 2 at 3500-4750"));
  EXPECT_EQ(lanes.spans[0].bytes, 7);
  EXPECT_TRUE(lanes.spans[2].communicates);
}

TEST(ReadTraceTest, ArrowsLeadToTheWaitsBeforeThem) {
  const std::string wait =
      R"(,{"ph":"X","pid":0,"tid":0,"cat":"wait","ts":5,"dur":2})"
      R"(,{"ph":"s","pid":0,"tid":1,"ts":6,"id":9},{"ph":"f","pid":0,"tid":0,"ts":7,"id":9})";
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Lanes lanes,
      ReadTrace(Trace(OpEvent(1, 3, 3, "op 2 (c_allreduce_sum)") + wait), Parse(kOverlapped)));
  ASSERT_EQ(lanes.waits.size(), 1);
  const LaneWait& found = lanes.waits[0];
  EXPECT_EQ(lanes.lanes[found.lane].stream, "compute");
  EXPECT_EQ(lanes.lanes[found.from].stream, "ring 3");
  EXPECT_EQ(found.begin, 5000);
  EXPECT_EQ(found.end, 7000);
  EXPECT_EQ(found.from_time, 6000);
}

TEST(ReadTraceTest, ArrowFromARowWithoutEventsIsLeftOut) {
  const std::string wait =
      R"(,{"ph":"X","pid":0,"tid":0,"cat":"wait","ts":5,"dur":2})"
      R"(,{"ph":"s","pid":0,"tid":7,"ts":6,"id":9},{"ph":"f","pid":0,"tid":0,"ts":7,"id":9})";
  WEFT_ASSERT_OK_AND_ASSIGN(const Lanes lanes, ReadTrace(Trace(wait), Parse(kOverlapped)));
  ASSERT_EQ(lanes.waits.size(), 1);
  EXPECT_EQ(lanes.waits[0].from, LaneWait::kUnknown);
}

TEST(ReadTraceTest, TotalsAndTimesAreMeansWithoutTheFirstStep) {
  std::string events;
  for (int step = 0; step < 3; ++step) {
    const double begin = 100 * step, duration = step == 0 ? 50 : step * 10;
    events += StepEvent(step, begin, duration) + OpEvent(0, begin, duration, "op 0 (relu)");
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const Lanes lanes, ReadTrace(Trace(events), Parse(kOverlapped)));
  EXPECT_EQ(lanes.totals.num_steps, 2);
  EXPECT_EQ(lanes.totals.step, 15000);
  EXPECT_EQ(TimesOfOps(lanes, 6)[0], 15000);
}

TEST(ReadTraceTest, TraceOfAnotherProgramIsAnError) {
  EXPECT_THAT(ReadTrace(Trace(OpEvent(0, 1, 2, "op 0 (tanh)")), Parse(kOverlapped)).status(),
              IsInvalidArgument("found op 0 (tanh)"));
}

TEST(ReadTraceTest, BadFilesAreErrors) {
  const Program program = Parse(kOverlapped);
  const std::pair<const char*, const char*> cases[] = {
      {"", "not a JSON file"},
      {"[1", "not a JSON file"},
      {"{}", "traceEvents"},
      {R"({"traceEvents":[{"ph":"X"}]})", "under 'pid'"},
      {R"({"traceEvents":[{"ph":"X","pid":-1,"tid":0}]})", "under 'pid'"},
      {R"({"traceEvents":[{"ph":"X","pid":0,"tid":0,"ts":"a"}]})", "under 'ts'"},
      {R"({"traceEvents":[{"ph":"X","pid":0,"tid":0,"ts":1,"dur":1e30}]})", "under 'dur'"},
      {R"({"traceEvents":[{"ph":"X","pid":0,"tid":0,"ts":1,"dur":1,"args":3}]})", "under 'args'"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(ReadTrace(text, program).status(), IsInvalidArgument(expected)) << text;
  }
  const std::string deep = std::string(100000, '[');
  EXPECT_THAT(ReadTrace(absl::StrCat(R"({"traceEvents":)", deep), program).status(),
              IsInvalidArgument("levels"));
}

}  // namespace
}  // namespace weft::testing
