// The streams of a program, and its ops that do more than compute.
#ifndef WEFT_OPS_ANALYSIS_STREAM_SURVEY_H_
#define WEFT_OPS_ANALYSIS_STREAM_SURVEY_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ops/schema/communication_ops.h"
#include "proto/program.h"

namespace weft {

// Visits every op of every block once, in O(ops), and decodes only attributes of communication.
class StreamSurvey {
 public:
  // An op that does more than access its arguments on the compute stream.
  struct SpecialOp {
    enum class Kind : uint8_t {
      kRingOp,       // runs on the stream of a ring: `index` is the stream
      kSync,         // `index` is into syncs()
      kRingSetup,    // trait kRingSetup
      kBranch,       // trait kBranch
      kFuse,         // trait kAlias
      kHoldsBlocks,  // any other op with sub-blocks
    };
    Kind kind;
    uint32_t place;  // in its block
    int index = 0;
  };
  struct Sync {
    OpId op;
    StreamSync sync;
    int ring_id;  // of those that have one
  };

  explicit StreamSurvey(const Program& program);

  // In order.
  absl::Span<const SpecialOp> special(int block) const { return special_[block]; }
  // Of all blocks, by block.
  const std::vector<Sync>& syncs() const { return syncs_; }
  // The rings of streams 1, 2, ...
  const std::vector<int>& ring_ids() const { return ring_ids_; }
  int StreamOfRing(int ring_id) const;  // -1: none
  // Whether streams other than the compute stream may access a variable of that name, or it may be
  // in a fused buffer. Other variables cannot race.
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
  std::vector<char> is_watched_;  // by Symbol
  OpId unknown_communication_, unknown_on_compute_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_STREAM_SURVEY_H_
