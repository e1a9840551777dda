// weft launch --elastic on several hosts: jobs that lose processes, a host or the network between
// them go on to the bits of a run that loses nothing.
#include <signal.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/processes/elastic_job.h"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Of four ranks, 0 and 1 are on host 0.
class HostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const ProcessResult check = RunProcess({"/usr/bin/env", "unshare", "--net", "--mount",
                                            "tests/processes/hosts.sh", "2", "--check"});
    if (check.status != 0) GTEST_SKIP() << "hosts cannot be simulated here: " << check.err;
  }

  static const ElasticProgram::Mode& ModeOf(const std::string& name) {
    for (const ElasticProgram::Mode& mode : ElasticProgram::Modes()) {
      if (mode.name == name) return mode;
    }
    return ElasticProgram::Modes()[0];
  }

  static ElasticOutcome Run(const std::string& mode, const std::string& fault,
                            const Args& launch_flags = {}, int hosts = 2) {
    ElasticProgram program(ModeOf(mode));
    ElasticOptions options;
    options.hosts = hosts;
    options.launch_flags = launch_flags;
    return program.Run(fault, options);
  }

  static ElasticOutcome ExpectSurvives(const std::string& mode, const std::string& fault,
                                       int generations, const Args& launch_flags = {},
                                       int hosts = 2) {
    const ElasticOutcome outcome = Run(mode, fault, launch_flags, hosts);
    EXPECT_EQ(outcome.status, 0) << fault << "\n" << outcome.err;
    EXPECT_EQ(outcome.difference, "") << fault << "\n" << outcome.err;
    EXPECT_EQ(outcome.generations, generations) << fault << "\n" << outcome.err;
    return outcome;
  }
};

TEST_F(HostsTest, NothingIsLost) {
  const ElasticOutcome outcome = ExpectSurvives("topk", "none", 1);
  EXPECT_THAT(outcome.err, HasSubstr("host 1 ended with status 0\n"));
}

// Each rank of top-k has residuals of its own; with LocalSGD, parameters.
TEST_F(HostsTest, AKilledProcessChangesNoBit) {
  ExpectSurvives("topk", "kernel:1:2:2:1:kill", 2);
  ExpectSurvives("topk", "inside:1:0:1:2:kill", 2);
  ExpectSurvives("local_sgd", "kernel:1:3:3:0:kill", 2);
  ExpectSurvives("dropout", "kernel:1:1:2:4:kill", 2);
}

TEST_F(HostsTest, TheProcessThatReportsIsKilled) {
  ExpectSurvives("allreduce", "result:1:2:1:0:kill", 2);
  ExpectSurvives("topk", "checkpoint:1:4:0:1:kill", 2);
}

TEST_F(HostsTest, AllProcessesOfTheOtherHostAreKilledOneByOne) {
  ExpectSurvives("topk", "kernel:1:1:2:1:kill+kernel:2:3:3:0:kill", 3);
}

TEST_F(HostsTest, TheOtherHostIsLost) {
  for (const char* fault : {"kernel:1:2:3:1:host", "kernel:1:2:3:0:host", "kernel:1:2:2:0:host",
                            "kernel:1:2:2:5:host"}) {
    const ElasticOutcome outcome = ExpectSurvives("topk", fault, 2);
    EXPECT_THAT(outcome.err, HasSubstr("weft launch: note: host 1 is lost: "));
  }
}

TEST_F(HostsTest, AStoppedProcessOfTheOtherHostIsLost) {
  const ElasticOutcome outcome = ExpectSurvives("local_sgd", "kernel:1:2:3:1:stop", 2);
  EXPECT_THAT(outcome.err, HasSubstr("process 3 of host 1 is stopped, and is killed"));
}

TEST_F(HostsTest, AnotherProcessTakesThePlaceOfALostOneOnItsHost) {
  const Args one = {"--max_replacements", "1"}, two = {"--max_replacements", "2"};
  for (const char* mode : {"local_sgd", "topk"}) {
    const ElasticOutcome outcome = ExpectSurvives(mode, "kernel:1:2:2:1:kill", 2, one);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("note: process 2 of host 1 was killed by SIGKILL; a "
                                             "new one takes its place\n"),
                                   HasSubstr("; ranks of processes: 0, 1, 2, 3\n")));
  }
  ExpectSurvives("topk", "result:1:2:1:0:kill", 2, one);  // process 0, which reports
  ExpectSurvives("topk", "kernel:1:2:3:1:kill+kernel:2:3:2:1:kill", 3, one);
  ExpectSurvives("topk", "kernel:1:2:3:1:stop", 2, one);
}

TEST_F(HostsTest, AllProcessesOfAHostAreReplaced) {
  for (const char* fault :
       {"kernel:1:2:2:1:kill+kernel:1:2:3:1:kill", "kernel:1:2:0:1:kill+kernel:1:2:1:1:kill"}) {
    const ElasticOutcome outcome = Run("topk", fault, {"--max_replacements", "2"});
    EXPECT_EQ(outcome.status, 0) << fault << "\n" << outcome.err;
    EXPECT_EQ(outcome.difference, "") << fault << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("; ranks of processes: 0, 1, 2, 3\n"));
  }
}

TEST_F(HostsTest, AHostIsLostWhileANewProcessStarts) {
  const ElasticOutcome outcome = ExpectSurvives("topk", "kernel:1:2:2:1:kill+begin:1:0:2:0:host", 2,
                                                {"--max_replacements", "9"});
  EXPECT_THAT(outcome.err, HasSubstr("note: host 1 is lost: "));
}

// Before it starts, a stop of either host; as soon as it does, when it dies of that; and when it
// takes part. The others leave a checkpoint.
TEST_F(HostsTest, AHostIsStoppedWhileANewProcessStarts) {
  ElasticProgram program(ModeOf("adam"));
  ElasticOptions options;
  options.hosts = 2;
  options.launch_flags = {"--max_replacements", "9"};
  for (const char* stop : {"noticed:1:0:0:0:term", "noticed:1:0:3:0:term", "begin:1:0:2:0:term",
                           "begin:1:0:2:0:preempt", "start:2:0:2:0:term", "start:2:0:0:0:term"}) {
    SCOPED_TRACE(stop);
    const ElasticOutcome outcome = program.Run(absl::StrCat("kernel:1:2:2:1:kill+", stop), options);
    EXPECT_EQ(outcome.status, 128 + SIGTERM) << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("note: stopped by SIGTERM before step "),
                      HasSubstr("host 1 ended with status 143\n"), Not(HasSubstr("error"))));
    EXPECT_TRUE(program.ResumesWell(4));
  }
}

TEST_F(HostsTest, NewProcessesThatAreLostAtOnceEndTheJob) {
  const ElasticOutcome outcome =
      Run("allreduce", "kernel:1:2:3:1:kill+kernel:2:2:3:0:kill+kernel:3:2:3:1:kill",
          {"--max_replacements", "9"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("error: process 3 of host 1 is lost: it is the third with its "
                                     "ranks that is lost before a further step\n"));
}

// The half of the first launcher goes on, and the other half ends.
TEST_F(HostsTest, OneHalfOfACutNetworkGoesOn) {
  const ElasticOutcome outcome = ExpectSurvives("topk", "kernel:1:2:1:1:cut", 2);
  ASSERT_TRUE(outcome.notice_s.has_value());
  EXPECT_LT(*outcome.notice_s, 12);  // 10, and 2 for slow machines
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("host 1 is lost: "),
                                 HasSubstr("error: the launcher of host 0 is lost: "),
                                 HasSubstr("host 1 ended with status 1\n")));
}

// Of four hosts with a process each. The half of the first launcher goes on even if it is alone:
// the others, which are more, cannot tell that it has not ended.
TEST_F(HostsTest, NoHalfWithoutTheFirstLauncherGoesOn) {
  const ElasticOutcome three = ExpectSurvives("topk", "kernel:1:2:0:1:cut_last", 2, {}, 4);
  EXPECT_THAT(
      three.err,
      AllOf(HasSubstr("note: host 3 is lost: "), HasSubstr("; ranks of processes: 0, 1, 2 to 3\n"),
            HasSubstr("host 2 ended with status 0\nhost 3 ended with status 1\n")));
  const ElasticOutcome one = Run("topk", "kernel:1:2:0:1:cut", {}, 4);
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(one.difference, "") << one.err;
  EXPECT_THAT(one.err, AllOf(HasSubstr("; ranks of processes: 0 to 3\n"),
                             HasSubstr("host 1 ended with status 1\nhost 2 ended with status 1\n"
                                       "host 3 ended with status 1\n")));
}

TEST_F(HostsTest, WithoutAProcessOfTheFirstHostTheJobEnds) {
  const ElasticOutcome outcome = Run("allreduce", "kernel:1:1:0:1:kill+kernel:2:2:0:1:kill");
  EXPECT_EQ(outcome.status, 128 + SIGKILL);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("was killed by SIGKILL: no process of the first host is left"),
                    HasSubstr("host 1 ended with status "), Not(HasSubstr("generation 3"))));
}

TEST_F(HostsTest, FewerProcessesThanTheLeastAreAnError) {
  const ElasticOutcome outcome = Run("allreduce", "kernel:1:1:3:1:kill", {"--min_processes", "4"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("error: process 3 of host 1 is lost: 3 processes are "
                                           "left, fewer than --min_processes"),
                                 Not(HasSubstr("generation 2"))));
}

TEST_F(HostsTest, AnErrorOfAProcessEndsTheJobOnBoth) {
  ElasticProgram program(ModeOf("allreduce"));
  ElasticOptions options;
  options.hosts = 2;
  options.run_flags = {"--set", "learning_rate_0=1e30"};
  const ElasticOutcome outcome = program.Run("none", options);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("loss mean_0.tmp_0 is "), Not(HasSubstr("generation")),
                                 HasSubstr("host 1 ended with status "),
                                 Not(HasSubstr("host 1 ended with status 0"))));
}

// As a batch system does.
TEST_F(HostsTest, AStopOfAllHostsIsOneStop) {
  for (const char* fault :
       {"kernel:1:2:2:0:term", "kernel:1:2:0:0:term", "kernel:1:2:2:0:term+kernel:1:2:0:0:term"}) {
    SCOPED_TRACE(fault);
    ElasticProgram program(ModeOf("adam"));
    ElasticOptions options;
    options.hosts = 2;
    const ElasticOutcome outcome = program.Run(fault, options);
    EXPECT_EQ(outcome.status, 128 + SIGTERM) << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("note: stopped by SIGTERM before step "), Not(HasSubstr("error")),
                      HasSubstr("host 1 ended with status 143\n")));
    EXPECT_TRUE(program.ResumesWell(4));
  }
}

TEST_F(HostsTest, LaunchersThatDifferAreRefused) {
  const ElasticOutcome outcome = Run("allreduce", "none", {"--min_processes", "9"});
  EXPECT_EQ(outcome.status, 2) << outcome.err;
}

}  // namespace
}  // namespace weft::testing
