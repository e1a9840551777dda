// The part of a process in a job: alone, or with the other processes that a launcher has started.
#ifndef WEFT_TOOLS_JOB_JOB_SESSION_H_
#define WEFT_TOOLS_JOB_JOB_SESSION_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "executor/communicators/communicator.h"
#include "executor/communicators/mpi_session.h"
#include "executor/jobs/job_link.h"
#include "executor/streams/cuda_stream.h"
#include "tools/job/generations.h"
#include "tools/job/job_environment.h"

namespace weft {

struct JobSessionOptions {
  // local, shm, mpi, gloo or nccl. Empty: nccl on GPUs; otherwise local for one process, and for
  // several shm on one host, else mpi if an OpenMPI that is here has started them, else gloo. On
  // one host, mpi is shm: no message is faster. On GPUs, local is for ranks that share one.
  std::string backend;
  bool on_gpus = false;
  std::function<absl::StatusOr<int>()> count_gpus = CudaDeviceCount;  // that this process sees
  std::string nccl_id_file = {};                                      // of NcclOptions
  // Has the token of the job, alone; empty: as FindJob says.
  std::string token_file = {};
  int local_ranks = 1;  // of every process
  // The command with those of its flags on which it depends what the processes say to each other.
  std::string command;
  // Of JobLinkOptions.
  double timeout_s = 600;
  std::map<std::string, std::string> facts = {};
  std::function<void(const std::string&)> on_note = nullptr;
  const char* onednn_limit = nullptr;  // of VectorUnits
  // Of an elastic run: the generation of the job that this process belongs to; the ranks of the
  // run, which its processes share out; and JobLinkOptions::is_over. The backend is shm or gloo.
  absl::optional<Generation> generation = absl::nullopt;
  int num_ranks = 0;
  std::function<bool()> is_over = nullptr;
  // Where the OpenMPI is that may have started the processes, and can also connect them.
  std::string mpi_file = std::string(kMpiFile);
};

// The number of the first CUDA device of a process of the job: its ranks follow those of the other
// processes of its host, unless it sees no more devices than it has ranks. InvalidArgument if
// nobody says which process of the host it is.
absl::StatusOr<int> FirstGpuOf(const Job& job, bool is_one_host, int local_ranks, int num_gpus);

// How the ranks of a command communicate. Its end may be that of the process, with exit code 1,
// without Finish or after an error: report errors before (MpiSession).
class JobSession {
 public:
  using NewGroup = std::function<absl::StatusOr<std::unique_ptr<CommunicatorGroup>>(GroupOptions)>;

  // Finds the job by the variables of launchers (FindJob), and meets its other processes.
  // InvalidArgument for a backend that does not fit the job, the device or the build; and the
  // errors of FindJob, MpiSession and NewJobLink.
  static absl::StatusOr<std::unique_ptr<JobSession>> Join(const JobSessionOptions& options,
                                                          const GetEnv& get);
  // If Finish was called because another process has failed, waits for half a second, but not in an
  // elastic run: launchers take the process that ends first for the one that has failed.
  ~JobSession();

  // To the other processes; null: there are none.
  JobLink* link() const { return link_.get(); }
  int num_processes() const { return link_ == nullptr ? 1 : link_->num_processes(); }
  // Whether this process reports and writes results.
  bool is_first() const { return link_ == nullptr || link_->process() == 0; }

  // The library with which ranks communicate, and its groups.
  const std::string& backend() const { return backend_; }
  const NewGroup& new_group() const { return new_group_; }

  // The number of the CUDA device of a rank of the run: that of the rank among those of its host,
  // unless the launcher shows this process only its own devices.
  int GpuOf(int rank) const;

  // Ends the part of this process. If `status` is OK, waits until all processes are done, and
  // returns the error of one that fails. Otherwise tells the others, and returns `status`.
  absl::Status Finish(const absl::Status& status);

 private:
  JobSession() = default;
  absl::Status Connect(const JobSessionOptions& options, const Job& job);
  absl::Status CompareCommands(const JobSessionOptions& options, const Job& job);
  absl::Status CompareVectorUnits(const JobSessionOptions& options);
  absl::Status ChooseGroups(const JobSessionOptions& options, const Job& job);
  // Whether an elastic run can have the backend.
  static absl::Status CheckElastic(const JobSessionOptions& options);

  // Whether the processes belong to an MPI that Weft can use.
  static absl::Status CheckMpi(const Job& job);
  static bool CanUseMpi(const JobSessionOptions& options, const Job& job) {
    return CheckMpi(job).ok() && LoadMpi(options.mpi_file).ok();
  }
  absl::Status StartMpi(const JobSessionOptions& options, const Job& job);

  int local_ranks_ = 1;
  int num_ranks_ = 0;  // of the run
  int first_gpu_ = 0;  // of the ranks of this process
  bool is_elastic_ = false;
  std::unique_ptr<MpiSession> mpi_;  // null: not used
  std::unique_ptr<JobLink> link_;
  bool failed_elsewhere_ = false;
  std::string backend_;
  NewGroup new_group_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOB_JOB_SESSION_H_
