#include "executor/gpu/nccl_group.h"

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/communicators/world.h"
#include "executor/jobs/job_link.h"

namespace weft {
namespace {

// Polling interval for calls on the device.
constexpr std::chrono::milliseconds kWatchEvery(20);

// NCCL launches a call on a thread of its own, in some ten microseconds; waking up takes as long.
constexpr std::chrono::microseconds kSpin(200);

}  // namespace

absl::Status NcclGroup::ShareIds() {
  const auto new_id = [this]() -> absl::StatusOr<nccl::UniqueId> {
    WEFT_RETURN_IF_ERROR(Load());
    return NewId();
  };
  WEFT_ASSIGN_OR_RETURN(ids_, ShareNcclIds(options_, nccl_.id_file, new_id));
  return absl::OkStatus();
}

NcclGroup::~NcclGroup() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  if (!watcher_.joinable()) return;
  watcher_.join();
  std::unique_lock<std::mutex> lock(mutex_);
  const absl::Status status = Close(&lock);
  if (!status.ok() && options_.warn) options_.warn(std::string(status.message()));
  (void)AbortCommunicators(&lock);
}

absl::Status NcclGroup::Close(std::unique_lock<std::mutex>* lock) {
  WEFT_RETURN_IF_ERROR(gpu().SetDevice(device_));
  if (!abort_status_.ok()) return absl::OkStatus();
  std::vector<NcclCommunicator*> open;
  for (auto& [key, communicator] : communicators_) {
    if (communicator == nullptr) continue;
    communicator->ForgetFinished();
    if (!communicator->pending_.empty()) return absl::OkStatus();  // the run has failed
    open.push_back(communicator.get());
  }
  const char* const kFinalize = "ncclCommFinalize";
  WEFT_RETURN_IF_ERROR(library_->StatusOf(library_->GroupStart(), "ncclGroupStart"));
  absl::Status status;
  for (NcclCommunicator* communicator : open) {
    status.Update(library_->StatusOf(library_->CommFinalize(communicator->comm_), kFinalize));
  }
  status.Update(library_->StatusOf(library_->GroupEnd(), "ncclGroupEnd"));
  for (NcclCommunicator* communicator : open) {
    if (status.ok()) status = Finish(lock, communicator, kFinalize);
  }
  if (!status.ok()) return status;
  for (NcclCommunicator* communicator : open) {
    status.Update(
        library_->StatusOf(library_->CommDestroy(communicator->comm_), "ncclCommDestroy"));
    communicator->comm_ = nullptr;
  }
  return status;
}

absl::StatusOr<Communicator*> NcclGroup::Get(const RingKey& ring, int rank) {
  std::unique_lock<std::mutex> lock(mutex_);
  WEFT_RETURN_IF_ERROR(abort_status_);
  WEFT_RETURN_IF_ERROR(Annotate(ToString(ring), Load()));
  std::unique_ptr<NcclCommunicator>& communicator = communicators_[{ring, rank}];
  if (communicator != nullptr) return communicator.get();
  WEFT_RETURN_IF_ERROR(StartWatcher());
  communicator = std::make_unique<NcclCommunicator>(this, PositionOf(ring, rank),
                                                    SizeOf(ring, options_.nranks), ring);
  const absl::Status status = SetUp(&lock, communicator.get());
  if (!status.ok()) {
    AbortAll(status);  // a ring that lacks a rank cannot be used
    return status;
  }
  return communicator.get();
}

void NcclGroup::Abort(const absl::Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (watcher_.joinable()) (void)gpu().SetDevice(device_);  // of a thread of the job, for instance
  AbortAll(absl::AbortedError(status.message()));
}

absl::Status NcclGroup::Load() {
  if (nccl_.gpu == nullptr) return absl::UnavailableError("built without CUDA");
  if (library_ != nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(library_, LoadNccl(nccl_.library));
  return absl::OkStatus();
}

absl::StatusOr<nccl::UniqueId> NcclGroup::NewId() const {
  nccl::UniqueId id;
  WEFT_RETURN_IF_ERROR(library_->StatusOf(library_->GetUniqueId(&id), "ncclGetUniqueId"));
  return id;
}

absl::Status NcclGroup::SetUp(std::unique_lock<std::mutex>* lock, NcclCommunicator* communicator) {
  const auto [id, is_new] = ids_.try_emplace(communicator->ring_);
  if (is_new && options_.link != nullptr) {
    return absl::InternalError(
        absl::StrCat(ToString(communicator->ring_), " is none of the rings of the run"));
  }
  if (is_new) {
    WEFT_ASSIGN_OR_RETURN(id->second, NewId());
  }
  nccl::Config config;
  const int rank = communicator->rank_;
  const std::string what = absl::StrCat(ToString(communicator->ring_), ": set-up of rank ",
                                        RankAt(communicator->ring_, rank));
  WEFT_RETURN_IF_ERROR(
      library_->StatusOf(library_->CommInitRankConfig(&communicator->comm_, communicator->nranks_,
                                                      id->second, rank, &config),
                         what));
  return Finish(lock, communicator, what);
}

absl::Status NcclGroup::Finish(std::unique_lock<std::mutex>* lock, NcclCommunicator* communicator,
                               absl::string_view what) {
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::chrono::microseconds pause(kSpin);
  bool was_reported = false;
  for (;;) {
    WEFT_RETURN_IF_ERROR(abort_status_);
    WEFT_ASSIGN_OR_RETURN(const int state, Poll(lock, communicator, what));
    WEFT_RETURN_IF_ERROR(abort_status_);
    if (state != nccl::kInProgress) return library_->StatusOf(state, what);
    if (CheckLate(lock, start, what, "", &was_reported)) continue;
    changed_.wait_for(*lock, pause);
    pause = std::min<std::chrono::microseconds>(2 * pause, kWatchEvery);
  }
}

// Others use the group meanwhile, but not this communicator.
absl::StatusOr<int> NcclGroup::Poll(std::unique_lock<std::mutex>* lock,
                                    NcclCommunicator* communicator, absl::string_view what) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  int state = nccl::kSuccess;
  communicator->is_polled_ = true;
  lock->unlock();
  int result = library_->CommGetAsyncError(communicator->comm_, &state);
  while (result == nccl::kSuccess && state == nccl::kInProgress &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
    result = library_->CommGetAsyncError(communicator->comm_, &state);
  }
  lock->lock();
  communicator->is_polled_ = false;
  changed_.notify_all();  // an abort has waited for that
  WEFT_RETURN_IF_ERROR(library_->StatusOf(result, what));
  return state;
}

void NcclGroup::AbortAll(const absl::Status& status) {
  if (!abort_status_.ok()) return;
  abort_status_ = status;
  for (auto& [key, communicator] : communicators_) {
    if (communicator == nullptr) continue;
    communicator->ForgetFinished();
    communicator->was_cut_off_ = !communicator->pending_.empty();
  }
  changed_.notify_all();
}

// Without the lock: an abort may wait for the device, and ranks need the lock to see the error. As
// a group, since a rank may wait for each of its communicators.
bool NcclGroup::AbortCommunicators(std::unique_lock<std::mutex>* lock) {
  std::vector<nccl::Communicator*> aborted;
  for (auto& [key, communicator] : communicators_) {
    // NCCL still has the calls of an open group.
    const bool is_used =
        communicator != nullptr && (communicator->in_group_ || communicator->is_polled_);
    if (communicator == nullptr || communicator->comm_ == nullptr || is_used) continue;
    aborted.push_back(std::exchange(communicator->comm_, nullptr));
    communicator->registered_.clear();
  }
  if (aborted.empty()) return false;
  lock->unlock();
  const bool are_grouped = library_->GroupStart() == nccl::kSuccess;
  for (nccl::Communicator* comm : aborted) (void)library_->CommAbort(comm);
  if (are_grouped) (void)library_->GroupEnd();
  lock->lock();
  return true;
}

bool NcclGroup::CheckLate(std::unique_lock<std::mutex>* lock,
                          std::chrono::steady_clock::time_point start, absl::string_view what,
                          absl::string_view missing, bool* was_reported) {
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto text = [&](double limit) {
    return absl::StrCat(what, ": not complete after ", limit, " s", missing);
  };
  if (seconds > options_.timeout_s) {
    AbortAll(absl::DeadlineExceededError(text(options_.timeout_s)));
    return true;
  }
  if (*was_reported || seconds <= options_.warn_after_s) return false;
  *was_reported = true;
  if (!options_.warn) return true;
  const std::string message = text(options_.warn_after_s);
  lock->unlock();
  options_.warn(message);
  lock->lock();
  return true;
}

absl::Status NcclGroup::AwaitRanksHere(std::unique_lock<std::mutex>* lock,
                                       const NcclCommunicator& communicator, Counter counter,
                                       const std::function<std::string()>& what) {
  const RingKey& ring = communicator.ring_;
  const int64_t count = communicator.*counter;
  changed_.notify_all();
  const auto start = std::chrono::steady_clock::now();
  bool was_reported = false;
  std::string text;
  for (;;) {
    WEFT_RETURN_IF_ERROR(communicator.AbortStatus());
    const std::string missing = Missing(ring, counter, count);
    if (missing.empty()) return absl::OkStatus();
    if (text.empty()) text = what();
    if (CheckLate(lock, start, text, missing, &was_reported)) continue;
    changed_.wait_for(*lock, kWatchEvery);
  }
}

std::string NcclGroup::Missing(const RingKey& ring, Counter counter, int64_t count) const {
  std::vector<int> missing;
  const World world = WorldOf(options_.nranks, options_.link);
  for (int rank = world.first; rank < world.end(); ++rank) {
    if (!ring.Has(rank)) continue;
    const auto found = communicators_.find({ring, rank});
    const bool is_there = found != communicators_.end() && found->second != nullptr &&
                          (*found->second).*counter >= count;
    if (!is_there) missing.push_back(rank);
  }
  if (missing.empty()) return "";
  return absl::StrCat("; not arrived: rank ", absl::StrJoin(missing, ", "));
}

absl::Status NcclGroup::StartWatcher() {
  if (watcher_.joinable()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(device_, gpu().CurrentDevice());
  try {
    watcher_ = std::thread([this] { Watch(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start the thread that watches collectives: ", error.what()));
  }
  return absl::OkStatus();
}

void NcclGroup::Watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  const absl::Status chosen = gpu().SetDevice(device_);
  if (!chosen.ok()) AbortAll(chosen);
  while (!is_over_) {
    if (!abort_status_.ok() && AbortCommunicators(&lock)) continue;
    if (has_pending_ && abort_status_.ok()) {
      changed_.wait_for(lock, kWatchEvery);
    } else {
      changed_.wait(lock);
    }
    if (!abort_status_.ok()) continue;
    has_pending_ = false;
    for (auto& [key, communicator] : communicators_) {
      if (communicator == nullptr) continue;
      communicator->ForgetFinished();
      if (communicator->is_polled_) continue;
      const absl::Status status = communicator->AsyncStatus();
      if (!status.ok()) {
        AbortAll(status);
        break;
      }
      if (communicator->pending_.empty()) continue;
      has_pending_ = true;
      PendingCall& call = communicator->pending_.front();
      if (!call.has_begun) {
        call.has_begun = gpu().HasPassed(call.begin.get());
        call.start = std::chrono::steady_clock::now();
        continue;
      }
      // Warning releases the lock, so the loop cannot continue.
      if (CheckLate(&lock, call.start, communicator->TextOf(call),
                    Missing(key.first, &NcclCommunicator::arrived_, call.number + 1),
                    &call.was_reported)) {
        break;
      }
    }
  }
}

absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewNcclGroup(GroupOptions options,
                                                                NcclOptions nccl) {
  auto group = std::make_unique<NcclGroup>(std::move(options), std::move(nccl));
  if (group->is_of_several_processes()) WEFT_RETURN_IF_ERROR(group->ShareIds());
  return group;
}

}  // namespace weft
