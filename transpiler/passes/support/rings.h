// Communication rings: their number, their ids and conflicts between them.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_RINGS_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_RINGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/option_binder.h"
#include "proto/program.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Each ring takes a communicator and a stream on every rank. A larger number is a mistake.
inline constexpr int kMaxRings = 1024;

inline void BindRings(OptionBinder& bind, int* nrings) {
  bind.Int("nrings", nrings, "communication rings", /*min=*/1, kMaxRings);
}

// Of the passes that set up rings of groups, and that average over them.
inline void BindGroupSize(OptionBinder& bind, int* group_size) {
  bind.Int("group_size", group_size,
           "ranks per group: every k_steps, each group averages its parameters alone; 0: one group "
           "of all ranks",
           /*min=*/0);
}

// Groups of so many ranks, in order. InvalidArgument: the number of ranks is unknown, or no
// multiple above that; programs are for one rank each; parameters have groups of their own.
absl::StatusOr<std::vector<RankGroup>> EqualGroups(const PassContext& context, int size);

// Of the passes that set up rings for parameters, and that gather them.
inline void BindPrefetch(OptionBinder& bind, int* prefetch) {
  bind.Int("prefetch", prefetch,
           "how many buckets of parameters are gathered ahead of their use, each on a ring of its "
           "own; 0: buckets are gathered where they are used, on the last of the other rings",
           /*min=*/0, /*max=*/64);
}

// The variable that holds the id of a ring during its set-up.
pb::VarDesc RingIdVar(const std::string& name);

// The group of ranks that have a parameter, whose ring is its own; null: all ranks.
const RankGroup* FindGroup(const ParamAttrsByName& params, const std::string& param);

// FailedPrecondition, naming the op, if the startup program sets up one of rings 0 .. nrings-1.
// O(ops).
absl::Status RefuseRingsInUse(const Program& startup, int nrings);

// Unimplemented, naming a group, if parameters have groups of ranks, for passes whose collectives
// are over all ranks.
absl::Status RefuseGroups(const PassContext& context);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_RINGS_H_
