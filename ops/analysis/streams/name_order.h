// Which ops an executor orders that looks at the names of their variables.
#ifndef WEFT_OPS_ANALYSIS_STREAMS_NAME_ORDER_H_
#define WEFT_OPS_ANALYSIS_STREAMS_NAME_ORDER_H_

#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/streams/stream_survey.h"
#include "proto/program.h"

namespace weft {

// Paddle's executor since 2.5. An op waits, by events between streams, for the ops of its block
// before it that write what it names in its slots, or that name what it writes. Ops in blocks count
// as the op that has the block, if they run on its stream, the compute stream. A step begins when
// the compute stream is idle, so that an op on a ring is done by then only if an op on the compute
// stream waits for it, or for a later op on the ring.
//
// Source: Paddle's new_executor, dependency_builder.cc and stream_analyzer.cc.
class NameOrder {
 public:
  // Both must outlive it. O(ops).
  NameOrder(const Program& program, const StreamSurvey& survey);

  // Whether `second` waits for `first`, both of one run of the program, by a name that both have.
  // Not what follows from that for other ops. O(arguments).
  bool IsBefore(OpId first, OpId second);
  // Whether the op on a ring is done at the end of its block. O(1), and once O(arguments) for a
  // block.
  bool IsAwaited(OpId op);

 private:
  struct InBlock {
    std::vector<int> streams;       // by position
    std::vector<bool> are_awaited;  // those on rings
  };

  const InBlock& Look(int block);
  bool IsOnRing(const Op& op) { return Look(op.block()).streams[op.position()] != 0; }
  // The op of `block` that is this one or has it in its blocks; none: there is no such op, or the
  // executor does not see this one in it.
  absl::optional<Op> OpIn(int block, OpId op);

  const Program& program_;
  const StreamSurvey& survey_;
  std::vector<OpId> holders_;  // by block
  std::vector<absl::optional<InBlock>> blocks_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_STREAMS_NAME_ORDER_H_
