#include "executor/communicators/mpi_communicator.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/communicators/mpi_library.h"

namespace weft::testing {
namespace {

// What a job printed, and how it ended.
struct Job {
  int exit_code = -1;
  std::string output;
  double seconds = 0, ended_at = 0;  // on the clock of steady_clock
};

// Runs a command in which DIR is a directory of its own.
Job RunLine(const std::string& command) {
  char dir[] = "/tmp/weft-mpi-XXXXXX";
  EXPECT_NE(mkdtemp(dir), nullptr);
  const std::string line = absl::StrCat(
      "DIR=", dir, "; export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
      " TMPDIR=$DIR HOME=$DIR; timeout -k 5 100 ", command, " 2>&1");
  const auto begun = std::chrono::steady_clock::now();
  Job job;
  FILE* const pipe = popen(line.c_str(), "r");
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) job.output.append(buffer, n);
  const int status = pclose(pipe);
  job.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  const auto ended = std::chrono::steady_clock::now();
  job.seconds = std::chrono::duration<double>(ended - begun).count();
  job.ended_at = std::chrono::duration<double>(ended.time_since_epoch()).count();
  std::filesystem::remove_all(dir);
  return job;
}

// Starts a job by mpirun, on the loopback only: a sandbox may have no other network.
Job RunJob(int num_processes, const std::string& arguments) {
  return RunLine(absl::StrCat(
      "mpirun -n ", num_processes,
      " --oversubscribe --bind-to none --mca btl self,vader,tcp --mca btl_tcp_if_include lo"
      " --mca oob_tcp_if_include lo --mca plm_rsh_agent false --mca orte_tmpdir_base $DIR"
      " --mca btl_vader_backing_directory $DIR executor/communicators/mpi_test_program ",
      arguments));
}

TEST(MpiLibraryTest, MissingAndOtherLibrariesAreErrors) {
  EXPECT_THAT(LoadMpi("libmpi_missing.so").status(),
              IsUnavailable(AllOf(StartsWith("libmpi_missing.so: cannot open shared object file"),
                                  HasSubstr("; install OpenMPI 3 or later (libopenmpi3)"))));
  EXPECT_THAT(LoadMpi("libm.so.6").status(),
              IsUnavailable("libm.so.6: expected OpenMPI 3 or later, found a library without "
                            "MPI_Abort"));
}

class MpiCommunicatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!LoadMpi().ok()) GTEST_SKIP() << LoadMpi().status();
    ASSERT_EQ(std::system("command -v mpirun >/dev/null"), 0) << "install openmpi-bin";
  }
};

TEST_F(MpiCommunicatorTest, ResultsAreThoseOfThreadsBitForBit) {
  for (const auto& [processes, local_ranks] : {std::pair(2, 1), std::pair(3, 1), std::pair(2, 2)}) {
    const Job job = RunJob(processes, absl::StrCat("cases ", local_ranks));
    EXPECT_EQ(job.exit_code, 0) << job.output;
    for (int p = 0; p < processes; ++p) {
      EXPECT_THAT(job.output, HasSubstr(absl::StrCat("process ", p, " is done")));
    }
  }
}

TEST_F(MpiCommunicatorTest, ProcessWithOtherRingsIsNamed) {
  const Job job = RunJob(2, "differ 1");
  EXPECT_NE(job.exit_code, 0);
  EXPECT_THAT(job.output, HasSubstr("processes have different rings: process 0 ring 0, ring 0 "
                                    "(compute stream), ring 1 of ranks 0; process 1 ring 0, ring 0 "
                                    "(compute stream)"));
}

TEST_F(MpiCommunicatorTest, RankThatDoesNotArriveIsNamed) {
  const Job job = RunJob(2, "late 1");
  EXPECT_NE(job.exit_code, 0);
  EXPECT_THAT(job.output, HasSubstr("ring 0, all-reduce #1 of g (fp32[1000000]): rank 1 has not "
                                    "arrived after 4 s; waiting: rank 0; rank 1 last arrived at "
                                    "all-reduce #0 of g (fp32[1])"));
}

TEST_F(MpiCommunicatorTest, FailedRankEndsTheOthers) {
  const Job job = RunJob(3, "fail 1");
  EXPECT_NE(job.exit_code, 0);
  EXPECT_THAT(job.output, HasSubstr("rank 1 failed: op 5 (mul): out of luck"));
  EXPECT_THAT(job.output, Not(HasSubstr("is done")));
}

// Two hosts with a network between them: the link and MPI use TCP.
TEST_F(MpiCommunicatorTest, HostsGetTheSameBits) {
  const Job job = RunLine(
      "executor/communicators/mpi_test_hosts.sh $DIR executor/communicators/mpi_test_program cases "
      "1");
  if (job.exit_code == 77) GTEST_SKIP() << "no namespaces here: " << job.output;
  EXPECT_EQ(job.exit_code, 0) << job.output;
  EXPECT_THAT(job.output, HasSubstr("process 0 is done"));
  EXPECT_THAT(job.output, HasSubstr("process 1 is done"));
}

// The number that follows a text; the largest, if there are several. 0: none.
double TimeAfter(const std::string& output, const std::string& text) {
  double largest = 0;
  for (size_t at = output.find(text); at != std::string::npos; at = output.find(text, at + 1)) {
    largest = std::max(largest, std::strtod(output.c_str() + at + text.size(), nullptr));
  }
  return largest;
}

// Where MPI's own processes end the job first, no rank says anything.
void ExpectEndAfterFault(const Job& job, const std::string& fault, double limit_s) {
  EXPECT_NE(job.exit_code, 0);
  EXPECT_NE(job.exit_code, 124) << "timeout";
  EXPECT_THAT(job.output, Not(HasSubstr("is done")));
  const double fault_at = TimeAfter(job.output, "fault at "),
               known_at = TimeAfter(job.output, "known at ");
  ASSERT_GT(fault_at, 0) << job.output;
  EXPECT_LT((known_at > 0 ? known_at : job.ended_at) - fault_at, limit_s) << job.output;
  const std::string said = fault == "throw"     ? "rank 1 failed: op 5 (mul): out of luck"
                           : fault == "diverge" ? "ranks call different collectives"
                                                : "process 1 ";
  if (known_at > 0) {
    EXPECT_THAT(job.output, HasSubstr(said));
  }
}

// 2 s, and a slow machine.
TEST_F(MpiCommunicatorTest, RankThatFailsAtAnyMomentEndsAllInTime) {
  std::mt19937 random(5);
  for (const char* fault : {"kill", "stop", "throw", "diverge"}) {
    const std::string arguments =
        absl::StrCat("fault 1 ", fault, " 1 ", 1e-3 * static_cast<double>(random() % 300));
    SCOPED_TRACE(arguments);
    ExpectEndAfterFault(RunJob(3, arguments), fault, /*limit_s=*/4);
  }
}

// 10 s, and a slow machine.
TEST_F(MpiCommunicatorTest, RankThatFailsAtAnyMomentEndsTheOtherHostInTime) {
  std::mt19937 random(6);
  for (const char* fault : {"kill", "stop"}) {
    const std::string arguments =
        absl::StrCat("fault 1 ", fault, " 1 ", 1e-3 * static_cast<double>(random() % 300));
    SCOPED_TRACE(arguments);
    const Job job = RunLine(absl::StrCat(
        "executor/communicators/mpi_test_hosts.sh $DIR executor/communicators/mpi_test_program ",
        arguments));
    if (job.exit_code == 77) GTEST_SKIP() << "no namespaces here: " << job.output;
    ExpectEndAfterFault(job, fault, /*limit_s=*/12);
  }
}

// Only the session starts MPI.
TEST_F(MpiCommunicatorTest, NeedsASession) {
  EXPECT_THAT(NewMpiGroup({}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "MPI has not been started"));
}

}  // namespace
}  // namespace weft::testing
