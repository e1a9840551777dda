// weft launch as users run it: output, exit statuses, failures, signals, restarts.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_matchers.h"
#include "executor/files/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr char kMain[] = "tests/data/fit_a_line/main.pb";
constexpr char kStartup[] = "tests/data/fit_a_line/startup.pb";
constexpr char kFeeds[] = "tests/data/fit_a_line/feeds.npz";

using Args = std::vector<std::string>;

Args operator+(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

Args LaunchArgs(int n, const Args& flags, const Args& command) {
  return Args{"tools/weft", "launch", "-n", absl::StrCat(n)} + flags + Args{"--"} + command;
}

ProcessResult Launch(int n, const Args& flags, const Args& command) {
  return RunProcess(LaunchArgs(n, flags, command));
}

// A script, which knows its rank as $WEFT_JOB_RANK.
Args Shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

std::vector<std::string> LinesOf(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

std::string Contents(const std::string& path) {
  const absl::StatusOr<FileBytes> file = ReadFile(path);
  return file.ok() ? std::string(file->bytes) : "";
}

// Waits, not for ever.
template <typename Condition>
bool Eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// A path of its own for each test, where nothing is yet.
std::string TestPath(const std::string& name) {
  const std::string test = absl::StrReplaceAll(
      ::testing::UnitTest::GetInstance()->current_test_info()->name(), {{"/", "_"}});
  const std::string path = absl::StrCat(::testing::TempDir(), "/", test, "_", name);
  std::remove(path.c_str());
  return path;
}

size_t CountLines(const std::string& path) { return LinesOf(Contents(path)).size(); }

// Of the numbers in a file, one a line.
bool IsAnyAlive(const std::string& path) {
  for (const std::string& line : LinesOf(Contents(path))) {
    int pid = 0;
    if (absl::SimpleAtoi(line, &pid) && kill(pid, 0) == 0) return true;
  }
  return false;
}

TEST(WeftLaunchTest, ClosedStreamsHoldUpNobody) {
  for (const char* closed : {">&-", "2>&-", "<&-", ">&- 2>&- <&-"}) {
    EXPECT_EQ(RunProcess(
                  Shell(absl::StrCat("exec timeout 20 tools/weft launch -n 2 -- echo hi ", closed)))
                  .status,
              0)
        << closed;
  }
}

TEST(WeftLaunchTest, RunsInAJobOfOneProcess) {
  EXPECT_EQ(RunProcess({"/usr/bin/env", "RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=a", "MASTER_PORT=1",
                        "tools/weft", "launch", "-n", "2", "--", "/bin/true"})
                .status,
            0);
}

TEST(WeftLaunchTest, EveryLineHasTheRankOfItsProcess) {
  const ProcessResult result =
      Launch(3, {}, Shell("echo out $WEFT_JOB_RANK of $WEFT_JOB_SIZE; echo err >&2; echo"));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(LinesOf(result.out), UnorderedElementsAre("[0] out 0 of 3", "[1] out 1 of 3",
                                                        "[2] out 2 of 3", "[0] ", "[1] ", "[2] "));
  EXPECT_THAT(LinesOf(result.err), UnorderedElementsAre("[0] err", "[1] err", "[2] err"));
}

// Pieces of lines from several processes, longer than a pipe holds.
TEST(WeftLaunchTest, LongAndUnfinishedLinesStayWhole) {
  const ProcessResult result =
      Launch(3, {},
             Shell("for i in 1 2 3 4 5 6 7 8 9 10; do printf %020000d $WEFT_JOB_RANK; done; "
                   "echo; printf unfinished"));
  EXPECT_EQ(result.status, 0) << result.err;
  std::vector<std::string> expected;
  for (int rank : {0, 1, 2}) {
    std::string line = absl::StrCat("[", rank, "] ");
    for (int i = 0; i < 10; ++i) absl::StrAppend(&line, std::string(19999, '0'), rank);
    expected.push_back(line);
    expected.push_back(absl::StrCat("[", rank, "] unfinished"));
  }
  std::vector<std::string> lines = LinesOf(result.out);
  std::sort(lines.begin(), lines.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_TRUE(lines == expected) << result.out.size() << " bytes";
  EXPECT_THAT(result.out, EndsWith("unfinished\n"));
}

// More than the queue of the launcher holds, in both streams, into one pipe with a slow reader.
TEST(WeftLaunchTest, LinesOfBothStreamsDoNotMix) {
  const std::string script =
      "\"$0\" launch -n 2 -- /bin/sh -c 'i=0; while [ $i -lt 100 ]; do printf \"%09999d\\n\" 7; "
      "printf \"%09999d\\n\" 8 >&2; i=$((i+1)); done' 2>&1 | { sleep 0.3; cat; }";
  const ProcessResult result = RunProcess({"/bin/sh", "-c", script, "tools/weft"});
  EXPECT_EQ(result.status, 0) << result.err;
  const std::vector<std::string> lines = LinesOf(result.out);
  EXPECT_EQ(lines.size(), 400u);
  const std::string seven = std::string(9998, '0') + "7", eight = std::string(9998, '0') + "8";
  for (const std::string& line : lines) {
    ASSERT_TRUE(line == "[0] " + seven || line == "[1] " + seven || line == "[0] " + eight ||
                line == "[1] " + eight)
        << line.substr(0, 40);
  }
}

TEST(WeftLaunchTest, ProcessesOfAJobMeetAtOneAddress) {
  const ProcessResult result = Launch(2, {}, Shell("echo $WEFT_JOB_ADDRESS $WEFT_JOB_ID"));
  const std::vector<std::string> lines = LinesOf(result.out);
  ASSERT_EQ(lines.size(), 2u) << result.err;
  EXPECT_EQ(lines[0].substr(4), lines[1].substr(4));
  EXPECT_THAT(lines[0].substr(4), StartsWith("unix:weft-launch-"));
  EXPECT_THAT(LinesOf(Launch(2, {}, Shell("echo $WEFT_JOB_ADDRESS $WEFT_JOB_ID")).out),
              Not(::testing::Contains(lines[0])));
}

TEST(WeftLaunchTest, ArgumentsAreGivenAsTheyAre) {
  const ProcessResult result =
      Launch(1, {}, {"/usr/bin/printf", "%s|", "[1,2]", "--", "", "a b", "--grace_s", "-n=3"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "[0] [1,2]|--||a b|--grace_s|-n=3|\n");
}

TEST(WeftLaunchTest, StandardInputIsEmpty) {
  const ProcessResult result =
      RunProcess(LaunchArgs(2, {}, Shell("cat; echo end")), "not for the processes");
  EXPECT_THAT(LinesOf(result.out), UnorderedElementsAre("[0] end", "[1] end"));
}

TEST(WeftLaunchTest, ProcessesInheritNoFilesOfTheLauncher) {
  const Args list = Shell("ls /proc/self/fd | tr '\\n' ' '");
  const ProcessResult result = Launch(3, {}, list);
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string files = RunProcess(list).out;
  EXPECT_THAT(LinesOf(result.out),
              UnorderedElementsAre("[0] " + files, "[1] " + files, "[2] " + files));
}

TEST(WeftLaunchTest, WrongUsageIsStatus2) {
  const std::pair<Args, const char*> cases[] = {
      {{"-n", "2"}, "--: expected a command after --"},
      {{"-n", "2", "--"}, "--: expected a command after --"},
      {{"--", "true"}, "-n is required"},
      {{"-n", "0", "--", "true"}, "-n: expected an integer from 1 to 256, found 0"},
      {{"-n", "257", "--", "true"}, "-n: expected an integer from 1 to 256, found 257"},
      {{"-n", "x", "--", "true"}, "found x"},
      {{"-n", "2", "--max_restarts", "-1", "--", "true"}, "found -1"},
      {{"-n", "2", "--grace_s", "nan", "--", "true"}, "--grace_s: expected seconds"},
      {{"-n", "2", "true"}, "true"},
      {{"-n", "2", "--nosuch", "--", "true"}, "--nosuch"},
  };
  for (const auto& [args, message] : cases) {
    const ProcessResult result = RunProcess(Args{"tools/weft", "launch"} + args);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_THAT(result.err, AllOf(StartsWith("weft launch: error: "), HasSubstr(message)));
    EXPECT_THAT(LinesOf(result.err), ::testing::SizeIs(1));
  }
  const ProcessResult help = RunProcess({"tools/weft", "launch", "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("Example:\n  weft launch -n 2 "));
}

TEST(WeftLaunchTest, CommandsThatCannotStartHaveTheStatusOfShells) {
  const ProcessResult missing = Launch(2, {"--max_restarts", "3"}, {"no_such_command"});
  EXPECT_EQ(missing.status, 127);
  EXPECT_EQ(missing.err,
            "weft launch: error: cannot start no_such_command: No such file or directory\n");
  const std::string path = TestPath("file");
  std::ofstream(path) << "text";
  const ProcessResult forbidden = Launch(2, {}, {path});
  EXPECT_EQ(forbidden.status, 126);
  EXPECT_THAT(forbidden.err, HasSubstr("Permission denied"));
}

TEST(WeftLaunchTest, TwoLaunchersAreAnError) {
  const ProcessResult nested =
      Launch(2, {}, LaunchArgs(2, {}, Shell("[ $WEFT_JOB_SIZE = 2 ] && echo started")));
  EXPECT_EQ(nested.status, 1);
  EXPECT_THAT(nested.out, IsEmpty());
  EXPECT_THAT(nested.err,
              ContainsRegex("\\[([01])\\] weft launch: error: this is process [01] of 2 "
                            "that weft launch has started: expected one launcher\n"));
}

TEST(WeftLaunchTest, TheStatusIsThatOfTheProcessThatFailedFirst) {
  const ProcessResult result =
      Launch(3, {}, Shell("[ $WEFT_JOB_RANK = 1 ] || exec sleep 100; echo the reason >&2; exit 7"));
  EXPECT_EQ(result.status, 7);
  EXPECT_THAT(
      result.err,
      MatchesRegex("\\[1\\] the reason\n"
                   "weft launch: error: process 1 \\(pid [0-9]+\\) exited with status 7\n"));
}

TEST(WeftLaunchTest, AProcessThatASignalKillsIsNamed) {
  const ProcessResult result =
      Launch(3, {}, Shell("[ $WEFT_JOB_RANK = 2 ] || exec sleep 100; kill -KILL $$"));
  EXPECT_EQ(result.status, 128 + SIGKILL);
  EXPECT_THAT(
      result.err,
      MatchesRegex("weft launch: error: process 2 \\(pid [0-9]+\\) was killed by SIGKILL\n"));
}

// Rank 0 fails because rank 1 is about to die. On a busy machine, that may take longer.
TEST(WeftLaunchTest, ASignalIsTheBetterReasonAtTheSameTime) {
  const std::string path = TestPath("failed");
  const std::string script =
      absl::StrCat("[ $WEFT_JOB_RANK = 0 ] && { echo >", path, "; exit 1; }; while [ ! -e ", path,
                   " ]; do :; done; sleep 0.01; kill -ABRT $$");
  const bool is_found = Eventually([&] {
    std::remove(path.c_str());
    const ProcessResult result = Launch(2, {}, Shell(script));
    return result.status == 128 + SIGABRT && absl::StrContains(result.err, "process 1 (pid ") &&
           absl::StrContains(result.err, "was killed by SIGABRT") &&
           !absl::StrContains(result.err, "process 0");
  });
  EXPECT_TRUE(is_found);
}

TEST(WeftLaunchTest, AFailureIsReportedAlsoIfAllHaveEnded) {
  const ProcessResult result = Launch(3, {}, Shell("[ $WEFT_JOB_RANK = 1 ] && exit 3; true"));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, MatchesRegex("weft launch: error: process 1 \\(pid [0-9]+\\) exited with "
                                       "status 3\n"));
}

// What fails after SIGTERM is a consequence.
TEST(WeftLaunchTest, OnlyTheFirstFailureIsReported) {
  const ProcessResult result =
      Launch(3, {},
             Shell("trap 'exit 9' TERM; [ $WEFT_JOB_RANK = 1 ] && exit 3; while :; do sleep 0.05; "
                   "done"));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("weft launch: error: process 1 "));
  EXPECT_THAT(result.err, Not(ContainsRegex("process [02] ")));
}

TEST(WeftLaunchTest, AProcessThatIgnoresSigtermIsKilled) {
  const std::string pids = TestPath("pids");
  const ProcessResult result = Launch(
      2, {"--grace_s", "0.3"},
      Shell(absl::StrCat("trap '' TERM; echo $$ >>", pids, "; [ $WEFT_JOB_RANK = 1 ] && while [ ",
                         "$(wc -l <", pids, ") -lt 2 ]; do :; done && exit 3; while :; do sleep ",
                         "0.05; done")));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err,
              ContainsRegex("weft launch: note: process 0 \\(pid [0-9]+\\) has not ended after "
                            "SIGTERM and is killed"));
  EXPECT_FALSE(IsAnyAlive(pids));
}

TEST(WeftLaunchTest, AStoppedProcessEnds) {
  const ProcessResult result =
      Launch(2, {}, Shell("[ $WEFT_JOB_RANK = 1 ] && kill -STOP $$; sleep 0.3; exit 3"));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("process 0 "));
  EXPECT_THAT(result.err, Not(HasSubstr("note")));
}

// What processes have started ends with them, also if it has their output open.
TEST(WeftLaunchTest, ChildrenOfProcessesEndToo) {
  const std::string pids = TestPath("pids");
  const ProcessResult done =
      Launch(2, {}, Shell(absl::StrCat("sleep 1000 & echo $! >>", pids, "; echo done")));
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(LinesOf(done.out), UnorderedElementsAre("[0] done", "[1] done"));
  EXPECT_EQ(CountLines(pids), 2u);
  EXPECT_TRUE(Eventually([&] { return !IsAnyAlive(pids); }));

  const ProcessResult stubborn =
      Launch(1, {"--grace_s", "0.3"},
             Shell(absl::StrCat("(trap '' TERM; exec sleep 1000) & echo $! >>", pids, "; exit 4")));
  EXPECT_EQ(stubborn.status, 4);
  EXPECT_EQ(CountLines(pids), 3u);
  EXPECT_TRUE(Eventually([&] { return !IsAnyAlive(pids); }));
}

class WeftLaunchSignalTest : public ::testing::TestWithParam<int> {};

// The processes have time to end as they like.
TEST_P(WeftLaunchSignalTest, GoesToAllProcesses) {
  const std::string ready = TestPath("ready");
  const int signal = GetParam(), passed_on = signal == SIGHUP ? SIGTERM : signal;
  const std::string script =
      absl::StrCat("trap 'sleep 0.2; echo saved; exit ", 128 + passed_on, "' ", passed_on,
                   "; echo $$ >>", ready, "; while :; do sleep 0.05; done");
  Process process(LaunchArgs(2, {"--max_restarts", "2"}, Shell(script)));
  ASSERT_TRUE(Eventually([&] { return CountLines(ready) == 2; }));
  process.Signal(signal);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.status, 128 + passed_on);
  EXPECT_THAT(LinesOf(result.out), UnorderedElementsAre("[0] saved", "[1] saved"));
  EXPECT_THAT(result.err, Not(HasSubstr("weft launch")));
  EXPECT_EQ(CountLines(ready), 2u);  // no restart
}

INSTANTIATE_TEST_SUITE_P(Signals, WeftLaunchSignalTest, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST(WeftLaunchTest, AStopThatProcessesTakeForTheirEndIsDone) {
  const std::string ready = TestPath("ready");
  Process process(LaunchArgs(2, {},
                             Shell(absl::StrCat("trap 'exit 0' INT; echo >>", ready, "; echo x >>",
                                                ready, "; while :; do sleep 0.05; done"))));
  ASSERT_TRUE(Eventually([&] { return CountLines(ready) == 2; }));
  process.Signal(SIGINT);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST(WeftLaunchTest, AProcessMayFailWhileItStops) {
  const std::string ready = TestPath("ready");
  Process process(LaunchArgs(
      2, {"--max_restarts", "2"},
      Shell(absl::StrCat("trap '[ $WEFT_JOB_RANK = 1 ] && exit 5; exit 130' INT; echo x >>", ready,
                         "; while :; do sleep 0.05; done"))));
  ASSERT_TRUE(Eventually([&] { return CountLines(ready) == 2; }));
  process.Signal(SIGINT);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.status, 5);
  EXPECT_THAT(result.err, HasSubstr("process 1 "));
  EXPECT_THAT(result.err, Not(HasSubstr("attempt")));
}

TEST(WeftLaunchTest, AProcessThatIgnoresAStopIsKilled) {
  const std::string pids = TestPath("pids");
  Process process(LaunchArgs(
      2, {"--grace_s", "0.3"},
      Shell(absl::StrCat("trap '' INT; echo $$ >>", pids, "; while :; do sleep 0.05; done"))));
  ASSERT_TRUE(Eventually([&] { return CountLines(pids) == 2; }));
  process.Signal(SIGINT);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.status, 128 + SIGINT);
  EXPECT_THAT(result.err, HasSubstr("has not ended after SIGINT and is killed"));
  EXPECT_FALSE(IsAnyAlive(pids));
}

TEST(WeftLaunchTest, ProcessesEndIfTheLauncherIsKilled) {
  const std::string pids = TestPath("pids");
  Process process(LaunchArgs(2, {}, Shell(absl::StrCat("echo $$ >>", pids, "; exec sleep 1000"))));
  ASSERT_TRUE(Eventually([&] { return CountLines(pids) == 2; }));
  EXPECT_TRUE(IsAnyAlive(pids));
  process.Signal(SIGKILL);
  process.Wait();
  EXPECT_TRUE(Eventually([&] { return !IsAnyAlive(pids); }));
}

TEST(WeftLaunchTest, ProcessesEndIfNobodyReadsTheirOutput) {
  const std::string pids = TestPath("pids");
  const std::string script =
      absl::StrCat("{ \"$0\" launch -n 2 -- /bin/sh -c 'echo $$ >>", pids,
                   "; while :; do echo line; sleep 0.01; done'; echo status $? >&2; } | head -n 1");
  const ProcessResult result = RunProcess({"/bin/sh", "-c", script, "tools/weft"});
  EXPECT_THAT(result.err, AllOf(HasSubstr("weft launch: error: standard output: Broken pipe"),
                                HasSubstr("status 1\n")));
  EXPECT_TRUE(Eventually([&] { return !IsAnyAlive(pids); }));
}

// Nobody reads what they print, but the pipe is open.
TEST(WeftLaunchTest, AFailureEndsProcessesWhoseOutputIsStuck) {
  const std::string pids = TestPath("pids"), over = TestPath("over"), status = TestPath("status");
  const std::string script = absl::StrCat(
      "{ \"$0\" launch -n 2 --grace_s 0.3 -- /bin/sh -c 'echo $$ >>", pids,
      "; [ $WEFT_JOB_RANK = 1 ] && sleep 0.5 && exit 3; exec yes' 2>/dev/null; echo $? >", status,
      "; } | while [ ! -e ", over, " ]; do sleep 0.05; done");
  Process process({"/bin/sh", "-c", script, "tools/weft"});
  EXPECT_TRUE(Eventually([&] { return CountLines(pids) == 2; }));
  EXPECT_TRUE(Eventually([&] { return !IsAnyAlive(pids); }));
  EXPECT_TRUE(Eventually([&] { return Contents(status) == "3\n"; }));
  std::ofstream(over) << "over";
  process.Wait();
}

TEST(WeftLaunchTest, AFailedJobStartsAgainAsOftenAsItMay) {
  const std::string starts = TestPath("starts");
  const ProcessResult result =
      Launch(2, {"--max_restarts", "2"},
             Shell(absl::StrCat("echo $WEFT_JOB_ATTEMPT $WEFT_JOB_ADDRESS >>", starts,
                                "; [ $WEFT_JOB_RANK = 1 ] && exit 6; exec sleep 100")));
  EXPECT_EQ(result.status, 6);
  const std::string failure =
      "weft launch: error: process 1 \\(pid [0-9]+\\) exited with status 6\n";
  EXPECT_THAT(
      result.err,
      MatchesRegex(failure + "weft launch: note: attempt 2 of 3, from the beginning\n" + failure +
                   "weft launch: note: attempt 3 of 3, from the beginning\n" + failure));
  std::vector<std::string> attempts, addresses;
  for (const std::string& line : LinesOf(Contents(starts))) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    attempts.push_back(words[0]);
    addresses.push_back(words[1]);
  }
  EXPECT_THAT(attempts, ::testing::IsSupersetOf({"1", "2", "3"}));
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  ASSERT_EQ(addresses.size(), 3u);  // one for each attempt
  // Nobody who has seen one knows the next.
  EXPECT_NE(addresses[0].substr(0, 30), addresses[1].substr(0, 30));
}

TEST(WeftLaunchTest, AJobThatEndsWellIsNotStartedAgain) {
  const std::string starts = TestPath("starts");
  const std::string script =
      absl::StrCat("echo x >>", starts, "; [ $WEFT_JOB_ATTEMPT = 2 ] || exit 1");
  const ProcessResult result = Launch(1, {"--max_restarts", "5"}, Shell(script));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(CountLines(starts), 2u);
}

TEST(WeftLaunchTest, WrongUsageIsNotStartedAgain) {
  const std::string starts = TestPath("starts");
  const ProcessResult result =
      Launch(2, {"--max_restarts", "5"}, Shell(absl::StrCat("echo x >>", starts, "; exit 2")));
  EXPECT_EQ(result.status, 2);
  EXPECT_LE(CountLines(starts), 2u);
  EXPECT_THAT(result.err, Not(HasSubstr("attempt")));
}

TEST(WeftLaunchTest, AProcessThatIsStoppedWhileAllOthersHaveEndedIsEnded) {
  const ProcessResult result =
      Launch(3, {"--grace_s", "1"}, Shell("[ $WEFT_JOB_RANK = 1 ] && kill -STOP $$; exit 0"));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err,
              ContainsRegex("weft launch: error: process 1 \\(pid [0-9]+\\) is stopped, and all "
                            "others have ended \\(--grace_s\\)\n"));
}

// It may have much to write.
TEST(WeftLaunchTest, AProcessThatGoesOnAfterAllOthersIsWaitedFor) {
  const ProcessResult result =
      Launch(3, {"--grace_s", "0.2"}, Shell("[ $WEFT_JOB_RANK = 1 ] && sleep 12; exit 0"));
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, MatchesRegex("weft launch: note: waiting for process 1 \\(pid "
                                       "[0-9]+\\); the others have ended\n"));
}

// Not even files: there are few.
TEST(WeftLaunchTest, RestartsLeaveNothingBehind) {
  const ProcessResult result = RunProcess(
      {"/bin/sh", "-c", "ulimit -n 24; exec \"$0\" launch -n 2 --max_restarts 50 -- /bin/false",
       "tools/weft"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("note: attempt 51 of 51, from the beginning\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("cannot")));
  EXPECT_THAT(result.err, EndsWith("exited with status 1\n"));
}

TEST(WeftLaunchTest, TooFewFilesAreAnError) {
  const ProcessResult result = RunProcess(
      {"/bin/sh", "-c", "ulimit -n 24; exec \"$0\" launch -n 50 -- /bin/sleep 100", "tools/weft"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "weft launch: error: pipe: Too many open files\n");
}

// weft run, which something kills in the middle.
TEST(WeftLaunchTest, ProcessesThatAllCrashAgainAndAgainEndTheJob) {
  const ProcessResult result =
      Launch(2, {"--elastic", "--max_replacements", "10"}, Shell("kill -SEGV $$; sleep 1"));
  EXPECT_EQ(result.status, 128 + SIGSEGV);
  EXPECT_THAT(result.err, HasSubstr("was killed by SIGSEGV: it is the third with its ranks"));
}

// The launchers of two hosts, which are this one, with a process each.
class WeftLaunchHostsTest : public ::testing::Test {
 protected:
  // A port that is free, and the one before it, where nobody listens.
  static std::string FreeAddress() {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    close(fd);
    return absl::StrCat("127.0.0.1:", ntohs(address.sin_port) - 1);
  }

  Args LaunchArgsOf(int host, const std::string& script) const {
    return Args{"/usr/bin/env", "WEFT_JOB_TOKEN=0123456789abcdef0123456789abcdef"} +
           LaunchArgs(1,
                      {"--elastic", "--hosts", "2", "--host", absl::StrCat(host), "--at", address_},
                      Shell(script));
  }

  const std::string address_ = FreeAddress();
};

TEST_F(WeftLaunchHostsTest, ProcessesKnowTheirNumberOnTheirHost) {
  const std::string script = "echo $WEFT_JOB_RANK is $WEFT_JOB_LOCAL_RANK";
  Process first(LaunchArgsOf(0, script)), other(LaunchArgsOf(1, script));
  EXPECT_THAT(LinesOf(first.Wait().out), UnorderedElementsAre("[0] 0 is 0"));
  EXPECT_THAT(LinesOf(other.Wait().out), UnorderedElementsAre("[1] 1 is 0"));
}

TEST_F(WeftLaunchHostsTest, ASecondStopReachesBothHosts) {
  const std::string begun = TestPath("begun"), stops = TestPath("stops");
  const std::string script =
      absl::StrCat("trap 'echo x >> ", stops, "_$WEFT_JOB_RANK' TERM; echo x >> ", begun,
                   "; until [ -s ", begun, "_end ]; do sleep 0.05; done");
  for (const char* rank : {"_0", "_1"}) std::remove((stops + rank).c_str());
  std::remove((begun + "_end").c_str());
  Process first(LaunchArgsOf(0, script)), other(LaunchArgsOf(1, script));
  ASSERT_TRUE(Eventually([&] { return CountLines(begun) == 2; }));
  for (const size_t count : {1, 2}) {
    other.Signal(SIGTERM);
    for (const char* rank : {"_0", "_1"}) {
      EXPECT_TRUE(Eventually([&] { return CountLines(stops + rank) == count; }));
    }
  }
  std::ofstream(begun + "_end") << "x";
  first.Wait();
  other.Wait();
}

// Nobody takes over what it should have done.
TEST_F(WeftLaunchHostsTest, TheLastProcessIsLostOnTheOtherHost) {
  const std::string pid = TestPath("pid");
  Process first(LaunchArgsOf(0, absl::StrCat("echo $$ >", pid)));
  Process other(LaunchArgsOf(
      1, absl::StrCat("until [ -s ", pid, " ]; do sleep 0.02; done; while kill -0 $(cat ", pid,
                      "); do sleep 0.02; done; sleep 0.5; kill -KILL $$; sleep 1000")));
  const ProcessResult result = first.Wait();
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("error: process 1 of host 1 is lost\n"));
  other.Wait();
}

TEST_F(WeftLaunchHostsTest, TheOtherHostIsLostWithTheLastProcess) {
  // With or without a word of the first process, as of weft run, that all is done. sh has no files
  // of two digits.
  for (const char* says : {"",
                           "bash -c 'fd=${WEFT_JOB_CONTROL%%:*}; printf begins >&$fd; "
                           "printf finished >&$fd'; "}) {
    SCOPED_TRACE(says);
    const std::string pids = TestPath("pids");
    Process first(LaunchArgsOf(0, absl::StrCat(says, "echo $$ >>", pids, "; until [ $(wc -l <",
                                               pids, ") = 2 ]; do sleep 0.02; done")));
    Process other(LaunchArgsOf(1, absl::StrCat("echo $$ >>", pids, "; exec sleep 1000")));
    ASSERT_TRUE(Eventually([&] { return CountLines(pids) == 2; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the first process has ended
    other.Signal(SIGKILL);
    const ProcessResult result = first.Wait();
    EXPECT_EQ(result.status, 1) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("note: host 1 is lost: "),
                                  HasSubstr("error: process 1 of host 1 is lost\n")));
  }
}

TEST_F(WeftLaunchHostsTest, ASignalStopsALauncherThatWaitsForTheOther) {
  const std::string ready = TestPath("ready"), goes = TestPath("goes");
  Process first(LaunchArgsOf(0, absl::StrCat("until [ -s ", goes, " ]; do sleep 0.02; done")));
  Process other(LaunchArgsOf(1, absl::StrCat("echo x >", ready)));
  ASSERT_TRUE(Eventually([&] { return CountLines(ready) == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // its process has ended
  other.Signal(SIGTERM);
  EXPECT_TRUE(Eventually([&] { return !other.IsRunning(); }));
  std::ofstream(goes) << "x";
  EXPECT_EQ(first.Wait().status, 0);
  EXPECT_EQ(other.Wait().status, 128 + SIGTERM);
}

TEST_F(WeftLaunchHostsTest, TheStatusIsOfTheSignalThatStopsLaunchersBeforeTheyMeet) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Process first(LaunchArgsOf(0, "true"));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // it waits for the other
    first.Signal(signal);
    const ProcessResult result = first.Wait();
    EXPECT_EQ(result.status, 128 + (signal == SIGHUP ? SIGTERM : signal)) << result.err;
    EXPECT_THAT(result.err, HasSubstr("stopped before the launchers of all hosts had come"));
  }
}

class WeftLaunchResumeTest : public ::testing::Test {
 protected:
  Args Run(const std::string& steps) const {
    return {"tools/weft", "run", kMain,          "--startup", kStartup,       "--feeds",  kFeeds,
            "--steps",    steps, "--save_every", "3",         "--checkpoint", checkpoint_};
  }

  const std::string checkpoint_ = TestPath("run.ckpt");
  const std::string through_ = TestPath("through.ckpt");
  const std::string metrics_ = TestPath("metrics.jsonl");
};

// The script kills the run in the first attempt only.
TEST_F(WeftLaunchResumeTest, AKilledRunGoesOnFromItsLastCheckpoint) {
  // The launcher looks at the name of the program: "weft".
  const std::string directory = TestPath("bin");
  ASSERT_EQ(std::system(absl::StrCat("mkdir -p ", directory).c_str()), 0);
  const std::string fake = directory + "/weft", calls = TestPath("calls");
  std::ofstream(fake)
      << "#!/bin/sh\necho \"$@\" >>" << calls
      << "\nif [ $WEFT_JOB_ATTEMPT = 1 ]; then\n  tools/weft \"$@\" &\n  while [ ! -e "
      << checkpoint_ << " ]; do sleep 0.01; done\n  kill -KILL $!\n  wait $!\n"
      << "  kill -KILL $$\nfi\nexec tools/weft \"$@\"\n";
  ASSERT_EQ(std::system(absl::StrCat("chmod +x ", fake).c_str()), 0);
  Args command = Run("3000");
  command[0] = fake;
  const ProcessResult result =
      Launch(1, {"--max_restarts", "1"}, command + Args{"--metrics", metrics_, "--begin_step=0"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err,
              ContainsRegex(absl::StrCat("was killed by SIGKILL\nweft launch: note: attempt 2 of "
                                         "2, resuming from ",
                                         checkpoint_, " \\(step [0-9]+\\)\n")));
  const std::vector<std::string> lines = LinesOf(Contents(calls));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1], absl::StrCat("run ", kMain, " --startup ", kStartup, " --feeds ", kFeeds,
                                   " --save_every 3 --checkpoint ", checkpoint_, " --metrics ",
                                   metrics_, " --resume ", checkpoint_));
  // It ends as a run that nobody has killed.
  Args through = Run("3000");
  through.back() = through_;
  ASSERT_EQ(RunProcess(through).status, 0);
  WEFT_ASSERT_OK_AND_ASSIGN(Checkpoint checkpoint, ReadCheckpoint(checkpoint_));
  EXPECT_EQ(checkpoint.settings.erase("job"), 1u);
  WEFT_ASSERT_OK(WriteCheckpoint(checkpoint_, checkpoint));
  EXPECT_TRUE(Contents(checkpoint_) == Contents(through_));
  EXPECT_EQ(CountLines(metrics_), 3000u);
}

// Another run writes the same file meanwhile.
TEST_F(WeftLaunchResumeTest, ACheckpointOfAnotherJobIsNotResumed) {
  ASSERT_EQ(RunProcess(Run("6")).status, 0);
  const std::string other = TestPath("other.ckpt");
  ASSERT_EQ(std::rename(checkpoint_.c_str(), other.c_str()), 0);
  const std::string fake = TestPath("weft");
  std::ofstream(fake) << "#!/bin/sh\ncp " << other << " " << checkpoint_ << "\nexit 1\n";
  ASSERT_EQ(std::system(absl::StrCat("chmod +x ", fake).c_str()), 0);
  const std::string directory = TestPath("bin");
  ASSERT_EQ(
      std::system(
          absl::StrCat("mkdir -p ", directory, " && mv ", fake, " ", directory, "/weft").c_str()),
      0);
  Args command = Run("6");
  command[0] = directory + "/weft";
  const ProcessResult result = Launch(1, {"--max_restarts", "1"}, command);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("note: attempt 2 of 2, from the beginning\n"));
}

// Nothing has begun.
TEST_F(WeftLaunchResumeTest, ASignalEndsAProcessThatWaitsForOthers) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Args variables = {"/usr/bin/env", "WEFT_JOB_RANK=0", "WEFT_JOB_SIZE=2",
                            absl::StrCat("WEFT_JOB_ADDRESS=unix:weft-waits-", getpid()),
                            "WEFT_JOB_TOKEN=" + std::string(32, '1')};
    Process process(variables + Run("6"));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const auto start = std::chrono::steady_clock::now();
    process.Signal(signal);
    EXPECT_EQ(process.Wait().status, 128 + signal);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
}

// The signal may go to any process of the job.
TEST_F(WeftLaunchResumeTest, TheExitStatusIsOfTheSignal) {
  const Args run = Run("100000000") + Args{"--metrics", metrics_, "--allow_unsynchronized"};
  Process process(LaunchArgs(2, {},
                             Shell(absl::StrCat("[ $WEFT_JOB_RANK = 1 ] && echo $$ > ", through_,
                                                "; exec ", absl::StrJoin(run, " ")))));
  ASSERT_TRUE(Eventually([&] { return CountLines(metrics_) >= 3; }));
  int pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(LinesOf(Contents(through_))[0], &pid));
  kill(pid, SIGINT);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.status, 128 + SIGINT) << result.err;
  EXPECT_THAT(result.err, HasSubstr("[0] note: stopped by SIGINT before step "));
}

// A checkpoint that was there before is that of another run.
TEST_F(WeftLaunchResumeTest, AnOldCheckpointIsNotResumed) {
  ASSERT_EQ(RunProcess(Run("6")).status, 0);
  const std::string old = Contents(checkpoint_);
  Args command = Run("6");
  command[6] = "nosuch.npz";
  const ProcessResult result = Launch(1, {"--max_restarts", "1"}, command);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("note: attempt 2 of 2, from the beginning\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("resuming")));
  EXPECT_TRUE(Contents(checkpoint_) == old);
}

TEST_F(WeftLaunchResumeTest, ASignalStopsARunWithItsCheckpoint) {
  Process process(
      LaunchArgs(1, {"--max_restarts", "1"}, Run("100000000") + Args{"--metrics", metrics_}));
  ASSERT_TRUE(Eventually([&] { return CountLines(metrics_) >= 3; }));
  process.Signal(SIGTERM);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
  EXPECT_THAT(result.err, HasSubstr("[0] note: stopped by SIGTERM before step "));
  EXPECT_THAT(result.err, Not(HasSubstr("weft launch")));
  EXPECT_NE(Contents(checkpoint_), "");
}

}  // namespace
}  // namespace weft::testing
