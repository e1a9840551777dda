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
#include "executor/jobs/process_state.h"
#include "executor/run/run_state.h"
#include "ops/memory.h"

namespace weft {

// The states of all ranks before a step, and what the host of process 0 knows then. Each process
// keeps those of its ranks in memory that all processes of the host map: so the others have them
// when it has been killed, whatever it was doing. Where processes are on several hosts, the first
// process of each host keeps copies for it of what the other hosts keep.
//
// A rank keeps the last two states that it has given. It overwrites the older one when its host has
// the newer one of all ranks, and all results before that have been delivered. So each host always
// has a step of which all states are whole, and that no result before it is missing. A rank waits
// for that in no step in which it waits for the others anyway.
//
// Of copies, a host has the last three. For a copy of step s + 2 comes when its host has s + 1 of
// all ranks; these have kept s + 1 when their hosts had s of all ranks. So while a host lacks the
// copy of s of one rank, no other is later than s + 1, and it still has s - 1 of all.
class KeptStates {
 public:
  // Of the ranks of `world`. All processes of the link call it at the same time; null: there are no
  // others. Processes with the same `host` see each other's memory (ProcessIdentity).
  // FailedPrecondition: they do not. ResourceExhausted. The link must outlive all calls but of
  // Steps, Read and Host, and end before this does: it delivers copies.
  static absl::StatusOr<std::unique_ptr<KeptStates>> Create(
      const World& world, JobLink* link, const std::string& host = ThisProcess().host);

  // Keeps the state of a rank of this process, before the step `state.step`. Every rank gives its
  // states of all steps in order. Waits as above; Aborted when `is_aborted` says true.
  // ResourceExhausted: no memory, also for copies. Ranks call it concurrently.
  absl::Status Keep(int rank, const RankState& state, const std::function<bool()>& is_aborted);

  // In process 0: the results of all ranks in the steps before `step` have been delivered, and the
  // host knows `host`. The steps follow each other. One thread at a time.
  absl::Status Deliver(int64_t step, absl::string_view host);

  // The steps from which all ranks can go on, by what this host has. While nothing is kept.
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
    int64_t num_slots = 2;
    Slot slots[3];  // step s is in s % num_slots

    Slot& SlotOf(int64_t step) { return slots[step % num_slots]; }
    const Slot& SlotOf(int64_t step) const { return slots[step % num_slots]; }
  };
  static_assert(std::atomic<int64_t>::is_always_lock_free, "processes share them");

  explicit KeptStates(const World& world) : world_(world) {}
  absl::Status CreateSegment(bool has_copies);
  void FindHosts(const std::vector<std::string>& hosts);
  // The process in whose segment this host has what another keeps.
  int KeeperOf(int process) const { return segments_[process] != nullptr ? process : keeper_; }
  Series* SeriesOf(int rank) const;
  Series* HostSeries() const;
  // In the segment of a process of this host, after its own ranks and host: by rank, then the host.
  Series* CopiesIn(int process) const;
  // `number`: of the series in the segment of this process.
  absl::Status Put(int number, int64_t step, size_t bytes,
                   const std::function<absl::Status(char* to)>& write);
  // The rank after the last stands for the host.
  void SendCopy(int rank, int64_t step, absl::string_view text);
  absl::Status TakeCopy(absl::string_view message);
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
    std::shared_ptr<void> of_slot[3];
  };
  std::vector<Blocks> blocks_;  // by series
  JobLink* link_ = nullptr;
  int keeper_ = 0;            // the first process of this host
  std::vector<int> keepers_;  // of the other hosts
  std::atomic<int64_t> bytes_of_rank_{0};
  mutable std::mutex mutex_;
  std::shared_ptr<KeptStates> former_;
  absl::Status copies_;  // that others have sent
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_KEPT_STATES_H_
