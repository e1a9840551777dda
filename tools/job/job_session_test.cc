#include "tools/job/job_session.h"

#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Environment = std::map<std::string, std::string>;

absl::StatusOr<std::unique_ptr<JobSession>> Join(const JobSessionOptions& options,
                                                 const Environment& environment) {
  return JobSession::Join(options, [&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

// Of one of two processes, on two hosts.
Environment OpenMpi(int process) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(process)},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
          {"PMIX_NAMESPACE", "job_session_test"}};
}

TEST(JobSessionTest, HostsWithoutAnMpiNeedAnAddress) {
  JobSessionOptions options;
  options.mpi_file = "libmpi_missing.so";
  EXPECT_THAT(
      Join(options, OpenMpi(0)).status(),
      IsInvalidArgument(AllOf(HasSubstr("mpirun (OpenMPI) started 2 processes and does not say "
                                        "where they meet (OMPI_COMM_WORLD_LOCAL_SIZE=1): set "
                                        "WEFT_JOB_ADDRESS=HOST:PORT"),
                              HasSubstr("or let MPI connect them: libmpi_missing.so: "),
                              HasSubstr("install OpenMPI 3 or later"))));
}

// An address may be a name on one host, too: what counts is where the processes find each other.
TEST(JobSessionTest, WithoutMpiJoinsTheProcessesOfOneByTheirAddress) {
  JobSessionOptions options;
  options.mpi_file = "libmpi_missing.so";
  const auto join = [&](int process) {
    Environment environment = OpenMpi(process);
    environment["WEFT_JOB_ADDRESS"] = "unix:weft-job-session-test-" + std::to_string(getpid());
    const auto session = Join(options, environment);
    WEFT_ASSERT_OK(session.status());
    EXPECT_EQ((*session)->backend(), "shm");
    EXPECT_EQ((*session)->num_processes(), 2);
    WEFT_EXPECT_OK((*session)->Finish(absl::OkStatus()));
  };
  std::thread second(join, 1);
  join(0);
  second.join();
}

// Of the processes of MPICH, which does not say where they are.
std::vector<absl::StatusOr<std::unique_ptr<JobSession>>> JoinOnGpus(
    const std::string& address, int gpus, const Environment& environment = {}) {
  std::vector<absl::StatusOr<std::unique_ptr<JobSession>>> sessions(2);
  const auto join = [&](int process) {
    JobSessionOptions options;
    options.on_gpus = true;
    options.count_gpus = [gpus] { return gpus; };
    options.local_ranks = 2;
    Environment own = environment;
    own["PMI_RANK"] = std::to_string(process);
    own["PMI_SIZE"] = "2";
    own["WEFT_JOB_ADDRESS"] = address;
    own["WEFT_JOB_TOKEN"] = std::string(32, 'a');
    sessions[process] = Join(options, own);
    if (sessions[process].ok()) {
      WEFT_EXPECT_OK((*sessions[process])->Finish(absl::OkStatus()));
    }
  };
  std::thread second(join, 1);
  join(0);
  second.join();
  return sessions;
}

TEST(JobSessionTest, ProcessesTakeTheGpusOfTheirNumberOnTheHost) {
  const std::string name = absl::StrCat("unix:weft-job-session-gpus-", getpid());
  auto sessions = JoinOnGpus(name, 4);  // one host: the numbers of the processes
  for (int rank = 0; rank < 4; ++rank) {
    WEFT_ASSERT_OK(sessions[rank / 2].status());
    EXPECT_EQ((*sessions[rank / 2])->GpuOf(rank), rank);
  }
  sessions = JoinOnGpus(name, 4, {{"WEFT_JOB_LOCAL_RANK", "1"}});
  WEFT_ASSERT_OK(sessions[0].status());
  EXPECT_EQ((*sessions[0])->GpuOf(0), 2);
  sessions = JoinOnGpus(name, 2);  // its own only
  WEFT_ASSERT_OK(sessions[1].status());
  EXPECT_EQ((*sessions[1])->GpuOf(3), 1);
}

// Not the first GPU for all.
TEST(JobSessionTest, UnknownNumberOnTheHostIsAnErrorThatSaysWhatToSet) {
  Job job;
  job.launcher = "mpiexec (PMI)";
  job.process = 1;
  job.num_processes = 2;
  EXPECT_THAT(FirstGpuOf(job, /*is_one_host=*/false, /*local_ranks=*/1, /*num_gpus=*/8).status(),
              IsInvalidArgument(AllOf(HasSubstr("mpiexec (PMI) does not say which of the 8 GPUs"),
                                      HasSubstr("set WEFT_JOB_LOCAL_RANK"))));
  EXPECT_EQ(*FirstGpuOf(job, false, 1, 1), 0);
  job.local_process = 3;
  EXPECT_EQ(*FirstGpuOf(job, false, 2, 8), 6);
}

}  // namespace
}  // namespace weft::testing
