#include "tools/job/job_session.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/communicators/gloo_communicator.h"
#include "executor/communicators/local_communicator.h"
#include "executor/communicators/mpi_communicator.h"
#include "executor/communicators/shm_communicator.h"
#include "executor/gpu/local_gpu_communicator.h"
#include "executor/gpu/nccl_communicator.h"
#include "executor/jobs/job_token.h"
#include "ops/cpu/vector_units.h"

namespace weft {
namespace {

absl::Status CheckDevice(const JobSessionOptions& options) {
  const bool is_nccl = options.backend == "nccl", is_local = options.backend == "local";
  if (!options.nccl_id_file.empty() && !options.on_gpus) {
    return absl::InvalidArgumentError("--nccl_id_file: expected --device gpu");
  }
  if (options.backend.empty() || is_local || is_nccl == options.on_gpus) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--backend ", options.backend, ": with --device ", options.on_gpus ? "gpu" : "cpu",
      " expected ", options.on_gpus ? "nccl or local" : "local, shm, mpi or gloo", ", or none"));
}

JobSession::NewGroup NewNcclGroupOf(const JobSessionOptions& options) {
  return [id_file = options.nccl_id_file](GroupOptions group) {
    NcclOptions nccl;
    nccl.id_file = id_file;
    return NewNcclGroup(std::move(group), std::move(nccl));
  };
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

// Of the ranks of a process that is alone.
JobSession::NewGroup NewGroupAlone(const JobSessionOptions& options) {
  if (!options.on_gpus) return NewLocalGroup;
  if (options.backend != "local") return NewNcclGroupOf(options);
  return [](GroupOptions group) { return NewLocalGpuGroup(std::move(group)); };
}

}  // namespace

absl::StatusOr<int> FirstGpuOf(const Job& job, bool is_one_host, int local_ranks, int num_gpus) {
  if (num_gpus <= local_ranks) return 0;  // its own
  if (job.local_process.has_value()) return *job.local_process * local_ranks;
  if (is_one_host) return job.process * local_ranks;
  return absl::InvalidArgumentError(
      absl::StrCat("--device gpu: ", job.launcher, " does not say which of the ", num_gpus,
                   " GPUs of its host ", "process ", job.process,
                   " has: set WEFT_JOB_LOCAL_RANK to its number among the processes of "
                   "the host, from 0, or show it its own GPUs only (CUDA_VISIBLE_DEVICES)"));
}

absl::StatusOr<std::unique_ptr<JobSession>> JobSession::Join(const JobSessionOptions& options,
                                                             const GetEnv& get) {
  WEFT_RETURN_IF_ERROR(CheckDevice(options));
  WEFT_RETURN_IF_ERROR(CheckElastic(options));
  WEFT_ASSIGN_OR_RETURN(absl::optional<Job> job, FindJob(get));
  auto session = std::unique_ptr<JobSession>(new JobSession());
  session->local_ranks_ = options.local_ranks;
  session->num_ranks_ = options.num_ranks;
  if (options.generation.has_value()) {
    if (!job.has_value()) return absl::InternalError("a job of no launcher is elastic");
    session->is_elastic_ = true;
    job->process = options.generation->process;
    job->num_processes = options.generation->num_processes;
    // A port is used by one generation after the other.
    if (job->address.ok() && absl::StartsWith(*job->address, "unix:")) {
      absl::StrAppend(&*job->address, "-", options.generation->name);
    }
  }
  if (!job.has_value() || job->num_processes == 1) {
    WEFT_RETURN_IF_ERROR(CheckAlone(options.backend, job.has_value()));
    session->backend_ = options.on_gpus && options.backend.empty() ? "nccl"
                        : options.backend.empty()                  ? "local"
                                                                   : options.backend;
    session->new_group_ = NewGroupAlone(options);
    return session;
  }
  WEFT_RETURN_IF_ERROR(Annotate(job->launcher, session->Connect(options, *job)));
  absl::Status status = session->CompareCommands(options, *job);
  if (status.ok()) status = session->CompareVectorUnits(options);
  if (status.ok()) status = session->ChooseGroups(options, *job);
  if (!status.ok()) return session->Finish(status);
  return session;
}

JobSession::~JobSession() {
  if (failed_elsewhere_) std::this_thread::sleep_for(std::chrono::milliseconds(500));
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
  if (options.generation.has_value()) {
    link.generation = options.generation->number;
    link.num_ranks = options.num_ranks;
    link.is_over = options.is_over;
  }
  link.token = job.token;
  if (!options.token_file.empty()) {
    WEFT_ASSIGN_OR_RETURN(const JobTokenText text, ReadJobTokenFile(options.token_file));
    link.token = text.token;
  }
  link.token_file = job.token_file;
  link.any_port = job.any_port;
  link.facts = options.facts;
  link.on_note = options.on_note;
  link.timeout_s = options.timeout_s;
  link.connect_timeout_s = std::min(link.connect_timeout_s, options.timeout_s);
  if (options.backend == "mpi") WEFT_RETURN_IF_ERROR(CheckMpi(job));
  if (job.address.ok()) {
    link.address = *job.address;
  } else if (CanUseMpi(options, job) || options.backend == "mpi") {
    // MPI has connected the processes already.
    WEFT_RETURN_IF_ERROR(StartMpi(options, job));
    WEFT_ASSIGN_OR_RETURN(const MpiSession::Meeting meeting, mpi_->NewMeeting());
    link.address = meeting.address;
    link.share_port = meeting.share_port;
    if (link.token.empty()) link.token = meeting.token;
  } else {
    const absl::Status& status = job.address.status();
    if (!CheckMpi(job).ok()) return status;
    return absl::Status(status.code(), absl::StrCat(status.message(), "; or let MPI connect them: ",
                                                    LoadMpi(options.mpi_file).status().message()));
  }
  WEFT_ASSIGN_OR_RETURN(link_, NewJobLink(link));
  return absl::OkStatus();
}

absl::Status JobSession::CompareCommands(const JobSessionOptions& options, const Job& job) {
  // Without --backend, it depends on the library.
  const bool may_be_mpi = options.backend.empty() && !link_->is_one_host() && CheckMpi(job).ok();
  const std::string own = absl::StrCat(
      options.command, options.backend.empty() ? "" : " --backend ", options.backend,
      options.on_gpus ? " --device gpu" : "", ", ranks of a process: ", options.local_ranks,
      !may_be_mpi               ? ""
      : CanUseMpi(options, job) ? ", with OpenMPI"
                                : ", without OpenMPI");
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> all, link_->AllGather(own));
  for (size_t p = 1; p < all.size(); ++p) {
    if (all[p] == all[0]) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "processes run different commands: process 0 ", all[0], "; process ", p, " ", all[p]));
  }
  return absl::OkStatus();
}

absl::Status JobSession::CompareVectorUnits(const JobSessionOptions& options) {
  // Of an elastic run, as an earlier generation has left it.
  const std::string own = VectorUnits(options.onednn_limit);
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> all, link_->AllGather(own));
  const VectorUnitsAgreement agreement = LimitVectorUnits(own, all);
  const bool is_news = !agreement.note.empty() && (is_first() || !agreement.is_kept);
  if (is_news && options.on_note) options.on_note(agreement.note);
  return absl::OkStatus();
}

absl::Status JobSession::CheckMpi(const Job& job) {
  if (job.mpi == Job::Mpi::kNone) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--backend mpi: expected processes that mpirun has started, found processes of ",
        job.launcher));
  }
  if (job.mpi != Job::Mpi::kOpenMpi) {
    return absl::UnimplementedError(
        absl::StrCat("--backend mpi: expected OpenMPI, and ", job.launcher,
                     " belongs to another MPI: use --backend shm on one host, gloo on several"));
  }
  return absl::OkStatus();
}

absl::Status JobSession::StartMpi(const JobSessionOptions& options, const Job& job) {
  if (mpi_ != nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(mpi_, MpiSession::Start(options.mpi_file));
  if (mpi_->process() == job.process && mpi_->num_processes() == job.num_processes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "expected process ", job.process, " of ", job.num_processes, ", as the variables of ",
      job.launcher, " say, found process ", mpi_->process(), " of ", mpi_->num_processes(),
      " in MPI: does the launcher belong to another MPI?"));
}

absl::Status JobSession::ChooseGroups(const JobSessionOptions& options, const Job& job) {
  backend_ = options.backend;
  if (options.on_gpus) {
    backend_ = "nccl";
    new_group_ = NewNcclGroupOf(options);
    WEFT_ASSIGN_OR_RETURN(const int num_gpus, options.count_gpus());
    WEFT_ASSIGN_OR_RETURN(first_gpu_,
                          FirstGpuOf(job, link_->is_one_host(), local_ranks_, num_gpus));
    return absl::OkStatus();
  }
  const bool is_one_host = link_->is_one_host();
  if (backend_.empty() && is_one_host) backend_ = "shm";
  if (backend_.empty()) backend_ = !is_elastic_ && CanUseMpi(options, job) ? "mpi" : "gloo";
  if (backend_ == "shm" || (backend_ == "mpi" && is_one_host)) {
    new_group_ = NewShmGroup;
    return absl::OkStatus();
  }
  if (backend_ == "gloo") {
    new_group_ = NewGlooGroup;
    return absl::OkStatus();
  }
  new_group_ = NewMpiGroup;
  return StartMpi(options, job);
}

absl::Status JobSession::CheckElastic(const JobSessionOptions& options) {
  const bool fits = !options.on_gpus && (options.backend.empty() || options.backend == "shm" ||
                                         options.backend == "gloo");
  if (!options.generation.has_value() || fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("weft launch --elastic: expected --backend shm or gloo on the CPU, found ",
                   options.on_gpus ? "--device gpu" : absl::StrCat("--backend ", options.backend)));
}

int JobSession::GpuOf(int rank) const {
  if (backend_ == "local") return 0;  // all ranks share a device
  return first_gpu_ + rank % local_ranks_;
}

absl::Status JobSession::Finish(const absl::Status& status) {
  if (link_ == nullptr) return status;
  if (!status.ok()) {
    failed_elsewhere_ = !is_elastic_ && (absl::IsAborted(status) || absl::IsUnavailable(status));
    const int n = link_->num_processes();
    link_->Abort(FirstRankOf(link_->process(), is_elastic_ ? num_ranks_ : n * local_ranks_, n),
                 status);
    return status;
  }
  WEFT_RETURN_IF_ERROR(link_->Finish());
  if (mpi_ != nullptr) mpi_->End();
  return absl::OkStatus();
}

}  // namespace weft
