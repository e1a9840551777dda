// weft as users run it: exit statuses, error lines, outputs.
#include <unistd.h>

#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_matchers.h"
#include "executor/files/npz.h"
#include "executor/files/params_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr char kMain[] = "tests/data/fit_a_line/main.pb";
constexpr char kStartup[] = "tests/data/fit_a_line/startup.pb";
constexpr char kFeeds[] = "tests/data/fit_a_line/feeds.npz";
constexpr char kInit[] = "tests/data/fit_a_line/init.params";
constexpr char kNames[] = "tests/data/fit_a_line/persistables.txt";
constexpr char kLost[] = "note: what is trained will be lost; --save or --checkpoint keeps it\n";

std::string TestPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::string Contents(const std::string& path) {
  const absl::StatusOr<FileBytes> file = ReadFile(path);
  return file.ok() ? std::string(file->bytes) : file.status().ToString();
}

std::string MakeFile(const std::string& name, const std::string& bytes) {
  std::ofstream(TestPath(name), std::ios::binary) << bytes;
  return TestPath(name);
}

ProcessResult Weft(std::vector<std::string> args, const std::string& input = "") {
  args.insert(args.begin(), "tools/weft");
  return RunProcess(args, input);
}

// weft run on fit_a_line from its reference start, with more flags.
ProcessResult Train(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"run",     kMain,  "--params",       kInit,
                                   "--feeds", kFeeds, "--params_names", kNames};
  args.insert(args.end(), more.begin(), more.end());
  return Weft(args);
}

// One line on stderr, and no more: "<start>...<end>".
::testing::Matcher<const ProcessResult&> FailsWith(int status, const std::string& start,
                                                   const std::string& part) {
  return AllOf(
      ::testing::Field("status", &ProcessResult::status, status),
      ::testing::Field(
          "err", &ProcessResult::err,
          AllOf(StartsWith(start), HasSubstr(part), EndsWith("\n"),
                ::testing::ResultOf(
                    [](const std::string& err) { return std::count(err.begin(), err.end(), '\n'); },
                    1))));
}

TEST(WeftTest, HelpNamesTheCommandsAndEachHasAnExample) {
  const ProcessResult help = Weft({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* command : {"run", "eval", "show", "diff", "stats"}) {
    EXPECT_THAT(help.out, HasSubstr(absl::StrCat("\n  ", command, " ")));
    const ProcessResult own = Weft({command, "--help"});
    EXPECT_EQ(own.status, 0);
    EXPECT_THAT(own.out, HasSubstr(absl::StrCat("Example:\n  weft ", command, " ")));
    EXPECT_THAT(own.err, IsEmpty());
  }
}

TEST(WeftTest, HelpOfRunHasTheFlagsThatEverybodyNeeds) {
  const std::string help = Weft({"run", "--help"}).out;
  EXPECT_THAT(help, HasSubstr("--feeds"));
  EXPECT_THAT(help, HasSubstr("More flags: weft run --help_all"));
  EXPECT_THAT(help, Not(HasSubstr("--sim_memory")));
  const std::string all = Weft({"run", "--help_all"}).out;
  EXPECT_THAT(all, HasSubstr("--feeds"));
  EXPECT_THAT(all, HasSubstr("--sim_memory"));
}

TEST(WeftTest, OldNamesOfFlagsWork) {
  EXPECT_EQ(Train({"--sim_memory", "1000000", "--sim_copy_bandwidth", "1e9"}).status, 0);
  EXPECT_EQ(Train({"--device_memory", "1000000", "--copy_bandwidth", "1e9"}).status, 0);
  EXPECT_THAT(Train({"--resume_step", "8"}).out, StartsWith("step 8: "));
}

TEST(WeftTest, WrongUsageIsStatus2) {
  EXPECT_THAT(Weft({}), FailsWith(2, "weft: error: ", "subcommand"));
  EXPECT_THAT(Weft({"train"}), FailsWith(2, "weft: error: ", "train"));
  EXPECT_THAT(Weft({"show"}), FailsWith(2, "weft show: error: ", "file is required"));
  EXPECT_THAT(Weft({"show", kMain, "--format", "pdf"}), FailsWith(2, "weft show: error: ", "pdf"));
  EXPECT_THAT(Train({"--nosuch"}), FailsWith(2, "weft run: error: ", "--nosuch"));
  EXPECT_THAT(Train({"--ranks", "0"}), FailsWith(2, "weft run: error: ", "--ranks"));
  EXPECT_THAT(Train({"--steps=many"}), FailsWith(2, "weft run: error: ", "--steps"));
  EXPECT_THAT(Train({"--set", "lr"}), FailsWith(2, "weft run: error: ", "NAME=VALUE"));
  for (const char* number : {"1e400", "-inf", "nan"}) {
    EXPECT_THAT(Train({"--set", absl::StrCat("lr=", number)}),
                FailsWith(2, "weft run: error: --set: expected a finite number", number));
  }
  EXPECT_THAT(Train({"--lr_schedule", ""}), FailsWith(2, "weft run: error: --lr_schedule", ""));
  EXPECT_THAT(Weft({"run", kMain}), FailsWith(2, "weft run: error: ", "--steps"));
  EXPECT_THAT(Weft({"show", kMain, "--full", "--short"}),
              FailsWith(2, "weft show: error: ", "--short"));
  EXPECT_THAT(Weft({"show", kMain, "--full", "--format", "dot"}),
              FailsWith(2, "weft show: error: ", "--full"));
  EXPECT_THAT(Train({"--save", "w.pdopt"}), FailsWith(2, "weft run: error: --save: ", ".pdparams"));
}

TEST(WeftTest, NumbersThatCannotBeAreWrongUsageThatNamesTheFlag) {
  const std::pair<const char*, const char*> cases[] = {
      {"--steps", "-1"},        {"--seed", "-1"},      {"--seed", "1e3"},
      {"--timeout_s", "nan"},   {"--timeout_s", "0"},  {"--warn_after_s", "nan"},
      {"--warn_after_s", "-1"}, {"--ranks", "100000"}, {"--threads", "0"}};
  for (const auto& [flag, value] : cases) {
    EXPECT_THAT(Train({flag, value}),
                FailsWith(2, absl::StrCat("weft run: error: ", flag, ": expected "),
                          absl::StrCat("found ", value)));
  }
}

TEST(WeftTest, StandardInputIsReadOnce) {
  EXPECT_THAT(Weft({"run", "-", "--startup", "-", "--feeds", kFeeds}),
              FailsWith(2, "weft run: error: --startup: ", "MAIN already reads standard input"));
  EXPECT_THAT(Weft({"run", kMain, "--params", "-", "--params_names", kNames, "--feeds", "-"}),
              FailsWith(2, "weft run: error: --feeds: ", "--params already reads standard input"));
  EXPECT_THAT(Weft({"diff", "-", "-"}), FailsWith(2, "weft diff: error: B: ", "standard input"));
}

TEST(WeftRunTest, LossesOfTheReferenceAppearStepByStep) {
  const ProcessResult run = Train({});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("step 0: mean_0.tmp_0 10.63908\nstep 1: mean_0.tmp_0 8.695"));
  EXPECT_THAT(run.out, HasSubstr("mean_0.tmp_0: 10.63908 at step 0, 7.878529 at step 9\n10 steps "
                                 "on 1 rank in "));
  EXPECT_EQ(run.err, kLost);
}

TEST(WeftRunTest, WhatIsTrainedAndNotKeptIsSaid) {
  EXPECT_THAT(Train({"--save", TestPath("kept.npz")}).err, IsEmpty());
  EXPECT_THAT(Train({"--checkpoint", TestPath("kept.ckpt")}).err, IsEmpty());
  EXPECT_THAT(Train({"--fetch_npz", TestPath("fetched.npz")}).err, IsEmpty());
}

// The limit is on the size of files: what is trained fits, the log of all steps does not.
TEST(WeftRunTest, AFullDiskForTheLogEndsNoRun) {
  const std::string save = TestPath("trained.npz"), metrics = TestPath("long.jsonl");
  const ProcessResult run = RunProcess(
      {"/bin/sh", "-c",
       absl::StrCat("ulimit -f 16; exec tools/weft run ", kMain, " --params ", kInit,
                    " --params_names ", kNames, " --feeds ", kFeeds, " --steps 400 --save ", save,
                    " --metrics ", metrics, " > /dev/null")});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("weft run: warning: "),
                             HasSubstr("; the run goes on without --metrics\n"),
                             HasSubstr("weft run: error: " + metrics)));
  // After the last step.
  WEFT_EXPECT_OK(ReadFile(save).status());
}

TEST(WeftRunTest, AssumptionsAreOfOpsWithoutASchema) {
  EXPECT_THAT(Train({"--assume", "mul: linear"}),
              FailsWith(1, "weft run: error: --assume: mul: ", "expected an op without a schema"));
}

TEST(WeftRunTest, StartupProgramOfAnotherModelIsRefused) {
  const std::string other = MakeFile("other_startup.prog",
                                     "program {\n  block 0 parent=-1 {\n"
                                     "    var w : fp32[1] persistable\n"
                                     "    Out=[w] = fill_constant() {shape=longs[1], dtype=5, "
                                     "value=0.0}\n  }\n}\n");
  EXPECT_THAT(Train({"--startup", other}),
              FailsWith(1, "weft run: error: " + other,
                        "declares no parameter of " + std::string(kMain) + ", such as fc_0."));
}

// Both formats of the state; the second run has no startup program.
TEST(WeftRunTest, StoppedAndResumedRunEndsAsOneThatWentThrough) {
  const std::string whole = TestPath("whole.npz");
  EXPECT_EQ(Train({"--save", whole}).status, 0);
  for (const char* extension : {".npz", ".params"}) {
    const std::string half = TestPath(absl::StrCat("half", extension));
    const std::string rest = TestPath("rest.npz");
    EXPECT_EQ(Train({"--save", half, "--steps", "4"}).status, 0);
    std::vector<std::string> args = {"run",          kMain, "--params", half, "--feeds", kFeeds,
                                     "--begin_step", "4",   "--steps",  "6",  "--save",  rest};
    if (!absl::EndsWith(half, ".npz")) args.insert(args.end(), {"--params_names", kNames});
    const ProcessResult resumed = Weft(args);
    EXPECT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_THAT(resumed.out, StartsWith("step 4: "));
    EXPECT_THAT(resumed.out, HasSubstr(" at step 4, 7.878529 at step 9\n6 steps on 1 rank in "));
    EXPECT_EQ(Contents(rest), Contents(whole));
  }
}

TEST(WeftRunTest, LearningRateFollowsItsSchedule) {
  const ProcessResult run =
      Train({"--lr_schedule", "exponential{learning_rate=0.5,gamma=0.1}", "--steps", "3",
             "--begin_step", "1", "--fetch", "learning_rate_0"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("step 1: learning_rate_0 0.05\nstep 2: learning_rate_0 0.005\n"
                                  "step 3: learning_rate_0 0.0005\n"));
  EXPECT_THAT(Train({"--lr_schedule", "cosine{T_max=3}"}),
              FailsWith(2, "weft run: error: --lr_schedule: ", "cosine: learning_rate: missing"));
  EXPECT_THAT(Train({"--lr_schedule", "cosine{learning_rate=1,T_max=3}", "--lr_var", "fc_0.w_0"}),
              FailsWith(1, absl::StrCat("weft run: error: ", kMain, ": set fc_0.w_0: "),
                        "expected a variable that no op writes"));
  EXPECT_THAT(Train({"--lr_var", "x"}), FailsWith(2, "weft run: error: ", "--lr_schedule"));
}

// How the batch is cut decides what a program trains: the labels of all ranks fit no rank's x.
TEST(WeftRunTest, ARunThatDiffersFromOneDeviceSaysSo) {
  const std::string main = TestPath("cut_main.pb"), startup = TestPath("cut_startup.pb");
  ASSERT_EQ(RunProcess({"tools/transpile", "--mode", "grad_allreduce", "--startup_in", kStartup,
                        "--startup_out", startup, kMain, main})
                .status,
            0);
  const std::vector<std::string> command = {"run",     main,   "--startup",    startup,
                                            "--feeds", kFeeds, "--ranks",      "2",
                                            "--steps", "1",    "--feed_layout"};
  const auto with_layout = [&](const std::string& layout) {
    std::vector<std::string> args = command;
    args.push_back(layout);
    return Weft(args);
  };
  EXPECT_EQ(with_layout("x=axis:0,y=axis:0").err, kLost);
  EXPECT_EQ(with_layout("x=whole,y=whole").err, kLost);
  EXPECT_THAT(with_layout("x=axis:0,y=whole").err, StartsWith("warning: W701: loss mean_0.tmp_0"));
  // The user reads what the ranks have of their own.
  const std::vector<std::string> fetch = {"x=axis:0,y=axis:0", "--fetch",
                                          "mean_0.tmp_0,fc_0.tmp_1,fc_0.w_0"};
  std::vector<std::string> args = command;
  args.insert(args.end(), fetch.begin(), fetch.end());
  EXPECT_EQ(Weft(args).err,
            absl::StrCat("note: W711: fetched values are not the reference values: fc_0.tmp_1 "
                         "(sharded along axis 0)\n",
                         kLost));
  // What matters most stands last.
  args = command;
  args.insert(args.end(), {"x=axis:0,y=whole", "--fetch", "mean_0.tmp_0,fc_0.tmp_1"});
  EXPECT_THAT(Weft(args).err, AllOf(StartsWith("note: W711"), HasSubstr("\nwarning: W701")));
}

// The events of three steps of an averaging program on two ranks.
nlohmann::json TracedEvents() {
  const std::string main = TestPath("trace_main.pb"), startup = TestPath("trace_startup.pb");
  EXPECT_EQ(RunProcess({"tools/transpile", "--mode", "grad_allreduce", "--startup_in", kStartup,
                        "--startup_out", startup, kMain, main})
                .status,
            0);
  const std::string path = TestPath("trace.json");
  const ProcessResult run = Weft({"run", main, "--startup", startup, "--feeds", kFeeds, "--ranks",
                                  "2", "--steps", "3", "--trace", path});
  EXPECT_EQ(run.status, 0) << run.err;
  return nlohmann::json::parse(Contents(path))["traceEvents"];
}

TEST(WeftRunTest, TraceHasARowForEveryStreamOfEveryRank) {
  std::set<std::string> rows;
  std::map<std::string, int> ops;
  for (const auto& event : TracedEvents()) {
    const std::string row = absl::StrCat(event["pid"].get<int>(), "/", event["tid"].get<int>());
    if (event["ph"] == "M") {
      if (event["name"] == "thread_sort_index") continue;
      rows.insert(absl::StrCat(row, " ", event["args"]["name"].get<std::string>()));
      continue;
    }
    EXPECT_GE(event["ts"].get<double>(), 0);
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["dur"].get<double>(), 0);
    ++ops[absl::StrCat(row, " ", event["name"].get<std::string>())];
    if (event["name"] == "mul" && event["args"]["step"] == 2) {
      // Combined ops.
      EXPECT_EQ(event["args"]["op"], "op 0 (mul) with op 1 (elementwise_add)");
      EXPECT_EQ(event["args"]["inputs"], nlohmann::json({"x", "fc_0.w_0", "fc_0.b_0"}));
      EXPECT_EQ(event["args"]["outputs"], nlohmann::json({"fc_0.tmp_1"}));
    }
  }
  EXPECT_THAT(rows, ::testing::ElementsAre("0/0 compute", "0/0 rank 0", "0/1 ring 0", "0/2 steps",
                                           "1/0 compute", "1/0 rank 1", "1/1 ring 0", "1/2 steps"));
  EXPECT_EQ(ops["0/0 mul"], 3);
  EXPECT_EQ(ops["1/0 sgd"], 3);              // of two parameters
  EXPECT_EQ(ops["1/1 c_allreduce_avg"], 3);  // of one bucket
  EXPECT_EQ(ops["0/2 step 2"], 1);
}

TEST(WeftRunTest, TraceSaysTheRoleAndTheBytesOfEveryOp) {
  std::set<std::string> found;
  for (const auto& event : TracedEvents()) {
    if (event["ph"] != "X" || !event["args"].contains("op")) continue;
    found.insert(absl::StrCat(event["name"].get<std::string>(), " ",
                              event["cat"].get<std::string>(), " ",
                              event["args"]["bytes"].get<int64_t>()));
  }
  EXPECT_THAT(found, ::testing::IsSupersetOf({
                         "c_allreduce_avg backward 512",  // of a buffer of 128 elements
                         "sgd optimize 120",              // twice (w and b), and the rate: fp32
                     }));
}

TEST(WeftRunTest, TraceLeadsAnArrowFromTheLastOpBeforeToEveryWait) {
  struct Slice {
    double begin, end;
    std::string name;
  };
  std::map<std::string, std::vector<Slice>> rows;
  std::map<int64_t, std::pair<std::string, std::string>> arrows;  // by id: what they bind
  const auto events = TracedEvents();
  const auto row_of = [](const nlohmann::json& event) {
    return absl::StrCat(event["pid"].get<int>(), "/", event["tid"].get<int>());
  };
  for (const auto& event : events) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    rows[row_of(event)].push_back({begin, end, event["name"]});
  }
  for (const auto& event : events) {
    if (event["ph"] != "s" && event["ph"] != "f") continue;
    const double time = event["ts"];
    std::string& end = event["ph"] == "s" ? arrows[event["id"].get<int64_t>()].first
                                          : arrows[event["id"].get<int64_t>()].second;
    for (const Slice& slice : rows[row_of(event)]) {
      if (slice.begin <= time && time <= slice.end) end = slice.name;
    }
  }
  // In each step of each rank, the ring waits for the gradients, and the updates for the ring.
  std::map<std::string, int> counts;
  for (const auto& [id, ends] : arrows) ++counts[absl::StrCat(ends.first, " -> ", ends.second)];
  EXPECT_THAT(counts, ::testing::UnorderedElementsAre(
                          ::testing::Pair(::testing::EndsWith("_grad -> wait for compute"), 6),
                          ::testing::Pair("c_allreduce_avg -> wait for ring 0", 6)));
}

TEST(WeftRunTest, FailedRunLeavesNoTraceAndKeepsTheOneBefore) {
  const std::string path = MakeFile("old_trace.json", "old");
  EXPECT_EQ(Train({"--trace", path, "--ranks", "3", "--allow_unsynchronized"}).status, 1);
  EXPECT_EQ(Contents(path), "old");
}

TEST(WeftRunTest, StepsGoToTheEndOfTheFeeds) {
  const ProcessResult run = Train({"--begin_step", "8"});
  EXPECT_THAT(run.out, AllOf(StartsWith("step 8: "), HasSubstr("\n2 steps on 1 rank in ")));
}

TEST(WeftRunTest, SeveralRanksAreShownBesideTheirMean) {
  const ProcessResult run = Train({"--ranks", "2", "--allow_unsynchronized", "--steps", "1"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, ::testing::MatchesRegex(
                           "step 0: mean_0\\.tmp_0 [0-9.]+ \\(ranks: [0-9.]+ [0-9.]+\\)\n.*"));
}

TEST(WeftRunTest, RanksThatWouldTrainApartAreRefused) {
  EXPECT_THAT(Train({"--ranks", "2"}),
              FailsWith(1, absl::StrCat("weft run: error: ", kMain, ": op 11 (sgd): "),
                        "transpile --mode grad_allreduce (or set --allow_unsynchronized"));
}

TEST(WeftRunTest, StartupProgramGivesTheParameters) {
  const ProcessResult run = Weft({"run", kMain, "--startup", kStartup, "--feeds", kFeeds});
  EXPECT_EQ(run.status, 0) << run.err;
}

TEST(WeftRunTest, MissingParametersAreReported) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto params, LoadParams(kInit, kNames));
  const std::string all = TestPath("all.npz"), some = TestPath("some.npz");
  WEFT_ASSERT_OK(SaveParams(all, params));
  params.erase("fc_0.b_0");
  WEFT_ASSERT_OK(SaveParams(some, params));
  const auto run = [](const std::string& file) {
    return Weft({"run", kMain, "--startup", kStartup, "--params", file, "--feeds", kFeeds, "--save",
                 TestPath("saved.npz")});
  };
  EXPECT_THAT(run(all).err, IsEmpty());
  EXPECT_THAT(run(some),
              FailsWith(0, "weft run: warning: ",
                        "some.npz: holds 1 of 2 parameters; from the startup program: 1"));
}

TEST(WeftRunTest, ParametersAreSavedByExtensionAndReadBack) {
  const std::string stream = TestPath("out.params"), npz = TestPath("out.npz");
  EXPECT_EQ(Train({"--save", stream}).status, 0);
  EXPECT_EQ(Train({"--save", npz}).status, 0);
  WEFT_ASSERT_OK_AND_ASSIGN(auto from_stream, LoadParams(stream, kNames));
  WEFT_ASSERT_OK_AND_ASSIGN(auto from_npz, LoadParams(npz, ""));
  ASSERT_THAT(from_npz, SizeIs(3));
  for (const auto& [name, tensor] : from_npz) {
    EXPECT_EQ(std::string(static_cast<const char*>(tensor.raw()), tensor.bytes()),
              std::string(static_cast<const char*>(from_stream[name].raw()), tensor.bytes()));
  }
  EXPECT_EQ(Weft({"run", kMain, "--params", npz, "--feeds", kFeeds}).status, 0);
}

TEST(WeftRunTest, MetricsHaveALineForEachStepAndRank) {
  const std::string metrics = TestPath("metrics.jsonl");
  EXPECT_EQ(
      Train({"--metrics", metrics, "--ranks", "2", "--allow_unsynchronized", "--steps=3"}).status,
      0);
  std::vector<std::string> lines = absl::StrSplit(Contents(metrics), '\n', absl::SkipEmpty());
  ASSERT_THAT(lines, SizeIs(6));
  const auto json = nlohmann::json::parse(lines[3]);
  EXPECT_EQ(json["step"], 1);
  EXPECT_EQ(json["rank"], 1);
  EXPECT_TRUE(json["fetch"]["mean_0.tmp_0"][0].is_number());
  EXPECT_GT(json["ms"], 0);
}

TEST(WeftRunTest, FetchedArraysAreWrittenInFull) {
  const std::string path = TestPath("fetched.npz");
  const ProcessResult run =
      Train({"--fetch", "fc_0.w_0@GRAD,mean_0.tmp_0", "--fetch_npz", path, "--steps", "2"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("step 1: fc_0.w_0@GRAD (mean) "));
  WEFT_ASSERT_OK_AND_ASSIGN(auto arrays, ReadNpz(path));
  EXPECT_THAT(arrays, SizeIs(4));
  EXPECT_EQ(arrays["1/0/fc_0.w_0@GRAD"].size(), 13);
}

TEST(WeftRunTest, StepsBeyondTheFeedsWrapAround) {
  const ProcessResult run =
      Train({"--steps", "11", "--set", "learning_rate_0=0", "--fetch=mean_0.tmp_0"});
  EXPECT_EQ(run.status, 0) << run.err;
  // Without learning, the same batch gives the same loss.
  EXPECT_THAT(run.out, HasSubstr("mean_0.tmp_0: 10.63908 at step 0, 10.63908 at step 10\n"));
}

TEST(WeftRunTest, ProgramMayComeFromStandardInput) {
  const ProcessResult run =
      Weft({"run", "-", "--startup", kStartup, "--feeds", kFeeds}, Contents(kMain));
  EXPECT_EQ(run.status, 0) << run.err;
}

TEST(WeftRunTest, BadFilesAreNamed) {
  const auto run = [](const std::string& main, const std::string& feeds) {
    return Weft({"run", main, "--startup", kStartup, "--feeds", feeds});
  };
  const std::string bad_pb = MakeFile("bad.pb", Contents(kMain).substr(0, 1000));
  const std::string bad_npz = MakeFile("bad.npz", Contents(kFeeds).substr(0, 1000));
  EXPECT_THAT(run("nowhere.pb", kFeeds), FailsWith(1, "weft run: error: nowhere.pb: ", "No such"));
  EXPECT_THAT(run(bad_pb, kFeeds), FailsWith(1, "weft run: error: " + bad_pb + ": ", "byte"));
  EXPECT_THAT(run(kMain, "nowhere.npz"), FailsWith(1, "weft run: error: nowhere.npz: ", "No such"));
  EXPECT_THAT(run(kMain, bad_npz), FailsWith(1, "weft run: error: " + bad_npz + ": ", ".npz"));
  const std::string bad_text = MakeFile("main.txt", "words");
  EXPECT_THAT(run(bad_text, kFeeds), FailsWith(1, "weft run: error: " + bad_text + ": ", ".pb"));
}

TEST(WeftRunTest, ParameterThatDoesNotFitIsAnErrorOfItsFile) {
  std::map<std::string, Tensor> params;
  params["fc_0.w_0"].Resize(DType::kFloat32, {1, 13});
  const std::string path = TestPath("misfit.npz");
  WEFT_ASSERT_OK(WriteNpz(path, params));
  EXPECT_THAT(Weft({"run", kMain, "--params", path, "--feeds", kFeeds}),
              FailsWith(1, "weft run: error: " + path + ": parameter fc_0.w_0: ",
                        "expected fp32[13, 1], found fp32[1, 13]"));
}

TEST(WeftRunTest, WrongNumberOfNamesSaysHowManyTensorsThereAre) {
  const std::string names = MakeFile("names.txt", "fc_0.b_0\nfc_0.w_0\n");
  EXPECT_THAT(Weft({"run", kMain, "--feeds", kFeeds, "--params", kInit, "--params_names", names}),
              FailsWith(1, absl::StrCat("weft run: error: ", kInit, ": "), "holds 3 tensors"));
}

// Feeds of a program for two steps, correct except for one mistake.
class WeftRunFeedsTest : public ::testing::Test {
 protected:
  WeftRunFeedsTest() : arrays_(*ReadNpz(kFeeds)) {
    for (auto it = arrays_.begin(); it != arrays_.end();) {
      const bool kept = absl::StartsWith(it->first, "0/") || absl::StartsWith(it->first, "1/");
      it = kept ? std::next(it) : arrays_.erase(it);
    }
  }
  ProcessResult TrainOnThese(const std::vector<std::string>& more = {}) {
    EXPECT_THAT(WriteNpz(feeds_, arrays_), testing::IsOk());
    std::vector<std::string> args = {"run", kMain, "--startup", kStartup, "--feeds", feeds_};
    args.insert(args.end(), more.begin(), more.end());
    return Weft(args);
  }
  // A value that is not a number, in one row of step 1.
  void SpoilStep1() { arrays_["1/y"].data<float>()[0] = std::numeric_limits<float>::quiet_NaN(); }

  const std::string feeds_ = TestPath("wrong.npz");
  const std::string start_ = absl::StrCat("weft run: error: ", feeds_, ": ");
  std::map<std::string, Tensor> arrays_;
};

TEST_F(WeftRunFeedsTest, UnknownNameIsRefused) {
  arrays_["0/z"] = arrays_["0/x"];
  arrays_["1/z"] = arrays_["1/x"];
  EXPECT_THAT(TrainOnThese(), FailsWith(1, start_ + "feed z: ", "no such variable"));
}

TEST_F(WeftRunFeedsTest, MissingVariableIsRefused) {
  arrays_.erase("0/y");
  arrays_.erase("1/y");
  EXPECT_THAT(TrainOnThese(), FailsWith(1, start_ + "feed y: missing", "reads it"));
}

TEST_F(WeftRunFeedsTest, WrongElementTypeIsRefusedBeforeTheFirstStep) {
  arrays_["1/x"].Resize(DType::kInt32, {20, 13});
  const ProcessResult run = TrainOnThese();
  EXPECT_THAT(
      run, FailsWith(1, start_ + "step 1: feed x: ", "expected fp32[-1, 13], found int32[20, 13]"));
  EXPECT_THAT(run.out, IsEmpty());
}

TEST_F(WeftRunFeedsTest, WrongShapeIsRefused) {
  arrays_["0/x"].Reshape({26, 10});
  EXPECT_THAT(
      TrainOnThese(),
      FailsWith(1, start_ + "step 0: feed x: ", "expected fp32[-1, 13], found fp32[26, 10]"));
}

TEST_F(WeftRunFeedsTest, BatchThatDoesNotDivideIsRefused) {
  EXPECT_THAT(
      TrainOnThese({"--ranks", "3", "--allow_unsynchronized"}),
      FailsWith(1, start_ + "step 0: feed x: ", "20 rows cannot be split equally over 3 ranks"));
}

TEST_F(WeftRunFeedsTest, OneRowForSeveralIsAWarning) {
  const std::vector<std::string> on_two = {"--ranks", "2", "--allow_unsynchronized"};
  EXPECT_THAT(TrainOnThese(on_two).err, Not(HasSubstr("each rank gets")));
  arrays_["1/y"].Resize(DType::kFloat32, {2, 1});
  EXPECT_THAT(TrainOnThese(on_two).err,
              HasSubstr("step 1: each rank gets 1 row of y, and 10 of x: ops may take the one"));
}

TEST_F(WeftRunFeedsTest, BatchWithoutRowsIsRefused) {
  arrays_["1/x"].Resize(DType::kFloat32, {0, 13});
  arrays_["1/y"].Resize(DType::kFloat32, {0, 1});
  EXPECT_THAT(TrainOnThese(), FailsWith(1, start_ + "step 1: feed x: ", "no elements"));
}

TEST_F(WeftRunFeedsTest, NanLossIsReportedWithItsStepEvenIfUnfetched) {
  SpoilStep1();
  EXPECT_THAT(TrainOnThese({"--fetch", "fc_0.w_0", "--quiet"}),
              FailsWith(1, absl::StrCat("weft run: error: ", kMain, ": step 1, rank 0: "),
                        "loss mean_0.tmp_0 is nan"));
}

TEST_F(WeftRunFeedsTest, FailedRunKeepsTheMetricsOfItsStepsAndWritesNoArchive) {
  SpoilStep1();
  const std::string metrics = MakeFile("log.jsonl", "old metrics");
  const std::string fetched = MakeFile("log.npz", "old archive");
  EXPECT_EQ(TrainOnThese({"--metrics", metrics, "--fetch_npz", fetched}).status, 1);
  const std::vector<std::string> lines = absl::StrSplit(Contents(metrics), '\n', absl::SkipEmpty());
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(nlohmann::json::parse(lines[1])["step"], 1);
  EXPECT_EQ(Contents(fetched), "old archive");
}

TEST(WeftRunTest, UnknownFetchIsRefused) {
  EXPECT_THAT(Train({"--fetch", "nobody"}),
              FailsWith(1, absl::StrCat("weft run: error: ", kMain, ": "),
                        "nobody: the program has no such variable; losses of the program: "
                        "mean_0.tmp_0"));
}

TEST(WeftRunTest, SetRefusesAVariableThatAnOpWrites) {
  EXPECT_THAT(Train({"--set", "fc_0.w_0=1"}),
              FailsWith(1, absl::StrCat("weft run: error: ", kMain, ": set fc_0.w_0: "), "sgd"));
}

TEST(WeftRunTest, BackendMustGoWithTheDevice) {
  EXPECT_THAT(Train({"--backend", "nccl"}),
              FailsWith(1, "weft run: error: --backend nccl: ", "--device cpu expected local"));
  EXPECT_THAT(
      Train({"--backend", "gloo", "--device", "gpu"}),
      FailsWith(1, "weft run: error: --backend gloo: ", "--device gpu expected nccl or local"));
  EXPECT_THAT(Train({"--cuda_graph", "auto"}),
              FailsWith(1, "weft run: error: --cuda_graph auto: ", "expected --device gpu"));
  EXPECT_THAT(Train({"--tf32"}),
              FailsWith(1, "weft run: error: --tf32: ", "expected --device gpu"));
  EXPECT_THAT(Train({"--nccl_id_file", "ids"}),
              FailsWith(1, "weft run: error: --nccl_id_file: ", "expected --device gpu"));
}

TEST(WeftRunTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(Train({"--backend", "mpi"}),
              FailsWith(1, "weft run: error: --backend mpi: ", "found none"));
  EXPECT_THAT(Train({"--device", "gpu"}), FailsWith(1, "weft run: error: --device gpu: ", ""));
}

TEST(WeftRunTest, FailedRunLeavesExistingFilesAsTheyWere) {
  const std::string save = MakeFile("old.npz", "old save");
  const std::string metrics = MakeFile("old.jsonl", "old metrics");
  EXPECT_EQ(Train({"--save", save, "--metrics", metrics, "--fetch", "nobody"}).status, 1);
  EXPECT_EQ(Contents(save), "old save");
  EXPECT_EQ(Contents(metrics), "old metrics");
}

TEST(WeftRunTest, OutputsAreCheckedBeforeTheRun) {
  EXPECT_THAT(Train({"--save", "no/such/dir/o.npz"}),
              FailsWith(1, "weft run: error: no/such/dir/o.npz: ", "cannot create"));
  const std::string params = TestPath("same.npz");
  EXPECT_EQ(Train({"--save", params}).status, 0);
  const std::string before = Contents(params);
  EXPECT_THAT(Weft({"run", kMain, "--feeds", kFeeds, "--params", params, "--save", params}),
              FailsWith(1, "weft run: error: " + params + ": ", "refusing to overwrite"));
  EXPECT_EQ(Contents(params), before);
}

TEST(WeftRunTest, DevicesAndDirectoriesAreRefusedAsInput) {
  for (const std::string target : {"/dev/zero", "/dev"}) {
    const std::string error = target == "/dev" ? "is a directory" : "is a device";
    // Programs are recognized by their extension.
    const std::string name = TestPath(target == "/dev" ? "directory.pb" : "device.pb");
    ASSERT_EQ(symlink(target.c_str(), name.c_str()), 0);
    for (const char* flag : {"--startup", "--params", "--params_names", "--feeds"}) {
      SCOPED_TRACE(flag);
      // A folder of parameters is read.
      if (target == "/dev" && flag == std::string("--params")) continue;
      std::map<std::string, std::string> files = {{"--startup", kStartup},
                                                  {"--params", kInit},
                                                  {"--params_names", kNames},
                                                  {"--feeds", kFeeds}};
      files[flag] = name;
      std::vector<std::string> args = {"run", kMain};
      for (const auto& [option, value] : files) args.insert(args.end(), {option, value});
      EXPECT_THAT(Weft(args), FailsWith(1, "weft run: error: " + name + ": ", error));
    }
    EXPECT_THAT(Weft({"run", name, "--feeds", kFeeds}),
                FailsWith(1, "weft run: error: " + name + ": ", error));
  }
}

TEST(WeftRunTest, FullDiskIsAnErrorOfTheOutput) {
  for (const char* flag : {"--save", "--metrics", "--fetch_npz"}) {
    EXPECT_THAT(Train({flag, "/dev/full"}),
                FailsWith(1, "weft run: error: /dev/full: cannot write: ", "No space left"));
  }
}

TEST(WeftShowTest, TextReadsBackAsTheSameProgram) {
  const ProcessResult text = Weft({"show", kMain, "--full"});
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.out, HasSubstr("= mul(X=[x], Y=[fc_0.w_0]) role=forward"));
  const std::string prog = MakeFile("shown.prog", text.out);
  EXPECT_EQ(Weft({"diff", kMain, prog}).status, 0);
}

TEST(WeftShowTest, BookkeepingIsShownOnRequest) {
  EXPECT_THAT(Weft({"show", kMain, "--full"}).out, HasSubstr("with_quant_attr"));
  const ProcessResult text = Weft({"show", kMain});
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.out, Not(HasSubstr("with_quant_attr")));
  EXPECT_THAT(text.out, Not(HasSubstr("op_callstack")));
  EXPECT_THAT(text.out, HasSubstr("  0: Out=[fc_0.tmp_0 : fp32[-1, 1]] = mul(X=[x], Y=[fc_0.w_0]) "
                                  "role=forward {x_num_col_dims=1, y_num_col_dims=1}\n"));
}

TEST(WeftShowTest, FiltersSelectOpsByPositionTypeRoleAndVariable) {
  const auto shown = [](const std::vector<std::string>& filter) {
    std::vector<std::string> args = {"show", kMain};
    args.insert(args.end(), filter.begin(), filter.end());
    std::vector<std::string> ops;
    const std::string out = Weft(args).out;
    for (absl::string_view line : absl::StrSplit(out, '\n')) {
      const size_t colon = line.find(": ");
      if (absl::StrContains(line, "role=")) ops.emplace_back(line.substr(2, colon - 2));
    }
    return ops;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(shown({"--op", "11,mul"}), ElementsAre("0", "11"));
  EXPECT_THAT(shown({"--role", "optimize"}), ElementsAre("11", "12"));
  EXPECT_THAT(shown({"--role", "loss"}), ElementsAre("4", "5"));
  EXPECT_THAT(shown({"--var", "fc_0.b_0"}), ElementsAre("1", "9", "11"));
  EXPECT_THAT(shown({"--var", "fc_0.b_0", "--role", "forward"}), ElementsAre("1"));
  EXPECT_THAT(Weft({"show", kMain, "--var", "fc_0.tmp_0", "--role", "forward"}).out,
              StartsWith("block 0\n  var fc_0.tmp_0 : fp32[-1, 1]\n  0: Out="));
}

TEST(WeftShowTest, FilterThatSelectsNothingNamesWhatIsSimilar) {
  EXPECT_THAT(Weft({"show", kMain, "--op", "mull"}),
              FailsWith(1, "weft show: error: ", "no op is a mull; did you mean mul?"));
  EXPECT_THAT(Weft({"show", kMain, "--var", "fc_0.w0"}),
              FailsWith(1, "weft show: error: ", "did you mean fc_0.w_0?"));
  EXPECT_THAT(Weft({"show", kMain, "--op", "mul", "--role", "optimize"}),
              FailsWith(1, "weft show: error: ", "no op has all that is asked for"));
}

TEST(WeftTest, BothToolsHaveTheSameVersion) {
  EXPECT_EQ(Weft({"--version"}).out, "weft 0.1.0\n");
  EXPECT_EQ(RunProcess({"tools/transpile", "--version"}, "").out, "transpile 0.1.0\n");
}

TEST(WeftTest, MainProgramAsStartupProgramIsRefused) {
  EXPECT_THAT(Weft({"run", kStartup, "--startup", kMain, "--steps", "1"}),
              FailsWith(1, absl::StrCat("weft run: error: ", kMain, ": expected a startup program"),
                        "op 11 (sgd) updates a parameter"));
}

TEST(TranspileTest, MainProgramAsStartupProgramIsRefused) {
  EXPECT_THAT(
      RunProcess({"tools/transpile", "--mode", "grad_allreduce", "--startup_in", kMain,
                  "--startup_out", TestPath("s.pb"), kMain, TestPath("m.pb")},
                 ""),
      FailsWith(1, absl::StrCat("transpile: error: ", kMain, ": expected a startup program"),
                "op 11 (sgd) updates a parameter"));
}

TEST(TranspileTest, ModeAutoSaysWhichModeItTakesAndWhy) {
  const std::string out = TestPath("auto.pb");
  const auto transpile = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"tools/transpile", "--mode", "auto", kMain, out};
    args.insert(args.end(), more.begin(), more.end());
    return RunProcess(args, "");
  };
  EXPECT_THAT(transpile({}), FailsWith(0, absl::StrCat("note: ", kMain, ": mode grad_allreduce: "),
                                       "gradients are averaged over the ranks"));
  EXPECT_THAT(Weft({"show", out, "--op", "c_allreduce_avg"}).out, HasSubstr("c_allreduce_avg"));
  const std::string startup = TestPath("auto_startup.pb");
  EXPECT_THAT(transpile({"--k_steps", "4", "--startup_in", kStartup, "--startup_out", startup}).err,
              HasSubstr("mode local_sgd: "));
  // Nothing was written, so nothing was done.
  EXPECT_THAT(transpile({"--k_steps", "4"}), FailsWith(1, "transpile: error: ", "local-sgd"));
}

TEST(WeftTest, SimilarNamesAreOffered) {
  EXPECT_THAT(Weft({"rum", kMain}), FailsWith(2, "weft: error: ", "rum; did you mean run?"));
  EXPECT_THAT(Train({"--rank", "2"}),
              FailsWith(2, "weft run: error: ", "--rank; did you mean --ranks?"));
  EXPECT_THAT(Train({"--step=2"}),
              FailsWith(2, "weft run: error: ", "--step=2; did you mean --steps?"));
  EXPECT_THAT(Train({"--fetch", "mean_0.tmp_1"}),
              FailsWith(1, "weft run: error: ", "did you mean mean_0.tmp_0?"));
  EXPECT_THAT(Train({"--set", "learning_rate=1"}),
              FailsWith(1, "weft run: error: ", "did you mean learning_rate_0?"));
}

TEST(WeftTest, WhatAShellMakesOfArgumentsIsExplained) {
  EXPECT_THAT(
      Train({"--lr_schedule", "cosinelearning_rate=0.1", "cosineT_max=10"}),
      FailsWith(2, "weft run: error: ", "cosineT_max=10; put quotes around what has { and } (see"));
  EXPECT_THAT(Weft({"launch", "-n", "2", "weft", "run", kMain}),
              FailsWith(2, "weft launch: error: ", "weft; put -- before the command"));
}

TEST(WeftShowTest, JsonHasTheOps) {
  const ProcessResult shown = Weft({"show", kMain, "--format=json"});
  const auto json = nlohmann::json::parse(shown.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_THAT(json["blocks"][0]["ops"], SizeIs(13));
  EXPECT_EQ(json["blocks"][0]["ops"][0]["type"], "mul");
}

TEST(WeftShowTest, DotIsADigraph) {
  const ProcessResult dot = Weft({"show", kMain, "--format", "dot"});
  EXPECT_THAT(dot.out, StartsWith("digraph program {\n"));
  EXPECT_THAT(dot.out, HasSubstr("[label=\"0: mul\", "));
}

TEST(WeftDiffTest, EqualProgramsGiveStatus0AndNoOutput) {
  const ProcessResult diff = Weft({"diff", kMain, kMain});
  EXPECT_EQ(diff.status, 0);
  EXPECT_THAT(diff.out, IsEmpty());
}

TEST(WeftDiffTest, DifferencesGiveStatus1) {
  const ProcessResult diff = Weft({"diff", kMain, kStartup});
  EXPECT_EQ(diff.status, 1);
  EXPECT_THAT(diff.out, HasSubstr("uniform_random"));
  EXPECT_THAT(diff.err, IsEmpty());
}

TEST(WeftDiffTest, ProgramsOfRanksAreComparedOneByOne) {
  for (const char* name : {"a_0.pb", "a_1.pb", "b_0.pb", "c_0.pb", "c_1.pb"}) {
    MakeFile(name, Contents(kMain));
  }
  MakeFile("b_1.pb", Contents(kStartup));
  const auto diff = [](const std::string& a, const std::string& b) { return Weft({"diff", a, b}); };
  const std::string a = TestPath("a_{rank}.pb"), b = TestPath("b_{rank}.pb");
  EXPECT_EQ(diff(a, TestPath("c_{rank}.pb")).status, 0);
  const ProcessResult differ = diff(a, b);
  EXPECT_EQ(differ.status, 1);
  EXPECT_THAT(differ.out, StartsWith("rank 1:\n"));
  EXPECT_THAT(diff(kMain, b).out, StartsWith("rank 1:\n"));
  MakeFile("c_2.pb", Contents(kMain));
  EXPECT_THAT(diff(TestPath("c_{rank}.pb"), b),
              FailsWith(2, "weft diff: error: " + b, "expected programs of 3 ranks"));
  EXPECT_THAT(diff(kMain, TestPath("none_{rank}.pb")),
              FailsWith(2, "weft diff: error: ", "none_0.pb: "));
}

TEST(WeftDiffTest, TroubleIsStatus2) {
  EXPECT_THAT(Weft({"diff", kMain, "nowhere.pb"}),
              FailsWith(2, "weft diff: error: nowhere.pb: ", "No such"));
}

TEST(WeftStatsTest, CountsAreShown) {
  const ProcessResult stats = Weft({"stats", kMain});
  EXPECT_EQ(stats.status, 0);
  EXPECT_THAT(stats.out, HasSubstr("blocks 1, ops 13, variables 17\n"));
  EXPECT_THAT(stats.out, HasSubstr("parameters     2: 14 elements, 56 bytes\n"));
  EXPECT_THAT(stats.out, HasSubstr("communication: none\n"));
}

TEST(WeftStatsTest, PeakMemoryIsForABatch) {
  EXPECT_THAT(Weft({"stats", kMain}).out, HasSubstr("estimated for a batch of 1: "));
  EXPECT_THAT(Weft({"stats", kMain, "--batch", "20"}).out,
              HasSubstr("estimated for a batch of 20: "));
  EXPECT_THAT(Weft({"stats", kMain, "--batch", "0"}),
              FailsWith(2, "weft stats: error: --batch: expected ", "found 0"));
}

TEST(WeftStatsTest, MemoryOfARunIsThatOfItsValuesForABatch) {
  const ProcessResult run = Train({"--steps", "1"});  // of 20 rows
  const size_t at = run.out.find("values of a rank: ");
  ASSERT_NE(at, std::string::npos) << run.out;
  EXPECT_THAT(Weft({"stats", kMain, "--batch", "20"}).out,
              HasSubstr("in weft run, for a batch of 20, " + run.out.substr(at)));
}

TEST(WeftStatsTest, BatchThatNoMachineHoldsIsSaid) {
  const ProcessResult stats = Weft({"stats", kMain, "--batch", "9223372036854775807"});
  EXPECT_EQ(stats.status, 0);
  EXPECT_THAT(stats.out, HasSubstr("weft run does not run it: out of memory for the values"));
}

TEST(WeftStatsTest, BadProgramIsStatus1) {
  const std::string text = MakeFile("text.pb", "this is no program\n");
  EXPECT_THAT(Weft({"stats", text}), FailsWith(1, "weft stats: error: " + text + ": ", ""));
}

TEST(WeftPlanTest, MeasuredAndEstimatedTimesGiveAPlan) {
  const std::string profile = TestPath("profile.json"), table = TestPath("table.json");
  const std::string picture = TestPath("plan.svg");
  EXPECT_EQ(Train({"--profile", profile, "--steps", "4"}).status, 0);
  const ProcessResult bench =
      Weft({"comm_bench", "--ranks", "2", "--max_bytes", "4096", "--rounds", "2"});
  EXPECT_EQ(bench.status, 0) << bench.err;
  MakeFile("table.json", bench.out);
  const ProcessResult plan =
      Weft({"plan", kMain, "--buckets", "optimal", "--profile", profile, "--comm_table", table,
            "--svg", picture, "--why", "fc_0.b_0@GRAD,fc_0.w_0@GRAD"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("2 gradients, 56 bytes, in "));
  EXPECT_THAT(plan.out, HasSubstr(" ms (measured); collectives take as in the table\n"));
  EXPECT_THAT(plan.out, HasSubstr("fc_0.b_0@GRAD, fc_0.w_0@GRAD: "));
  EXPECT_THAT(Contents(picture), StartsWith("<svg "));
  EXPECT_THAT(Weft({"plan", kMain}).out, HasSubstr("(estimated for a batch of 32)"));
}

TEST(WeftPlanTest, RewrittenProgramsAreRefused) {
  const std::string out = TestPath("out.pb");
  ASSERT_EQ(RunProcess({"tools/transpile", "--mode", "grad_allreduce", kMain, out}).status, 0);
  EXPECT_THAT(Weft({"plan", out}), FailsWith(1, "weft plan: error: " + out + ": ",
                                             "before it is rewritten, found gradients-reduced"));
}

// With the number of ranks, a group of all is none, and one of more is an error.
TEST(WeftPlanTest, GroupsOfRanksAreThoseOfTranspile) {
  const std::string attrs =
      MakeFile("attrs.json", R"({"fc_0.w_0": {"group": "pair"}, "groups": {"pair": [0, 1]}})");
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"plan", kMain,   "--param_attrs",
                                     attrs,  "--why", "fc_0.b_0@GRAD,fc_0.w_0@GRAD"};
    args.insert(args.end(), more.begin(), more.end());
    return Weft(args);
  };
  EXPECT_THAT(plan({}).out, AllOf(HasSubstr("in 2 buckets"), HasSubstr("over ranks 0, 1\n")));
  EXPECT_THAT(plan({"--nranks", "3"}).out, HasSubstr("in 2 buckets"));
  EXPECT_THAT(plan({"--nranks", "2"}).out, HasSubstr("in 1 bucket "));
  EXPECT_THAT(plan({"--nranks", "1"}),
              FailsWith(1, "weft plan: error: " + attrs + ": ", "below 1"));
  EXPECT_THAT(Weft({"plan", kMain, "--nranks", "2"}),
              FailsWith(2, "weft plan: error: --nranks: ", "expected --param_attrs"));
  const std::string unknown = MakeFile("unknown.json", R"({"w": {"comm_fusion": 1}})");
  EXPECT_THAT(Weft({"plan", kMain, "--param_attrs", unknown}),
              FailsWith(1, "weft plan: error: " + unknown + ": ", "parameter w"));
}

TEST(WeftPlanTest, WrongUseAndBadFilesAreErrors) {
  EXPECT_THAT(Weft({"plan"}), FailsWith(2, "weft plan: error: file: ", "and not both"));
  const std::string grads = MakeFile("grads.json", "{\"policy\": \"bytes\", \"grads\": []}");
  EXPECT_THAT(Weft({"plan", "--gradients", grads, "--svg", TestPath("no.svg")}),
              FailsWith(2, "weft plan: error: --svg: ", "not for --gradients"));
  EXPECT_EQ(Weft({"plan", "--gradients", grads}).out,
            "{\"policy\":\"bytes\",\"groups\":[],\"warnings\":[]}\n");
  const std::string deep = MakeFile("deep.json", "{\"points\":" + std::string(300000, '['));
  for (const char* flag : {"--comm_table", "--profile"}) {
    EXPECT_THAT(Weft({"plan", kMain, flag, deep}),
                FailsWith(1, "weft plan: error: " + deep + ": ", "at most 100 levels"));
  }
  EXPECT_THAT(Weft({"plan", "--gradients", deep}),
              FailsWith(1, "weft plan: error: " + deep + ": ", "at most 100 levels"));
  const std::string falls = MakeFile("falls.json", R"({"policy": "optimal", "grads":
      [{"elements": 1, "ready_us": 2}, {"elements": 1, "ready_us": 1}]})");
  EXPECT_THAT(Weft({"plan", "--gradients", falls}),
              FailsWith(1, "weft plan: error: " + falls + ": ", "gradient 1: expected a ready"));
  EXPECT_THAT(Weft({"plan", kMain, "--buckets", "size"}),
              FailsWith(1, "weft plan: error: buckets: ", "found 'size'"));
  EXPECT_THAT(Weft({"comm_bench", "--max_bytes", "1099511627776", "--ranks", "1024"}),
              FailsWith(1, "weft comm_bench: error: ", "memory are available"));
}

// The verifier takes it for an error that gradients are summed.
TEST(WeftRunTest, WhatDiffersFromOneDeviceIsAWarningOfARunThatGoesOn) {
  const std::string main = TestPath("summed.pb"), startup = TestPath("summed_startup.pb");
  const ProcessResult transpiled =
      RunProcess({"tools/transpile", "--mode", "grad_allreduce", "--scale", "none", "--startup_in",
                  kStartup, "--startup_out", startup, kMain, main});
  ASSERT_EQ(transpiled.status, 0) << transpiled.err;
  const ProcessResult run = Weft({"run", main, "--startup", startup, "--feeds", kFeeds, "--ranks",
                                  "2", "--steps", "1", "--feed_layout", "x=axis:0,y=axis:0"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, StartsWith("warning: W702: "));
  EXPECT_THAT(run.err, Not(HasSubstr("error:")));
}

TEST(WeftRunTest, GuessesAboutDataAreSaid) {
  const std::string dir = "tests/data/survey/time_major/";
  EXPECT_THAT(Weft({"run", dir + "main.pb", "--startup", dir + "startup.pb", "--feeds",
                    dir + "feeds.npz", "--ranks", "2", "--allow_unsynchronized"})
                  .err,
              StartsWith("note: every rank gets a part of steps along axis 1; --feed_layout says "
                         "otherwise\n"));
}

}  // namespace
}  // namespace weft::testing
