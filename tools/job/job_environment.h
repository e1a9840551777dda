// Which launcher started this process, and as which of the processes of a job.
#ifndef WEFT_TOOLS_JOB_JOB_ENVIRONMENT_H_
#define WEFT_TOOLS_JOB_JOB_ENVIRONMENT_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace weft {

// A process that a launcher started, most often together with others.
struct Job {
  std::string launcher;  // for messages: "mpirun (OpenMPI)"; several: "torchrun and srun (Slurm)"
  int process = 0;
  int num_processes = 1;
  // Its number among those of its host, if the launcher says so.
  absl::optional<int> local_process;

  // For JobLinkOptions: the same texts in all processes of the job. The address is an error if the
  // launcher names none and the processes are on several hosts; the message says what to set.
  absl::StatusOr<std::string> address;
  std::string job;
  // Of WEFT_JOB_TOKEN, which weft launch sets; empty: processes find it in this file of their
  // working directory, whose name follows from `job`.
  std::string token;
  std::string token_file;
  // The port of the address is a guess: the file may say another one.
  bool any_port = false;

  // Whose MPI_Init connects the processes. Another one would make N jobs of one process each.
  enum class Mpi { kNone, kOpenMpi, kMpich };
  Mpi mpi = Mpi::kNone;
};

// The value of an environment variable; null if it is not set. Empty values count as not set.
using GetEnv = std::function<const char*(const char* name)>;

// Reads the variables of
//
//   weft launch     WEFT_JOB_RANK, WEFT_JOB_SIZE, WEFT_JOB_LOCAL_RANK, WEFT_JOB_ADDRESS,
//                   WEFT_JOB_ID, WEFT_JOB_TOKEN
//   torchrun        RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, ...
//   Paddle          PADDLE_TRAINER_ID, PADDLE_TRAINERS_NUM, PADDLE_TRAINER_ENDPOINTS, ...
//   OpenMPI         OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, PMIX_NAMESPACE, ...
//   MPICH, Intel    PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS
//   Slurm           SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_JOB_ID, SLURM_STEP_ID, ... of a step
//
// None: no launcher. A single process that a launcher started is a job without an address. Several
// launchers may agree; the first
// in this order that names an address does so for all. srun may also start the processes of
// another launcher, such as one torchrun per host; its variables do not count then.
// WEFT_JOB_ADDRESS replaces the address of any launcher, WEFT_JOB_LOCAL_RANK its number on the
// host, and WEFT_JOB_TOKEN the file of the token.
//
// InvalidArgument names the variables and their values: launchers that differ in rank or size, a
// rank without size or the reverse, no number, a rank outside of the size, endpoints of another
// number, what is no token.
//
// `launcher_pid` finds the process that started those of this host, for launchers that give the job
// no name; the default is LauncherPid.
absl::StatusOr<absl::optional<Job>> FindJob(
    const GetEnv& get,
    const std::function<absl::optional<int>(const std::string& variable)>& launcher_pid = nullptr);

// The nearest ancestor that was started without an environment variable that this process has:
// whoever set the variable. None if /proc does not say.
absl::optional<int> LauncherPid(const std::string& variable);

}  // namespace weft

#endif  // WEFT_TOOLS_JOB_JOB_ENVIRONMENT_H_
