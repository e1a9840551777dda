// What happens before what where a program uses several streams: accesses to the same storage that
// nothing orders (data races), and synchronizations that order nothing.
#ifndef WEFT_OPS_ANALYSIS_STREAMS_H_
#define WEFT_OPS_ANALYSIS_STREAMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ops/schema/communication_ops.h"
#include "proto/program.h"

namespace weft {

// The machine. The host issues ops in program order, each to a stream, which runs what it is given
// in order. Stream 0 computes; every ring with a collective that does not set use_calc_stream has
// one of its own, in the order of their numbers. Ops of trait kStreamSync order streams as
// ops/schema/communication_ops.h says, and touch no data; with a ring that has no stream they order
// nothing. Ring set-up makes the host wait for the compute stream. So does a conditional block, for
// its condition; then it issues the ops of its block, or none. Other ops that hold blocks (loops)
// issue them any number of times: the body is followed twice. Unregistered ops compute. This
// is how the executor runs a program (executor/plan.h), which also drains all streams at the end of
// a step: nothing is still under way when the next one begins.
//
// Storage. Every variable has its own. After coalesce_tensor (Trait::kAlias), its Output variables
// are slices of FusedOutput: who accesses the buffer accesses all of them, who accesses one of them
// does not touch the others. The op reads Input with copy_data, writes Output with copy_data or
// set_constant, and accesses nothing otherwise. Fetching counts as reading by the compute stream.
//
// A block that may be skipped: its waits order nothing behind it, and its ops may be missing; see
// ops/analysis/stream_clocks.h.

// The second op, in program order, accesses what the first one accesses on another stream, one of
// them writes, and nothing makes the second one's stream wait for the first op.
struct Race {
  enum class Kind : uint8_t { kReadAfterWrite, kWriteAfterRead, kWriteAfterWrite };
  Kind kind;
  OpId first, second;
  int first_stream, second_stream;
  VarId variable;  // whose storage it is; of a buffer, the slice
};

// `op` uses a buffer although coalesce_tensor op `moved_by` has given the slice `member` a place in
// another one; or, with both the same, puts one member into a buffer twice.
struct SharedSlice {
  OpId op, moved_by;
  VarId buffer, member;
};

enum class SyncEffect : uint8_t {
  // An access is ordered only by it, as far as can be told; or it was not followed.
  kNeeded,
  // Nothing in the program relies on it, by the machine above, but something may elsewhere: where
  // streams are not drained at the end, what follows the program on the compute stream (the next
  // one, a fetch); where setting rings up, or reading a condition that is computed elsewhere, does
  // not wait for the compute stream, what follows that.
  kPrecaution,
  // Orders ops, but nothing relies on it.
  kNotNeeded,
  // What it waits for has been waited for already, or nothing was issued.
  kOrdersNothing,
  // The ring has no stream.
  kNoStream,
};

struct SyncUse {
  OpId op;
  StreamSync sync;
  int ring_id;  // of those that have one
  SyncEffect effect;
};

struct StreamOptions {
  // Whether to tell kNotNeeded and kPrecaution, which takes memory for every wait; otherwise
  // they are kNeeded. All syncs that are kNotNeeded, kOrdersNothing or kNoStream may be left out
  // together. More than kMaxStreamsToTrack streams: not told.
  bool find_redundant_syncs = false;
};

struct StreamReport {
  std::vector<int> ring_ids;  // of the streams 1, 2, ...
  // In the order of the second op; of a clashing access, the first access that clashes with it.
  std::vector<Race> races;
  std::vector<SharedSlice> shared_slices;
  std::vector<SyncUse> syncs;  // of all blocks, by block
  // Ops that hold a block which another op holds too: their blocks are not followed.
  std::vector<OpId> not_followed;
  // From this op on, accesses to buffers were too many to follow: all syncs are kNeeded then.
  // Invalid: none.
  OpId gave_up_at;
  // An unregistered op that names a ring, and may use its stream: all syncs are kNeeded then.
  // Invalid: none.
  OpId unknown_communication;
  // More streams than kMaxStreams: nothing else was looked at.
  bool too_many_streams = false;
};

inline constexpr int kMaxStreams = 1025;
inline constexpr int kMaxStreamsToTrack = 65;

// Names that are not declared are passed over.
// O(accesses + syncs * streams), times the depth of loops; memory O(ops + variables), and, to find
// needless syncs, O(syncs * streams).
StreamReport AnalyzeStreams(const Program& program, const StreamOptions& options = {});

// "the compute stream", "ring 3".
std::string StreamName(const StreamReport& report, int stream);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_STREAMS_H_
