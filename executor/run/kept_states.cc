#include "executor/run/kept_states.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "executor/run/run_messages.h"

namespace weft {

absl::Status KeptStates::CreateSegment(bool has_copies) {
  WEFT_ASSIGN_OR_RETURN(
      std::shared_ptr<SharedSegment> segment,
      SharedSegment::Create("weft-states", TensorSegmentBytes(world_.num_processes())));
  memory_ = NewSegmentMemory(segment);
  blocks_.resize(world_.count + 1 + (has_copies ? world_.size + 1 : 0));
  series_ = memory_->Allocate(sizeof(Series) * blocks_.size());
  if (series_.get() != segment->data()) return absl::InternalError("a segment is not empty");
  for (int i = 0; i < static_cast<int>(blocks_.size()); ++i) {
    new (static_cast<Series*>(series_.get()) + i) Series;
    if (i > world_.count) static_cast<Series*>(series_.get())[i].num_slots = 3;
  }
  segments_[world_.process()] = std::move(segment);
  return absl::OkStatus();
}

void KeptStates::FindHosts(const std::vector<std::string>& hosts) {
  const auto first_of = [&](const std::string& host) {
    return static_cast<int>(std::find(hosts.begin(), hosts.end(), host) - hosts.begin());
  };
  keeper_ = first_of(hosts[world_.process()]);
  for (int p = 0; p < world_.num_processes(); ++p) {
    if (first_of(hosts[p]) == p && p != keeper_) keepers_.push_back(p);
  }
}

absl::StatusOr<std::unique_ptr<KeptStates>> KeptStates::Create(const World& world, JobLink* link,
                                                               const std::string& host) {
  auto kept = std::unique_ptr<KeptStates>(new KeptStates(world));
  KeptStates* const self = kept.get();
  self->segments_.resize(world.num_processes());
  if (link == nullptr) {
    WEFT_RETURN_IF_ERROR(self->CreateSegment(/*has_copies=*/false));
    self->segments_[0]->CloseFile();
    return kept;
  }
  self->link_ = link;
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> hosts, link->AllGather(host));
  self->FindHosts(hosts);
  const absl::Status created = self->CreateSegment(!self->keepers_.empty());
  // All processes make both exchanges, whatever fails: others wait for them.
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<std::string> addresses,
      link->AllGather(created.ok() ? self->segments_[world.process()]->address() : ""));
  absl::Status opened = created;
  for (int p = 0; p < world.num_processes() && opened.ok(); ++p) {
    if (p == world.process() || hosts[p] != host) continue;
    absl::StatusOr<std::shared_ptr<SharedSegment>> segment = SharedSegment::Open(addresses[p]);
    opened = segment.status();
    if (segment.ok()) self->segments_[p] = *std::move(segment);
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
  for (const auto& segment : self->segments_) {
    if (segment != nullptr) segment->CloseFile();
  }
  if (self->keepers_.empty() || self->keeper_ != world.process()) return kept;
  link->Listen(JobLink::Topic::kKept, [self](int, const std::string& message) {
    const absl::Status status = self->TakeCopy(message);
    const std::lock_guard<std::mutex> lock(self->mutex_);
    self->copies_.Update(status);
  });
  return kept;
}

KeptStates::Series* KeptStates::SeriesOf(int rank) const {
  const int process = world_.ProcessOf(rank);
  if (segments_[process] == nullptr) return CopiesIn(keeper_) + rank;
  const int first = FirstRankOf(process, world_.size, world_.num_processes());
  return static_cast<Series*>(segments_[process]->data()) + (rank - first);
}

// After the series of the ranks of process 0.
KeptStates::Series* KeptStates::HostSeries() const {
  if (segments_[0] == nullptr) return CopiesIn(keeper_) + world_.size;
  return static_cast<Series*>(segments_[0]->data()) +
         FirstRankOf(1, world_.size, world_.num_processes());
}

KeptStates::Series* KeptStates::CopiesIn(int process) const {
  const int first = FirstRankOf(process, world_.size, world_.num_processes());
  const int end = FirstRankOf(process + 1, world_.size, world_.num_processes());
  return static_cast<Series*>(segments_[process]->data()) + (end - first) + 1;
}

absl::Status KeptStates::Put(int number, int64_t step, size_t bytes,
                             const std::function<absl::Status(char* to)>& write) {
  Series* const series = static_cast<Series*>(series_.get()) + number;
  Slot& slot = series->SlotOf(step);
  std::shared_ptr<void>& block = blocks_[number].of_slot[step % series->num_slots];
  // Whoever finds another step than kNone finds all of the rest.
  slot.step.store(kNone, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  if (slot.bytes != bytes || block == nullptr) {
    block = nullptr;
    try {
      block = memory_->Allocate(bytes);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for ", bytes, " bytes of the state that a rank keeps"));
    }
  }
  char* const to = static_cast<char*>(block.get());
  WEFT_RETURN_IF_ERROR(write(to));
  slot.offset = to - static_cast<char*>(segments_[world_.process()]->data());
  slot.bytes = bytes;
  slot.hash = Hash(world_.process(), *series, step, {to, bytes});
  slot.step.store(step, std::memory_order_release);
  series->last.store(step, std::memory_order_release);
  return absl::OkStatus();
}

void KeptStates::SendCopy(int rank, int64_t step, absl::string_view text) {
  for (const int keeper : keepers_) {
    link_->Send(keeper, JobLink::Topic::kKept, absl::StrCat(rank, " ", step, "\n", text));
  }
}

absl::Status KeptStates::TakeCopy(absl::string_view message) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(message, absl::MaxSplits('\n', 1));
  const std::pair<absl::string_view, absl::string_view> words = absl::StrSplit(parts.first, ' ');
  int rank = 0;
  int64_t step = 0;
  if (!absl::SimpleAtoi(words.first, &rank) || !absl::SimpleAtoi(words.second, &step) || rank < 0 ||
      rank > world_.size || step < 0) {
    return absl::InternalError(
        absl::StrCat("expected the copy of a state, found one of \"", parts.first, "\""));
  }
  const absl::string_view text = parts.second;
  return Put(world_.count + 1 + rank, step, text.size(), [&](char* to) {
    std::copy(text.begin(), text.end(), to);
    return absl::OkStatus();
  });
}

uint64_t KeptStates::Hash(int process, const Series& series, int64_t step,
                          absl::string_view text) const {
  const int64_t at[] = {process, &series - static_cast<Series*>(segments_[process]->data()), step};
  return XXH3_64bits_withSeed(text.data(), text.size(), XXH3_64bits(at, sizeof(at)));
}

bool KeptStates::Has(const Series& series, int64_t step) {
  return series.SlotOf(step).step.load(std::memory_order_acquire) == step;
}

absl::StatusOr<absl::string_view> KeptStates::Get(int process, const Series& series,
                                                  int64_t step) const {
  const Slot& slot = series.SlotOf(step);
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
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        WEFT_RETURN_IF_ERROR(copies_);
      }
      std::this_thread::sleep_for(pause);
      pause = std::min<std::chrono::microseconds>(pause * 2, std::chrono::milliseconds(2));
    }
    std::shared_ptr<KeptStates> dropped;
    const std::lock_guard<std::mutex> lock(mutex_);
    dropped.swap(former_);
  }
  WEFT_ASSIGN_OR_RETURN(const size_t bytes, StateBytes(state));
  const char* text = nullptr;
  WEFT_RETURN_IF_ERROR(Put(rank - world_.first, state.step, bytes, [&](char* to) {
    text = to;
    return WriteState(state, to);
  }));
  SendCopy(rank, state.step, {text, bytes});
  bytes_of_rank_.store(static_cast<int64_t>(2 * bytes), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status KeptStates::Deliver(int64_t step, absl::string_view host) {
  SendCopy(world_.size, step, host);
  return Put(world_.count, step, host.size(), [&](char* to) {
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
                        Get(KeeperOf(world_.ProcessOf(rank)), *SeriesOf(rank), step));
  return ParseState(text);
}

absl::StatusOr<std::string> KeptStates::Host(int64_t step) const {
  WEFT_ASSIGN_OR_RETURN(const absl::string_view text, Get(KeeperOf(0), *HostSeries(), step));
  return std::string(text);
}

std::shared_ptr<KeptStates> KeptStates::former() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return former_;
}

}  // namespace weft
