// weft run, stopped and resumed as users do.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_matchers.h"
#include "executor/files/checkpoint.h"
#include "executor/files/npz.h"
#include "executor/files/params_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kMain[] = "tests/data/fit_a_line/main.pb";
constexpr char kStartup[] = "tests/data/fit_a_line/startup.pb";
constexpr char kFeeds[] = "tests/data/fit_a_line/feeds.npz";

std::string TestPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::string Contents(const std::string& path) {
  const absl::StatusOr<FileBytes> file = ReadFile(path);
  return file.ok() ? std::string(file->bytes) : file.status().ToString();
}

std::string MakeFile(const std::string& name, const std::string& bytes) {
  std::ofstream(TestPath(name), std::ios::binary) << bytes;
  return TestPath(name);
}

using Args = std::vector<std::string>;

Args operator+(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

Args OneRank() { return {"tools/weft", "run", kMain, "--startup", kStartup, "--feeds", kFeeds}; }

// Two ranks, which average every third step.
Args TwoRanks() {
  const std::string main = TestPath("local_main.pb"), startup = TestPath("local_startup.pb");
  EXPECT_EQ(RunProcess({"tools/transpile", "--mode", "local_sgd", "--k_steps", "3", "--startup_in",
                        kStartup, "--startup_out", startup, kMain, main})
                .status,
            0);
  return {"tools/weft", "run", main, "--startup", startup, "--feeds", kFeeds, "--ranks", "2"};
}

void Finish(const Args& args) {
  const ProcessResult result = RunProcess(args);
  EXPECT_EQ(result.status, 0) << result.err;
}

std::string ErrorOf(const Args& args, int status) {
  const ProcessResult result = RunProcess(args);
  EXPECT_EQ(result.status, status) << result.err;
  return result.err;
}

std::vector<int64_t> StepsOf(const std::string& metrics) {
  std::vector<int64_t> steps;
  for (absl::string_view line : absl::StrSplit(Contents(metrics), '\n', absl::SkipEmpty())) {
    const auto json = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
    steps.push_back(json.is_object() ? json["step"].get<int64_t>() : -1);
  }
  return steps;
}

// Waits until the run has done that many steps.
void WaitForSteps(Process* process, const std::string& metrics, size_t lines) {
  while (process->IsRunning()) {
    const std::string text = Contents(metrics);
    if (static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) >= lines) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  FAIL() << process->Wait().err;
}

// Averages gradients: all ranks have the same values.
Args Replicated(int ranks) {
  const std::string main = TestPath("mean_main.pb"), startup = TestPath("mean_startup.pb");
  EXPECT_EQ(RunProcess({"tools/transpile", "--mode", "grad_allreduce", "--startup_in", kStartup,
                        "--startup_out", startup, kMain, main})
                .status,
            0);
  return {"tools/weft", "run",  main,      "--startup",        startup,
          "--feeds",    kFeeds, "--ranks", absl::StrCat(ranks)};
}

// Each rank has a part of the parameters.
Args Sharded(int ranks) {
  const std::string main = TestPath("shard_main.pb"), startup = TestPath("shard_startup.pb"),
                    nranks = absl::StrCat(ranks);
  EXPECT_EQ(RunProcess({"tools/transpile", "--mode", "zero", "--nranks", nranks, "--startup_in",
                        kStartup, "--startup_out", startup, kMain, main})
                .status,
            0);
  return {"tools/weft", "run", main, "--startup", startup, "--feeds", kFeeds, "--ranks", nranks};
}

class WeftCheckpointTest : public ::testing::Test {
 protected:
  // A signal stops the run; it goes on, and ends as one that went through.
  void StopAndResume(const Args& command, int signal, int exit_status, const std::string& name) {
    std::remove(metrics_.c_str());
    Process process(command + Args{"--steps", "100000000", "--checkpoint", checkpoint_, "--metrics",
                                   metrics_, "--save", never_});
    WaitForSteps(&process, metrics_, 3);
    process.Signal(signal);
    const ProcessResult stopped = process.Wait();
    EXPECT_EQ(stopped.status, exit_status) << stopped.err;
    WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, ReadCheckpoint(checkpoint_));
    EXPECT_THAT(stopped.err,
                HasSubstr(absl::StrCat("note: stopped by ", name, " before step ", checkpoint.step,
                                       " of 100000000; --resume ", checkpoint_, " goes on\n")));
    EXPECT_EQ(StepsOf(metrics_).back(), checkpoint.step - 1);
    EXPECT_THAT(Contents(never_), StartsWith("NOT_FOUND"));

    const std::string through = TestPath("through.ckpt"),
                      through_metrics = TestPath("through.jsonl");
    Finish(command + Args{"--resume", checkpoint_, "--steps", "4", "--checkpoint", checkpoint_,
                          "--metrics", metrics_});
    Finish(command + Args{"--steps", absl::StrCat(checkpoint.step + 4), "--checkpoint", through,
                          "--metrics", through_metrics});
    EXPECT_EQ(Contents(checkpoint_), Contents(through));
    EXPECT_EQ(StepsOf(metrics_), StepsOf(through_metrics));
  }

  const std::string checkpoint_ = TestPath("run.ckpt");
  const std::string metrics_ = TestPath("metrics.jsonl");
  const std::string never_ = TestPath("never.npz");
};

TEST_F(WeftCheckpointTest, SigintStopsAndTheRunGoesOn) {
  StopAndResume(OneRank(), SIGINT, 130, "SIGINT");
}

// As where weft launch is killed, whose SIGTERM comes later.
TEST_F(WeftCheckpointTest, OutputThatNobodyReadsStopsTheRun) {
  std::remove(checkpoint_.c_str());
  const ProcessResult result =
      RunProcess({"/bin/sh", "-c",
                  absl::StrCat(absl::StrJoin(OneRank(), " "), " --steps 100000000 --checkpoint ",
                               checkpoint_, " | head -n 3")});
  EXPECT_THAT(result.out, StartsWith("step 0: "));
  WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, ReadCheckpoint(checkpoint_));
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat("note: stopped by SIGPIPE before step ",
                                                 checkpoint.step, " of 100000000")));
}

TEST_F(WeftCheckpointTest, SigtermStopsRanksBetweenTwoAverages) {
  StopAndResume(TwoRanks(), SIGTERM, 143, "SIGTERM");
}

TEST_F(WeftCheckpointTest, KilledRunGoesOnFromItsLastCheckpoint) {
  std::remove(metrics_.c_str());
  std::remove(checkpoint_.c_str());
  Process process(TwoRanks() + Args{"--steps", "100000000", "--checkpoint", checkpoint_,
                                    "--save_every", "4", "--metrics", metrics_});
  WaitForSteps(&process, metrics_, 2 * 6);
  // It is written while steps go on.
  while (process.IsRunning() && !ReadCheckpoint(checkpoint_).ok()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  process.Signal(SIGKILL);
  EXPECT_EQ(process.Wait().status, 128 + SIGKILL);
  WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, ReadCheckpoint(checkpoint_));
  EXPECT_GE(checkpoint.step, 4);
  EXPECT_EQ(checkpoint.step % 4, 0);
  // The run had gone on, and died while it wrote.
  std::ofstream(metrics_, std::ios::app)
      << "{\"step\":" << checkpoint.step << ",\"rank\":0}\n{\"step\":12,\"ran";
  const std::string through = TestPath("through.ckpt"), through_metrics = TestPath("through.jsonl");
  Finish(TwoRanks() + Args{"--resume", checkpoint_, "--steps", "5", "--checkpoint", checkpoint_,
                           "--metrics", metrics_});
  Finish(TwoRanks() + Args{"--steps", absl::StrCat(checkpoint.step + 5), "--checkpoint", through,
                           "--metrics", through_metrics});
  EXPECT_EQ(Contents(checkpoint_), Contents(through));
  EXPECT_EQ(StepsOf(metrics_), StepsOf(through_metrics));
}

// In step 1, the loop never ends.
TEST_F(WeftCheckpointTest, SecondSignalEndsARunThatDoesNotReachTheEndOfAStep) {
  const std::string main = MakeFile("endless.prog", R"(program {
  block 0 parent=-1 {
    var x : fp32[1] need_check_feed stop_gradient
    var zero : fp32[1]
    var more : bool[1]
    var rounds : step_scopes
    var loss : fp32[1]
    Out=[zero] = fill_constant() {shape=longs[1], dtype=5, value=0.0}
    Out=[more] = greater_than(X=[x], Y=[zero])
    Out=[loss] = scale(X=[x]) role=loss {scale=1.0}
    Out=[loss], StepScopes=[rounds] = while(X=[x], Condition=[more]) {sub_block=block(1)}
  }
  block 1 parent=0 {
    Out=[loss] = scale(X=[x]) {scale=1.0}
  }
})");
  std::map<std::string, Tensor> feeds;
  for (int step : {0, 1}) {
    Tensor& x = feeds[absl::StrCat(step, "/x")];
    x.Resize(DType::kFloat32, {1});
    *x.data<float>() = static_cast<float>(step);
  }
  const std::string feeds_path = TestPath("endless.npz");
  WEFT_ASSERT_OK(WriteNpz(feeds_path, feeds));
  std::remove(metrics_.c_str());
  std::remove(checkpoint_.c_str());
  Process process({"tools/weft", "run", main, "--feeds", feeds_path, "--checkpoint", checkpoint_,
                   "--metrics", metrics_});
  WaitForSteps(&process, metrics_, 1);
  process.Signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_TRUE(process.IsRunning());
  process.Signal(SIGINT);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.status, 128 + SIGINT);
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(Contents(checkpoint_), StartsWith("NOT_FOUND"));
}

// Without a checkpoint to write, signals are as they were.
TEST_F(WeftCheckpointTest, FirstSignalEndsARunWithoutCheckpoint) {
  std::remove(metrics_.c_str());
  Process process(OneRank() + Args{"--steps", "100000000", "--metrics", metrics_});
  WaitForSteps(&process, metrics_, 1);
  process.Signal(SIGTERM);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.status, 128 + SIGTERM);
  EXPECT_THAT(result.err, Not(HasSubstr("stopped")));
}

TEST_F(WeftCheckpointTest, WhatTheCommandLineDoesNotSayComesFromTheCheckpoint) {
  const Args settings = {"--lr_schedule", "exponential{learning_rate=0.5,gamma=0.1}", "--seed",
                         "7"};
  const Args fetch = {"--fetch", "learning_rate_0"};
  Finish(TwoRanks() + settings + Args{"--steps", "3", "--checkpoint", checkpoint_});
  Args command = TwoRanks();
  command.resize(command.size() - 2);  // no --ranks
  // To the end of its run, which it has reached.
  const ProcessResult ended = RunProcess(command + fetch + Args{"--resume", checkpoint_});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, StartsWith("0 steps on 2 ranks"));

  const std::string next = TestPath("next.ckpt");
  const ProcessResult more = RunProcess(
      command + fetch + Args{"--resume", checkpoint_, "--steps", "1", "--checkpoint", next});
  EXPECT_THAT(more.out, StartsWith("step 3: learning_rate_0 0.0005 (ranks: 0.0005 0.0005)\n"));
  EXPECT_THAT(more.err, Not(HasSubstr("checkpoint")));
  WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, ReadCheckpoint(next));
  EXPECT_EQ(checkpoint.seed, 7u);
  EXPECT_EQ(checkpoint.settings.at("lr_schedule"), settings[1]);

  const ProcessResult other =
      RunProcess(command + fetch +
                 Args{"--resume", checkpoint_, "--steps", "1", "--seed", "8", "--lr_schedule",
                      "exponential{learning_rate=0.5,gamma=0.5}"});
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_THAT(other.out, StartsWith("step 3: learning_rate_0 0.0625 "));
  EXPECT_THAT(other.err, HasSubstr("note: --seed 8: the checkpoint has 7\n"));
  EXPECT_THAT(other.err,
              HasSubstr("note: --lr_schedule exponential{learning_rate=0.5,gamma=0.5}: the "
                        "checkpoint has exponential{learning_rate=0.5,gamma=0.1}\n"));
}

// No loss is below 0, so that each period of two steps after the first is a bad one; the rate
// halves after two of them, in steps 6 and 10.
TEST_F(WeftCheckpointTest, RateThatFollowsAMetricGoesOnWithinAPeriod) {
  const std::string schedule =
      "reduce_on_plateau{learning_rate=0.01,every=2,patience=1,factor=0.5,threshold=1,metric=";
  const Args fetch = {"--fetch", "learning_rate_0"};
  const auto rates_of = [&](const Args& args) {
    const ProcessResult result = RunProcess(args);
    EXPECT_EQ(result.status, 0) << result.err;
    std::vector<std::string> rates;
    for (absl::string_view line : absl::StrSplit(result.out, '\n')) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      if (words.size() > 3 && words[2] == "learning_rate_0") rates.push_back(words[3]);
    }
    return rates;
  };
  const Args rate = {"--lr_schedule", schedule + "mean_0.tmp_0}"};
  const auto whole = rates_of(TwoRanks() + rate + fetch + Args{"--steps", "11"});
  ASSERT_EQ(whole.size(), 11u);
  EXPECT_EQ(whole[5], "0.01");
  EXPECT_EQ(whole[6], "0.005");
  EXPECT_EQ(whole[9], "0.005");
  EXPECT_EQ(whole[10], "0.0025");
  for (const Args& again : {Args{}, rate}) {  // the same schedule, said or not
    auto parts =
        rates_of(TwoRanks() + rate + fetch + Args{"--steps", "5", "--checkpoint", checkpoint_});
    const auto rest =
        rates_of(TwoRanks() + again + fetch + Args{"--resume", checkpoint_, "--steps", "6"});
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, whole);
  }
  // The metric is fetched beside what is fetched anyway.
  const ProcessResult metric =
      RunProcess(TwoRanks() + Args{"--lr_schedule", schedule + "fc_0.tmp_1}", "--steps", "1"});
  EXPECT_EQ(metric.status, 0) << metric.err;
  EXPECT_THAT(metric.out, AllOf(HasSubstr("mean_0.tmp_0 "), HasSubstr("fc_0.tmp_1 ")));
  // Another schedule begins anew.
  const Args other = {"--lr_schedule", "reduce_on_plateau{learning_rate=0.02,every=5}"};
  EXPECT_EQ(rates_of(TwoRanks() + other + fetch + Args{"--resume", checkpoint_, "--steps", "1"}),
            std::vector<std::string>{"0.02"});
  const ProcessResult unknown =
      RunProcess(TwoRanks() + Args{"--lr_schedule", schedule + "perplexity}", "--steps", "1"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.err, HasSubstr("perplexity"));
}

TEST_F(WeftCheckpointTest, NoteSaysThatAnotherProgramWroteTheCheckpoint) {
  Finish(OneRank() + Args{"--steps", "1", "--checkpoint", checkpoint_});
  const Args resume = OneRank() + Args{"--resume", checkpoint_, "--steps", "1"};
  EXPECT_THAT(RunProcess(resume).err, Not(HasSubstr("another program")));

  WEFT_ASSERT_OK_AND_ASSIGN(Checkpoint checkpoint, ReadCheckpoint(checkpoint_));
  checkpoint.settings.at("program") = "0123456789abcdef";
  WEFT_ASSERT_OK(WriteCheckpoint(checkpoint_, checkpoint));
  const ProcessResult other = RunProcess(resume);
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_THAT(other.err,
              HasSubstr(absl::StrCat("note: --resume ", checkpoint_, ": another program than ")));
}

TEST_F(WeftCheckpointTest, RunGoesOnToTheEndOfTheRunThatWasStopped) {
  Finish(OneRank() +
         Args{"--steps", "25", "--set", "learning_rate_0=0.5", "--checkpoint", checkpoint_});
  WEFT_ASSERT_OK_AND_ASSIGN(Checkpoint checkpoint, ReadCheckpoint(checkpoint_));
  EXPECT_EQ(checkpoint.settings.at("set"), "learning_rate_0=0.5");
  checkpoint.step = 12;
  WEFT_ASSERT_OK(WriteCheckpoint(checkpoint_, checkpoint));
  const ProcessResult rest =
      RunProcess(OneRank() + Args{"--resume", checkpoint_, "--fetch", "learning_rate_0"});
  EXPECT_THAT(rest.out, StartsWith("step 12: learning_rate_0 0.5\n"));
  EXPECT_THAT(rest.out, HasSubstr("\n13 steps on 1 rank in "));
}

TEST_F(WeftCheckpointTest, WhatCannotGoOnIsRefused) {
  Finish(TwoRanks() + Args{"--steps", "2", "--checkpoint", checkpoint_});
  const Args resume = {"--resume", checkpoint_, "--steps", "1"};
  Args command = TwoRanks();
  command.back() = "4";
  EXPECT_THAT(
      ErrorOf(command + resume, 1),
      HasSubstr(absl::StrCat("weft run: error: ", checkpoint_,
                             ": checkpoint: expected 2 ranks, as when it was written, found "
                             "4: variable fc_0.b_0 differs between the ranks; to go on with the "
                             "values of rank 0, resume with 2 ranks, --steps 0 and --save, and "
                             "start from what that writes (--params, --resume_step)\n")));
  EXPECT_THAT(ErrorOf(OneRank() + resume + Args{"--allow_unsynchronized"}, 1),
              HasSubstr(": checkpoint: variable "));
  EXPECT_THAT(ErrorOf(TwoRanks() + resume + Args{"--resume_step", "2"}, 2),
              HasSubstr("--resume_step"));
  EXPECT_THAT(ErrorOf(OneRank() + Args{"--save_every", "2"}, 2), HasSubstr("--checkpoint"));
  EXPECT_THAT(ErrorOf(OneRank() + Args{"--save_every", "0", "--checkpoint", "x"}, 2),
              HasSubstr("--save_every"));
  EXPECT_THAT(ErrorOf(OneRank() + Args{"--checkpoint", "-"}, 1), HasSubstr("not a regular file"));
  EXPECT_THAT(ErrorOf(OneRank() + Args{"--checkpoint", kFeeds}, 1),
              HasSubstr("refusing to overwrite"));
  EXPECT_THAT(ErrorOf(OneRank() + Args{"--resume", kFeeds}, 1),
              AllOf(StartsWith(absl::StrCat("weft run: error: ", kFeeds, ": ")),
                    HasSubstr("expected a checkpoint of weft run (parameters go to --params)")));
  const std::string whole = Contents(checkpoint_);
  const std::string damaged = MakeFile("damaged.ckpt", whole.substr(0, whole.size() - 1));
  EXPECT_THAT(ErrorOf(TwoRanks() + Args{"--resume", damaged}, 1), HasSubstr("damaged.ckpt: "));
  const std::string params = MakeFile("run.safetensors", whole);
  EXPECT_THAT(ErrorOf(TwoRanks() + Args{"--params", params}, 1), HasSubstr("--resume reads"));
  const std::string old_metrics = MakeFile("text.jsonl", "a text\n");
  EXPECT_THAT(ErrorOf(TwoRanks() + resume + Args{"--metrics", old_metrics}, 1),
              HasSubstr("text.jsonl: line 1: expected a JSON object with a step"));
  EXPECT_EQ(Contents(old_metrics), "a text\n");
}

TEST_F(WeftCheckpointTest, ParametersAreSavedAndReadAsSafetensors) {
  const std::string saved = TestPath("saved.safetensors"), npz = TestPath("saved.npz");
  Finish(OneRank() + Args{"--steps", "2", "--save", saved});
  Finish(OneRank() + Args{"--steps", "2", "--save", npz});
  const Args rest = {"--begin_step", "2", "--steps", "2", "--save"};
  const std::string from_saved = TestPath("from_saved.npz"), from_npz = TestPath("from_npz.npz");
  Finish(OneRank() + Args{"--params", saved} + rest + Args{from_saved});
  Finish(OneRank() + Args{"--params", npz} + rest + Args{from_npz});
  EXPECT_EQ(Contents(from_saved), Contents(from_npz));
  EXPECT_THAT(ErrorOf(OneRank() + Args{"--params", saved, "--params_names", npz}, 2),
              HasSubstr("--params_names"));
}

TEST_F(WeftCheckpointTest, PartsOfParametersAreSavedAndReadAsAWhole) {
  for (const char* type : {".npz", ".pdparams", ".safetensors"}) {
    SCOPED_TRACE(type);
    const std::string half = TestPath(absl::StrCat("whole", type)),
                      parts = TestPath(absl::StrCat("of_parts", type)),
                      whole = TestPath(absl::StrCat("of_whole", type));
    Finish(Sharded(2) + Args{"--steps", "2", "--save", parts});
    Finish(Replicated(2) + Args{"--steps", "2", "--save", half});
    EXPECT_EQ(Contents(parts), Contents(half));
    const Args rest = {"--params", half, "--resume_step", "2", "--steps", "2", "--save"};
    const ProcessResult result = RunProcess(Sharded(2) + rest + Args{parts});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("no persistable variables")));
    Finish(Replicated(2) + rest + Args{whole});
    EXPECT_EQ(Contents(parts), Contents(whole));
  }
}

// A run with another number of ranks is one that begins with the values of the checkpoint.
TEST_F(WeftCheckpointTest, AnotherNumberOfRanksGoesOnFromEqualValues) {
  const std::string half = TestPath("half.npz"), fresh = TestPath("fresh.npz"),
                    resumed = TestPath("resumed.npz");
  Finish(Replicated(4) + Args{"--steps", "3", "--checkpoint", checkpoint_, "--save", half});
  for (const int ranks : {1, 2, 5}) {
    Finish(Replicated(ranks) +
           Args{"--params", half, "--resume_step", "3", "--steps", "3", "--save", fresh});
    const ProcessResult result = RunProcess(
        Replicated(ranks) + Args{"--resume", checkpoint_, "--steps", "3", "--save", resumed});
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.err,
                HasSubstr(absl::StrCat("note: --ranks ", ranks, ": the checkpoint has 4, whose ",
                                       "values are equal: the run goes on as one that begins")));
    EXPECT_EQ(Contents(resumed), Contents(fresh)) << ranks;
  }
}

// The next step of the error goes on from the values of rank 0.
TEST_F(WeftCheckpointTest, ValuesOfRank0GoOnWithAnotherNumberOfRanks) {
  const std::string half = TestPath("half.npz"), values = TestPath("values.npz");
  Finish(TwoRanks() + Args{"--steps", "2", "--checkpoint", checkpoint_, "--save", half});
  Args command = TwoRanks();
  command.back() = "1";
  EXPECT_THAT(ErrorOf(command + Args{"--resume", checkpoint_}, 1),
              AllOf(HasSubstr("differs between the ranks"), HasSubstr("--steps 0 and --save")));
  Finish(TwoRanks() + Args{"--resume", checkpoint_, "--steps", "0", "--save", values});
  EXPECT_EQ(Contents(values), Contents(half));
  Finish(command + Args{"--params", values, "--resume_step", "2", "--steps", "1"});
}

}  // namespace
}  // namespace weft::testing
