#include "executor/communicators/shared_ring.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/communicators/local_collective.h"
#include "executor/jobs/late_ranks.h"

namespace weft {
namespace {

// Inputs up to this size are copied: a second rendezvous costs more. They share a fixed amount of
// memory, because every rank reads those of all.
constexpr size_t kMaxInlineBytes = 2 << 10;
constexpr size_t kMaxInlineBytesOfRing = 64 << 10;
constexpr size_t kCacheLine = 64;

// A waiting rank polls this long, the first part without giving up its processor.
constexpr int kBusyPolls = 200;
constexpr std::chrono::microseconds kPollTime(50);
// A rank that sleeps looks around this often.
constexpr std::chrono::milliseconds kSleepTime(100);
// How long the rank that broke the ring may take to say why. It may have been killed.
constexpr std::chrono::seconds kVerdictTime(1);

size_t InlineBytes(int nranks) {
  const size_t share = kMaxInlineBytesOfRing / nranks / kCacheLine * kCacheLine;
  return std::min(kMaxInlineBytes, share);
}

std::chrono::steady_clock::duration Seconds(double s) {
  constexpr double kNever = 1e9;  // decades
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(std::clamp(s, 0.0, kNever)));
}

// Not private to the process: the state may be in a shared mapping.
void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, std::chrono::nanoseconds time) {
  static_assert(sizeof(*word) == sizeof(uint32_t));
  struct timespec timeout;
  timeout.tv_sec = static_cast<time_t>(time.count() / 1000000000);
  timeout.tv_nsec = static_cast<long>(time.count() % 1000000000);  // NOLINT: the type of timespec
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void FullFence() {
#ifdef __SANITIZE_THREAD__
  // ThreadSanitizer knows no fences. A locked instruction is one.
  static thread_local std::atomic<int> word;
  word.exchange(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Makes this processor the owner of a cache line, so that a later store need not wait for it.
void PrefetchForStore(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw (%0)" ::"r"(line));  // __builtin_prefetch would need a newer processor
#else
  __builtin_prefetch(line, 1);
#endif
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

bool HasProcessorForEach(int nranks) {
  return static_cast<unsigned>(nranks) <= std::thread::hardware_concurrency();
}

// Text that another rank may read while it changes: then the copy is garbled, and no more.
struct SharedRing::Text {
  static constexpr size_t kWords = 16;
  std::atomic<uint64_t> size;
  std::atomic<uint64_t> words[kWords];

  void Set(absl::string_view text) {
    const size_t taken = std::min(text.size(), sizeof(words));
    size.store(text.size(), std::memory_order_relaxed);
    for (size_t i = 0; i * sizeof(uint64_t) < taken; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + i * sizeof(word),
                  std::min(sizeof(word), taken - i * sizeof(word)));
      words[i].store(word, std::memory_order_relaxed);
    }
  }

  std::string Get() const {
    const size_t whole = size.load(std::memory_order_relaxed);
    char bytes[sizeof(words)];
    for (size_t i = 0; i < kWords; ++i) {
      const uint64_t word = words[i].load(std::memory_order_relaxed);
      std::memcpy(bytes + i * sizeof(word), &word, sizeof(word));
    }
    std::string text(bytes, std::min(whole, sizeof(bytes)));
    if (whole > sizeof(bytes)) text += "...";
    return text;
  }
};

// One call of one rank. The first cache line is all that others read unless they report an error.
struct alignas(kCacheLine) SharedRing::Call {
  static constexpr size_t kMaxDims = 8;
  std::atomic<uint64_t> arrived;    // the number of the call, plus 1; written last
  std::atomic<uint64_t> operation;  // what a CollectiveDesc holds besides count and peer
  std::atomic<int64_t> count;
  std::atomic<int64_t> peer;
  std::atomic<uint64_t> in;
  std::atomic<uint64_t> out;
  std::atomic<uint64_t> num_dims;  // more than kMaxDims are not kept
  alignas(kCacheLine) std::atomic<int64_t> dims[kMaxDims];
  Text op;
  Text variable;

  static uint64_t OperationOf(const CollectiveDesc& desc) {
    return static_cast<uint64_t>(desc.kind) | static_cast<uint64_t>(desc.reduction) << 8 |
           static_cast<uint64_t>(desc.dtype) << 16 |
           static_cast<uint64_t>(desc.rounds_each_addition) << 24 |
           static_cast<uint64_t>(static_cast<uint32_t>(desc.root)) << 32;
  }

  void Set(const CollectiveCall& call, const Buffers& buffers) {
    operation.store(OperationOf(call.desc), std::memory_order_relaxed);
    count.store(call.desc.count, std::memory_order_relaxed);
    peer.store(call.desc.peer, std::memory_order_relaxed);
    in.store(buffers.in, std::memory_order_relaxed);
    out.store(buffers.out, std::memory_order_relaxed);
    const size_t rank = std::min(call.dims.size(), kMaxDims);
    num_dims.store(rank, std::memory_order_relaxed);
    for (size_t i = 0; i < rank; ++i) dims[i].store(call.dims[i], std::memory_order_relaxed);
    op.Set(call.op);
    variable.Set(call.variable);
  }

  CollectiveDesc Desc() const {
    const uint64_t bits = operation.load(std::memory_order_relaxed);
    CollectiveDesc desc;
    desc.kind = static_cast<CollectiveKind>(bits & 0xff);
    desc.reduction = static_cast<Reduction>(bits >> 8 & 0xff);
    desc.dtype = static_cast<DType>(bits >> 16 & 0xff);
    desc.rounds_each_addition = (bits >> 24 & 1) != 0;
    desc.root = static_cast<int>(static_cast<uint32_t>(bits >> 32));
    desc.count = count.load(std::memory_order_relaxed);
    desc.peer = static_cast<int>(peer.load(std::memory_order_relaxed));
    return desc;
  }

  Dims DimsOf() const {
    Dims result(std::min<size_t>(num_dims.load(std::memory_order_relaxed), kMaxDims));
    for (size_t i = 0; i < result.size(); ++i) result[i] = dims[i].load(std::memory_order_relaxed);
    return result;
  }

  bool Equals(const Call& other) const {
    return operation.load(std::memory_order_relaxed) ==
               other.operation.load(std::memory_order_relaxed) &&
           count.load(std::memory_order_relaxed) == other.count.load(std::memory_order_relaxed) &&
           peer.load(std::memory_order_relaxed) == other.peer.load(std::memory_order_relaxed);
  }
};

struct alignas(kCacheLine) SharedRing::Rank {
  Call calls[2];                    // the last ones, by parity of their number
  std::atomic<uint64_t> num_ended;  // calls that are not small
};

// After it: Rank[nranks], and 2 * nranks copies of inputs.
struct alignas(kCacheLine) SharedRing::State {
  std::atomic<uint32_t> is_broken;
  std::atomic<uint32_t> sleepers;                        // ranks that must be woken
  std::atomic<uint32_t> wakes;                           // on which they sleep
  alignas(kCacheLine) std::atomic<uint64_t> num_warned;  // calls up to the last of a warning
  // Written once, by who set is_broken, before has_verdict.
  alignas(kCacheLine) std::atomic<uint32_t> has_verdict;
  int32_t code;          // of the error
  uint64_t num_started;  // calls; later ones never start
  uint64_t message_size;
  static constexpr size_t kMaxMessage = 8192 - 24;
  char message[kMaxMessage];
};

SharedRing::Options SharedRing::Options::For(const RingKey& key, const GroupOptions& options) {
  Options result;
  result.key = key;
  result.nranks = SizeOf(key, options.nranks);
  result.count = result.nranks;
  result.polls = HasProcessorForEach(options.nranks);
  result.warn_after_s = options.warn_after_s;
  result.timeout_s = options.timeout_s;
  result.warn = options.warn;
  return result;
}

size_t SharedRing::StateBytes(int nranks) {
  return sizeof(State) + nranks * (sizeof(Rank) + 2 * InlineBytes(nranks));
}

PrivateRingState::PrivateRingState(int nranks)
    : data_(::operator new (SharedRing::StateBytes(nranks), std::align_val_t{kCacheLine})) {
  std::memset(data_, 0, SharedRing::StateBytes(nranks));
}

PrivateRingState::~PrivateRingState() { ::operator delete (data_, std::align_val_t{kCacheLine}); }

SharedRing::SharedRing(void* state, Options options)
    : options_(std::move(options)),
      inline_bytes_(InlineBytes(options_.nranks)),
      state_(static_cast<State*>(state)) {
  static_assert(std::atomic<uint32_t>::is_always_lock_free);
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
}

SharedRing::Rank& SharedRing::RankState(int rank) const {
  return reinterpret_cast<Rank*>(state_ + 1)[rank];
}

SharedRing::Call& SharedRing::CallOf(int rank, uint64_t number) const {
  return RankState(rank).calls[number % 2];
}

char* SharedRing::InlineData(int rank, uint64_t number) const {
  char* const data = reinterpret_cast<char*>(&RankState(options_.nranks));
  return data + (2 * static_cast<uint64_t>(rank) + number % 2) * inline_bytes_;
}

uint64_t SharedRing::NumCalls(int rank) const {
  return std::max(CallOf(rank, 0).arrived.load(std::memory_order_acquire),
                  CallOf(rank, 1).arrived.load(std::memory_order_acquire));
}

bool SharedRing::IsBroken() const { return state_->is_broken.load(std::memory_order_acquire) != 0; }

absl::Status SharedRing::Start(int rank, const CollectiveCall& call, const Buffers& buffers) {
  const uint64_t number = NumCalls(rank);
  if (IsBroken()) return BrokenStatus(call, number);
  Call& mine = CallOf(rank, number);
  mine.Set(call, buffers);
  if (buffers.copied_bytes > 0) {
    std::memcpy(InlineData(rank, number), buffers.copied, buffers.copied_bytes);
  }
  mine.arrived.store(number + 1, std::memory_order_release);
  const absl::Status started = WaitForStart(rank, call, number);
  if (!started.ok()) return started;
  // Others have read what these lines held.
  PrefetchForStore(&CallOf(rank, number + 1));
  PrefetchForStore(&RankState(rank).num_ended);
  for (size_t i = 0; i < buffers.copied_bytes; i += kCacheLine) {
    PrefetchForStore(InlineData(rank, number + 1) + i);
  }
  const absl::Status status = CheckCalls(rank, number);
  if (!status.ok()) Break(status);
  return status;
}

SharedRing::Buffers SharedRing::BuffersOf(int other, int rank) const {
  const uint64_t number = NumCalls(rank) - 1;
  const Call& call = CallOf(other, number);
  Buffers buffers;
  buffers.copied = InlineData(other, number);
  buffers.in = call.in.load(std::memory_order_relaxed);
  buffers.out = call.out.load(std::memory_order_relaxed);
  return buffers;
}

absl::Status SharedRing::End(int rank, const CollectiveCall& call) {
  if (IsSmall(call.desc.count * SizeOf(call.desc.dtype))) return absl::OkStatus();
  std::atomic<uint64_t>& mine = RankState(rank).num_ended;
  const uint64_t num_ended = mine.load(std::memory_order_relaxed) + 1;
  mine.store(num_ended, std::memory_order_release);
  int next = 0;
  const auto have_all_ended = [&] {
    while (next < options_.nranks &&
           RankState(next).num_ended.load(std::memory_order_acquire) >= num_ended) {
      ++next;
    }
    return next == options_.nranks;
  };
  const bool all_are_here = options_.count == options_.nranks;
  const auto is_over = [&] { return have_all_ended() || (!all_are_here && IsBroken()); };
  const uint64_t number = NumCalls(rank) - 1;
  if (!Poll(is_over)) {
    const Clock::time_point fail_at =
        all_are_here ? Clock::time_point::max() : Clock::now() + Seconds(options_.timeout_s);
    if (!SleepUntil(fail_at, is_over)) {
      Break(absl::DeadlineExceededError(DescribeUnfinished(rank, number, options_.timeout_s)));
    }
  }
  FullFence();
  WakeSleepers();
  if (have_all_ended()) return absl::OkStatus();
  for (int r = options_.first; r < options_.first + options_.count; ++r) {
    SleepUntil(Clock::time_point::max(),
               [&] { return RankState(r).num_ended.load(std::memory_order_acquire) >= num_ended; });
  }
  return BrokenStatus(call, number);
}

// Polling is for ranks that have a processor each: others need the one that polls.
template <typename IsOver>
bool SharedRing::Poll(const IsOver& is_over) const {
  if (!options_.polls) return is_over();
  for (int i = 0; i < kBusyPolls; ++i) {
    if (is_over()) return true;
    Pause();
  }
  const Clock::time_point end = Clock::now() + kPollTime;
  while (!is_over()) {
    if (Clock::now() >= end) return false;
    sched_yield();
  }
  return true;
}

// Returns whether it is over.
template <typename IsOver>
bool SharedRing::SleepUntil(Clock::time_point time, const IsOver& is_over) const {
  while (true) {
    const uint32_t seen = state_->wakes.load(std::memory_order_acquire);
    if (is_over()) return true;
    const Clock::time_point now = Clock::now();
    if (now >= time) return false;
    state_->sleepers.fetch_add(1);
    FullFence();
    // Whoever changes something from now on sees a sleeper, and changes the word.
    if (!is_over()) {
      FutexWait(&state_->wakes, seen, std::min<std::chrono::nanoseconds>(time - now, kSleepTime));
    }
    state_->sleepers.fetch_sub(1);
  }
}

// After a fence.
void SharedRing::WakeSleepers() const {
  if (state_->sleepers.load(std::memory_order_relaxed) == 0) return;
  state_->wakes.fetch_add(1);
  FutexWakeAll(&state_->wakes);
}

absl::Status SharedRing::WaitForStart(int rank, const CollectiveCall& call, uint64_t number) {
  int next = 0;
  const auto have_all_arrived = [&] {
    while (next < options_.nranks &&
           CallOf(next, number).arrived.load(std::memory_order_acquire) > number) {
      ++next;
    }
    return next == options_.nranks;
  };
  const auto is_over = [&] { return have_all_arrived() || IsBroken(); };
  if (!Poll(is_over)) {
    const Clock::time_point now = Clock::now();
    const Clock::time_point fail_at = now + Seconds(options_.timeout_s);
    const Clock::time_point warn_at = now + Seconds(options_.warn_after_s);
    if (warn_at < fail_at && !SleepUntil(warn_at, is_over)) {
      uint64_t warned = state_->num_warned.load(std::memory_order_relaxed);
      if (options_.warn && warned <= number &&
          state_->num_warned.compare_exchange_strong(warned, number + 1)) {
        options_.warn(DescribeMissing(number, options_.warn_after_s));
      }
    }
    if (!SleepUntil(fail_at, is_over)) {
      const std::string message = DescribeMissing(number, options_.timeout_s);
      if (!have_all_arrived()) Break(absl::DeadlineExceededError(message));
    }
  }
  FullFence();
  WakeSleepers();
  if (!IsBroken()) return absl::OkStatus();
  const bool has_started = WaitForVerdict() && number < state_->num_started;
  return has_started ? absl::OkStatus() : BrokenStatus(call, number);
}

void SharedRing::Break(const absl::Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (own_error_.ok()) own_error_ = status;
  }
  MarkBroken(status);
  state_->wakes.fetch_add(1);
  FutexWakeAll(&state_->wakes);
}

void SharedRing::MarkBroken(const absl::Status& status) {
  uint32_t expected = 0;
  if (!state_->is_broken.compare_exchange_strong(expected, 1)) return;
  FullFence();
  uint64_t num_started = UINT64_MAX;
  for (int r = 0; r < options_.nranks; ++r) num_started = std::min(num_started, NumCalls(r));
  const size_t size = std::min(status.message().size(), State::kMaxMessage);
  state_->num_started = num_started;
  state_->code = static_cast<int32_t>(status.code());
  state_->message_size = size;
  std::memcpy(state_->message, status.message().data(), size);
  state_->has_verdict.store(1, std::memory_order_release);
}

bool SharedRing::WaitForVerdict() const {
  const Clock::time_point end = Clock::now() + kVerdictTime;
  while (state_->has_verdict.load(std::memory_order_acquire) == 0) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

absl::Status SharedRing::FirstError() const {
  if (!WaitForVerdict()) {
    std::lock_guard<std::mutex> lock(mutex_);
    return !own_error_.ok()
               ? own_error_
               : absl::AbortedError("a process that has ended before it could say why");
  }
  return absl::Status(static_cast<absl::StatusCode>(state_->code),
                      absl::string_view(state_->message, std::min<uint64_t>(state_->message_size,
                                                                            State::kMaxMessage)));
}

// If the ring was aborted, the call adds which call it was; other errors belong to the ring.
absl::Status SharedRing::BrokenStatus(const CollectiveCall& call, uint64_t number) const {
  absl::Status error = FirstError();
  if (!absl::IsAborted(error)) return error;
  return absl::AbortedError(absl::StrCat(
      ToString(options_.key), ", ",
      DescribeCollective(call.desc, static_cast<int64_t>(number), call.variable, call.dims),
      ": aborted: ", error.message()));
}

absl::Status SharedRing::CheckCalls(int rank, uint64_t number) const {
  const Call& mine = CallOf(rank, number);
  bool are_equal = true;
  for (int r = 0; r < options_.nranks; ++r) are_equal &= CallOf(r, number).Equals(mine);
  const Call& first = CallOf(0, number);
  const RingKey& key = options_.key;
  for (int r = 1; !are_equal && r < options_.nranks; ++r) {
    const Call& other = CallOf(r, number);
    if (other.Equals(first)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(ToString(key), ": ranks call different collectives: rank ", RankAt(key, 0),
                     " calls ", Describe(0, number), " in ", first.op.Get(), ", rank ",
                     RankAt(key, r), " calls ", Describe(r, number), " in ", other.op.Get()));
  }
  const absl::Status status = CheckLocalCollective(first.Desc(), options_.nranks);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(ToString(key), ", ", Describe(0, number), ": ",
                                                  status.message()));
}

std::string SharedRing::Describe(int rank, uint64_t number) const {
  const Call& call = CallOf(rank, number);
  return DescribeCollective(call.Desc(), static_cast<int64_t>(number), call.variable.Get(),
                            call.DimsOf());
}

// Ranks may arrive meanwhile.
std::string SharedRing::DescribeMissing(uint64_t number, double seconds) const {
  const RingKey& key = options_.key;
  std::vector<int> waiting;
  std::vector<LateRank> late;
  int first_waiting = -1;
  for (int r = 0; r < options_.nranks; ++r) {
    const uint64_t num_calls = NumCalls(r);
    if (num_calls > number) {
      if (first_waiting < 0) first_waiting = r;
      waiting.push_back(RankAt(key, r));
    } else {
      late.push_back({RankAt(key, r), num_calls == 0
                                          ? "never arrived"
                                          : "last arrived at " + Describe(r, num_calls - 1)});
    }
  }
  return DescribeLateRanks(absl::StrCat(ToString(key), ", ", Describe(first_waiting, number)), late,
                           waiting, seconds);
}

std::string SharedRing::DescribeUnfinished(int rank, uint64_t number, double seconds) const {
  std::vector<int> unfinished;
  const uint64_t num_ended = RankState(rank).num_ended.load(std::memory_order_relaxed);
  for (int r = 0; r < options_.nranks; ++r) {
    if (RankState(r).num_ended.load(std::memory_order_acquire) < num_ended) {
      unfinished.push_back(RankAt(options_.key, r));
    }
  }
  return absl::StrCat(ToString(options_.key), ", ", Describe(rank, number), ": ",
                      RankList(unfinished), " arrived, but did not finish within ", seconds, " s");
}

}  // namespace weft
