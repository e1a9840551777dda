// Data races and redundant synchronizations of a program on several streams.
#ifndef WEFT_OPS_ANALYSIS_STREAMS_STREAMS_H_
#define WEFT_OPS_ANALYSIS_STREAMS_STREAMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ops/analysis/core/program_facts.h"
#include "ops/schema/communication_ops.h"
#include "proto/program.h"

namespace weft {

// The machine. The host issues ops in program order, each to a stream, which runs them in order.
// Stream 0 computes; every ring with a collective that does not set use_calc_stream has a stream,
// ordered by ring_id. Ops of trait kStreamSync order streams as ops/schema/communication_ops.h
// says, and access no data; for a ring without a stream they order nothing. Ring set-up makes the
// host wait for the compute stream. So does the condition of a conditional block; then the host
// issues the ops of the block, or none. Other ops with blocks (loops) issue them any number of
// times: the analysis follows two iterations. Unregistered ops compute. The executor runs programs
// like this (executor/plan/plan.h), and also drains all streams at the end of a step. Executors of
// Paddle wait for the compute stream only: see StepEnd.
//
// A program on two devices (ops/schema/device_ops.h) has three more streams: of the host's ops, and
// of copies to and from its memory; all streams are drained at the end of a step, whatever StepEnd
// says. Conditions are then read on the stream of the op that has the
// block.
//
// Storage (ops/analysis/core/storage.h). An access to a buffer accesses all parts, an access to a
// part no other. The op that makes the buffer reads the sources if it copies them, writes the parts
// if it copies or fills, and accesses nothing otherwise. On a program on two devices it always
// counts as a write: a copy into a slice must come after it. Fetching reads on the compute stream.
// After an op that shares memory, accesses to the output are accesses to the input.
//
// A block that may be skipped: its waits order nothing after it, and its ops may be missing; see
// ops/analysis/streams/stream_clocks.h.

// Two ops, in program order, access one variable on different streams, at least one of them writes,
// and nothing orders them.
struct Race {
  enum class Kind : uint8_t { kReadAfterWrite, kWriteAfterRead, kWriteAfterWrite };
  Kind kind;
  OpId first, second;
  int first_stream, second_stream;
  VarId variable;  // whose storage it is; of a buffer, the slice
  // `second` is in the next step; or invalid: in the program that runs next.
  bool is_after_end = false;
};

// `op` uses a buffer after coalesce_tensor op `moved_by` has moved the slice `member` to another
// one; or, if both are one op, it puts one member into a buffer twice.
struct SharedSlice {
  OpId op, moved_by;
  VarId buffer, member;
};

enum class SyncEffect : uint8_t {
  // Only it orders some access, as far as the analysis can tell; or it was not followed.
  kNeeded,
  // Nothing relies on it on the machine above. On others something may: ops after the program, if
  // streams are not drained at its end; ops after ring set-up or after reading a condition, if
  // these do not wait for the compute stream.
  kPrecaution,
  // It orders ops, but nothing relies on it.
  kNotNeeded,
  // An earlier wait orders the same, or nothing was issued.
  kOrdersNothing,
  // The ring, or a stream of that name, does not exist.
  kNoStream,
};

struct SyncUse {
  OpId op;
  StreamSync sync;
  int ring_id;  // of those that have one
  SyncEffect effect;
  int waiting = 0, awaited = 0;  // streams (StreamSurvey::Sync)
};

// What follows the last op. Only persistable variables can conflict: the others are new in every
// step.
enum class StepEnd : uint8_t {
  kAllIdle,       // nothing that could conflict: all streams are drained
  kNextStep,      // the same program again, once the compute stream is drained
  kOtherProgram,  // one that may use all persistable variables on the compute stream, likewise
};

// What orders ops besides their streams.
enum class OpOrder : uint8_t {
  kByStreams,  // nothing
  kByNames,    // NameOrder; unless the program is on two devices, which only Weft runs
};

struct StreamOptions {
  StepEnd end = StepEnd::kAllIdle;
  // By names, the report has no races of a buffer with its parts (ops/analysis/core/fused_buffers.h
  // finds them), and all syncs are kNeeded.
  OpOrder order = OpOrder::kByStreams;
  // Distinguishes kNotNeeded and kPrecaution from kNeeded, which takes memory for every wait. All
  // syncs that are kNotNeeded, kOrdersNothing or kNoStream may be removed together. Has no effect
  // beyond kMaxStreamsToTrack streams.
  bool find_redundant_syncs = false;
};

struct StreamReport {
  std::vector<int> ring_ids;  // of the streams 1, 2, ...
  int num_streams = 1;  // with those of a second device, which follow (ops/schema/device_ops.h)
  // In the order of the second op; for each first op, the first access that conflicts with it.
  std::vector<Race> races;
  std::vector<SharedSlice> shared_slices;
  std::vector<SyncUse> syncs;  // of all blocks, by block
  // Ops with a block that another op has, too: their blocks are not followed.
  std::vector<OpId> not_followed;
  // From this op on, there were too many accesses to buffers to follow: all syncs are kNeeded.
  // Invalid: none.
  OpId gave_up_at;
  // An unregistered op that names a ring and may use its stream: all syncs are kNeeded. Invalid:
  // none.
  OpId unknown_communication;
  // One that says use_calc_stream. Invalid: none.
  OpId unknown_on_compute;
  // More than kMaxStreams streams: nothing else is set.
  bool too_many_streams = false;
};

inline constexpr int kMaxStreams = 1025;
inline constexpr int kMaxStreamsToTrack = 65;

// Skips undeclared names. Of the next step, only what conflicts with this one is reported.
// O(accesses + syncs * streams), times the depth of loops; memory O(ops +
// variables), and O(syncs * streams) to find redundant syncs.
StreamReport AnalyzeStreams(const ProgramFacts& facts, const StreamOptions& options = {});

// "the compute stream", "ring 3", "stream d2h".
std::string StreamName(const StreamReport& report, int stream);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_STREAMS_STREAMS_H_
