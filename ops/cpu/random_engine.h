// The source of an op's random numbers.
#ifndef WEFT_OPS_CPU_RANDOM_ENGINE_H_
#define WEFT_OPS_CPU_RANDOM_ENGINE_H_

#include <cstdint>
#include <random>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernel.h"

namespace weft {

inline absl::Status NothingToDrawFrom() {
  return absl::FailedPreconditionError("seed 0, and no random numbers to draw from");
}

// `own`, seeded with the op's seed, which gives the same numbers in every run; with seed 0 the
// engine of the rank. FailedPrecondition if that is needed and missing.
inline absl::StatusOr<std::mt19937_64*> EngineOf(int64_t seed, std::mt19937_64 RandomState::*engine,
                                                 RandomState* random, std::mt19937_64* own) {
  if (seed != 0) {
    own->seed(static_cast<uint64_t>(seed));
    return own;
  }
  if (random == nullptr) return NothingToDrawFrom();
  return &(random->*engine);
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_RANDOM_ENGINE_H_
