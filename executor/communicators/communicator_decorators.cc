#include "executor/communicators/communicator_decorators.h"

#include <chrono>
#include <functional>
#include <thread>

#include "base/status_macros.h"
#include "executor/communicators/self_test.h"
#include "ops/schema/collective_bytes.h"

namespace weft {
namespace {

int64_t BytesOf(const CollectiveDesc& desc) {
  return desc.count * static_cast<int64_t>(SizeOf(desc.dtype));
}

class DecoratedGroup : public CommunicatorGroup {
 public:
  DecoratedGroup(std::unique_ptr<CommunicatorGroup> group, Decorate decorate)
      : group_(std::move(group)), decorate_(std::move(decorate)) {}

  absl::StatusOr<Communicator*> Get(const RingKey& ring, int rank) override {
    WEFT_ASSIGN_OR_RETURN(Communicator * inner, group_->Get(ring, rank));
    if (ring.ring_id == kSelfTestRing) return inner;  // what it calls is not of the run
    std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Communicator>& outer = communicators_[{ring, rank}];
    if (outer == nullptr) outer = decorate_(ring, rank, inner);
    return outer.get();
  }

  void Abort(const absl::Status& status) override { group_->Abort(status); }
  Memory* host_memory() override { return group_->host_memory(); }

 private:
  const std::unique_ptr<CommunicatorGroup> group_;
  const Decorate decorate_;
  std::mutex mutex_;
  std::map<std::pair<RingKey, int>, std::unique_ptr<Communicator>> communicators_;
};

class Recording : public DecoratedCommunicator {
 public:
  Recording(int ring_id, int rank, Communicator* inner, TrafficLog* log)
      : DecoratedCommunicator(inner), ring_id_(ring_id), rank_(rank), log_(*log) {}

  absl::Status Run(const CollectiveCall& call, const void* in, void* out) override {
    WEFT_RETURN_IF_ERROR(inner_.Run(call, in, out));
    log_.Add(ring_id_, rank_, inner_.nranks(), call.desc);
    return absl::OkStatus();
  }

 private:
  const int ring_id_, rank_;  // of the run
  TrafficLog& log_;
};

class Modelled : public DecoratedCommunicator {
 public:
  Modelled(Communicator* inner, double latency_s, double bytes_per_s)
      : DecoratedCommunicator(inner), latency_s_(latency_s), bytes_per_s_(bytes_per_s) {}

  absl::Status Run(const CollectiveCall& call, const void* in, void* out) override {
    CollectiveCall arrival = call;
    arrival.desc = {CollectiveKind::kAllReduce, Reduction::kSum, DType::kFloat32, 1, 0};
    arrival.dims = {1};
    float one = 1;
    WEFT_RETURN_IF_ERROR(inner_.Run(arrival, &one, &one));
    const std::chrono::duration<double> seconds(latency_s_ + BytesOf(call.desc) / bytes_per_s_);
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::duration_cast<std::chrono::steady_clock::duration>(seconds);
    WEFT_RETURN_IF_ERROR(inner_.Run(call, in, out));
    std::this_thread::sleep_until(end);
    return absl::OkStatus();
  }

 private:
  const double latency_s_;
  const double bytes_per_s_;
};

class Faulty : public DecoratedCommunicator {
 public:
  Faulty(const RingKey& ring, int rank, Communicator* inner, const Fault& fault)
      : DecoratedCommunicator(inner), ring_(ring), rank_(rank), fault_(fault) {}

  absl::Status Run(const CollectiveCall& call, const void* in, void* out) override {
    CollectiveCall changed = call;
    WEFT_RETURN_IF_ERROR(fault_(ring_, rank_, number_++, &changed));
    return inner_.Run(changed, in, out);
  }

 private:
  const RingKey ring_;
  const int rank_;  // of the run
  const Fault fault_;
  int64_t number_ = 0;
};

}  // namespace

std::unique_ptr<CommunicatorGroup> NewDecoratedGroup(std::unique_ptr<CommunicatorGroup> group,
                                                     Decorate decorate) {
  return std::make_unique<DecoratedGroup>(std::move(group), std::move(decorate));
}

void TrafficLog::Add(int ring_id, int rank, int nranks, const CollectiveDesc& desc) {
  std::lock_guard<std::mutex> lock(mutex_);
  Traffic& traffic = traffic_[{rank, ring_id}];
  ++traffic.calls;
  traffic.bytes += BytesOf(desc);
  traffic.bus_bytes += static_cast<double>(BytesOf(desc)) * SentPerByte(desc.kind, nranks);
}

std::map<int, TrafficLog::Traffic> TrafficLog::OfRank(int rank) const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::map<int, Traffic> of_rank;
  for (const auto& [place, traffic] : traffic_) {
    if (place.first == rank) of_rank[place.second] = traffic;
  }
  return of_rank;
}

std::unique_ptr<CommunicatorGroup> NewRecordingGroup(std::unique_ptr<CommunicatorGroup> group,
                                                     TrafficLog* log) {
  return std::make_unique<DecoratedGroup>(
      std::move(group), [log](const RingKey& ring, int rank, Communicator* inner) {
        return std::make_unique<Recording>(ring.ring_id, rank, inner, log);
      });
}

std::unique_ptr<CommunicatorGroup> NewModelledGroup(std::unique_ptr<CommunicatorGroup> group,
                                                    double latency_s, double bytes_per_s) {
  return std::make_unique<DecoratedGroup>(
      std::move(group), [=](const RingKey&, int, Communicator* inner) {
        return std::make_unique<Modelled>(inner, latency_s, bytes_per_s);
      });
}

std::unique_ptr<CommunicatorGroup> NewFaultyGroup(std::unique_ptr<CommunicatorGroup> group,
                                                  Fault fault) {
  return std::make_unique<DecoratedGroup>(
      std::move(group),
      [fault = std::move(fault)](const RingKey& ring, int rank, Communicator* inner) {
        return std::make_unique<Faulty>(ring, rank, inner, fault);
      });
}

}  // namespace weft
