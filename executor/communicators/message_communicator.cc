#include "executor/communicators/message_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "executor/communicators/local_collective.h"
#include "executor/jobs/late_ranks.h"

namespace weft {
namespace {

using Clock = Transport::Clock;

// Up to this many bytes, elements travel with the descriptor of the call.
constexpr int64_t kSmallBytes = 16 << 10;
// What a reduction exchanges at a time: bounds the memory for the elements of other ranks.
constexpr int64_t kChunkBytes = 4 << 20;
// The limit of a message: engines count bytes in an int.
constexpr int64_t kMessageBytes = 1 << 30;
// Of the description of a call, when ranks call different collectives.
constexpr int64_t kDescriptionBytes = 4096;
// If a connection breaks, the link soon tells why.
constexpr double kCauseSeconds = 1;

Clock::duration Seconds(double s) {
  constexpr double kNever = 1e9;  // decades
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::clamp(s, 0.0, kNever)));
}

// The head of the first message of a call.
struct Header {
  int64_t number = 0;
  int64_t count = 0;
  int32_t root = 0;
  int32_t peer = 0;
  uint8_t kind = 0;
  uint8_t reduction = 0;
  uint8_t dtype = 0;
  uint8_t rounds_each_addition = 0;
};
constexpr int64_t kHeaderBytes = 64;  // keeps elements aligned
static_assert(sizeof(Header) <= kHeaderBytes);

Header HeaderOf(const CollectiveDesc& desc, int64_t number) {
  return {number,
          desc.count,
          desc.root,
          desc.peer,
          static_cast<uint8_t>(desc.kind),
          static_cast<uint8_t>(desc.reduction),
          static_cast<uint8_t>(desc.dtype),
          static_cast<uint8_t>(desc.rounds_each_addition)};
}

CollectiveDesc DescOf(const Header& header) {
  CollectiveDesc desc;
  desc.kind = static_cast<CollectiveKind>(header.kind);
  desc.reduction = static_cast<Reduction>(header.reduction);
  desc.dtype = static_cast<DType>(header.dtype);
  desc.count = header.count;
  desc.root = header.root;
  desc.peer = header.peer;
  desc.rounds_each_addition = header.rounds_each_addition != 0;
  return desc;
}

void CopyBytes(const void* from, int64_t bytes, void* to) {
  if (from != to && bytes > 0) std::memcpy(to, from, bytes);
}

// Whether the elements of rank `from` are of use to rank `to`.
bool Needs(const CollectiveDesc& desc, int from, int to) {
  if (desc.kind == CollectiveKind::kBroadcast) return from == desc.root;
  if (desc.kind == CollectiveKind::kSend) return from == desc.root && to == desc.peer;
  return desc.kind != CollectiveKind::kReduce || to == desc.root;
}

struct Range {
  int64_t begin;
  int64_t end;
  int64_t size() const { return end - begin; }
};

// Part `part` of a range.
Range PartOf(Range range, int part, int num_parts) {
  return {range.begin + range.size() * part / num_parts,
          range.begin + range.size() * (part + 1) / num_parts};
}

class MessageCommunicator : public MessageRingEnd {
 public:
  MessageCommunicator(RingKey key, int rank, int nranks, const GroupOptions& options,
                      FindPositions find_positions, std::unique_ptr<Transport> transport)
      : key_(std::move(key)),
        rank_(rank),
        nranks_(nranks),
        options_(options),
        find_positions_(std::move(find_positions)),
        transport_(std::move(transport)),
        heads_(nranks),
        elements_(nranks) {}

  int rank() const override { return rank_; }
  int nranks() const override { return nranks_; }

  absl::Status Run(const CollectiveCall& call, const void* in, void* out) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      Arrive(call);
      if (!broken_.ok()) return BrokenStatus();
      is_running_ = true;
    }
    absl::Status status = RunCall(call.desc, static_cast<const char*>(in), static_cast<char*>(out));
    std::lock_guard<std::mutex> lock(mutex_);
    is_running_ = false;
    if (status.ok()) return status;
    // The ring was broken while the call waited.
    if (absl::IsCancelled(status) && !broken_.ok()) return BrokenStatus();
    if (broken_.ok()) broken_ = status;
    return status;
  }

  void Break(const absl::Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!broken_.ok()) return;
    broken_ = status;
    if (transport_ != nullptr) transport_->Interrupt();
    changed_.notify_all();
  }

  std::string Position() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return is_running_ ? Where() : "";
  }

 private:
  // A call of this rank. The strings keep their memory from call to call.
  struct Call {
    int64_t number = -1;
    CollectiveDesc desc;
    std::string op;
    std::string variable;
    Dims dims;
  };

  void Arrive(const CollectiveCall& call) {
    std::swap(previous_, current_);
    current_.number = previous_.number + 1;
    current_.desc = call.desc;
    current_.op.assign(call.op.data(), call.op.size());
    current_.variable.assign(call.variable.data(), call.variable.size());
    current_.dims = call.dims;
  }

  absl::Status RunCall(const CollectiveDesc& desc, const char* in, char* out) {
    if (nranks_ == 1) {
      WEFT_RETURN_IF_ERROR(CheckCall(desc));
      const void* const ins[] = {in};
      void* const outs[] = {out};
      RunLocalCollective(desc, ins, outs, 0, 1);
      return absl::OkStatus();
    }
    size_ = static_cast<int64_t>(SizeOf(desc.dtype));
    WEFT_RETURN_IF_ERROR(ExchangeHeads(desc, in));
    WEFT_RETURN_IF_ERROR(CompareHeads(desc));
    WEFT_RETURN_IF_ERROR(CheckCall(desc));
    if (IsSmall(desc)) {
      RunSmall(desc, in, out);
      return absl::OkStatus();
    }
    switch (desc.kind) {
      case CollectiveKind::kAllReduce:
      case CollectiveKind::kReduce:
        return RunReduce(desc, in, out);
      case CollectiveKind::kReduceScatter:
        return RunReduceScatter(desc, in, out);
      case CollectiveKind::kAllGather:
        return RunAllGather(desc, in, out);
      case CollectiveKind::kBroadcast:
        return RunBroadcast(desc, in, out);
      case CollectiveKind::kAllToAll:
        return RunAllToAll(desc, in, out);
      case CollectiveKind::kSend:
        return RunSend(desc, in, out);
    }
    return absl::InternalError("unknown kind of collective");
  }

  bool IsSmall(const CollectiveDesc& desc) const { return desc.count * size_ <= kSmallBytes; }

  // Calls visit(rank) for all other ranks, which begin one after the other, so that they do not all
  // send to rank 0 first.
  template <typename Visit>
  void ForOthers(const Visit& visit) {
    for (int i = 1; i < nranks_; ++i) visit((rank_ + i) % nranks_);
  }

  absl::Status ExchangeHeads(const CollectiveDesc& desc, const char* in) {
    const bool is_read = desc.kind != CollectiveKind::kSend || rank_ == desc.root;
    const int64_t data = IsSmall(desc) && is_read ? desc.count * size_ : 0;
    const Header header = HeaderOf(desc, current_.number);
    heads_[rank_].assign(kHeaderBytes, 0);
    std::memcpy(heads_[rank_].data(), &header, sizeof header);
    if (data > 0) heads_[rank_].insert(heads_[rank_].end(), in, in + data);
    ForOthers([&](int r) {
      heads_[r].resize(kHeaderBytes + kSmallBytes);
      transport_->Receive(r, heads_[r].data(), heads_[r].size());
    });
    ForOthers([&](int r) {
      transport_->Send(r, heads_[rank_].data(), kHeaderBytes + (Needs(desc, rank_, r) ? data : 0));
    });
    return Wait(/*for_arrival=*/true);
  }

  // All ranks compare the same heads: they all go on, or all fail alike.
  absl::Status CompareHeads(const CollectiveDesc& desc) {
    std::vector<Header> headers(nranks_);
    for (int r = 0; r < nranks_; ++r) std::memcpy(&headers[r], heads_[r].data(), sizeof(Header));
    for (const Header& header : headers) {
      if (header.number == current_.number) continue;
      return absl::InternalError(absl::StrCat(Where(), ": expected a message of call #",
                                              current_.number, ", found one of call #",
                                              header.number));
    }
    const CollectiveDesc first = DescOf(headers[0]);
    for (int r = 1; r < nranks_; ++r) {
      if (!(DescOf(headers[r]) == first)) return DifferentCalls(r);
    }
    return absl::OkStatus();
  }

  absl::Status DifferentCalls(int other) {
    texts_.assign(nranks_, std::string(kDescriptionBytes, '\0'));
    std::string& mine = texts_[rank_] = absl::StrCat(Describe(current_), " in ", current_.op);
    mine.resize(std::min<size_t>(mine.size(), kDescriptionBytes));
    ForOthers([&](int r) { transport_->Receive(r, &texts_[r][0], texts_[r].size()); });
    ForOthers([&](int r) { transport_->Send(r, mine.data(), mine.size()); });
    WEFT_RETURN_IF_ERROR(Wait(/*for_arrival=*/false));
    return absl::FailedPreconditionError(absl::StrCat(
        ToString(key_), ": ranks call different collectives: rank ", RankAt(key_, 0), " calls ",
        texts_[0].c_str(), ", rank ", RankAt(key_, other), " calls ", texts_[other].c_str()));
  }

  absl::Status CheckCall(const CollectiveDesc& desc) const {
    const absl::Status status = CheckLocalCollective(desc, nranks_);
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat(Where(), ": ", status.message()));
  }

  // All elements that this rank needs have come with the heads.
  void RunSmall(const CollectiveDesc& desc, const char* in, char* out) {
    const int64_t bytes = desc.count * size_;
    for (int r = 0; r < nranks_; ++r) elements_[r] = heads_[r].data() + kHeaderBytes;
    elements_[rank_] = in;
    switch (desc.kind) {
      case CollectiveKind::kAllReduce:
        return Fold(desc, desc.count, out);
      case CollectiveKind::kReduce:
        return rank_ == desc.root ? Fold(desc, desc.count, out) : CopyBytes(in, bytes, out);
      case CollectiveKind::kReduceScatter: {
        const int64_t share = desc.count / nranks_;
        for (const void*& data : elements_) {
          data = static_cast<const char*>(data) + rank_ * share * size_;
        }
        return Fold(desc, share, out);
      }
      case CollectiveKind::kAllGather:
        for (int r = 0; r < nranks_; ++r) CopyBytes(elements_[r], bytes, out + r * bytes);
        return;
      case CollectiveKind::kBroadcast:
        return CopyBytes(elements_[desc.root], bytes, out);
      case CollectiveKind::kAllToAll: {
        const int64_t share = bytes / nranks_;
        for (int r = 0; r < nranks_; ++r) {
          const char* const parts = static_cast<const char*>(elements_[r]);
          CopyBytes(parts + rank_ * share, share, out + r * share);
        }
        return;
      }
      case CollectiveKind::kSend:
        if (rank_ == desc.peer) CopyBytes(elements_[desc.root], bytes, out);
        return;
    }
  }

  // Each rank reduces one part of a chunk. Then all of them, or the root, get the parts.
  absl::Status RunReduce(const CollectiveDesc& desc, const char* in, char* out) {
    const bool to_all = desc.kind == CollectiveKind::kAllReduce;
    const bool is_target = to_all || rank_ == desc.root;
    const int64_t step = kChunkBytes / size_;
    for (int64_t begin = 0; begin < desc.count; begin += step) {
      const Range chunk{begin, std::min(begin + step, desc.count)};
      const Range mine = PartOf(chunk, rank_, nranks_);
      WEFT_RETURN_IF_ERROR(
          ExchangeParts(in, mine, [&](int r) { return PartOf(chunk, r, nranks_); }));
      // Nobody was sent this part, so it may be overwritten if `out` is `in`.
      if (!is_target) result_.resize(mine.size() * size_);
      char* const result = is_target ? out + mine.begin * size_ : result_.data();
      Fold(desc, mine.size(), result);
      if (is_target) {
        ForOthers([&](int r) {
          const Range part = PartOf(chunk, r, nranks_);
          transport_->Receive(r, out + part.begin * size_, part.size() * size_);
        });
      }
      ForOthers([&](int r) {
        if (to_all || r == desc.root) transport_->Send(r, result, mine.size() * size_);
      });
      WEFT_RETURN_IF_ERROR(Wait(/*for_arrival=*/false));
    }
    if (!is_target) CopyBytes(in, desc.count * size_, out);
    return absl::OkStatus();
  }

  absl::Status RunReduceScatter(const CollectiveDesc& desc, const char* in, char* out) {
    const int64_t share = desc.count / nranks_;
    const int64_t step = std::max<int64_t>(kChunkBytes / size_ / nranks_, 1);
    for (int64_t begin = 0; begin < share; begin += step) {
      const int64_t end = std::min(begin + step, share);
      const auto part_of = [&](int r) { return Range{r * share + begin, r * share + end}; };
      WEFT_RETURN_IF_ERROR(ExchangeParts(in, part_of(rank_), part_of));
      // If `out` is `in`, this overwrites what rank 0 has just been sent.
      Fold(desc, end - begin, out + begin * size_);
    }
    return absl::OkStatus();
  }

  // Sends each rank its part of `in`, and points elements_ to `mine` of all ranks.
  template <typename Part>
  absl::Status ExchangeParts(const char* in, Range mine, const Part& part_of) {
    const int64_t bytes = mine.size() * size_;
    // Rows begin at lines of the cache.
    const int64_t row = (bytes + 63) / 64 * 64;
    if (static_cast<int64_t>(received_.size()) < row * nranks_) received_.resize(row * nranks_);
    ForOthers([&](int r) {
      elements_[r] = received_.data() + r * row;
      transport_->Receive(r, received_.data() + r * row, bytes);
    });
    elements_[rank_] = in + mine.begin * size_;
    ForOthers([&](int r) {
      const Range part = part_of(r);
      transport_->Send(r, in + part.begin * size_, part.size() * size_);
    });
    return Wait(/*for_arrival=*/false);
  }

  absl::Status RunAllGather(const CollectiveDesc& desc, const char* in, char* out) {
    const int64_t bytes = desc.count * size_;
    ForOthers([&](int r) { ReceiveAll(r, out + r * bytes, bytes); });
    ForOthers([&](int r) { SendAll(r, in, bytes); });
    CopyBytes(in, bytes, out + rank_ * bytes);
    return Wait(/*for_arrival=*/false);
  }

  absl::Status RunBroadcast(const CollectiveDesc& desc, const char* in, char* out) {
    const int64_t bytes = desc.count * size_;
    if (rank_ == desc.root) {
      ForOthers([&](int r) { SendAll(r, in, bytes); });
      CopyBytes(in, bytes, out);
    } else {
      ReceiveAll(desc.root, out, bytes);
    }
    return Wait(/*for_arrival=*/false);
  }

  absl::Status RunAllToAll(const CollectiveDesc& desc, const char* in, char* out) {
    const int64_t share = desc.count / nranks_ * size_;
    ForOthers([&](int r) { ReceiveAll(r, out + r * share, share); });
    ForOthers([&](int r) { SendAll(r, in + r * share, share); });
    CopyBytes(in + rank_ * share, share, out + rank_ * share);
    return Wait(/*for_arrival=*/false);
  }

  absl::Status RunSend(const CollectiveDesc& desc, const char* in, char* out) {
    const int64_t bytes = desc.count * size_;
    if (desc.root == desc.peer) {
      if (rank_ == desc.root) CopyBytes(in, bytes, out);
      return absl::OkStatus();
    }
    if (rank_ == desc.peer) ReceiveAll(desc.root, out, bytes);
    if (rank_ == desc.root) SendAll(desc.peer, in, bytes);
    return Wait(/*for_arrival=*/false);
  }

  void SendAll(int to, const char* data, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += kMessageBytes) {
      transport_->Send(to, data + at, std::min(kMessageBytes, bytes - at));
    }
  }
  void ReceiveAll(int from, char* data, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += kMessageBytes) {
      transport_->Receive(from, data + at, std::min(kMessageBytes, bytes - at));
    }
  }

  // Reduces `count` elements of elements_: a reduction whose root is the only rank with a result.
  void Fold(const CollectiveDesc& desc, int64_t count, char* out) {
    CollectiveDesc fold = desc;
    fold.kind = CollectiveKind::kReduce;
    fold.root = rank_;
    fold.count = count;
    targets_.resize(nranks_);
    for (int r = 0; r < nranks_; ++r) targets_[r] = const_cast<void*>(elements_[r]);
    targets_[rank_] = out;
    RunLocalCollective(fold, elements_, targets_, 0, 1);
  }

  // Waits for the messages that were begun. Gives the transport up if that fails.
  absl::Status Wait(bool for_arrival) {
    const absl::Status status = TryWait(for_arrival);
    if (!status.ok()) transport_->Stop();
    return status;
  }

  absl::Status TryWait(bool for_arrival) {
    const Clock::time_point begun = Clock::now();
    const Clock::time_point fail_at = begun + Seconds(options_.timeout_s);
    const Clock::time_point warn_at = begun + Seconds(options_.warn_after_s);
    absl::Status status = transport_->Wait(std::min(warn_at, fail_at));
    if (absl::IsDeadlineExceeded(status) && warn_at < fail_at) {
      if (options_.warn && last_warning_ < current_.number) {
        last_warning_ = current_.number;
        options_.warn(DescribeMissing(for_arrival, options_.warn_after_s));
      }
      status = transport_->Wait(fail_at);
    }
    if (status.ok() || absl::IsCancelled(status)) return status;
    if (absl::IsDeadlineExceeded(status)) {
      return absl::DeadlineExceededError(DescribeMissing(for_arrival, options_.timeout_s));
    }
    if (IsBrokenSoon()) return absl::CancelledError();
    return absl::Status(status.code(), absl::StrCat(Where(), ": ", status.message()));
  }

  // Whether the link tells why the engine failed.
  bool IsBrokenSoon() {
    std::unique_lock<std::mutex> lock(mutex_);
    const double seconds = options_.link == nullptr ? 0 : kCauseSeconds;
    return changed_.wait_for(lock, Seconds(seconds), [&] { return !broken_.ok(); });
  }

  std::string DescribeMissing(bool for_arrival, double seconds) const {
    std::vector<int> missing, waiting;
    const std::vector<int> pending = transport_->Pending();  // ascending
    for (int r = 0; r < nranks_; ++r) {
      (absl::c_binary_search(pending, r) ? missing : waiting).push_back(RankAt(key_, r));
    }
    if (!for_arrival) {
      const absl::string_view have = missing.size() == 1 ? " has" : " have";
      return absl::StrCat(Where(), ": ", RankList(missing), have, " arrived, but", have,
                          " not exchanged all data after ", seconds, " s; waiting: rank ",
                          RankAt(key_, rank_));
    }
    const std::map<int, std::string> positions = find_positions_(missing);
    std::vector<LateRank> late;
    for (const int rank : missing) {
      LateRank& last = late.emplace_back(LateRank{rank, "never arrived"});
      if (current_.number > 0) last.last = "last arrived at " + Describe(previous_);
      const auto position = positions.find(rank);
      if (position == positions.end()) continue;
      if (current_.number == 0) last.last = "has never arrived";
      absl::StrAppend(&last.last, " and is in ", position->second);
    }
    return DescribeLateRanks(Where(), late, waiting, seconds);
  }

  // If the ring was aborted, the call adds which call it was; other errors belong to the ring.
  absl::Status BrokenStatus() const {
    if (!absl::IsAborted(broken_)) return broken_;
    return absl::AbortedError(absl::StrCat(Where(), ": aborted: ", broken_.message()));
  }

  static std::string Describe(const Call& call) {
    return DescribeCollective(call.desc, call.number, call.variable, call.dims);
  }
  std::string Where() const { return absl::StrCat(ToString(key_), ", ", Describe(current_)); }

  const RingKey key_;
  const int rank_;
  const int nranks_;
  const GroupOptions& options_;
  const FindPositions find_positions_;
  const std::unique_ptr<Transport> transport_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status broken_;      // guarded by mutex_
  bool is_running_ = false;  // guarded by mutex_
  // The calling thread writes it under mutex_, and needs none to read it.
  Call current_;
  // Of the calling thread. The ranks that have not arrived at the current call were last in the
  // previous one.
  Call previous_;
  int64_t last_warning_ = -1;             // call
  int64_t size_ = 0;                      // bytes of an element
  std::vector<std::vector<char>> heads_;  // by rank: first messages of the call
  std::vector<const void*> elements_;     // by rank: what Fold reduces
  std::vector<void*> targets_;
  std::vector<char> received_;
  std::vector<char> result_;
  std::vector<std::string> texts_;  // by rank: descriptions of calls that differ
};

}  // namespace

std::unique_ptr<MessageRingEnd> NewMessageRingEnd(RingKey key, int rank, int nranks,
                                                  const GroupOptions& options,
                                                  FindPositions find_positions,
                                                  std::unique_ptr<Transport> transport) {
  return std::make_unique<MessageCommunicator>(std::move(key), rank, nranks, options,
                                               std::move(find_positions), std::move(transport));
}

}  // namespace weft
