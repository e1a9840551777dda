#include "executor/run/kept_states.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "executor/run/run_messages.h"

namespace weft {

absl::Status KeptStates::CreateSegment() {
  WEFT_ASSIGN_OR_RETURN(
      std::shared_ptr<SharedSegment> segment,
      SharedSegment::Create("weft-states", TensorSegmentBytes(world_.num_processes())));
  segments_.resize(world_.num_processes());
  memory_ = NewSegmentMemory(segment);
  blocks_.resize(world_.count + 1);
  series_ = memory_->Allocate(sizeof(Series) * (world_.count + 1));
  if (series_.get() != segment->data()) return absl::InternalError("a segment is not empty");
  for (int i = 0; i <= world_.count; ++i) new (static_cast<Series*>(series_.get()) + i) Series;
  segments_[world_.process()] = std::move(segment);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KeptStates>> KeptStates::Create(const World& world, JobLink* link) {
  auto kept = std::unique_ptr<KeptStates>(new KeptStates(world));
  const absl::Status created = kept->CreateSegment();
  if (link == nullptr) {
    WEFT_RETURN_IF_ERROR(created);
    kept->segments_[0]->CloseFile();
    return kept;
  }
  // All processes make both exchanges, whatever fails: others wait for them.
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<std::string> addresses,
      link->AllGather(created.ok() ? kept->segments_[world.process()]->address() : ""));
  absl::Status opened = created;
  for (int p = 0; p < world.num_processes() && opened.ok(); ++p) {
    if (p == world.process()) continue;
    absl::StatusOr<std::shared_ptr<SharedSegment>> segment = SharedSegment::Open(addresses[p]);
    opened = segment.status();
    if (segment.ok()) kept->segments_[p] = *std::move(segment);
  }
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<std::string> errors,
      link->AllGather(
          opened.ok() ? "" : absl::StrJoin(std::vector<absl::string_view>{opened.message()}, "")));
  WEFT_RETURN_IF_ERROR(opened);
  for (size_t p = 0; p < errors.size(); ++p) {
    if (errors[p].empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("memory for the states of ranks, process ", p, ": ", errors[p]));
  }
  for (const auto& segment : kept->segments_) segment->CloseFile();
  return kept;
}

KeptStates::Series* KeptStates::SeriesOf(int rank) const {
  const int process = world_.ProcessOf(rank);
  const int first = FirstRankOf(process, world_.size, world_.num_processes());
  return static_cast<Series*>(segments_[process]->data()) + (rank - first);
}

// After the series of the ranks of process 0.
KeptStates::Series* KeptStates::HostSeries() const {
  return static_cast<Series*>(segments_[0]->data()) +
         FirstRankOf(1, world_.size, world_.num_processes());
}

absl::Status KeptStates::Put(Series* series, int64_t step, size_t bytes,
                             std::shared_ptr<void>* block,
                             const std::function<absl::Status(char* to)>& write) {
  Slot& slot = series->slots[step % 2];
  // Whoever finds another step than kNone finds all of the rest.
  slot.step.store(kNone, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  if (slot.bytes != bytes || *block == nullptr) {
    *block = nullptr;
    try {
      *block = memory_->Allocate(bytes);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for ", bytes, " bytes of the state that a rank keeps"));
    }
  }
  char* const to = static_cast<char*>(block->get());
  WEFT_RETURN_IF_ERROR(write(to));
  slot.offset = to - static_cast<char*>(segments_[world_.process()]->data());
  slot.bytes = bytes;
  slot.hash = Hash(world_.process(), *series, step, {to, bytes});
  slot.step.store(step, std::memory_order_release);
  series->last.store(step, std::memory_order_release);
  return absl::OkStatus();
}

uint64_t KeptStates::Hash(int process, const Series& series, int64_t step,
                          absl::string_view text) const {
  const int64_t at[] = {process, &series - static_cast<Series*>(segments_[process]->data()), step};
  return XXH3_64bits_withSeed(text.data(), text.size(), XXH3_64bits(at, sizeof(at)));
}

bool KeptStates::Has(const Series& series, int64_t step) {
  return series.slots[step % 2].step.load(std::memory_order_acquire) == step;
}

absl::StatusOr<absl::string_view> KeptStates::Get(int process, const Series& series,
                                                  int64_t step) const {
  const Slot& slot = series.slots[step % 2];
  const SharedSegment& segment = *segments_[process];
  const bool fits = Has(series, step) && slot.bytes <= segment.bytes() &&
                    slot.offset <= segment.bytes() - slot.bytes;
  const absl::string_view text(static_cast<const char*>(segment.data()) + (fits ? slot.offset : 0),
                               fits ? slot.bytes : 0);
  if (fits && Hash(process, series, step, text) == slot.hash) return text;
  return absl::DataLossError(absl::StrCat("what process ", process, " has kept before step ", step,
                                          " is damaged: expected the bytes that it wrote"));
}

bool KeptStates::IsComplete(int64_t step) const {
  // What the host keeps says which results have been delivered.
  if (HostSeries()->last.load(std::memory_order_acquire) < step) return false;
  for (int rank = 0; rank < world_.size; ++rank) {
    if (SeriesOf(rank)->last.load(std::memory_order_acquire) < step) return false;
  }
  return true;
}

absl::Status KeptStates::Keep(int rank, const RankState& state,
                              const std::function<bool()>& is_aborted) {
  Series* const series = SeriesOf(rank);
  const int64_t last = series->last.load(std::memory_order_relaxed);
  if (last != kNone) {
    if (state.step != last + 1) {
      return absl::InternalError(absl::StrCat("a rank keeps its state before step ", state.step,
                                              " after the one before step ", last));
    }
    std::chrono::microseconds pause(20);
    while (!IsComplete(last)) {
      if (is_aborted()) return absl::AbortedError("the run was aborted");
      std::this_thread::sleep_for(pause);
      pause = std::min<std::chrono::microseconds>(pause * 2, std::chrono::milliseconds(2));
    }
    std::shared_ptr<KeptStates> dropped;
    const std::lock_guard<std::mutex> lock(mutex_);
    dropped.swap(former_);
  }
  WEFT_ASSIGN_OR_RETURN(const size_t bytes, StateBytes(state));
  std::shared_ptr<void>* const block = &blocks_[rank - world_.first].of_slot[state.step % 2];
  WEFT_RETURN_IF_ERROR(
      Put(series, state.step, bytes, block, [&](char* to) { return WriteState(state, to); }));
  bytes_of_rank_.store(static_cast<int64_t>(2 * bytes), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status KeptStates::Deliver(int64_t step, absl::string_view host) {
  return Put(HostSeries(), step, host.size(), &blocks_.back().of_slot[step % 2], [&](char* to) {
    std::copy(host.begin(), host.end(), to);
    return absl::OkStatus();
  });
}

std::set<int64_t> KeptStates::Steps() const {
  std::set<int64_t> steps;
  for (const Slot& slot : HostSeries()->slots) {
    const int64_t step = slot.step.load(std::memory_order_acquire);
    bool has_all = step != kNone;
    for (int rank = 0; rank < world_.size && has_all; ++rank) has_all = Has(*SeriesOf(rank), step);
    if (has_all) steps.insert(step);
  }
  return steps;
}

absl::StatusOr<RankState> KeptStates::Read(int rank, int64_t step) const {
  WEFT_ASSIGN_OR_RETURN(const absl::string_view text,
                        Get(world_.ProcessOf(rank), *SeriesOf(rank), step));
  return ParseState(text);
}

absl::StatusOr<std::string> KeptStates::Host(int64_t step) const {
  WEFT_ASSIGN_OR_RETURN(const absl::string_view text, Get(0, *HostSeries(), step));
  return std::string(text);
}

std::shared_ptr<KeptStates> KeptStates::former() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return former_;
}

}  // namespace weft
