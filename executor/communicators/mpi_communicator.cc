#include "executor/communicators/mpi_communicator.h"

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
#include "executor/communicators/mpi_library.h"
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

// MPI as the rings of a group use it. Calls hold the mutex shared; whoever gives up waits for them.
struct Mpi {
  const MpiLibrary* library = nullptr;
  World world;
  std::shared_mutex mutex;
  bool is_stopped = false;
};

class MpiTransport : public Transport {
 public:
  MpiTransport(std::shared_ptr<Mpi> mpi, mpi::Comm* comm, const RingKey& key, int position)
      : mpi_(std::move(mpi)), comm_(comm), key_(key), local_rank_(LocalRank(position)) {}

  void Receive(int from, void* data, size_t bytes) override {
    const std::shared_lock<std::shared_mutex> lock(mpi_->mutex);
    if (mpi_->is_stopped) return;
    requests_.push_back(mpi_->library->no_request);
    peers_.push_back({from, /*is_sender=*/true});
    Note(mpi_->library->Irecv(data, static_cast<int>(bytes), mpi_->library->byte, Process(from),
                              Tag(LocalRank(from), local_rank_), comm_, &requests_.back()),
         "MPI_Irecv");
  }

  void Send(int to, const void* data, size_t bytes) override {
    const std::shared_lock<std::shared_mutex> lock(mpi_->mutex);
    if (mpi_->is_stopped) return;
    requests_.push_back(mpi_->library->no_request);
    peers_.push_back({to, /*is_sender=*/false});
    Note(mpi_->library->Isend(data, static_cast<int>(bytes), mpi_->library->byte, Process(to),
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
        if (requests_[i] != mpi_->library->no_request && peers_[i].is_sender == is_sender) {
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

  void Note(int error, absl::string_view call) {
    status_.Update(mpi_->library->StatusOf(error, call));
  }

  bool IsDone() const {
    return std::all_of(requests_.begin(), requests_.end(), [this](mpi::Request* request) {
      return request == mpi_->library->no_request;
    });
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
    const int error = mpi_->library->Testsome(static_cast<int>(requests_.size()), requests_.data(),
                                              &num_done, indices_.data(), statuses_.data());
    if (error == mpi::kErrInStatus) {
      for (int i = 0; i < num_done; ++i) Note(statuses_[i].error, "MPI_Testsome");
    } else {
      Note(error, "MPI_Testsome");
    }
    *has_progress = num_done != mpi::kUndefined && num_done > 0;
    return status_;
  }

  const std::shared_ptr<Mpi> mpi_;
  mpi::Comm* const comm_;
  const RingKey key_;
  const int local_rank_;
  std::atomic<bool> is_interrupted_{false};
  absl::Status status_;  // the first error
  std::vector<mpi::Request*> requests_;
  std::vector<Peer> peers_;  // by request
  std::vector<int> indices_;
  std::vector<mpi::Status> statuses_;
};

absl::Status CheckProcesses(const MpiLibrary& library, const World& world) {
  int is_initialized = 0;
  library.Initialized(&is_initialized);
  if (is_initialized == 0) return absl::FailedPreconditionError("MPI has not been started");
  int process = 0;
  int num_processes = 0;
  library.Comm_rank(library.world, &process);
  library.Comm_size(library.world, &num_processes);
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
absl::StatusOr<mpi::Comm*> NewComm(const MpiLibrary& library, const RingKey& key,
                                   const GroupOptions& options) {
  mpi::Comm* comm = nullptr;
  mpi::Request* request = library.no_request;
  WEFT_RETURN_IF_ERROR(
      library.StatusOf(library.Comm_idup(library.world, &comm, &request), "MPI_Comm_idup"));
  const Clock::time_point begun = Clock::now();
  for (int is_done = 0; is_done == 0;) {
    WEFT_RETURN_IF_ERROR(library.StatusOf(library.Test(&request, &is_done, nullptr), "MPI_Test"));
    if (is_done == 0 && Clock::now() - begun > std::chrono::duration<double>(options.timeout_s)) {
      return absl::DeadlineExceededError(absl::StrCat(
          ToString(key), ": not set up on all processes after ", options.timeout_s, " s"));
    }
    std::this_thread::yield();
  }
  library.Comm_set_errhandler(comm, library.errors_return);
  return comm;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewMpiGroup(GroupOptions options) {
  const auto mpi = std::make_shared<Mpi>();
  WEFT_ASSIGN_OR_RETURN(mpi->library, LoadMpi());
  mpi->world = WorldOf(options.nranks, options.link);
  WEFT_RETURN_IF_ERROR(CheckProcesses(*mpi->library, mpi->world));
  WEFT_RETURN_IF_ERROR(CompareRings(options));
  // MPI_Finalize frees them. Freeing them here would wait for other processes.
  std::vector<mpi::Comm*> comms;
  for (const RingKey& key : options.rings) {
    WEFT_ASSIGN_OR_RETURN(comms.emplace_back(), NewComm(*mpi->library, key, options));
  }
  const std::vector<RingKey> rings = options.rings;
  return NewMessageGroup(std::move(options), [&](int ring, int position) {
    return std::make_unique<MpiTransport>(mpi, comms[ring], rings[ring], position);
  });
}

}  // namespace weft
