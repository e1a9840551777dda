// Groups of communicators around others: to count what is sent, to model a network, and to inject
// faults.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_COMMUNICATOR_DECORATORS_H_
#define WEFT_EXECUTOR_COMMUNICATORS_COMMUNICATOR_DECORATORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "executor/communicators/communicator.h"

namespace weft {

// Passes everything on. Others override Run. Its calls cannot be recorded.
class DecoratedCommunicator : public Communicator {
 public:
  explicit DecoratedCommunicator(Communicator* inner) : inner_(*inner) {}
  int rank() const override { return inner_.rank(); }
  int nranks() const override { return inner_.nranks(); }
  absl::Status BeginGroup() override { return inner_.BeginGroup(); }
  absl::Status EndGroup() override { return inner_.EndGroup(); }
  absl::Status Barrier(void* stream) override { return inner_.Barrier(stream); }
  absl::Status Register(void* buffer, size_t bytes) override {
    return inner_.Register(buffer, bytes);
  }
  absl::Status Unregister(void* buffer) override { return inner_.Unregister(buffer); }
  absl::Status Check() override { return inner_.Check(); }

 protected:
  Communicator& inner_;
};

// Makes a communicator around that of a rank of the run on a ring.
using Decorate = std::function<std::unique_ptr<Communicator>(const RingKey& ring, int rank,
                                                             Communicator* communicator)>;

std::unique_ptr<CommunicatorGroup> NewDecoratedGroup(std::unique_ptr<CommunicatorGroup> group,
                                                     Decorate decorate);

// What ranks pass to collectives: the bytes of `in` of each call that succeeded. Thread-safe.
class TrafficLog {
 public:
  struct Traffic {
    int64_t calls = 0;
    int64_t bytes = 0;
    // What a link between neighbours would carry if the ranks formed a ring: 2 (n - 1) / n of the
    // bytes for an all-reduce, n - 1 times for an all-gather, (n - 1) / n for a reduce-scatter,
    // once for others.
    double bus_bytes = 0;
  };

  // A call on a ring of `nranks`.
  void Add(int ring_id, int rank, int nranks, const CollectiveDesc& desc);
  // By number of the ring, both streams together.
  std::map<int, Traffic> OfRank(int rank) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<int, int>, Traffic> traffic_;  // by rank and ring
};

// Calls of `group`, written down in the log, which must outlive the group.
std::unique_ptr<CommunicatorGroup> NewRecordingGroup(std::unique_ptr<CommunicatorGroup> group,
                                                     TrafficLog* log);

// Calls of `group`, which take `latency_s` + bytes of `in` / `bytes_per_s` from the arrival of the
// last rank on, or longer if they take longer in `group`. Ranks that wait sleep. For groups on the
// host. Each call needs another small one, so that ranks know when the last one has arrived.
std::unique_ptr<CommunicatorGroup> NewModelledGroup(std::unique_ptr<CommunicatorGroup> group,
                                                    double latency_s, double bytes_per_s);

// What happens to a call of a rank before it reaches `group`. May wait, for a rank that is late;
// change the call, for one that diverges; or return an error, for one that fails: the call is then
// not made. `number`: of the call among those of the rank on the ring, from 0.
using Fault = std::function<absl::Status(const RingKey& ring, int rank, int64_t number,
                                         CollectiveCall* call)>;

// Calls of `group` with faults. Ranks call `fault` concurrently.
std::unique_ptr<CommunicatorGroup> NewFaultyGroup(std::unique_ptr<CommunicatorGroup> group,
                                                  Fault fault);

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_COMMUNICATOR_DECORATORS_H_
