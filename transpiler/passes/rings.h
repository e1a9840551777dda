// Communication rings: the option that says how many there are, which are taken, and their ids.
#ifndef WEFT_TRANSPILER_PASSES_RINGS_H_
#define WEFT_TRANSPILER_PASSES_RINGS_H_

#include <string>

#include "absl/status/status.h"
#include "base/option_binder.h"
#include "proto/program.h"

namespace weft {

// Each ring costs a communicator and a stream on every rank; a larger number is a mistake.
inline constexpr int kMaxRings = 1024;

inline void BindRings(OptionBinder& bind, int* nrings) {
  bind.Int("nrings", nrings, "communication rings", /*min=*/1, kMaxRings);
}

// The variable that holds the id of a ring while it is being set up.
pb::VarDesc RingIdVar(const std::string& name);

// FailedPrecondition, naming the op, where the startup program sets one of rings 0 .. nrings-1 up.
// O(ops).
absl::Status RefuseRingsInUse(const Program& startup, int nrings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_RINGS_H_
