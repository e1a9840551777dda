// Which ops go to the host so that a program fits into the memory of an accelerator.
#ifndef WEFT_TRANSPILER_PASSES_DEVICES_PLACEMENT_SEARCH_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_PLACEMENT_SEARCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/analysis/devices/device_times.h"
#include "proto/feed_layout.h"
#include "transpiler/passes/devices/device_partition.h"

namespace weft {

// Why an op, and those of its blocks, cannot run on the host; empty: they can.
std::string WhyNotOnHost(const Op& op);

struct PlacementRequest {
  OpDevices devices;           // where ops are to begin with
  std::vector<bool> is_fixed;  // by OpId: the op stays where it is
  PartitionOptions partition;
  int64_t memory_bytes = 0;  // of the accelerator
  DeviceSpeeds speeds;       // and the batch
  FeedLayouts feeds;
  std::function<double(int64_t bytes)> collective_seconds;
};

// A group of ops that goes to the host together.
struct PlacementUnit {
  enum class Kind : uint8_t { kUpdate, kTable, kLeastDense, kLayers };
  Kind kind;
  std::vector<OpId> ops;
  std::string subject;  // parameter, table, or first op
};

struct PlacementCandidate {
  // How many units of each kind have gone to the host.
  int updates = 0, tables = 0, ops = 0;
  bool by_layers = false;  // the ops are the first ones, and not the least dense ones
  int64_t bytes = 0;       // of the accelerator, at most
  double seconds = 0;      // a step
};

struct PlacementChoice {
  OpDevices devices;
  std::vector<PlacementUnit> moved;
  PlacementCandidate chosen, first;  // what is chosen; nothing moved
  std::vector<PlacementCandidate> candidates;
  int64_t num_unknown = 0;  // variables whose size does not count
};

// Tries a fixed sequence of placements, each of which moves more to the host:
//
//   1. optimizers, those first whose gradients are complete first; also up to the end of a bucket
//      of gradients, which then travels in one copy; a branch that updates takes the ops along that
//      merge gradients for it, see accumulations.h;
//   2. then embedding tables, the largest first;
//   3. then other ops, those with the fewest floating-point operations for a byte first, or, in
//      another sequence, those of the first layers first. The densest op stays.
//
// Of those that fit, it takes the one with the least predicted time, and of equals the earliest:
// more memory never makes a step slower. None counts as faster than the first, which moves nothing:
// ops go to the host to save memory only. ResourceExhausted, with the least bytes that would do, if
// none fits. At most kMaxSteps placements of each kind, so O(arguments).
absl::StatusOr<PlacementChoice> ChoosePlacement(const PlacementRequest& request,
                                                const ProgramPair& programs);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_PLACEMENT_SEARCH_H_
