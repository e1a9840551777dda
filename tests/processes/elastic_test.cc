// weft launch --elastic: jobs that lose processes go on to the bits of a run that loses none.
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/processes/elastic_job.h"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const ElasticProgram::Mode& ModeOf(const std::string& name) {
  for (const ElasticProgram::Mode& mode : ElasticProgram::Modes()) {
    if (mode.name == name) return mode;
  }
  return ElasticProgram::Modes()[0];
}

void ExpectSurvives(ElasticProgram* program, const std::string& fault, int generations,
                    const ElasticOptions& options = {}) {
  const ElasticOutcome outcome = program->Run(fault, options);
  EXPECT_TRUE(outcome.has_happened) << fault;
  EXPECT_EQ(outcome.status, 0) << fault << "\n" << outcome.err;
  EXPECT_EQ(outcome.difference, "") << fault << "\n" << outcome.err;
  EXPECT_EQ(outcome.generations, generations) << fault << "\n" << outcome.err;
}

// Of the sweep of elastic_sweep_test: one fault for each mode.
class ElasticModeTest : public ::testing::TestWithParam<int> {};

TEST_P(ElasticModeTest, ALossChangesNoBit) {
  const int i = GetParam();
  const ElasticProgram::Mode& mode = ElasticProgram::Modes()[i];
  ElasticProgram program(mode);
  ExpectSurvives(&program, absl::StrCat("kernel:1:", i % 4, ":", i % 4, ":", i, ":kill"), 2);
}

INSTANTIATE_TEST_SUITE_P(Modes, ElasticModeTest,
                         ::testing::Range(0, static_cast<int>(ElasticProgram::Modes().size())),
                         [](const auto& info) { return ElasticProgram::Modes()[info.param].name; });

TEST(ElasticTest, AnyProcessMayBeLostInACollectiveAndWhereItWrites) {
  ElasticProgram program(ModeOf("allreduce"));
  ExpectSurvives(&program, "inside:1:0:3:2:kill", 2);
  ExpectSurvives(&program, "inside:1:0:1:3:kill", 2, {4, 1, {}, {"--backend", "gloo"}});
  // Process 0 reports, and writes.
  ExpectSurvives(&program, "result:1:2:1:0:kill", 2);
  ExpectSurvives(&program, "result:1:2:3:1:kill", 2);
  ExpectSurvives(&program, "checkpoint:1:2:0:0:kill", 2);
  ExpectSurvives(&program, "checkpoint:1:4:0:3:kill", 2);
  ExpectSurvives(&program, "checkpoint:1:5:0:1:kill", 2);
}

TEST(ElasticTest, ProcessesAreLostOneAfterTheOther) {
  ElasticProgram program(ModeOf("local_sgd"));
  ExpectSurvives(&program, "kernel:1:1:0:3:kill+inside:2:0:1:0:kill+kernel:3:4:3:0:kill", 4);
  ExpectSurvives(&program, "kernel:1:1:0:3:kill+kernel:1:1:3:3:kill", 2);
  // With 2 ranks each: all are in one process at the end.
  ExpectSurvives(&program, "kernel:1:2:2:0:kill", 2, {2, 2, {}, {}});
}

// The forward pass of fit_a_line.
constexpr char kTest[] = R"(program {
  block 0 parent=-1 {
    var fc_0.b_0 : fp32[1] parameter persistable
    var fc_0.w_0 : fp32[13, 1] parameter persistable
    var x : fp32[-1, 13] need_check_feed
    var y : fp32[-1, 1] need_check_feed
    var product : fp32[-1, 1]
    var prediction : fp32[-1, 1]
    var error : fp32[-1, 1]
    var square : fp32[-1, 1]
    var loss : fp32[]
    Out=[product] = mul(X=[x], Y=[fc_0.w_0]) role=forward
    Out=[prediction] = elementwise_add(X=[product], Y=[fc_0.b_0]) role=forward {axis=1}
    Out=[error] = elementwise_sub(X=[prediction], Y=[y]) role=forward
    Out=[square] = square(X=[error]) role=forward
    Out=[loss] = reduce_mean(X=[square]) role=loss {dim=ints[], reduce_all=true}
  }
}
)";

TEST(ElasticTest, ALossKeepsTheBestOfValidations) {
  const std::string test = TestPath("valid.prog");
  std::ofstream(test) << kTest;
  // The rate is much too large from step 4 on: the state after step 3 is the best.
  const Args validates = {"--valid",       test,
                          "--valid_every", "2",
                          "--valid_feeds", "tests/data/fit_a_line/feeds.npz",
                          "--keep_best",   "loss",
                          "--lr_schedule", "piecewise{boundaries=4,values=0.01:2.0}"};
  ElasticProgram program(ModeOf("allreduce"));
  ExpectSurvives(&program, "kernel:1:4:2:1:kill", 2, {4, 1, {}, validates});
  // Process 0 validates, and keeps the best.
  ExpectSurvives(&program, "result:1:4:1:0:kill", 2, {4, 1, {}, validates});
  ExpectSurvives(&program, "checkpoint:1:4:0:0:kill", 2, {4, 1, {}, validates});
  ExpectSurvives(&program, "checkpoint:1:4:0:1:kill", 2, {4, 1, {}, validates});
  // The last checkpoint is another.
  EXPECT_NE(Contents(TestPath("allreduce.ckpt.best")), Contents(TestPath("allreduce.ckpt")));
}

// The new one gets the state of its rank from the others.
TEST(ElasticTest, AnotherProcessTakesThePlaceOfALostOne) {
  for (const char* mode : {"local_sgd", "topk", "dropout"}) {
    SCOPED_TRACE(mode);
    ElasticProgram program(ModeOf(mode));
    const ElasticOutcome outcome =
        program.Run("kernel:1:2:2:1:kill", {4, 1, {"--max_replacements", "1"}, {}});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.difference, "") << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("was killed by SIGKILL; a new one takes its place"),
                                   HasSubstr("generation 2 of the job goes on before step "),
                                   HasSubstr("; ranks of processes: 0, 1, 2, 3\n")));
  }
  ElasticProgram program(ModeOf("allreduce"));
  // Process 0 reports, and writes; a step is lost before the first is kept; a new process is lost;
  // there is one for one loss only.
  const auto with = [](int replacements) {
    return ElasticOptions{4, 1, {"--max_replacements", absl::StrCat(replacements)}, {}};
  };
  ExpectSurvives(&program, "result:1:2:1:0:kill", 2, with(1));
  ExpectSurvives(&program, "kernel:1:0:0:1:kill", 2, with(1));
  ExpectSurvives(&program, "kernel:1:2:1:1:kill+kernel:2:3:1:1:kill", 3, with(2));
  ExpectSurvives(&program, "kernel:1:2:1:1:kill+kernel:2:2:1:0:kill", 3, with(2));
  ExpectSurvives(&program, "kernel:1:2:1:1:kill+kernel:2:3:2:1:kill", 3, with(1));
  ExpectSurvives(&program, "inside:1:0:3:2:kill", 2,
                 {4, 1, {"--max_replacements", "1"}, {"--backend", "gloo"}});
}

// As one that the same step kills again and again.
TEST(ElasticTest, NewProcessesThatAreLostAtOnceEndTheJob) {
  ElasticProgram program(ModeOf("allreduce"));
  const ElasticOutcome outcome =
      program.Run("kernel:1:2:1:1:kill+kernel:2:2:1:0:kill+kernel:3:2:1:1:kill+kernel:4:2:1:1:kill",
                  {4, 1, {"--max_replacements", "1000"}, {}});
  EXPECT_EQ(outcome.status, 128 + SIGKILL);
  EXPECT_THAT(outcome.err,
              AllOf(ContainsRegex("error: process 1 \\(pid [0-9]+\\) was killed by SIGKILL: it is "
                                  "the third with its ranks that is lost before a further step"),
                    HasSubstr("generation 3 "), Not(HasSubstr("generation 5 "))));
}

// Such as one that cannot read what the first could.
TEST(ElasticTest, NewProcessesThatDoNotComeToTheirFirstStepEndTheJob) {
  ElasticProgram program(ModeOf("allreduce"));
  const ElasticOutcome outcome = program.Run("kernel:1:2:1:1:kill+begin:1:0:1:0:kill",
                                             {4, 1, {"--max_replacements", "1000"}, {}});
  EXPECT_EQ(outcome.status, 128 + SIGKILL);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("it is the third with its ranks that is lost"),
                                 Not(HasSubstr("generation 2 "))));
}

TEST(ElasticTest, AStoppedProcessIsLostAndASlowOneIsNot) {
  ElasticProgram program(ModeOf("topk"));
  ExpectSurvives(&program, "kernel:1:1:2:1:stop", 2);
  ExpectSurvives(&program, "kernel:1:1:2:1:slow", 1);
}

TEST(ElasticTest, FewerProcessesThanTheLeastAreAnError) {
  ElasticProgram program(ModeOf("allreduce"));
  const ElasticOutcome outcome =
      program.Run("kernel:1:1:2:1:kill", {4, 1, {"--min_processes", "4"}, {}});
  EXPECT_EQ(outcome.status, 128 + SIGKILL);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("weft launch: error: process 2 (pid "),
                                 HasSubstr(") was killed by SIGKILL: 3 processes are left, fewer "
                                           "than --min_processes"),
                                 Not(HasSubstr("generation 2"))));
}

TEST(ElasticTest, AllProcessesAreLost) {
  ElasticProgram program(ModeOf("allreduce"));
  const ElasticOutcome outcome =
      program.Run("kernel:1:1:0:1:kill+kernel:2:1:1:1:kill", {2, 2, {}, {}});
  EXPECT_EQ(outcome.status, 128 + SIGKILL);
  EXPECT_THAT(outcome.err, HasSubstr("was killed by SIGKILL"));
}

TEST(ElasticTest, AnErrorOfAProcessEndsTheJob) {
  ElasticProgram program(ModeOf("allreduce"));
  const ElasticOutcome outcome = program.Run("none", {4, 1, {}, {"--set", "learning_rate_0=1e30"}});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("loss mean_0.tmp_0 is "), Not(HasSubstr("generation"))));
}

TEST(ElasticTest, ABackendThatComputesWronglyIsNamed) {
  ElasticProgram program(ModeOf("allreduce"));
  const ElasticOutcome outcome =
      program.Run("wrong:1:0:0:0:kill", {2, 2, {}, {"--backend", "gloo"}});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err,
              HasSubstr("--backend gloo: self-test of collectives: sum by all-reduce "));
  EXPECT_EQ(outcome.out, "");
}

TEST(ElasticTest, TheHostGoesBackToo) {
  ElasticProgram program(ModeOf("allreduce"));
  const Args plateau = {"--lr_schedule",
                        "reduce_on_plateau{learning_rate=0.01,every=2,patience=0,factor=0.5,"
                        "threshold=0.9}"};
  ExpectSurvives(&program, "kernel:1:3:0:2:kill", 2, {4, 1, {}, plateau});
  ExpectSurvives(&program, "kernel:1:4:1:2:kill", 2, {4, 1, {}, plateau});
  ExpectSurvives(&program, "kernel:1:3:1:2:kill", 2,
                 {4, 1, {}, {"--lr_schedule", "exponential{learning_rate=0.01,gamma=0.5}"}});
  ExpectSurvives(&program, "kernel:1:8:0:2:kill", 2, {4, 1, {}, {"--resume_step", "5"}});
}

// As a batch system stops a job: one process dies of it, or has died just before, wherever the
// others are then.
TEST(ElasticTest, AStopAndALossAtOneTimeLeaveACheckpoint) {
  ElasticProgram program(ModeOf("adam"));
  for (const char* fault :
       {"kernel:1:3:2:1:preempt", "kernel:1:3:0:1:preempt",
        "kernel:1:3:2:1:kill+noticed:1:0:1:0:term", "inside:1:0:0:1:kill+noticed:1:0:2:0:term",
        "inside:1:0:0:1:kill+start:2:0:3:0:term", "inside:1:0:0:1:kill+kernel:2:0:0:0:term"}) {
    const ElasticOutcome outcome = program.Run(fault);
    EXPECT_EQ(outcome.status, 128 + SIGTERM) << fault << "\n" << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("note: stopped by SIGTERM before step "), Not(HasSubstr("error"))))
        << fault;
    EXPECT_TRUE(program.ResumesWell(4)) << fault << "\n" << outcome.err;
  }
}

// Before it starts, as soon as it does, and when it takes part: in its own part and in that of
// another one.
TEST(ElasticTest, AStopWhileANewProcessStartsLeavesACheckpoint) {
  ElasticProgram program(ModeOf("adam"));
  for (const char* fault :
       {"kernel:1:3:2:1:preempt", "kernel:1:3:2:1:kill+noticed:1:0:1:0:term",
        "kernel:1:3:2:1:kill+begin:1:0:2:0:term", "kernel:1:3:0:1:kill+begin:1:0:0:0:preempt",
        "kernel:1:3:2:1:kill+start:2:0:2:0:term", "kernel:1:3:0:1:kill+start:2:0:2:0:term"}) {
    const ElasticOutcome outcome = program.Run(fault, {4, 1, {"--max_replacements", "9"}, {}});
    EXPECT_EQ(outcome.status, 128 + SIGTERM) << fault << "\n" << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("note: stopped by SIGTERM before step "), Not(HasSubstr("error"))))
        << fault;
    EXPECT_TRUE(program.ResumesWell(4)) << fault << "\n" << outcome.err;
  }
}

// Rank 3 is slow, so that all hear of it before process 0 is killed.
TEST(ElasticTest, AStopOfOneProcessIsNotLostWithIt) {
  ElasticProgram program(ModeOf("adam"));
  const ElasticOutcome outcome =
      program.Run("kernel:1:1:0:1:own+kernel:1:2:3:0:slow+checkpoint:1:3:0:0:kill");
  EXPECT_EQ(outcome.status, 128 + SIGTERM) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("note: stopped by SIGTERM before step "));
  EXPECT_TRUE(program.ResumesWell(4)) << outcome.err;
}

// What the system still does for it could come later.
TEST(ElasticTest, AProcessThatSigkillDoesNotEndEndsTheJob) {
  ElasticProgram program(ModeOf("allreduce"));
  const ElasticOutcome outcome =
      program.Run("kernel:1:1:2:1:leave+kernel:1:1:0:1:kill", {4, 1, {"--grace_s", "1"}, {}});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(ContainsRegex("error: process 2 \\(pid [0-9]+\\) has not ended "
                                               "after SIGKILL"),
                                 Not(HasSubstr("generation 2"))));
}

// Nobody takes over what it should have done.
TEST(ElasticTest, OtherCommandsAreNotElastic) {
  const ProcessResult result =
      RunProcess({"tools/weft", "launch", "--elastic", "-n", "2", "--", "/bin/sh", "-c",
                  "if [ $WEFT_JOB_RANK = 0 ]; then kill -9 $$; fi; sleep 0.5"});
  EXPECT_EQ(result.status, 128 + SIGKILL);
  EXPECT_THAT(result.err, HasSubstr("weft launch: error: process 0 "));
}

TEST(ElasticTest, FlagsThatNeedALostProcessAreRefused) {
  ElasticProgram program(ModeOf("allreduce"));
  for (const Args& flags : {Args{"--trace", TestPath("x")},
                            {"--profile", TestPath("x")},
                            {"--fetch_npz", TestPath("x")},
                            {"--backend", "mpi"},
                            {"--backend", "local"}}) {
    const ElasticOutcome outcome = program.Run("none", {2, 2, {}, flags});
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.err, HasSubstr("weft launch --elastic: expected ")) << flags[0];
  }
}

}  // namespace
}  // namespace weft::testing
