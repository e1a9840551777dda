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
  if (watcher_.joinable()) watcher_.join();
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
  return Finish(lock, *communicator, what);
}

absl::Status NcclGroup::Finish(std::unique_lock<std::mutex>* lock,
                               const NcclCommunicator& communicator, absl::string_view what) {
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::chrono::microseconds pause(10);
  bool was_reported = false;
  for (;;) {
    WEFT_RETURN_IF_ERROR(abort_status_);
    int state = nccl::kSuccess;
    WEFT_RETURN_IF_ERROR(
        library_->StatusOf(library_->CommGetAsyncError(communicator.comm_, &state), what));
    if (state != nccl::kInProgress) return library_->StatusOf(state, what);
    if (CheckLate(lock, start, what, "", &was_reported)) continue;
    changed_.wait_for(*lock, pause);
    pause = std::min<std::chrono::microseconds>(2 * pause, kWatchEvery);
  }
}

void NcclGroup::AbortAll(const absl::Status& status) {
  if (!abort_status_.ok()) return;
  abort_status_ = status;
  for (auto& [key, communicator] : communicators_) {
    if (communicator == nullptr) continue;
    communicator->ForgetFinished();
    communicator->was_cut_off_ = !communicator->pending_.empty();
    // NCCL still has the calls of an open group: its thread aborts in EndGroup.
    if (!communicator->in_group_) communicator->Abort();
  }
  changed_.notify_all();
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
                                       const NcclCommunicator& communicator,
                                       const CollectiveCall& call) {
  const RingKey& ring = communicator.ring_;
  const int64_t number = communicator.arrived_ - 1;
  changed_.notify_all();
  const auto start = std::chrono::steady_clock::now();
  bool was_reported = false;
  for (;;) {
    WEFT_RETURN_IF_ERROR(communicator.AbortStatus());
    const std::string missing = Missing(ring, number);
    if (missing.empty()) return absl::OkStatus();
    const std::string what =
        absl::StrCat(call.op, ": ", ToString(ring), ", ",
                     DescribeCollective(call.desc, number, call.variable, call.dims), ", rank ",
                     RankAt(ring, communicator.rank_));
    if (CheckLate(lock, start, what, missing, &was_reported)) continue;
    changed_.wait_for(*lock, kWatchEvery);
  }
}

std::string NcclGroup::Missing(const RingKey& ring, int64_t number) const {
  std::vector<int> missing;
  const World world = WorldOf(options_.nranks, options_.link);
  for (int rank = world.first; rank < world.end(); ++rank) {
    if (!ring.Has(rank)) continue;
    const auto found = communicators_.find({ring, rank});
    const bool has_called = found != communicators_.end() && found->second != nullptr &&
                            found->second->arrived_ > number;
    if (!has_called) missing.push_back(rank);
  }
  if (missing.empty()) return "";
  return absl::StrCat("; not arrived: rank ", absl::StrJoin(missing, ", "));
}

absl::Status NcclGroup::StartWatcher() {
  if (watcher_.joinable()) return absl::OkStatus();
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
  while (!is_over_) {
    if (has_pending_) {
      changed_.wait_for(lock, kWatchEvery);
    } else {
      changed_.wait(lock);
    }
    if (!abort_status_.ok()) continue;
    has_pending_ = false;
    for (auto& [key, communicator] : communicators_) {
      if (communicator == nullptr) continue;
      communicator->ForgetFinished();
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
      if (CheckLate(&lock, call.start, communicator->TextOf(call), Missing(key.first, call.number),
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
