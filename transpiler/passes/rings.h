// The option that says how many communication rings there are.
#ifndef WEFT_TRANSPILER_PASSES_RINGS_H_
#define WEFT_TRANSPILER_PASSES_RINGS_H_

#include "transpiler/pipeline/options.h"

namespace weft {

// Each ring costs a communicator and a stream on every rank; a larger number is a mistake.
inline constexpr int kMaxRings = 1024;

inline void BindRings(OptionBinder& bind, int* nrings) {
  bind.Int("nrings", nrings, "communication rings", /*min=*/1, kMaxRings);
}

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_RINGS_H_
