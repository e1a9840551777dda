#include "tools/job_session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/cuda_stream.h"
#include "executor/local_communicator.h"
#include "executor/nccl_communicator.h"
#include "executor/shm_communicator.h"

namespace weft {
namespace {

absl::Status CheckDevice(const JobSessionOptions& options) {
  const bool is_nccl = options.backend == "nccl";
  if (options.backend.empty() || is_nccl == options.on_gpus) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--backend ", options.backend, ": with --device ", options.on_gpus ? "gpu" : "cpu",
      " expected ", options.on_gpus ? "nccl" : "local, shm, mpi or gloo", ", or none"));
}

// Ranks of one process need no launcher.
absl::Status CheckAlone(const std::string& backend, bool has_launcher) {
  if (has_launcher || backend.empty() || backend == "local" || backend == "nccl") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--backend ", backend,
                   ": expected the variables of a launcher, found none: start the processes with "
                   "weft launch, mpirun, torchrun, srun or Paddle's launcher"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobSession>> JobSession::Join(const JobSessionOptions& options,
                                                             const GetEnv& get) {
  WEFT_RETURN_IF_ERROR(CheckDevice(options));
  WEFT_ASSIGN_OR_RETURN(const absl::optional<Job> job, FindJob(get));
  auto session = std::unique_ptr<JobSession>(new JobSession());
  session->local_ranks_ = options.local_ranks;
  if (!job.has_value() || job->num_processes == 1) {
    WEFT_RETURN_IF_ERROR(CheckAlone(options.backend, job.has_value()));
    session->backend_ = options.on_gpus ? "nccl" : "local";
    session->new_group_ = NewLocalGroup;
    if (options.on_gpus) session->new_group_ = NewNcclGroup;
    return session;
  }
  session->local_process_ = job->local_process.value_or(0);
  WEFT_RETURN_IF_ERROR(Annotate(job->launcher, session->Connect(options, *job)));
  const absl::Status status = session->ChooseGroups(options, *job);
  if (!status.ok()) return session->Finish(status);
  return session;
}

absl::Status JobSession::Connect(const JobSessionOptions& options, const Job& job) {
  if (options.backend == "local") {
    return absl::InvalidArgumentError(
        absl::StrCat("--backend local: ranks of ", job.num_processes,
                     " processes expect shm, mpi, "
                     "gloo or nccl, or none; without the launcher, --ranks ",
                     job.num_processes, " runs them in one process"));
  }
  JobLinkOptions link;
  link.process = job.process;
  link.num_processes = job.num_processes;
  link.local_ranks = options.local_ranks;
  link.job = job.job;
  link.timeout_s = options.timeout_s;
  WEFT_ASSIGN_OR_RETURN(link.address, job.address);
  WEFT_ASSIGN_OR_RETURN(link_, NewJobLink(link));
  return absl::OkStatus();
}

absl::Status JobSession::ChooseGroups(const JobSessionOptions& options, const Job& job) {
  backend_ = options.backend;
  if (options.on_gpus) {
    backend_ = "nccl";
    new_group_ = NewNcclGroup;
    return absl::OkStatus();
  }
  if (backend_.empty() && link_->is_one_host()) backend_ = "shm";
  if (backend_ == "shm") {
    new_group_ = NewShmGroup;
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat("--backend ", backend_));
}

int JobSession::GpuOf(int rank) const {
  const int local = rank % local_ranks_;
  const bool sees_others = NewCudaDevice(local_ranks_).ok();
  return sees_others ? local_process_ * local_ranks_ + local : local;
}

absl::Status JobSession::Finish(const absl::Status& status) {
  if (link_ == nullptr) return status;
  if (status.ok()) return link_->Finish();
  link_->Abort(link_->process() * local_ranks_, status);
  return status;
}

}  // namespace weft
