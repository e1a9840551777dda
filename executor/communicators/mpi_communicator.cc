#include "executor/communicators/mpi_communicator.h"

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/communicators/message_collectives.h"
#include "executor/communicators/world.h"

namespace weft {
namespace {

using Clock = Transport::Clock;

// A wait polls, then naps between polls: other threads may need the core.
constexpr int kEagerPolls = 100;
constexpr auto kNapAfter = std::chrono::milliseconds(10);
constexpr auto kNap = std::chrono::microseconds(100);

// Messages between two processes are told apart by the ranks of both, in a tag; MPI promises tags
// up to 32767.
constexpr int kMaxLocalRanks = 181;

absl::Status MpiStatus(int error, absl::string_view call) {
  if (error == MPI_SUCCESS) return absl::OkStatus();
  char text[MPI_MAX_ERROR_STRING];
  int size = 0;
  MPI_Error_string(error, text, &size);
  return absl::UnavailableError(absl::StrCat(call, ": ", absl::string_view(text, size)));
}

// MPI as the rings of a group use it. Calls hold the mutex shared; whoever gives up waits for them.
struct Mpi {
  World world;
  std::shared_mutex mutex;
  bool is_stopped = false;
};

class MpiTransport : public Transport {
 public:
  MpiTransport(std::shared_ptr<Mpi> mpi, MPI_Comm comm, const RingKey& key, int position)
      : mpi_(std::move(mpi)), comm_(comm), key_(key), local_rank_(LocalRank(position)) {}

  void Receive(int from, void* data, size_t bytes) override {
    const std::shared_lock<std::shared_mutex> lock(mpi_->mutex);
    if (mpi_->is_stopped) return;
    requests_.push_back(MPI_REQUEST_NULL);
    peers_.push_back({from, /*is_sender=*/true});
    Note(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, Process(from),
                   Tag(LocalRank(from), local_rank_), comm_, &requests_.back()),
         "MPI_Irecv");
  }

  void Send(int to, const void* data, size_t bytes) override {
    const std::shared_lock<std::shared_mutex> lock(mpi_->mutex);
    if (mpi_->is_stopped) return;
    requests_.push_back(MPI_REQUEST_NULL);
    peers_.push_back({to, /*is_sender=*/false});
    Note(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, Process(to),
                   Tag(local_rank_, LocalRank(to)), comm_, &requests_.back()),
         "MPI_Isend");
  }

  absl::Status Wait(Clock::time_point until) override {
    Clock::time_point last_progress = Clock::now();
    for (int polls = 0;; ++polls) {
      bool has_progress = false;
      WEFT_RETURN_IF_ERROR(Poll(&has_progress));
      if (IsDone()) {
        requests_.clear();
        peers_.clear();
        return absl::OkStatus();
      }
      if (is_interrupted_) return absl::CancelledError();
      const Clock::time_point now = Clock::now();
      if (now >= until) return absl::DeadlineExceededError("");
      if (has_progress) last_progress = now;
      if (now - last_progress > kNapAfter) {
        std::this_thread::sleep_for(kNap);
      } else if (polls > kEagerPolls) {
        std::this_thread::yield();
      }
    }
  }

  std::vector<int> Pending() const override {
    for (const bool is_sender : {true, false}) {
      std::vector<int> ranks;
      for (size_t i = 0; i < requests_.size(); ++i) {
        if (requests_[i] != MPI_REQUEST_NULL && peers_[i].is_sender == is_sender) {
          ranks.push_back(peers_[i].rank);
        }
      }
      std::sort(ranks.begin(), ranks.end());
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
      if (!ranks.empty()) return ranks;
    }
    return {};
  }

  void Interrupt() override { is_interrupted_ = true; }

  void Stop() override {
    const std::unique_lock<std::shared_mutex> lock(mpi_->mutex);
    mpi_->is_stopped = true;
  }

 private:
  struct Peer {
    int rank;
    bool is_sender;
  };

  int Process(int position) const { return mpi_->world.ProcessOf(RankAt(key_, position)); }
  int LocalRank(int position) const { return RankAt(key_, position) % mpi_->world.count; }
  int Tag(int from, int to) const { return from * mpi_->world.count + to; }

  void Note(int error, absl::string_view call) { status_.Update(MpiStatus(error, call)); }

  bool IsDone() const {
    return std::all_of(requests_.begin(), requests_.end(),
                       [](MPI_Request request) { return request == MPI_REQUEST_NULL; });
  }

  absl::Status Poll(bool* has_progress) {
    const std::shared_lock<std::shared_mutex> lock(mpi_->mutex);
    if (mpi_->is_stopped) {
      return absl::UnavailableError("MPI was given up after an error on another ring");
    }
    WEFT_RETURN_IF_ERROR(status_);
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int num_done = 0;
    const int error = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &num_done,
                                   indices_.data(), statuses_.data());
    if (error == MPI_ERR_IN_STATUS) {
      for (int i = 0; i < num_done; ++i) Note(statuses_[i].MPI_ERROR, "MPI_Testsome");
    } else {
      Note(error, "MPI_Testsome");
    }
    *has_progress = num_done != MPI_UNDEFINED && num_done > 0;
    return status_;
  }

  const std::shared_ptr<Mpi> mpi_;
  const MPI_Comm comm_;
  const RingKey key_;
  const int local_rank_;
  std::atomic<bool> is_interrupted_{false};
  absl::Status status_;  // the first error
  std::vector<MPI_Request> requests_;
  std::vector<Peer> peers_;  // by request
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

absl::Status CheckProcesses(const World& world) {
  int is_initialized = 0;
  MPI_Initialized(&is_initialized);
  if (is_initialized == 0) return absl::FailedPreconditionError("MPI has not been started");
  int process = 0;
  int num_processes = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm_size(MPI_COMM_WORLD, &num_processes);
  if (process != world.process() || num_processes != world.num_processes()) {
    return absl::FailedPreconditionError(
        absl::StrCat("MPI has this process as number ", process, " of ", num_processes,
                     ", the run as number ", world.process(), " of ", world.num_processes()));
  }
  if (world.count > kMaxLocalRanks) {
    return absl::InvalidArgumentError(absl::StrCat("expected at most ", kMaxLocalRanks,
                                                   " ranks in a process, found ", world.count));
  }
  return absl::OkStatus();
}

// Copies the communicator of all processes. All of them take part; those without a rank of the ring
// do not use the copy.
absl::StatusOr<MPI_Comm> NewComm(const RingKey& key, const GroupOptions& options) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  WEFT_RETURN_IF_ERROR(MpiStatus(MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request), "MPI_Comm_idup"));
  const Clock::time_point begun = Clock::now();
  for (int is_done = 0; is_done == 0;) {
    WEFT_RETURN_IF_ERROR(MpiStatus(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (is_done == 0 && Clock::now() - begun > std::chrono::duration<double>(options.timeout_s)) {
      return absl::DeadlineExceededError(absl::StrCat(
          ToString(key), ": not set up on all processes after ", options.timeout_s, " s"));
    }
    std::this_thread::yield();
  }
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewMpiGroup(GroupOptions options) {
  const auto mpi = std::make_shared<Mpi>();
  mpi->world = WorldOf(options.nranks, options.link);
  WEFT_RETURN_IF_ERROR(CheckProcesses(mpi->world));
  WEFT_RETURN_IF_ERROR(CompareRings(options));
  // MPI_Finalize frees them. Freeing them here would wait for other processes.
  std::vector<MPI_Comm> comms;
  for (const RingKey& key : options.rings) {
    WEFT_ASSIGN_OR_RETURN(comms.emplace_back(), NewComm(key, options));
  }
  const std::vector<RingKey> rings = options.rings;
  return NewMessageGroup(std::move(options), [&](int ring, int position) {
    return std::make_unique<MpiTransport>(mpi, comms[ring], rings[ring], position);
  });
}

}  // namespace weft
