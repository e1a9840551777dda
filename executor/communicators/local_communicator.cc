#include "executor/communicators/local_communicator.h"

#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "executor/communicators/ring_communicator.h"
#include "executor/communicators/shared_ring.h"

namespace weft {
namespace {

class LocalRing {
 public:
  LocalRing(const RingKey& key, const GroupOptions& options)
      : state_(SizeOf(key, options.nranks)),
        ring_(state_.data(), SharedRing::Options::For(key, options)) {
    for (int r = 0; r < ring_.nranks(); ++r) ends_.emplace_back(&ring_, key, r, BuffersOfThreads());
  }

  Communicator* end(int rank) { return &ends_[rank]; }
  void Break(const absl::Status& status) { ring_.Break(status); }

 private:
  PrivateRingState state_;
  SharedRing ring_;
  std::deque<RingCommunicator> ends_;  // by rank
};

class LocalGroup : public CommunicatorGroup {
 public:
  explicit LocalGroup(GroupOptions options) : options_(std::move(options)) {}

  absl::StatusOr<Communicator*> Get(const RingKey& key, int rank) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto [ring, is_new] = rings_.try_emplace(key, key, options_);
    if (is_new && !aborted_.ok()) ring->second.Break(aborted_);
    return ring->second.end(PositionOf(key, rank));
  }

  void Abort(const absl::Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = absl::AbortedError(status.message());
    for (auto& [key, ring] : rings_) ring.Break(aborted_);
  }

 private:
  const GroupOptions options_;
  std::mutex mutex_;
  std::map<RingKey, LocalRing> rings_;
  absl::Status aborted_;
};

}  // namespace

std::unique_ptr<CommunicatorGroup> NewLocalGroup(GroupOptions options) {
  return std::make_unique<LocalGroup>(std::move(options));
}

}  // namespace weft
