// weft run over several processes, as users start them.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status_matchers.h"
#include "base/testing/archive.h"
#include "executor/files/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/job/process.h"
#include "tools/job/run_outputs_testing.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Clock = std::chrono::steady_clock;

// The bytes of a checkpoint without the job that may go on from it.
std::string WithoutJob(const std::string& path) {
  absl::StatusOr<Checkpoint> checkpoint = ReadCheckpoint(path);
  if (!checkpoint.ok()) return checkpoint.status().ToString();
  EXPECT_EQ(checkpoint->settings.erase("job"), 1U);
  EXPECT_TRUE(WriteCheckpoint(path, *checkpoint).ok());
  return Contents(path);
}

class WeftProcessesTest : public ::testing::Test {
 protected:
  void SetUp() override { Transpile({"--mode", "grad_allreduce"}); }

  void Transpile(const Args& flags, const std::string& main = "tests/data/fit_a_line/main.pb",
                 const std::string& startup = "tests/data/fit_a_line/startup.pb") {
    const ProcessResult result =
        RunProcess(Args{"tools/transpile"} + flags +
                   Args{"--startup_in", startup, "--startup_out", startup_, main, main_});
    ASSERT_EQ(result.status, 0) << result.err;
  }

  // Two processes, and as many ranks of one.
  void ExpectSameStates(int ranks_of_each = 1) const {
    const std::string of_processes = TestPath("processes.ckpt"),
                      of_threads = TestPath("threads.ckpt");
    const ProcessResult processes =
        RunProcess(Launch(2, Run({"--ranks", absl::StrCat(ranks_of_each), "--steps", "7",
                                  "--checkpoint", of_processes})));
    ASSERT_EQ(processes.status, 0) << processes.err;
    const ProcessResult threads = RunProcess(Run(
        {"--ranks", absl::StrCat(2 * ranks_of_each), "--steps", "7", "--checkpoint", of_threads}));
    ASSERT_EQ(threads.status, 0) << threads.err;
    EXPECT_EQ(Contents(of_processes), Contents(of_threads));
  }

  Args Run(const Args& flags) const {
    return Args{"tools/weft", "run", main_, "--startup", startup_, "--feeds", feeds_} + flags;
  }

  static Args Launch(int n, const Args& command) {
    return Args{"tools/weft", "launch", "-n", absl::StrCat(n), "--grace_s", "5", "--"} + command;
  }

  // A run that does not end by itself, of which every process leaves its number.
  Args EndlessRun(const Args& flags) const {
    const Args run = Run(flags + Args{"--steps", "100000000", "--metrics", metrics_});
    return {
        "/bin/sh", "-c",
        absl::StrCat("echo $$ > ", PidFile("$WEFT_JOB_RANK"), "; exec ", absl::StrJoin(run, " "))};
  }

  static std::string PidFile(const std::string& rank) { return TestPath("pid" + rank); }

  static pid_t PidOf(int rank) {
    pid_t pid = 0;
    EXPECT_TRUE(absl::SimpleAtoi(
        absl::StripTrailingAsciiWhitespace(Contents(PidFile(absl::StrCat(rank)))), &pid));
    return pid;
  }

  void WaitForLines(Process* process, size_t lines) const {
    while (process->IsRunning()) {
      const std::string text = Contents(metrics_);
      if (static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) >= lines) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    FAIL() << process->Wait().err;
  }

  std::string main_ = TestPath("main.pb"), startup_ = TestPath("startup.pb");
  std::string feeds_ = "tests/data/fit_a_line/feeds.npz";
  const std::string metrics_ = TestPath("metrics.jsonl");
};

TEST_F(WeftProcessesTest, ProcessesTrainAsThreadsDo) {
  const std::string expected = TestPath("threads.npz"), found = TestPath("processes.npz");
  const std::string expected_metrics = TestPath("threads.jsonl");
  for (const Args& flags : {Args{"--ranks", "1"}, Args{"--ranks", "2"}}) {
    const int ranks = flags[1] == "1" ? 2 : 4;
    const ProcessResult threads = RunProcess(
        Run({"--ranks", absl::StrCat(ranks), "--save", expected, "--metrics", expected_metrics}));
    ASSERT_EQ(threads.status, 0) << threads.err;
    const ProcessResult processes =
        RunProcess(Launch(2, Run(flags + Args{"--save", found, "--metrics", metrics_})));
    ASSERT_EQ(processes.status, 0) << processes.err;
    EXPECT_EQ(Contents(found), Contents(expected));
    EXPECT_EQ(MetricsWithoutTimes(metrics_), MetricsWithoutTimes(expected_metrics));
    EXPECT_THAT(processes.out, HasSubstr("[0] step 0: mean_0.tmp_0 "));
    EXPECT_THAT(processes.out, HasSubstr(absl::StrCat(" on ", ranks, " ranks in ")));
    EXPECT_THAT(processes.out, Not(HasSubstr("[1]")));  // the first process reports
    EXPECT_EQ(processes.err, "");
  }
}

TEST_F(WeftProcessesTest, ProcessesMeetByTheVariablesOfTorchrun) {
  const std::string expected = TestPath("threads.npz"), found = TestPath("processes.npz");
  ASSERT_EQ(RunProcess(Run({"--ranks", "2", "--save", expected})).status, 0);
  const auto env = [](int rank) {
    return Args{"/usr/bin/env", absl::StrCat("RANK=", rank), "WORLD_SIZE=2",
                absl::StrCat("LOCAL_RANK=", rank), "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                // Of this process: no other test has it.
                absl::StrCat("MASTER_PORT=", 20000 + getpid() % 10000)};
  };
  Process second(env(1) + Run({"--save", found}));
  Process first(env(0) + Run({"--save", found}));
  const ProcessResult results[] = {first.Wait(), second.Wait()};
  for (const ProcessResult& result : results) EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Contents(found), Contents(expected));
}

// A process that knows the address and the text of a job, but not its token, is not let in; the run
// goes on.
TEST_F(WeftProcessesTest, StrangersAreDropped) {
  const auto env = [](int rank, const std::string& token) {
    return Args{"/usr/bin/env",     absl::StrCat("WEFT_JOB_RANK=", rank),
                "WEFT_JOB_SIZE=2",  absl::StrCat("WEFT_JOB_ADDRESS=unix:weft-strangers-", getpid()),
                "WEFT_JOB_ID=same", "WEFT_JOB_TOKEN=" + token};
  };
  const std::string token(32, '1');
  Process first(env(0, token) + Run({}));
  const ProcessResult stranger =
      RunProcess(env(1, std::string(32, '2')) + Run({"--timeout_s", "2"}));
  EXPECT_EQ(stranger.status, 1);
  EXPECT_THAT(stranger.err, HasSubstr("does not know the token of this job"));
  EXPECT_THAT(stranger.err, Not(HasSubstr(token)));
  const ProcessResult second = RunProcess(env(1, token) + Run({}));
  EXPECT_EQ(second.status, 0) << second.err;
  const ProcessResult result = first.Wait();
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("note: "), HasSubstr("did not prove to know the token")));
}

TEST_F(WeftProcessesTest, ATokenMayBeInAFile) {
  const std::string file = TestPath("token");
  ASSERT_TRUE(WriteFile(file, std::string(32, '3') + "\n").ok());
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  const Args run = Run({"--job_token_file", file});
  const ProcessResult result = RunProcess(Launch(2, run));
  EXPECT_EQ(result.status, 0) << result.err;
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  const ProcessResult refused = RunProcess(Launch(2, run));
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("(chmod 600), found mode 644"));
}

TEST_F(WeftProcessesTest, AnotherVersionOfGlooIsRefused) {
  const Args run = Run({"--backend", "gloo", "--steps", "1"});
  if (RunProcess(Launch(2, run)).status != 0) GTEST_SKIP() << "Gloo is missing";
  const ProcessResult result = RunProcess(
      Args{"/usr/bin/env", "LD_LIBRARY_PATH=executor/communicators/other_gloo"} + Launch(2, run));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err,
              HasSubstr("libgloo.so.0: expected the version of Gloo with which Weft was "
                        "built, found one without _ZN4gloo9transport3tcp6Device13"));
}

// The processes that a process has started.
std::vector<pid_t> ChildrenOf(pid_t parent) {
  const ProcessResult result =
      RunProcess({"/bin/sh", "-c",
                  "cat /proc/[0-9]*/stat 2>/dev/null | sed 's/(.*)//' | awk '{print $1, $3}'"});
  std::vector<pid_t> children;
  for (absl::string_view line : absl::StrSplit(result.out, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> numbers = absl::StrSplit(line, ' ');
    pid_t pid = 0, parent_of = 0;
    if (absl::SimpleAtoi(numbers.first, &pid) && absl::SimpleAtoi(numbers.second, &parent_of) &&
        parent_of == parent) {
      children.push_back(pid);
    }
  }
  return children;
}

// What runs a command where it does not see the processes of others, as on another host.
Args OtherHost() { return {"/usr/bin/unshare", "--pid", "--fork", "--kill-child"}; }
// The processor of one has less than those of the others.
TEST_F(WeftProcessesTest, ProcessesKeepToTheVectorUnitsThatAllHave) {
  const std::string wide = TestPath("wide.npz"), expected = TestPath("narrow.npz"),
                    found = TestPath("processes.npz");
  const std::string narrow = "ONEDNN_MAX_CPU_ISA=SSE41";
  ASSERT_EQ(RunProcess(Run({"--ranks", "2", "--save", wide})).status, 0);
  ASSERT_EQ(
      RunProcess(Args{"/usr/bin/env", narrow} + Run({"--ranks", "2", "--save", expected})).status,
      0);
  if (Contents(wide) == Contents(expected)) GTEST_SKIP() << "this processor has SSE4.1 alone";
  for (const char* rank : {"0", "1"}) {
    const std::string limit = absl::StrCat("if [ $WEFT_JOB_RANK = ", rank, " ]; then export ",
                                           narrow, "; fi; exec \"$@\"");
    const ProcessResult result =
        RunProcess(Launch(2, Args{"/bin/sh", "-c", limit, "sh"} + Run({"--save", found})));
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(Contents(found), Contents(expected)) << rank;
    EXPECT_THAT(result.err, AllOf(HasSubstr("note: vector units of processes: "),
                                  HasSubstr(", oneDNN SSE41\n")));
  }
}

bool CanSimulateHosts() {
  return access("/usr/bin/unshare", X_OK) == 0 &&
         RunProcess(OtherHost() + Args{"/bin/true"}).status == 0;
}

TEST_F(WeftProcessesTest, ProcessesOfSeveralHostsTrainAsThreadsDo) {
  if (!CanSimulateHosts()) GTEST_SKIP() << "unshare --pid is not allowed here";
  const std::string expected = TestPath("threads.npz"), found = TestPath("processes.npz");
  ASSERT_EQ(RunProcess(Run({"--ranks", "4", "--save", expected})).status, 0);
  const ProcessResult result =
      RunProcess(Launch(2, OtherHost() + Run({"--ranks", "2", "--save", found})));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Contents(found), Contents(expected));
  const ProcessResult shm =
      RunProcess(Launch(2, OtherHost() + Run({"--backend", "shm", "--steps", "1"})));
  EXPECT_EQ(shm.status, 1);
  EXPECT_THAT(shm.err, HasSubstr("several hosts"));
}

TEST_F(WeftProcessesTest, KillOnAnotherHostEndsAll) {
  if (!CanSimulateHosts()) GTEST_SKIP() << "unshare --pid is not allowed here";
  Process launcher(Launch(2, OtherHost() + EndlessRun({})));
  WaitForLines(&launcher, 2 * 3);
  const std::vector<pid_t> ranks = ChildrenOf(launcher.pid());
  ASSERT_EQ(ranks.size(), 2U);
  const Clock::time_point begin = Clock::now();
  kill(ranks[1], SIGKILL);  // and what it runs
  const ProcessResult result = launcher.Wait();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("[0] weft run: error: "));
}

// mpirun, which uses nothing but the loopback.
Args MpiRun(const Args& flags, const Args& command) {
  return Args{"/usr/bin/env",
              "OMPI_ALLOW_RUN_AS_ROOT=1",
              "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
              "mpirun",
              "--oversubscribe",
              "--mca",
              "oob_tcp_if_include",
              "lo",
              "--mca",
              "btl",
              "self,tcp",
              "--mca",
              "btl_tcp_if_include",
              "lo"} +
         flags + command;
}
bool HasMpiRun() { return RunProcess(MpiRun({"-n", "1"}, {"/bin/true"})).status == 0; }

TEST_F(WeftProcessesTest, ProcessesOfMpirunTrainAsThreadsDo) {
  if (!HasMpiRun()) GTEST_SKIP() << "mpirun does not run here";
  const std::string expected = TestPath("threads.npz"), found = TestPath("processes.npz");
  ASSERT_EQ(RunProcess(Run({"--ranks", "2", "--save", expected})).status, 0);
  for (const Args& backend : {Args{}, Args{"--backend", "mpi"}, Args{"--backend", "gloo"}}) {
    const ProcessResult result =
        RunProcess(MpiRun({"-n", "2"}, Run(backend + Args{"--save", found})));
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(Contents(found), Contents(expected));
  }
}

// mpirun starts its daemons as if through ssh, each with process numbers and a host name of its
// own.
TEST_F(WeftProcessesTest, MpirunOnSeveralHostsTrainsAsThreadsDo) {
  if (!HasMpiRun()) GTEST_SKIP() << "mpirun does not run here";
  if (!CanSimulateHosts()) GTEST_SKIP() << "unshare --pid is not allowed here";
  const std::string agent = TestPath("agent.sh");
  std::ofstream(agent)
      << "#!/bin/sh\nhost=$1; shift\n"
         "exec unshare --uts --pid --fork --kill-child sh -c \"hostname $host; $*\"\n";
  ASSERT_EQ(chmod(agent.c_str(), 0755), 0);
  const Args hosts = {"--mca",  "plm_rsh_agent", agent,
                      "--host", "one:1,two:1",   "-n",
                      "2",      "--wdir",        std::filesystem::current_path().string()};
  const std::string expected = TestPath("threads.npz"), found = TestPath("processes.npz");
  ASSERT_EQ(RunProcess(Run({"--ranks", "4", "--save", expected})).status, 0);
  const ProcessResult result = RunProcess(MpiRun(hosts, Run({"--ranks", "2", "--save", found})));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Contents(found), Contents(expected));
  // One that cannot go on ends the other, and says why before MPI ends it.
  const ProcessResult failed = RunProcess(MpiRun(hosts, Run({"--fetch", "nothing"})));
  EXPECT_NE(failed.status, 0);
  EXPECT_THAT(failed.err, HasSubstr("weft run: error: "));
}

// A ring of three ranks: each hands its number to the next one.
TEST_F(WeftProcessesTest, RanksWithProgramsOfTheirOwnSendAndReceive) {
  for (int rank = 0; rank < 3; ++rank) {
    const std::string send = absl::StrCat("    send_v2(X=[x]) {peer=", (rank + 1) % 3,
                                          ", ring_id=0, use_calc_stream=true}\n");
    const std::string receive =
        absl::StrCat("    Out=[got] = recv_v2() {out_shape=ints[1], peer=", (rank + 2) % 3,
                     ", ring_id=0, use_calc_stream=true}\n");
    std::ofstream(TestPath(absl::StrCat("rank", rank, ".prog")))
        << "program {\n  block 0 parent=-1 {\n    var x : fp32[1]\n    var got : fp32[1]\n"
        << "    Out=[x] = fill_constant() {dtype=5, shape=longs[1], value=" << rank << ".0}\n"
        << (rank == 0 ? send + receive : receive + send) << "  }\n}\n";
  }
  const std::string mains = TestPath("rank");
  const ProcessResult verified =
      RunProcess({"tools/weft", "verify", mains + "0.prog", mains + "1.prog", mains + "2.prog"});
  EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
  for (const std::string backend : {"shm", "gloo"}) {
    const ProcessResult result = RunProcess(
        Launch(3, {"/bin/sh", "-c",
                   absl::StrCat("exec tools/weft run ", mains,
                                "$WEFT_JOB_RANK.prog --fetch got --steps 1 --backend ", backend)}));
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("[0] step 0: got 1 (ranks: 2 0 1)"));
  }
}

TEST_F(WeftProcessesTest, TraceHasTheRanksOfAllProcesses) {
  const std::string trace = TestPath("trace.json");
  const ProcessResult result = RunProcess(Launch(2, Run({"--trace", trace})));
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = nlohmann::json::parse(Contents(trace), nullptr, false);
  ASSERT_TRUE(json.is_object());
  std::vector<int> events(2, 0);
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++events.at(event["pid"].get<int>());
    EXPECT_GE(event["ts"].get<double>(), 0);
  }
  EXPECT_GT(events[0], 0);
  EXPECT_EQ(events[0], events[1]);
  EXPECT_THAT(result.out, AllOf(HasSubstr("[0] trace of rank 0, means of "),
                                HasSubstr("[0] ring 0: "), HasSubstr(" GB/s\n")));
}

// Kills or stops a process of four at any moment: the others end, and nothing is half-written.
class WeftProcessesSignalTest : public WeftProcessesTest,
                                public ::testing::WithParamInterface<int> {};

TEST_P(WeftProcessesSignalTest, EndsAllInTime) {
  const int signal = GetParam();
  const std::string save = TestPath("never.npz");
  for (int victim = 0; victim < 4; ++victim) {
    std::remove(metrics_.c_str());
    Process launcher(Launch(4, EndlessRun({"--save", save})));
    WaitForLines(&launcher, 4 * (1 + 20 * victim));
    const pid_t pid = PidOf(victim);
    kill(pid, signal);
    const Clock::time_point begin = Clock::now();
    const ProcessResult result = launcher.Wait();
    // 2 s until the others know, the launcher's grace for one that is stopped, and slow machines.
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
    EXPECT_NE(result.status, 0);
    const std::string said =
        signal == SIGKILL ? "was killed by SIGKILL"
                          : absl::StrCat("process ", victim, " (rank ", victim, ", pid ", pid);
    EXPECT_THAT(result.err, HasSubstr(said));
    EXPECT_THAT(result.err, HasSubstr(signal == SIGSTOP ? "stopped" : "killed"));
    EXPECT_THAT(Contents(save), StartsWith("NOT_FOUND"));
    EXPECT_NE(kill(pid, 0), 0) << "process " << pid << " is left";
  }
}

INSTANTIATE_TEST_SUITE_P(Signals, WeftProcessesSignalTest, ::testing::Values(SIGKILL, SIGSTOP));

// Two workers, and a server of all parameters.
class WeftServersTest : public WeftProcessesTest {
 protected:
  void SetUp() override {
    const std::string attrs = TestPath("attrs.json");
    std::ofstream(attrs) << R"({"fc_0.w_0": {"parameter_server": true},)"
                         << R"( "fc_0.b_0": {"parameter_server": true}})";
    Transpile({"--mode", "parameter_server", "--param_attrs", attrs, "--server_out", server_});
  }
  Args Servers() const { return {"--server", server_, "--servers", "1"}; }

  // Word2vec with all parameters on servers, and rows prefetched, or not.
  Args TrainWords(bool prefetches, const std::string& save) const {
    const std::string model = "tests/data/word2vec_sparse_sgd/", attrs = TestPath("words.json");
    const std::string main = TestPath("words.pb"), startup = TestPath("words_startup.pb");
    const std::string server = TestPath("words_server.pb");
    std::ofstream(attrs) << R"({"shared_w": {"parameter_server": true}})";
    Args transpile = {"tools/transpile",
                      "--mode",
                      "parameter_server",
                      "--param_attrs",
                      attrs,
                      "--server_out",
                      server,
                      "--startup_in",
                      model + "startup.pb",
                      "--startup_out",
                      startup,
                      model + "main.pb",
                      main};
    if (prefetches) transpile.push_back("--prefetch_rows");
    const ProcessResult result = RunProcess(transpile);
    EXPECT_EQ(result.status, 0) << result.err;
    return {
        "tools/weft", "run",  main,        "--startup", startup,  "--feeds", model + "feeds.npz",
        "--server",   server, "--servers", "2",         "--save", save};
  }

  const std::string server_ = TestPath("server.pb");
};

TEST_F(WeftServersTest, WorkerOrServerThatIsKilledEndsTheJobAndIsNamed) {
  const std::string save = TestPath("never.npz");
  for (const int victim : {0, 1, 2}) {
    SCOPED_TRACE(victim);
    std::remove(metrics_.c_str());
    Process launcher(Launch(3, EndlessRun(Servers() + Args{"--save", save})));
    WaitForLines(&launcher, 20);
    const pid_t pid = PidOf(victim);
    kill(pid, SIGKILL);
    const Clock::time_point begin = Clock::now();
    const ProcessResult result = launcher.Wait();
    // 2 s until the others know, the launcher's grace, and slow machines.
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.err, AllOf(HasSubstr(absl::StrCat("process ", victim, " (")),
                                  HasSubstr(absl::StrCat("pid ", pid)), HasSubstr("killed")));
    EXPECT_THAT(Contents(save), StartsWith("NOT_FOUND"));
  }
}

TEST_F(WeftServersTest, SignalToAServerStopsAll) {
  const std::string checkpoint = TestPath("run.ckpt");
  Process launcher(Launch(3, EndlessRun(Servers() + Args{"--checkpoint", checkpoint})));
  WaitForLines(&launcher, 20);
  kill(PidOf(2), SIGTERM);
  const ProcessResult stopped = launcher.Wait();
  EXPECT_EQ(stopped.status, 128 + SIGTERM) << stopped.err;
  WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint state, ReadCheckpoint(checkpoint));
  EXPECT_THAT(stopped.err, HasSubstr(absl::StrCat("[0] note: stopped by SIGTERM before step ",
                                                  state.step, " of 100000000")));
}

TEST_F(WeftServersTest, ParametersOfServersAreSavedAsParameters) {
  const std::string save = TestPath("model.pdparams");
  const ProcessResult result =
      RunProcess(Run(Servers() + Args{"--ranks", "3", "--steps", "2", "--save", save}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(Contents(save), AllOf(HasSubstr("fc_0.w_0"), HasSubstr("fc_0.b_0")));
  EXPECT_THAT(Contents(TestPath("model.pdopt")), Not(HasSubstr("fc_0.w_0")));
}

TEST_F(WeftServersTest, ProgramOfAPartCanBeConverted) {
  for (const std::string& part : {main_, server_}) {
    const ProcessResult result =
        RunProcess({"tools/transpile", "--mode", "none", part, TestPath("converted.prog")});
    EXPECT_EQ(result.status, 0) << result.err;
  }
}

// Parameters of 13 and 1 elements, each with a learning rate.
TEST_F(WeftServersTest, StatsSayWhatARunReports) {
  const ProcessResult worker = RunProcess({"tools/weft", "stats", main_, "--servers", "2"});
  EXPECT_EQ(worker.status, 0) << worker.err;
  EXPECT_THAT(worker.out, AllOf(HasSubstr("what a worker exchanges with them in a step\n  key 0"),
                                HasSubstr("  all but tables: pulled 56 bytes in 2 messages, pushed "
                                          "64 bytes in 2 messages\n"),
                                HasSubstr("  server 1: pulled ")));
  const ProcessResult server = RunProcess({"tools/weft", "stats", server_});
  EXPECT_EQ(server.status, 0) << server.err;
  EXPECT_THAT(server.out, HasSubstr("server 0 of 1 keeps 56 bytes of parameters, 0 of optimizer "
                                    "state; the pushes of a worker take 64 bytes"));
  const ProcessResult run = RunProcess(
      Run(Servers() + Args{"--ranks", "3", "--steps", "4", "--trace", TestPath("trace.json")}));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("server 0: 56 bytes of parameters, 0 of optimizer state; "),
                    HasSubstr("\nservers: "),
                    HasSubstr("server 0: 2 pushes a step, 64 bytes; 2 requests, 0 bytes; 2 "
                              "answers, 56 bytes\n")));
  const ProcessResult other = RunProcess({"tools/weft", "stats", startup_, "--servers", "2"});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("--servers: expected a program that exchanges values"));
}

// "of rank 0: 900 prefetched, of which 60 changed; 100 pulled": rows.
struct Rows {
  int64_t prefetched = -1, pulled = -1;
};
Rows RowsIn(const std::string& out) {
  Rows rows;
  const size_t at = out.find("of rank 0: ");
  if (at != std::string::npos) {
    std::sscanf(out.c_str() + at, "of rank 0: %ld prefetched, of which %*d changed; %ld pulled",
                &rows.prefetched, &rows.pulled);
  }
  return rows;
}

// How many rows are prefetched depends on when batches are read: in each of many steps, a rank
// would have to be done with its messages to other processes before the next batch is read.
TEST_F(WeftServersTest, ProcessesPrefetchRowsToTheSameBits) {
  const std::string expected = TestPath("pulled.npz"), found = TestPath("fetched.npz");
  const std::string trace = TestPath("trace.json");
  const Args steps = {"--steps", "24"};
  const ProcessResult threads =
      RunProcess(TrainWords(/*prefetches=*/false, expected) + steps + Args{"--ranks", "4"});
  ASSERT_EQ(threads.status, 0) << threads.err;
  const Rows pulled = RowsIn(threads.out);
  EXPECT_EQ(pulled.prefetched, 0);
  EXPECT_GT(pulled.pulled, 0);
  const ProcessResult processes = RunProcess(
      Launch(4, TrainWords(/*prefetches=*/true, found) + steps + Args{"--trace", trace}));
  ASSERT_EQ(processes.status, 0) << processes.err;
  EXPECT_EQ(Contents(found), Contents(expected));
  const Rows rows = RowsIn(processes.out);
  EXPECT_GT(rows.prefetched, 0);
  EXPECT_EQ(rows.prefetched + rows.pulled, pulled.pulled);
  EXPECT_THAT(Contents(trace), HasSubstr("\"cat\":\"prefetch\""));
  // The memory of servers comes from their processes, the traffic is that of rank 0.
  for (const char* line :
       {"server 0: [1-9][0-9]* bytes of parameters", "server 1: [1-9][0-9]* bytes of parameters",
        "server 1: [0-9.]+ pushes a step, [1-9][0-9.]* bytes; "}) {
    EXPECT_THAT(processes.out, ::testing::ContainsRegex(line));
  }
}

// A checkpoint is whole, with the part of the server, whenever the server dies.
TEST_F(WeftServersTest, KilledServerStartsAgainFromTheLastCheckpoint) {
  const std::string checkpoint = TestPath("run.ckpt"), through = TestPath("through.ckpt");
  const std::string steps = "4000";
  Args launch = Launch(3, Run(Servers() + Args{"--steps", steps, "--checkpoint", checkpoint,
                                               "--save_every", "100"}));
  launch.insert(launch.begin() + 2, {"--max_restarts", "1"});
  Process launcher(launch);
  while (launcher.IsRunning() && !ReadCheckpoint(checkpoint).ok()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::vector<pid_t> ranks = ChildrenOf(launcher.pid());
  ASSERT_EQ(ranks.size(), 3U);
  kill(ranks[2], SIGKILL);
  const ProcessResult result = launcher.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr(absl::StrCat("(pid ", ranks[2], ") was killed by SIGKILL")),
                    HasSubstr("attempt 2 of 2, resuming from ")));
  const ProcessResult threads =
      RunProcess(Run(Servers() + Args{"--ranks", "3", "--steps", steps, "--checkpoint", through}));
  ASSERT_EQ(threads.status, 0) << threads.err;
  EXPECT_EQ(WithoutJob(checkpoint), Contents(through));
}

TEST_F(WeftProcessesTest, SignalStopsAllBeforeOneStepAndTheRunGoesOn) {
  Transpile({"--mode", "local_sgd", "--k_steps", "3"});
  const std::string checkpoint = TestPath("run.ckpt"), through = TestPath("through.ckpt");
  Process launcher(Launch(2, EndlessRun({"--checkpoint", checkpoint})));
  WaitForLines(&launcher, 2 * 4);
  launcher.Signal(SIGTERM);
  const ProcessResult stopped = launcher.Wait();
  EXPECT_EQ(stopped.status, 128 + SIGTERM) << stopped.err;
  WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint state, ReadCheckpoint(checkpoint));
  EXPECT_EQ(state.nranks, 2);
  EXPECT_THAT(stopped.err, HasSubstr(absl::StrCat("[0] note: stopped by SIGTERM before step ",
                                                  state.step, " of 100000000")));
  const ProcessResult resumed = RunProcess(
      Launch(2, Run({"--resume", checkpoint, "--steps", "4", "--checkpoint", checkpoint})));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  const ProcessResult threads = RunProcess(
      Run({"--ranks", "2", "--steps", absl::StrCat(state.step + 4), "--checkpoint", through}));
  ASSERT_EQ(threads.status, 0) << threads.err;
  EXPECT_EQ(Contents(checkpoint), Contents(through));
}

TEST_F(WeftProcessesTest, OuterOptimizersTrainToTheStatesOfThreads) {
  for (const Args& outer : {Args{"sgd{lr=0.5}"}, Args{"nesterov"}, Args{"slowmo"},
                            Args{"nesterov", "--delay", "2", "--mix", "0.25"},
                            Args{"sgd", "--delay", "1", "--comm_dtype", "bf16"}}) {
    SCOPED_TRACE(::testing::PrintToString(outer));
    Transpile(Args{"--mode", "local_sgd", "--k_steps", "3", "--outer"} + outer);
    ExpectSameStates();
  }
}

// Written by Paddle 2.6, by Paddle 3, and in PIR.
TEST_F(WeftProcessesTest, ProgramsOfAllFormatsTrainToTheStatesOfThreads) {
  for (const absl::string_view archive : {"programs", "paddle3_programs", "paddle3_pir"}) {
    const std::string ending = archive == "paddle3_pir" ? ".json" : ".pb";
    WEFT_ASSERT_OK_AND_ASSIGN(const auto files,
                              ReadTarXz(absl::StrCat("tests/data/", archive, ".tar.xz")));
    for (const std::string model : {"fit_a_line", "mlp_adam"}) {
      const std::string main = TestPath("one_device" + ending),
                        startup = TestPath("one_device_startup" + ending);
      WEFT_ASSERT_OK(WriteFile(main, files.at(absl::StrCat(model, "/main", ending))));
      WEFT_ASSERT_OK(WriteFile(startup, files.at(absl::StrCat(model, "/startup", ending))));
      feeds_ =
          absl::StrCat("tests/data/", archive == "programs" ? "" : "paddle3_", model, "/feeds.npz");
      const auto expect_same_states = [&](const Args& mode, int nranks) {
        SCOPED_TRACE(absl::StrCat(archive, " ", model, " ", absl::StrJoin(mode, " ")));
        main_ = TestPath("main" + ending);
        startup_ = TestPath("startup" + ending);
        Transpile(Args{"--nranks", absl::StrCat(nranks), "--mode"} + mode, main, startup);
        ExpectSameStates(nranks / 2);
      };
      const Args outer = {"local_sgd", "--k_steps", "4", "--outer"};
      for (const Args& mode :
           {Args{"zero", "--stage", "1"}, Args{"zero", "--stage", "2"},
            Args{"zero", "--stage", "3"}, outer + Args{"sgd"}, outer + Args{"nesterov"},
            outer + Args{"slowmo"},
            outer + Args{"nesterov", "--fragments", "2", "--delay", "1", "--mix", "0.5"},
            outer + Args{"nesterov", "--comm_dtype", "bf16"}, Args{"multi_thread"},
            Args{"singa_partial"}}) {
        expect_same_states(mode, 2);
      }
      if (model == "mlp_adam") {
        expect_same_states({"power_sgd", "--rank_approximation", "2", "--start_step", "3"}, 2);
      }
      const Args groups = {"local_sgd", "--group_size", "2", "--rounds", "3"};
      expect_same_states(groups, 4);
      expect_same_states(groups + Args{"--outer", "nesterov"}, 4);
    }
  }
}

TEST_F(WeftProcessesTest, SignalToOneProcessStopsAll) {
  const std::string checkpoint = TestPath("run.ckpt");
  Process launcher(Launch(4, EndlessRun({"--checkpoint", checkpoint})));
  WaitForLines(&launcher, 4 * 4);
  kill(PidOf(1), SIGTERM);
  const ProcessResult stopped = launcher.Wait();
  EXPECT_EQ(stopped.status, 128 + SIGTERM) << stopped.err;
  WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint state, ReadCheckpoint(checkpoint));
  EXPECT_THAT(stopped.err, HasSubstr(absl::StrCat("[0] note: stopped by SIGTERM before step ",
                                                  state.step, " of 100000000")));
}

TEST_F(WeftProcessesTest, KilledJobStartsAgainFromItsLastCheckpoint) {
  const std::string checkpoint = TestPath("run.ckpt"), through = TestPath("through.ckpt");
  const std::string steps = "20000";
  Args launch =
      Launch(2, Run({"--steps", steps, "--checkpoint", checkpoint, "--save_every", "500"}));
  launch.insert(launch.begin() + 2, {"--max_restarts", "1"});
  Process launcher(launch);
  while (launcher.IsRunning() && !ReadCheckpoint(checkpoint).ok()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::vector<pid_t> ranks = ChildrenOf(launcher.pid());
  ASSERT_EQ(ranks.size(), 2U);
  kill(ranks[1], SIGKILL);
  const ProcessResult result = launcher.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr(absl::StrCat("(pid ", ranks[1], ") was killed by SIGKILL")),
                    HasSubstr("attempt 2 of 2, resuming from ")));
  const ProcessResult threads =
      RunProcess(Run({"--ranks", "2", "--steps", steps, "--checkpoint", through}));
  ASSERT_EQ(threads.status, 0) << threads.err;
  EXPECT_EQ(WithoutJob(checkpoint), Contents(through));
}

TEST_F(WeftProcessesTest, ProcessesWithOtherProgramsStopBeforeTheFirstStep) {
  const std::string other = TestPath("other.pb");
  ASSERT_EQ(RunProcess({"tools/transpile", "--mode", "grad_allreduce", "--buckets", "none",
                        "tests/data/fit_a_line/main.pb", other})
                .status,
            0);
  const std::string run = absl::StrJoin(Run({}), " ");
  const ProcessResult result = RunProcess(Launch(
      2, {"/bin/sh", "-c",
          absl::StrCat("[ $WEFT_JOB_RANK = 0 ] && exec ", run, "; exec tools/weft run ", other,
                       " --startup ", startup_, " --feeds tests/data/fit_a_line/feeds.npz")}));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("W501: "));
  EXPECT_THAT(result.out, Not(HasSubstr("step 0")));
}

TEST_F(WeftProcessesTest, ProcessesWithOtherFlagsOrFilesStopBeforeTheFirstStep) {
  const std::string params = TestPath("other.npz"), checkpoint = TestPath("run.ckpt"),
                    other_checkpoint = TestPath("other.ckpt");
  ASSERT_EQ(RunProcess(Run({"--seed", "5", "--steps", "1", "--save", params})).status, 0);
  for (const Args& flags : {Args{"--checkpoint", checkpoint},
                            Args{"--checkpoint", other_checkpoint, "--params", params}}) {
    ASSERT_EQ(RunProcess(Run(flags + Args{"--ranks", "2", "--steps", "1"})).status, 0);
  }
  const std::string schedule = "--lr_schedule step{learning_rate=0.1,step_size=3} ";
  struct {
    std::string first, second, message;
  } const cases[] = {
      {"--seed 1", "--seed 2", "processes differ in seed: process 0 has 1, process 1 has 2"},
      {schedule, "", "processes differ in --lr_schedule: "},
      {"--feed_layout x=whole,y=whole", "", "processes differ in --feed_layout: process 0 has {"},
      {"", "--params " + params, "processes differ in the hash of the parameters: "},
      {"--resume " + checkpoint, "--resume " + other_checkpoint,
       "processes differ in the hash of the checkpoint: "},
      {"--trace " + TestPath("trace.json"), "",
       "processes run different commands: process 0 weft run --trace, ranks of a process: 1; "
       "process 1 weft run, ranks of a process: 1"},
      {"--backend gloo", "", "processes run different commands: "},
      {"--ranks 2", "", "has the number of ranks per process 2, but process 1 "},
  };
  for (const auto& [first, second, message] : cases) {
    SCOPED_TRACE(message);
    const std::string run = absl::StrJoin(Run({}), " ");
    const ProcessResult result =
        RunProcess(Launch(2, {"/bin/sh", "-c",
                              absl::StrCat("[ $WEFT_JOB_RANK = 0 ] && exec ", run, " ", first,
                                           "; exec ", run, " ", second)}));
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_THAT(result.out, Not(HasSubstr("step 0")));
  }
}

TEST_F(WeftProcessesTest, ProcessesWithOtherSchedulesInTheirProgramsStopBeforeTheFirstStep) {
  const std::string text = RunProcess({"tools/weft", "show", "--full", main_}).out;
  ASSERT_THAT(text, HasSubstr("var learning_rate_0 :"));
  Args programs;
  for (const char* gamma : {"0.1", "0.9"}) {
    programs.push_back(TestPath(absl::StrCat(gamma, ".prog")));
    std::string scheduled = text;
    const size_t line = scheduled.find('\n', scheduled.find("var learning_rate_0 :"));
    scheduled.insert(
        line, absl::StrCat(" {lr_schedule=\"exponential{learning_rate=0.01,gamma=", gamma, "}\"}"));
    std::ofstream(programs.back()) << scheduled;
  }
  const ProcessResult result = RunProcess(
      Launch(2, {"/bin/sh", "-c",
                 absl::StrCat("[ $WEFT_JOB_RANK = 0 ] && m=", programs[0], " || m=", programs[1],
                              "; exec tools/weft run $m --startup ", startup_,
                              " --feeds tests/data/fit_a_line/feeds.npz")}));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err,
              HasSubstr("processes differ in the schedule of variable learning_rate_0: process 0 "
                        "has exponential{gamma=0.1"));
}

// The others end because of it, and later.
TEST_F(WeftProcessesTest, LauncherNamesTheProcessThatFailed) {
  const std::string run = absl::StrJoin(Run({}), " ");
  for (int round = 0; round < 3; ++round) {
    const ProcessResult result = RunProcess(
        Launch(2, {"/bin/sh", "-c",
                   absl::StrCat("[ $WEFT_JOB_RANK = 1 ] && exec ", run,
                                " --metrics /dev/full; exec ", run, " --metrics /dev/full")}));
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr("[0] weft run: error: /dev/full: "),
                                  HasSubstr("weft launch: error: process 0 (pid ")));
  }
}

TEST_F(WeftProcessesTest, BackendMustFitTheJob) {
  EXPECT_THAT(RunProcess(Launch(2, Run({"--backend", "local"}))).err,
              HasSubstr("--backend local: ranks of 2 processes expect shm, mpi, gloo or nccl"));
  const ProcessResult alone = RunProcess(Run({"--backend", "shm"}));
  EXPECT_EQ(alone.status, 1);
  EXPECT_THAT(alone.err, HasSubstr("--backend shm: expected the variables of a launcher"));
  EXPECT_EQ(RunProcess(Launch(1, Run({"--backend", "shm"}))).status, 0);
}

TEST_F(WeftProcessesTest, BadInputOfOneProcessEndsAll) {
  const std::string run = absl::StrJoin(Run({}), " ");
  const ProcessResult result = RunProcess(Launch(
      2, {"/bin/sh", "-c",
          absl::StrCat("[ $WEFT_JOB_RANK = 1 ] && exec tools/weft run nowhere.pb --steps 1; ",
                       "exec ", run)}));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("[1] weft run: error: nowhere.pb"),
                                HasSubstr("[0] weft run: error: "), HasSubstr("rank 1 failed: ")));
}

}  // namespace
}  // namespace weft::testing
