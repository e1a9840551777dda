#include "tools/job/job_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/job/process.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

using Environment = std::map<std::string, std::string>;

Environment operator+(Environment a, const Environment& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

absl::StatusOr<absl::optional<Job>> Find(const Environment& environment,
                                         absl::optional<int> launcher_pid = absl::nullopt) {
  return FindJob(
      [&](const char* name) -> const char* {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
      },
      [&](const std::string&) { return launcher_pid; });
}

// The job of an environment that must have one.
Job JobOf(const Environment& environment, absl::optional<int> launcher_pid = absl::nullopt) {
  const absl::StatusOr<absl::optional<Job>> job = Find(environment, launcher_pid);
  EXPECT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job.ok() && job->has_value());
  return job.ok() && job->has_value() ? **job : Job();
}

std::string AddressError(const Job& job) { return std::string(job.address.status().message()); }

void ExpectNoJob(const Environment& environment) {
  const absl::StatusOr<absl::optional<Job>> job = Find(environment);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(job->has_value()) << (*job)->launcher;
}

void ExpectError(const Environment& environment, const std::vector<std::string>& parts) {
  const absl::StatusOr<absl::optional<Job>> job = Find(environment);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& part : parts)
    EXPECT_THAT(std::string(job.status().message()), HasSubstr(part));
}

std::string UnixName() { return absl::StrCat("unix:weft-", getuid(), "-[0-9a-f]+"); }

// As OpenMPI 4.1 sets them, on one host.
Environment OpenMpi(int rank, int size) {
  return {{"OMPI_COMM_WORLD_RANK", absl::StrCat(rank)},
          {"OMPI_COMM_WORLD_SIZE", absl::StrCat(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", absl::StrCat(rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", absl::StrCat(size)},
          {"PMIX_RANK", absl::StrCat(rank)},
          {"PMIX_NAMESPACE", "1880358913"}};
}

// Of torchrun on hosts of two processes each.
Environment Torchrun(int rank, int size) {
  return {{"RANK", absl::StrCat(rank)},
          {"WORLD_SIZE", absl::StrCat(size)},
          {"LOCAL_RANK", absl::StrCat(rank % 2)},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "node7"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_RESTART_COUNT", "0"}};
}

Environment Paddle(int rank, const std::string& current, const std::string& endpoints, int size) {
  return {{"PADDLE_TRAINER_ID", absl::StrCat(rank)},
          {"PADDLE_TRAINERS_NUM", absl::StrCat(size)},
          {"PADDLE_CURRENT_ENDPOINT", current},
          {"PADDLE_TRAINER_ENDPOINTS", endpoints}};
}

Environment Slurm(int rank, int size, int nodes) {
  return {{"SLURM_PROCID", absl::StrCat(rank)},
          {"SLURM_NTASKS", absl::StrCat(size)},
          {"SLURM_STEP_NUM_TASKS", absl::StrCat(size)},
          {"SLURM_LOCALID", "0"},
          {"SLURM_JOB_ID", "200505"},
          {"SLURM_STEP_ID", "3"},
          {"SLURM_STEP_NUM_NODES", absl::StrCat(nodes)},
          {"SLURM_STEP_NODELIST", "gnode[10,20-25]"}};
}

Environment WeftLaunch(int rank, int size) {
  return {{"WEFT_JOB_RANK", absl::StrCat(rank)},
          {"WEFT_JOB_SIZE", absl::StrCat(size)},
          {"WEFT_JOB_LOCAL_RANK", absl::StrCat(rank % 2)},
          {"WEFT_JOB_ADDRESS", "unix:weft-launch-7-1"},
          {"WEFT_JOB_ID", "7-1"}};
}

TEST(JobEnvironmentTest, NoLauncherIsNoJob) {
  ExpectNoJob({});
  ExpectNoJob({{"RANK", ""}, {"WORLD_SIZE", ""}});
}

TEST(JobEnvironmentTest, TokensAreOfTheEnvironmentOrOfAFile) {
  const std::string token(32, 'a');
  const Job given = JobOf(WeftLaunch(1, 2) + Environment{{"WEFT_JOB_TOKEN", token}});
  EXPECT_EQ(given.token, token);
  ExpectError(WeftLaunch(1, 2) + Environment{{"WEFT_JOB_TOKEN", "secret"}},
              {"WEFT_JOB_TOKEN: expected 32 to 128 hexadecimal digits"});
  // The file is one for all processes of a job, and for no other job.
  const Job first = JobOf(OpenMpi(0, 2)), second = JobOf(OpenMpi(1, 2));
  EXPECT_EQ(first.token, "");
  EXPECT_THAT(first.token_file, MatchesRegex("\\.weft-job-[0-9a-f]{16}\\.token"));
  EXPECT_EQ(first.token_file, second.token_file);
  EXPECT_NE(JobOf(OpenMpi(0, 2) + Environment{{"PMIX_NAMESPACE", "7"}}).token_file,
            first.token_file);
}

TEST(JobEnvironmentTest, OnlyGuessedPortsMayBeOthers) {
  EXPECT_TRUE(JobOf(Slurm(0, 4, 2)).any_port);
  EXPECT_FALSE(JobOf(Slurm(0, 4, 2) + Environment{{"WEFT_JOB_ADDRESS", "a:1"}}).any_port);
  EXPECT_FALSE(JobOf(Torchrun(0, 4)).any_port);
}

TEST(JobEnvironmentTest, OneProcessMeetsNobody) {
  EXPECT_EQ(JobOf(OpenMpi(0, 1)).num_processes, 1);
  EXPECT_EQ(JobOf(Torchrun(0, 1)).num_processes, 1);
  EXPECT_EQ(JobOf(Slurm(0, 1, 1)).num_processes, 1);
  EXPECT_EQ(JobOf(WeftLaunch(0, 1)).num_processes, 1);
  EXPECT_EQ(JobOf(Paddle(0, "a:1", "a:1", 1)).num_processes, 1);
  EXPECT_EQ(JobOf({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).num_processes, 1);
}

TEST(JobEnvironmentTest, OpenMpiOnOneHostMeetsAtANameOfTheJob) {
  const Job job = JobOf(OpenMpi(1, 4));
  EXPECT_EQ(job.launcher, "mpirun (OpenMPI)");
  EXPECT_EQ(job.process, 1);
  EXPECT_EQ(job.num_processes, 4);
  EXPECT_EQ(job.local_process, 1);
  EXPECT_EQ(job.mpi, Job::Mpi::kOpenMpi);
  EXPECT_EQ(job.job, "mpirun (OpenMPI): 1880358913");
  ASSERT_TRUE(job.address.ok()) << job.address.status();
  EXPECT_THAT(*job.address, MatchesRegex(UnixName()));

  const Job other_process = JobOf(OpenMpi(3, 4));
  EXPECT_EQ(*other_process.address, *job.address);
  EXPECT_EQ(other_process.job, job.job);
  const Job other_job = JobOf(OpenMpi(1, 4) + Environment{{"PMIX_NAMESPACE", "1880358914"}});
  EXPECT_NE(*other_job.address, *job.address);
  EXPECT_NE(other_job.job, job.job);
}

TEST(JobEnvironmentTest, OpenMpiOnSeveralHostsNeedsAnAddress) {
  const Environment hosts = OpenMpi(1, 4) + Environment{{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const Job job = JobOf(hosts);
  EXPECT_EQ(job.num_processes, 4);
  EXPECT_EQ(job.mpi, Job::Mpi::kOpenMpi);
  EXPECT_EQ(job.address.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(AddressError(job), AllOf(StartsWith("mpirun (OpenMPI) started 4 processes"),
                                       HasSubstr("OMPI_COMM_WORLD_LOCAL_SIZE=2"),
                                       HasSubstr("set WEFT_JOB_ADDRESS=HOST:PORT")));
  EXPECT_EQ(*JobOf(hosts + Environment{{"WEFT_JOB_ADDRESS", "a:1"}}).address, "a:1");
}

TEST(JobEnvironmentTest, HydraOnOneHostMeetsAtANameOfItsProcess) {
  const Environment hydra = {
      {"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}};
  const Job job = JobOf(hydra, 77);
  EXPECT_EQ(job.process, 2);
  EXPECT_EQ(job.num_processes, 3);
  EXPECT_EQ(job.local_process, 2);
  EXPECT_EQ(job.mpi, Job::Mpi::kMpich);
  EXPECT_EQ(job.job, "mpiexec (PMI): pid 77");
  EXPECT_THAT(*job.address, MatchesRegex(UnixName()));
  EXPECT_NE(*JobOf(hydra, 78).address, *job.address);
  // /proc does not say.
  EXPECT_THAT(AddressError(JobOf(hydra)), HasSubstr("WEFT_JOB_ADDRESS"));
  EXPECT_THAT(AddressError(JobOf(hydra + Environment{{"MPI_LOCALNRANKS", "2"}}, 77)),
              HasSubstr("MPI_LOCALNRANKS=2"));
}

TEST(JobEnvironmentTest, TorchrunOnSeveralHostsMeetsAtItsMaster) {
  const Job job = JobOf(Torchrun(3, 4));
  EXPECT_EQ(job.launcher, "torchrun");
  EXPECT_EQ(job.process, 3);
  EXPECT_EQ(job.num_processes, 4);
  EXPECT_EQ(job.local_process, 1);
  EXPECT_EQ(job.mpi, Job::Mpi::kNone);
  EXPECT_EQ(*job.address, "node7:29500");
  EXPECT_EQ(job.job, "torchrun: none,node7,29500");
  // Agents may count restarts differently.
  EXPECT_EQ(JobOf(Torchrun(3, 4) + Environment{{"TORCHELASTIC_RESTART_COUNT", "1"}}).job, job.job);
  EXPECT_EQ(*JobOf(Torchrun(3, 4) + Environment{{"MASTER_ADDR", "::1"}}).address, "[::1]:29500");
}

TEST(JobEnvironmentTest, TheAgentOfTorchrunHoldsItsPort) {
  const Environment agent = {{"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  EXPECT_EQ(*JobOf(Torchrun(3, 4) + agent).address, "node7:29501");
  EXPECT_EQ(*JobOf(Torchrun(3, 4) + Environment{{"TORCHELASTIC_USE_AGENT_STORE", "False"}}).address,
            "node7:29500");
  ExpectError(Torchrun(3, 4) + agent + Environment{{"MASTER_PORT", "65535"}},
              {"MASTER_PORT=65535", "from 1 to 65534"});
}

TEST(JobEnvironmentTest, TorchrunOnOneHostMeetsAtANameOfTheAttempt) {
  const Job job = JobOf(Torchrun(1, 2));
  EXPECT_THAT(*job.address, MatchesRegex(UnixName()));
  EXPECT_EQ(*JobOf(Torchrun(0, 2)).address, *job.address);
  for (const Environment& other :
       {Environment{{"TORCHELASTIC_RESTART_COUNT", "1"}}, Environment{{"TORCHELASTIC_RUN_ID", "b"}},
        Environment{{"MASTER_PORT", "29501"}}}) {
    EXPECT_NE(*JobOf(Torchrun(1, 2) + other).address, *job.address);
    EXPECT_NE(JobOf(Torchrun(1, 2) + other).job, job.job);
  }
}

TEST(JobEnvironmentTest, RanksByHandNeedAMaster) {
  const Job job = JobOf({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  EXPECT_THAT(AddressError(job), AllOf(HasSubstr("MASTER_ADDR is not set, MASTER_PORT is not set"),
                                       HasSubstr("WEFT_JOB_ADDRESS")));
}

TEST(JobEnvironmentTest, PaddleMeetsAtTheFirstTrainer) {
  const std::string endpoints = "10.0.0.1:6070,10.0.0.2:6070,10.0.0.1:6071";
  const Job job = JobOf(Paddle(2, "10.0.0.1:6071", endpoints, 3));
  EXPECT_EQ(job.launcher, "paddle.distributed.launch");
  EXPECT_EQ(job.process, 2);
  EXPECT_EQ(job.num_processes, 3);
  EXPECT_EQ(job.local_process, 1);
  EXPECT_EQ(*job.address, "10.0.0.1:6070");
  EXPECT_EQ(job.job, absl::StrCat("paddle.distributed.launch: ", endpoints));
}

TEST(JobEnvironmentTest, ContradictingEndpointsAreAnError) {
  ExpectError(Paddle(1, "a:1", "a:1,a:2", 2),
              {"PADDLE_CURRENT_ENDPOINT=a:1", "PADDLE_TRAINER_ENDPOINTS=a:1,a:2", "is a:2",
               "PADDLE_TRAINER_ID=1"});
  ExpectError(Paddle(1, "a:2", "a:1,a:2,a:3", 2),
              {"PADDLE_TRAINERS_NUM=2", "PADDLE_TRAINER_ENDPOINTS=a:1,a:2,a:3", "3 endpoints"});
}

TEST(JobEnvironmentTest, SlurmMeetsAtTheFirstHostOfTheStep) {
  const Job job = JobOf(Slurm(5, 8, 4));
  EXPECT_EQ(job.launcher, "srun (Slurm)");
  EXPECT_EQ(job.process, 5);
  EXPECT_EQ(job.num_processes, 8);
  EXPECT_EQ(job.local_process, 0);
  EXPECT_EQ(job.mpi, Job::Mpi::kNone);
  EXPECT_EQ(*job.address, "gnode10:20508");
  EXPECT_EQ(job.job, "srun (Slurm): 200505.3");
  const std::pair<const char*, const char*> lists[] = {
      {"a,b[1-2]", "a:20508"}, {"n[07-12]-ib,x", "n07-ib:20508"}, {"r[1-2]n[3,4]", "r1n3:20508"}};
  for (const auto& [list, address] : lists) {
    EXPECT_EQ(*JobOf(Slurm(5, 8, 4) + Environment{{"SLURM_STEP_NODELIST", list}}).address, address);
  }
  EXPECT_THAT(AddressError(JobOf(Slurm(5, 8, 4) + Environment{{"SLURM_STEP_NODELIST", "n[1"}})),
              HasSubstr("SLURM_STEP_NODELIST=n[1"));
  EXPECT_EQ(JobOf(Slurm(5, 8, 4) + Environment{{"PMIX_RANK", "5"}}).mpi, Job::Mpi::kOpenMpi);
}

TEST(JobEnvironmentTest, SlurmOnOneHostMeetsAtANameOfTheStep) {
  const Job job = JobOf(Slurm(1, 2, 1));
  EXPECT_THAT(*job.address, MatchesRegex(UnixName()));
  EXPECT_NE(*JobOf(Slurm(1, 2, 1) + Environment{{"SLURM_STEP_ID", "4"}}).address, *job.address);
}

// Shells and batch scripts of an allocation have most of the variables.
TEST(JobEnvironmentTest, AnAllocationOfSlurmIsNoJob) {
  Environment batch = Slurm(0, 4, 1);
  batch.erase("SLURM_STEP_ID");
  ExpectNoJob(batch);
  ExpectNoJob({{"SLURM_JOB_ID", "5"}, {"SLURM_NTASKS", "4"}});
  // A shell of a step.
  EXPECT_EQ(JobOf({{"SLURM_JOB_ID", "5"},
                   {"SLURM_NTASKS", "4"},
                   {"SLURM_STEP_NUM_TASKS", "1"},
                   {"SLURM_PROCID", "0"},
                   {"SLURM_STEP_ID", "4294967290"}})
                .num_processes,
            1);
}

TEST(JobEnvironmentTest, WeftLaunchSaysAll) {
  const Job job = JobOf(WeftLaunch(1, 2));
  EXPECT_EQ(job.launcher, "weft launch");
  EXPECT_EQ(job.process, 1);
  EXPECT_EQ(job.num_processes, 2);
  EXPECT_EQ(job.local_process, 1);
  EXPECT_EQ(*job.address, "unix:weft-launch-7-1");
  EXPECT_EQ(job.job, "weft launch: 7-1");
  // On hosts with two processes each.
  const Environment hosts = {{"WEFT_JOB_ADDRESS", "a:1"}};
  EXPECT_EQ(JobOf(WeftLaunch(2, 4) + hosts).local_process, 0);
  EXPECT_EQ(JobOf(WeftLaunch(3, 4) + hosts).local_process, 1);
  ExpectError({{"WEFT_JOB_ADDRESS", "a:1"}}, {"WEFT_JOB_ADDRESS=a:1", "WEFT_JOB_RANK"});
}

TEST(JobEnvironmentTest, WeftLaunchMayRunInAJobOfOneProcess) {
  const Job job = JobOf(WeftLaunch(1, 2) + Torchrun(0, 1) + Slurm(0, 1, 1));
  EXPECT_EQ(job.process, 1);
  EXPECT_EQ(job.num_processes, 2);
  EXPECT_EQ(*job.address, "unix:weft-launch-7-1");
}

TEST(JobEnvironmentTest, LaunchersMayAgree) {
  // A script that runs under mpirun and exports what PyTorch reads.
  const Job job = JobOf(OpenMpi(1, 2) + Environment{{"RANK", "1"},
                                                    {"WORLD_SIZE", "2"},
                                                    {"MASTER_ADDR", "node7"},
                                                    {"MASTER_PORT", "29500"}});
  EXPECT_EQ(job.launcher, "torchrun and mpirun (OpenMPI)");
  EXPECT_EQ(job.process, 1);
  EXPECT_EQ(job.local_process, 1);
  EXPECT_EQ(job.mpi, Job::Mpi::kOpenMpi);
  EXPECT_EQ(*job.address, "node7:29500");
  // srun --mpi=pmi2
  const Job slurm = JobOf(Slurm(1, 8, 2) + Environment{{"PMI_RANK", "1"}, {"PMI_SIZE", "8"}});
  EXPECT_EQ(slurm.launcher, "mpiexec (PMI) and srun (Slurm)");
  EXPECT_EQ(slurm.mpi, Job::Mpi::kMpich);
  EXPECT_EQ(*slurm.address, "gnode10:20508");
}

TEST(JobEnvironmentTest, LaunchersThatDifferAreAnErrorThatNamesBoth) {
  ExpectError(OpenMpi(0, 2) + Torchrun(1, 4),
              {"WORLD_SIZE=4 (torchrun)", "OMPI_COMM_WORLD_SIZE=2 (mpirun (OpenMPI))"});
  ExpectError(OpenMpi(0, 4) + Torchrun(1, 4),
              {"RANK=1 (torchrun)", "OMPI_COMM_WORLD_RANK=0 (mpirun (OpenMPI))"});
  ExpectError(OpenMpi(0, 2) + WeftLaunch(1, 4),
              {"WEFT_JOB_SIZE=4 (weft launch)", "OMPI_COMM_WORLD_SIZE=2"});
  // Also one of a single process: it would end the others' ranks, or make many jobs of one.
  ExpectError(OpenMpi(0, 1) + Torchrun(1, 4), {"WORLD_SIZE=4", "OMPI_COMM_WORLD_SIZE=1"});
  ExpectError(Paddle(0, "a:1", "a:1,a:2", 2) + Torchrun(1, 4),
              {"WORLD_SIZE=4", "PADDLE_TRAINERS_NUM=2"});
}

TEST(JobEnvironmentTest, SrunMayStartOtherLaunchers) {
  // One torchrun, or one proxy of an MPI, per host.
  EXPECT_EQ(JobOf(Slurm(1, 2, 2) + Torchrun(3, 4)).launcher, "torchrun");
  EXPECT_EQ(JobOf(Slurm(1, 2, 2) + Torchrun(3, 4)).process, 3);
  EXPECT_EQ(JobOf(Slurm(0, 1, 1) + OpenMpi(1, 2)).process, 1);
  // Four runs of one rank each would be a wrong result.
  ExpectError(Slurm(2, 4, 1) + Torchrun(0, 1),
              {"WORLD_SIZE=1 (torchrun)", "SLURM_STEP_NUM_TASKS=4 (srun (Slurm))"});
}

TEST(JobEnvironmentTest, BadNumbersAreErrorsThatNameThem) {
  ExpectError(OpenMpi(4, 4), {"OMPI_COMM_WORLD_RANK=4", "OMPI_COMM_WORLD_SIZE=4", "less than"});
  ExpectError(Torchrun(0, 0), {"RANK=0", "WORLD_SIZE=0"});
  for (const char* value : {"x", "-1", "1.5", "99999999999"}) {
    ExpectError(Torchrun(0, 2) + Environment{{"RANK", value}}, {absl::StrCat("RANK=", value)});
    ExpectError(Torchrun(0, 4) + Environment{{"MASTER_PORT", value}},
                {absl::StrCat("MASTER_PORT=", value)});
    ExpectError(OpenMpi(0, 2) + Environment{{"OMPI_COMM_WORLD_LOCAL_RANK", value}},
                {absl::StrCat("OMPI_COMM_WORLD_LOCAL_RANK=", value)});
  }
  ExpectError(Slurm(0, 2, 1) + Environment{{"SLURM_STEP_ID", "x"}}, {"SLURM_STEP_ID=x"});
  ExpectError(Slurm(0, 2, 1) + Environment{{"SLURM_JOB_ID", "x"}}, {"SLURM_JOB_ID=x"});
}

TEST(JobEnvironmentTest, ARankNeedsASizeAndTheReverse) {
  const std::pair<const char*, const char*> pairs[] = {
      {"WEFT_JOB_RANK", "WEFT_JOB_SIZE"},
      {"RANK", "WORLD_SIZE"},
      {"PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"PMI_RANK", "PMI_SIZE"}};
  for (const auto& [rank, size] : pairs) {
    ExpectError({{rank, "0"}}, {absl::StrCat(rank, "=0"), absl::StrCat(size, " is not set")});
    ExpectError({{size, "2"}}, {absl::StrCat(size, "=2"), absl::StrCat(rank, " is not set")});
  }
}

// The test runs itself with the variable, under a shell that has it, too.
TEST(JobEnvironmentTest, TheLauncherIsTheAncestorWithoutTheVariable) {
  if (std::getenv("WEFT_TEST_VARIABLE") != nullptr) {
    std::printf("launcher: %d\n", LauncherPid("WEFT_TEST_VARIABLE").value_or(-1));
    return;
  }
  EXPECT_EQ(LauncherPid("WEFT_TEST_VARIABLE"), getppid());
  const std::string self =
      "\"$0\" --gtest_filter=JobEnvironmentTest.TheLauncherIsTheAncestorWithoutTheVariable; true";
  const testing::ProcessResult result =
      testing::RunProcess({"/usr/bin/env", "WEFT_TEST_VARIABLE=1", "/bin/sh", "-c", self,
                           "tools/job/job_environment_test"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(absl::StrCat("launcher: ", getpid(), "\n")));
}

}  // namespace
}  // namespace weft
