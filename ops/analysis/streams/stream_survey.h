// The streams of a program, and its ops that do more than compute.
#ifndef WEFT_OPS_ANALYSIS_STREAMS_STREAM_SURVEY_H_
#define WEFT_OPS_ANALYSIS_STREAMS_STREAM_SURVEY_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/device_ops.h"
#include "proto/program.h"

namespace weft {

// Visits every op of every block once, in O(ops), and decodes only attributes of communication.
class StreamSurvey {
 public:
  // An op that does more than access its arguments on the compute stream.
  struct SpecialOp {
    enum class Kind : uint8_t {
      kStreamOp,     // runs on another stream than the compute stream
      kSync,         // `index` is into syncs()
      kRingSetup,    // trait kRingSetup
      kBranch,       // trait kBranch
      kFuse,         // trait kAlias
      kShare,        // SlotSchema::memory_of
      kHoldsBlocks,  // any other op with sub-blocks
    };
    Kind kind;
    uint32_t position;  // in its block
    int index = 0;      // kStreamOp, kBranch, kFuse, kShare, kHoldsBlocks: the stream
  };
  struct Sync {
    OpId op;
    StreamSync sync;
    int ring_id;  // of those that have one
    // The stream that waits, and the one that it waits for; -1: there is no such stream. Where all
    // streams wait, `waiting` is 0.
    int waiting = 0, awaited = 0;
  };

  explicit StreamSurvey(const ProgramFacts& facts);

  // In order.
  absl::Span<const SpecialOp> special(int block) const { return special_[block]; }
  // Of all blocks, by block.
  const std::vector<Sync>& syncs() const { return syncs_; }
  // The rings of streams 1, 2, ...
  const std::vector<int>& ring_ids() const { return ring_ids_; }
  int StreamOfRing(int ring_id) const;  // -1: none
  // Of a program on two devices; the accelerator's computes on stream 0.
  int StreamOf(DeviceStream stream) const;  // -1: none
  bool has_two_devices() const { return num_device_streams_ > 0; }
  // All streams. Those of the host and of copies follow those of rings.
  int num_streams() const { return static_cast<int>(ring_ids_.size()) + 1 + num_device_streams_; }
  // Whether streams other than the compute stream may access a variable of that name, or it may be
  // in a fused buffer, or share memory. Other variables cannot race.
  bool IsWatched(Symbol name) const { return is_watched_[name.value()] != 0; }
  // The first unregistered op that communicates, as far as anybody can tell, and may use the stream
  // of its ring; invalid: none.
  OpId unknown_communication() const { return unknown_communication_; }
  // The first that says use_calc_stream, and is no send or receive.
  OpId unknown_on_compute() const { return unknown_on_compute_; }

 private:
  class Visitor;

  std::vector<std::vector<SpecialOp>> special_;  // by block
  std::vector<Sync> syncs_;
  std::vector<int> ring_ids_;
  int num_device_streams_ = 0;
  std::vector<char> is_watched_;  // by Symbol
  OpId unknown_communication_, unknown_on_compute_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_STREAMS_STREAM_SURVEY_H_
