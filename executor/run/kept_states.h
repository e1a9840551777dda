// What a run keeps of its last two steps, so that it goes on when some of its processes are killed.
#ifndef WEFT_EXECUTOR_RUN_KEPT_STATES_H_
#define WEFT_EXECUTOR_RUN_KEPT_STATES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/communicators/shared_segment.h"
#include "executor/communicators/world.h"
#include "executor/jobs/job_link.h"
#include "executor/run/run_state.h"
#include "ops/memory.h"

namespace weft {

// The states of all ranks before a step, and what the host of process 0 knows then. Each process
// keeps those of its ranks in memory that all processes of the host map: so the others have them
// when it has been killed, whatever it was doing.
//
// A rank keeps the last two states that it has given. It overwrites the older one when all ranks
// have kept the newer one, and all results before that have been delivered. So there is always a
// step of which all states are whole, and that no result before it is missing. A rank waits for
// that in no step in which it waits for the others anyway.
class KeptStates {
 public:
  // Of the ranks of `world`. All processes of the link call it at the same time; null: there are no
  // others. FailedPrecondition: processes do not see each other's memory. ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<KeptStates>> Create(const World& world, JobLink* link);

  // Keeps the state of a rank of this process, before the step `state.step`. Every rank gives its
  // states of all steps in order. Waits as above; Aborted when `is_aborted` says true.
  // ResourceExhausted: no memory. Ranks call it concurrently.
  absl::Status Keep(int rank, const RankState& state, const std::function<bool()>& is_aborted);

  // In process 0: the results of all ranks in the steps before `step` have been delivered, and the
  // host knows `host`. The steps follow each other. One thread at a time.
  absl::Status Deliver(int64_t step, absl::string_view host);

  // The steps from which all ranks can go on. While nothing is kept.
  std::set<int64_t> Steps() const;
  // What was kept for one of them. DataLoss if it is not as it was kept.
  absl::StatusOr<RankState> Read(int rank, int64_t step) const;
  absl::StatusOr<std::string> Host(int64_t step) const;

  // States of an earlier time, which are dropped when all ranks have kept one here. Null: there are
  // none any more. Set before the first is kept.
  void SetFormer(std::shared_ptr<KeptStates> former) { former_ = std::move(former); }
  std::shared_ptr<KeptStates> former() const;
  // What a rank of this process keeps, both states together.
  int64_t bytes_of_rank() const { return bytes_of_rank_.load(std::memory_order_relaxed); }

 private:
  friend class KeptStatesPeer;  // of the test
  static constexpr int64_t kNone = -1;

  // A text of a step, in the segment. `step` is kNone while it changes.
  struct Slot {
    std::atomic<int64_t> step{kNone};
    uint64_t offset = 0, bytes = 0, hash = 0;
  };
  // Of a rank, or of the host. A line of the cache of its own.
  struct alignas(128) Series {
    std::atomic<int64_t> last{kNone};  // the step that was kept last
    Slot slots[2];                     // step s is in s % 2
  };
  static_assert(std::atomic<int64_t>::is_always_lock_free, "processes share them");

  explicit KeptStates(const World& world) : world_(world) {}
  absl::Status CreateSegment();
  Series* SeriesOf(int rank) const;
  Series* HostSeries() const;
  absl::Status Put(Series* series, int64_t step, size_t bytes, std::shared_ptr<void>* block,
                   const std::function<absl::Status(char* to)>& write);
  absl::StatusOr<absl::string_view> Get(int process, const Series& series, int64_t step) const;
  // Of a text, and where it belongs.
  uint64_t Hash(int process, const Series& series, int64_t step, absl::string_view text) const;
  static bool Has(const Series& series, int64_t step);
  // Whether all ranks have kept `step`, and all results before it have been delivered.
  bool IsComplete(int64_t step) const;

  const World world_;
  std::vector<std::shared_ptr<SharedSegment>> segments_;  // by process
  std::unique_ptr<Memory> memory_;                        // in the segment of this process
  std::shared_ptr<void> series_;                          // of this process, first in the segment
  struct Blocks {
    std::shared_ptr<void> of_slot[2];
  };
  std::vector<Blocks> blocks_;  // by rank of this process; the last: of the host
  std::atomic<int64_t> bytes_of_rank_{0};
  mutable std::mutex mutex_;
  std::shared_ptr<KeptStates> former_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_KEPT_STATES_H_
