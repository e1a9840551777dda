// Collectives of the ranks of a ring.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_COMMUNICATOR_H_
#define WEFT_EXECUTOR_COMMUNICATORS_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/memory.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/tensor_type.h"

namespace weft {

class JobLink;  // executor/jobs/job_link.h

// Whether the executor supports the op on SelectedRows (executor/communicators/rows_all_reduce.h).
bool CanRunOnRows(const CollectiveOp& op);

// What all ranks of a collective must agree on.
struct CollectiveDesc {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Reduction reduction = Reduction::kSum;  // for reducing kinds
  DType dtype = DType::kFloat32;
  int64_t count = 0;  // elements of `in`, per rank
  int root = 0;       // for kReduce, kBroadcast and kSend
  int peer = 0;       // for kSend: the rank that gets the elements
  // Half precision is rounded after each addition (kAccumulateTypeAttr), not once, at the end.
  // NCCL's additions are those of NCCL either way.
  bool rounds_each_addition = false;

  friend bool operator==(const CollectiveDesc& a, const CollectiveDesc& b) {
    return a.kind == b.kind && a.reduction == b.reduction && a.dtype == b.dtype &&
           a.count == b.count && a.root == b.root && a.peer == b.peer &&
           a.rounds_each_addition == b.rounds_each_addition;
  }
};

// A call of one rank: the descriptor, and what messages need. The views must be valid during the
// call only.
struct CollectiveCall {
  CollectiveDesc desc;
  absl::string_view op;        // "op 17 (c_allreduce_sum)"
  absl::string_view variable;  // "fc_0.w_0@GRAD"
  Dims dims;
  // On a device: the native handle of the stream on which the call is enqueued.
  void* stream = nullptr;
};

// Describes the call with that number on its ring: "all-reduce #3 of fc_0.w_0@GRAD (fp32[784,
// 256])", "all-reduce avg #0 of ...", "broadcast #1 from rank 0 of ...". The reduction sum is
// implied.
std::string DescribeCollective(const CollectiveDesc& desc, int64_t number,
                               absl::string_view variable, const Dims& dims);

// One rank's end of a ring. One stream calls it. Every rank of the ring makes the same calls in the
// same order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  // The rank, and the number of ranks, in the ring: positions in RingKey::ranks.
  virtual int rank() const = 0;
  virtual int nranks() const = 0;

  // Runs one collective. `in` has desc.count elements. `out` has as many, except n times as many
  // for kAllGather and 1/n as many for kReduceScatter. `out` may be `in`, except for kAllToAll; for
  // kAllGather, `in` may be part `rank` of `out`. Otherwise they must not overlap. For kSend, only
  // the root has an `in`, and only the peer an `out`; the other ranks call it, too.
  //
  // On the host, returns when both buffers may be reused. On a device, enqueues the call.
  //
  // Errors name the ring, the number of the call on this ring (from 0), the ranks and their calls:
  //   FailedPrecondition  ranks call different collectives
  //   DeadlineExceeded    a rank does not arrive
  //   Aborted             the run was aborted: see CommunicatorGroup::Abort
  //   InvalidArgument     the root or the peer is no rank, or kReduceScatter or kAllToAll does not
  //                       divide
  //   Unimplemented       an element type that cannot be reduced
  // After an error every later call on the ring fails.
  virtual absl::Status Run(const CollectiveCall& call, const void* in, void* out) = 0;

  // Calls between the two may start together, and their buffers may be reused when EndGroup has
  // returned; on a device, one launch enqueues them, all on one stream. All ranks group the same
  // calls. A group does not contain another. EndGroup must follow, also after an error of a call.
  virtual absl::Status BeginGroup() { return absl::OkStatus(); }
  virtual absl::Status EndGroup() { return absl::OkStatus(); }

  // Returns when all ranks have called it; on a device, work after it on `stream` waits for that.
  virtual absl::Status Barrier(void* stream);

  // Prepares a buffer that many calls use, until Unregister: some engines then move its bytes
  // directly. It must not be freed before.
  virtual absl::Status Register(void* /*buffer*/, size_t /*bytes*/) { return absl::OkStatus(); }
  virtual absl::Status Unregister(void* /*buffer*/) { return absl::OkStatus(); }

  // For a device, once the stream is idle: the error of enqueued calls that ended without a result
  // (DeadlineExceeded, Aborted).
  virtual absl::Status Check() { return absl::OkStatus(); }
};

// Gathers counts[r] elements of rank r, one rank after the other, into `out` on every rank. `in`
// may be its part of `out`. `call` describes it, without count. All ranks have the same counts. One
// broadcast for each rank, as a group.
absl::Status AllGatherUnequal(const CollectiveCall& call, absl::Span<const int64_t> counts,
                              const void* in, void* out, Communicator* communicator);

// A ring as one stream uses it. If both the compute stream and the ring's own stream use a ring, it
// counts as two, so that calls of different streams need no common order.
struct RingKey {
  int ring_id = 0;
  bool on_compute_stream = false;
  // The ranks of the run that the ring connects, ascending; empty: all.
  std::vector<int> ranks = {};

  bool Has(int rank) const { return ranks.empty() || absl::c_binary_search(ranks, rank); }

  friend bool operator==(const RingKey& a, const RingKey& b) {
    return a.ring_id == b.ring_id && a.on_compute_stream == b.on_compute_stream &&
           a.ranks == b.ranks;
  }
  friend bool operator<(const RingKey& a, const RingKey& b) {
    return std::tie(a.ring_id, a.on_compute_stream, a.ranks) <
           std::tie(b.ring_id, b.on_compute_stream, b.ranks);
  }
};

// "ring 0", "ring 0 (compute stream)", "ring 1 of ranks 0, 2".
std::string ToString(const RingKey& ring);
// The number of ranks of a ring in a run of `nranks`; the position of one of the run's ranks among
// them, and the rank at a position.
int SizeOf(const RingKey& ring, int nranks);
int PositionOf(const RingKey& ring, int rank);
int RankAt(const RingKey& ring, int position);

// The end of a rank outside of the ring. It runs nothing: calls leave `out` as it is.
Communicator* OutsideOfRing();

struct GroupOptions {
  int nranks = 1;
  // A late rank is reported after this time, once per call.
  double warn_after_s = 60;
  // After this time, the ranks that wait for it fail.
  double timeout_s = 600;
  // Called from any thread; may be empty.
  std::function<void(const std::string&)> warn;
  // To the other processes that have ranks of the run (WorldOf); null: this process has all. Must
  // outlive the group.
  JobLink* link = nullptr;
  // The rings of the run, the same in the same order in all processes. Groups over several
  // processes set them up when they are made.
  std::vector<RingKey> rings = {};
};

// All rings of a run.
class CommunicatorGroup {
 public:
  virtual ~CommunicatorGroup() = default;

  // Returns the end of `rank`, one of the ring's ranks, and of this process. Created on first use;
  // valid as long as the group. All ranks must request the rings that they belong to in the same
  // order. Thread-safe.
  virtual absl::StatusOr<Communicator*> Get(const RingKey& ring, int rank) = 0;

  // A rank has failed and will not arrive: `status` says which and why. Releases all ranks of this
  // process that wait, now and later, with an Aborted error that contains the message. Only the
  // first call counts. Thread-safe.
  virtual void Abort(const absl::Status& status) = 0;

  // The memory in which ranks should keep tensors, so that collectives need not copy them; null:
  // any. It lives as long as the group, and tensors in it must not outlive it.
  virtual Memory* host_memory() { return nullptr; }
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_COMMUNICATOR_H_
