#include "executor/communicators/message_collectives.h"

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "executor/communicators/message_communicator.h"
#include "executor/communicators/rank_positions.h"
#include "executor/communicators/world.h"

namespace weft {
namespace {

std::string JoinRings(const std::vector<RingKey>& rings) {
  return absl::StrJoin(rings, ", ", [](std::string* out, const RingKey& key) {
    absl::StrAppend(out, ToString(key));
  });
}

class MessageGroup : public CommunicatorGroup {
 public:
  explicit MessageGroup(GroupOptions options)
      : options_(std::move(options)), world_(WorldOf(options_.nranks, options_.link)) {}

  absl::Status SetUp(const TransportFactory& new_transport) {
    for (int ring = 0; ring < static_cast<int>(options_.rings.size()); ++ring) {
      const RingKey& key = options_.rings[ring];
      const int size = SizeOf(key, options_.nranks);
      for (int rank = world_.first; rank < world_.end(); ++rank) {
        if (!key.Has(rank)) continue;
        const int position = PositionOf(key, rank);
        std::unique_ptr<Transport> transport;
        if (size > 1) {
          WEFT_ASSIGN_OR_RETURN(transport, new_transport(ring, position));
        }
        ends_[{key, rank}] = NewMessageRingEnd(
            key, position, size, options_,
            [this](const std::vector<int>& ranks) { return positions_->Find(ranks); },
            std::move(transport));
      }
    }
    positions_.emplace(world_, options_.link, [this](int rank) { return Position(rank); });
    return absl::OkStatus();
  }

  absl::StatusOr<Communicator*> Get(const RingKey& key, int rank) override {
    const auto end = ends_.find({key, rank});
    if (end != ends_.end()) return end->second.get();
    return absl::FailedPreconditionError(absl::StrCat(
        ToString(key), ", rank ", rank, ": not set up when the run began: it has ",
        absl::StrJoin(
            options_.rings, ", ",
            [](std::string* out, const RingKey& k) { absl::StrAppend(out, ToString(k)); }),
        ", and ranks ", world_.first, " to ", world_.end() - 1, " here"));
  }

  void Abort(const absl::Status& status) override {
    const absl::Status aborted = absl::AbortedError(status.message());
    std::lock_guard<std::mutex> lock(mutex_);
    if (is_aborted_) return;
    is_aborted_ = true;
    for (const auto& [key, end] : ends_) end->Break(aborted);
  }

 private:
  std::string Position(int rank) const {
    std::vector<std::string> calls;
    for (const auto& [key, end] : ends_) {
      if (key.second != rank) continue;
      std::string call = end->Position();
      if (!call.empty()) calls.push_back(std::move(call));
    }
    return absl::StrJoin(calls, " and ");
  }

  const GroupOptions options_;
  const World world_;
  std::map<std::pair<RingKey, int>, std::unique_ptr<MessageRingEnd>> ends_;  // by rank
  std::optional<RankPositions> positions_;
  std::mutex mutex_;
  bool is_aborted_ = false;
};

}  // namespace

absl::Status CompareRings(const GroupOptions& options) {
  if (options.link == nullptr) return absl::OkStatus();
  const std::string mine = JoinRings(options.rings);
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> rings, options.link->AllGather(mine));
  for (size_t p = 1; p < rings.size(); ++p) {
    if (rings[p] == rings[0]) continue;
    return absl::FailedPreconditionError(absl::StrCat("processes have different rings: process 0 ",
                                                      rings[0], "; process ", p, " ", rings[p]));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewMessageGroup(
    GroupOptions options, const TransportFactory& new_transport) {
  auto group = std::make_unique<MessageGroup>(std::move(options));
  WEFT_RETURN_IF_ERROR(group->SetUp(new_transport));
  return group;
}

}  // namespace weft
