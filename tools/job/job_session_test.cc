#include "tools/job/job_session.h"

#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <thread>

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

}  // namespace
}  // namespace weft::testing
