#include "tools/flags/command_line.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

std::string TestPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

// A tool with one subcommand.
class ParseTest : public ::testing::Test {
 protected:
  ParseTest() {
    app_.require_subcommand(1);
    CLI::App* run = app_.add_subcommand("run", "Runs.");
    run->add_option("--steps", steps_, "How many")->check(CLI::NonNegativeNumber);
    run->footer("Example:\n  tool run --steps 3");
    run->callback([this] {
      if (steps_ == 13) throw CLI::ValidationError("--steps", "13 is never a good number");
    });
  }

  absl::optional<int> Parse(std::vector<std::string> args) {
    args.insert(args.begin(), "tool");
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(&arg[0]);
    CaptureStdout();
    CaptureStderr();
    const absl::optional<int> status =
        ParseCommandLine(app_, static_cast<int>(argv.size()), argv.data());
    out_ = GetCapturedStdout();
    err_ = GetCapturedStderr();
    return status;
  }

  CLI::App app_{"A tool.", "tool"};
  int steps_ = 0;
  std::string out_, err_;
};

TEST_F(ParseTest, FlagAndValueMayBeJoinedByEqualsSign) {
  EXPECT_EQ(Parse({"run", "--steps", "4"}), absl::nullopt);
  EXPECT_EQ(steps_, 4);
  EXPECT_EQ(Parse({"run", "--steps=5"}), absl::nullopt);
  EXPECT_EQ(steps_, 5);
}

TEST_F(ParseTest, HelpOfASubcommandIsPrintedAndIsNoError) {
  EXPECT_EQ(Parse({"run", "--help"}), kExitDone);
  EXPECT_THAT(out_, HasSubstr("tool run"));
  EXPECT_THAT(out_, HasSubstr("Example:\n  tool run --steps 3"));
  EXPECT_THAT(err_, IsEmpty());
}

TEST_F(ParseTest, LongHelpIsBrokenIntoLines) {
  const std::string long_help = std::string(60, 'a') + " " + std::string(60, 'b');
  app_.get_subcommand("run")->add_option("--long", steps_, long_help);
  EXPECT_EQ(Parse({"run", "--help"}), kExitDone);
  EXPECT_THAT(out_, HasSubstr(std::string(60, 'a') + "\n"));
}

TEST_F(ParseTest, UnknownFlagIsWrongUsage) {
  EXPECT_EQ(Parse({"run", "--stepps", "4"}), kExitUsage);
  EXPECT_THAT(err_, StartsWith("tool run: error: "));
  EXPECT_THAT(err_, HasSubstr("--stepps"));
  EXPECT_THAT(out_, IsEmpty());
}

TEST_F(ParseTest, MissingSubcommandIsWrongUsage) {
  EXPECT_EQ(Parse({}), kExitUsage);
  EXPECT_THAT(err_, StartsWith("tool: error: A subcommand is required"));
}

TEST_F(ParseTest, CheckBetweenFlagsIsWrongUsage) {
  EXPECT_EQ(Parse({"run", "--steps", "13"}), kExitUsage);
  EXPECT_EQ(err_, "tool run: error: --steps: 13 is never a good number (see tool run --help)\n");
}

int CountFiles(const std::string& directory) {
  int count = 0;
  DIR* const dir = opendir(directory.c_str());
  while (const dirent* entry = readdir(dir)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(dir);
  return count;
}

TEST(SignalTest, ProcessThatASignalEndsLeavesNoTemporaryFiles) {
  const std::string directory = TestPath("signals");
  mkdir(directory.c_str(), 0777);
  for (const int signal : {SIGHUP, SIGINT, SIGPIPE, SIGTERM}) {
    EXPECT_EXIT(
        {
          const absl::StatusOr<AtomicFile> file = AtomicFile::Create(directory + "/out");
          if (!file.ok() || CountFiles(directory) != 1) exit(1);
          CLI::App app("A tool.", "tool");
          char name[] = "tool";
          char* argv[] = {name};
          ParseCommandLine(app, 1, argv);
          raise(signal);
        },
        ::testing::KilledBySignal(signal), "");
    EXPECT_EQ(CountFiles(directory), 0) << "signal " << signal;
  }
}

TEST(SignalTest, IgnoredSignalStaysIgnored) {
  EXPECT_EXIT(
      {
        signal(SIGHUP, SIG_IGN);
        CLI::App app("A tool.", "tool");
        char name[] = "tool";
        char* argv[] = {name};
        ParseCommandLine(app, 1, argv);
        raise(SIGHUP);
        exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(ValidatorTest, NumbersAreCheckedAsTheyAreWritten) {
  const CLI::Validator positive = NumberThat([](double s) { return s > 0; }, "more than 0");
  EXPECT_EQ(positive("0.5"), "");
  EXPECT_EQ(positive("inf"), "");
  for (const char* text : {"0", "-1", "nan", "", "1s"}) {
    EXPECT_EQ(positive(text), absl::StrCat("expected more than 0, found ", text));
  }
  const CLI::Validator seed = IntegerFrom(0, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(seed("18446744073709551615"), "");
  for (const char* text : {"-1", "18446744073709551616", "1e3", "0x10", "1.0", ""}) {
    EXPECT_EQ(seed(text),
              absl::StrCat("expected an integer from 0 to 18446744073709551615, found ", text));
  }
}

TEST(PrintErrorTest, MessageStaysOnItsLineAndDetailsAreIndented) {
  CaptureStderr();
  PrintError("weft run", "a\tb\x1b[31m\nop 1\nop 2");
  EXPECT_EQ(GetCapturedStderr(), "weft run: error: a\\x09b\\x1b[31m\n  op 1\n  op 2\n");
}

TEST(PrintErrorTest, OptionsOfLibrariesAreFlags) {
  CaptureStderr();
  PrintError("transpile", "give option:nranks");
  EXPECT_EQ(GetCapturedStderr(), "transpile: error: give --nranks\n");
}

TEST(FinishCommandTest, StatusDecidesTheExitStatus) {
  CaptureStderr();
  EXPECT_EQ(FinishCommand("weft diff", absl::OkStatus()), kExitDone);
  EXPECT_EQ(FinishCommand("weft diff", absl::OkStatus(), 1), 1);
  EXPECT_EQ(FinishCommand("weft diff", absl::InvalidArgumentError("a.pb: bad")), kExitFailed);
  EXPECT_EQ(FinishCommand("weft diff", absl::InvalidArgumentError("a.pb: bad"), 1, 2), 2);
  EXPECT_EQ(GetCapturedStderr(), "weft diff: error: a.pb: bad\nweft diff: error: a.pb: bad\n");
}

// Runs a tool whose standard output is the file, and ends the process.
[[noreturn]] void ExitOfToolThatWritesTo(int file) {
  signal(SIGPIPE, SIG_IGN);
  if (file < 0 || dup2(file, STDOUT_FILENO) < 0) std::abort();
  std::exit(RunTool("tool", kExitFailed, [] {
    std::fputs("some", stdout);
    PrintWarning("tool", "of this");  // writes what came before
    return FinishCommand("tool", absl::OkStatus());
  }));
}

TEST(FinishCommandTest, CauseOfAnEarlierErrorOfStandardOutputIsNamed) {
  EXPECT_EXIT(ExitOfToolThatWritesTo(open("/dev/full", O_WRONLY)),
              ::testing::ExitedWithCode(kExitFailed),
              "warning: of this\ntool: error: standard output: No space left on device\n$");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_EXIT(ExitOfToolThatWritesTo(ends[1]), ::testing::ExitedWithCode(kExitFailed),
              "error: standard output: Broken pipe\n$");
  close(ends[1]);
}

TEST(ReadProgramOrExplainTest, ErrorBeginsWithThePath) {
  EXPECT_THAT(std::string(ReadProgramOrExplain(TestPath("missing.pb")).status().message()),
              StartsWith(TestPath("missing.pb") + ": "));
}

class CheckOutputsTest : public ::testing::Test {
 protected:
  CheckOutputsTest() : input_(TestPath("in.pb")) { std::ofstream(input_) << "input"; }
  const std::string input_;
};

TEST_F(CheckOutputsTest, NewFileInAnExistingDirectoryIsAcceptedAndRemoved) {
  WEFT_EXPECT_OK(CheckOutputs({input_}, {TestPath("new.pb"), ""}));
  EXPECT_FALSE(ReadFile(TestPath("new.pb")).ok());
}

TEST_F(CheckOutputsTest, OutputThatIsAnInputIsRefusedUnderAnyName) {
  EXPECT_THAT(CheckOutputs({input_}, {::testing::TempDir() + "/./in.pb"}),
              IsInvalidArgument("refusing to overwrite the input file"));
}

TEST_F(CheckOutputsTest, TwoOutputsInOneFileAreRefused) {
  EXPECT_THAT(CheckOutputs({}, {TestPath("o.pb"), TestPath("o.pb")}),
              IsInvalidArgument("two outputs"));
}

TEST_F(CheckOutputsTest, MissingDirectoryIsRefused) {
  EXPECT_THAT(std::string(CheckOutputs({}, {TestPath("no/where/o.pb")}).message()),
              HasSubstr("no/where/o.pb: cannot create a file"));
}

TEST_F(CheckOutputsTest, StandardStreamsAreNoFiles) {
  WEFT_EXPECT_OK(CheckOutputs({"-"}, {"-", "/dev/null"}));
}

}  // namespace
}  // namespace weft::testing
