// Collectives: what the ranks of a ring do together.
#ifndef WEFT_EXECUTOR_COMMUNICATOR_H_
#define WEFT_EXECUTOR_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// Whether the executor runs the op: on dense tensors, or on SelectedRows
// (executor/rows_all_reduce.h).
bool CanRun(const CollectiveOp& op, bool on_rows);

// What all ranks must agree on.
struct CollectiveDesc {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Reduction reduction = Reduction::kSum;  // of the reducing kinds
  DType dtype = DType::kFloat32;
  int64_t count = 0;  // elements of `in`, per rank
  int root = 0;       // of kReduce, kBroadcast

  friend bool operator==(const CollectiveDesc& a, const CollectiveDesc& b) {
    return a.kind == b.kind && a.reduction == b.reduction && a.dtype == b.dtype &&
           a.count == b.count && a.root == b.root;
  }
  friend bool operator!=(const CollectiveDesc& a, const CollectiveDesc& b) { return !(a == b); }
};

// A call of one rank: the descriptor, and what messages say about it. The views need to be valid
// during the call only.
struct CollectiveCall {
  CollectiveDesc desc;
  absl::string_view op;        // "op 17 (c_allreduce_sum)"
  absl::string_view variable;  // "fc_0.w_0@GRAD"
  Dims dims;
  // Of a device: the native handle of the stream that the call is enqueued on.
  void* stream = nullptr;
};

// "all-reduce #3 of fc_0.w_0@GRAD (fp32[784, 256])", "all-reduce avg #0 of ...", "broadcast #1 from
// rank 0 of ...": the call with that number on its ring. Sum is not spelled out.
std::string DescribeCollective(const CollectiveDesc& desc, int64_t number,
                               absl::string_view variable, const Dims& dims);

// One rank's end of a ring. Called from one stream; every rank makes the same calls in the same
// order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int nranks() const = 0;

  // Takes part in a collective. `in` holds desc.count elements; `out` holds as many, but n times as
  // many for kAllGather and 1/n as many for kReduceScatter. `out` may be `in`, or, for kAllGather,
  // `in` may be part `rank` of `out`; otherwise they do not overlap.
  //
  // A communicator on the host returns when both may be used again; one on a device enqueues.
  //
  // Errors name the ring, the number of the call on this ring (from 0), the ranks and their calls:
  //   FailedPrecondition  ranks call different collectives
  //   DeadlineExceeded    a rank does not arrive
  //   Aborted             the run was aborted: see CommunicatorGroup::Abort
  //   InvalidArgument     root is no rank, or kReduceScatter does not divide
  //   Unimplemented       an element type that cannot be reduced
  // After an error every later call on the ring fails.
  virtual absl::Status Run(const CollectiveCall& call, const void* in, void* out) = 0;

  // Of a communicator on a device, once the stream is idle: the error with which calls that were
  // enqueued came to an end without a result (DeadlineExceeded, Aborted).
  virtual absl::Status Check() { return absl::OkStatus(); }
};

// A ring as one stream uses it. A ring that both the compute stream and its own stream use counts
// as two, so that calls of different streams need no common order.
struct RingKey {
  int ring_id = 0;
  bool on_compute_stream = false;

  friend bool operator==(RingKey a, RingKey b) {
    return a.ring_id == b.ring_id && a.on_compute_stream == b.on_compute_stream;
  }
  friend bool operator<(RingKey a, RingKey b) {
    return a.ring_id != b.ring_id ? a.ring_id < b.ring_id
                                  : a.on_compute_stream < b.on_compute_stream;
  }
};

std::string ToString(RingKey ring);  // "ring 0", "ring 0 (compute stream)"

// All rings of a run.
class CommunicatorGroup {
 public:
  virtual ~CommunicatorGroup() = default;
  virtual int nranks() const = 0;

  // The end of `rank` of a ring over all ranks, made on first use; valid as long as the group.
  // Ranks ask for the same rings in the same order. Thread-safe.
  virtual absl::StatusOr<Communicator*> Get(RingKey ring, int rank) = 0;

  // Rank `rank` has failed and will not arrive any more: releases all ranks that wait, now and
  // later, with an error Aborted that names it and gives `status`. The first call counts.
  // Thread-safe.
  virtual void Abort(int rank, const absl::Status& status) = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATOR_H_
