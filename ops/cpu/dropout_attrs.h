// Dropout: elements become 0 with probability p, independently. Attribute dropout_implementation
// selects how to compensate:
//   upscale_in_train    kept elements are divided by 1 - p; a test changes nothing
//   downgrade_in_infer  kept elements stay; a test multiplies everything by 1 - p
//
// All devices drop the same elements. Without a seed, Philox draws, where the elements are. With
// one, the host draws what Paddle's CPU kernel draws, the same in every step.
#ifndef WEFT_OPS_CPU_DROPOUT_ATTRS_H_
#define WEFT_OPS_CPU_DROPOUT_ATTRS_H_

#include <cstdint>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/cpu/random_engine.h"
#include "ops/formulas/dropout.h"
#include "ops/kernel.h"
#include "ops/schema/op_attrs.h"

namespace weft {

struct DropoutAttrs {
  double probability;
  bool is_test;
  double kept_factor;  // of kept elements
  double test_factor;

  static absl::StatusOr<DropoutAttrs> Read(const OpAttrs& attrs) {
    const std::string& implementation = attrs.String("dropout_implementation");
    const bool upscales = implementation == "upscale_in_train";
    if (!upscales && implementation != "downgrade_in_infer") {
      return absl::InternalError("attribute dropout_implementation: no rule for " + implementation);
    }
    const double p = attrs.Float("dropout_prob");
    const double upscale = p == 1 ? 0 : 1 / (1 - p);
    return DropoutAttrs{p, attrs.Bool("is_test"), upscales ? upscale : 1, upscales ? 1 : 1 - p};
  }
};

// The dropout of an op without a seed. Takes the next sequence of the rank. FailedPrecondition
// without `random`.
template <typename T>
absl::StatusOr<formulas::DropOutBlock<T>> NextDropOut(const DropoutAttrs& attrs, int64_t size,
                                                      const T* x, T* out, uint8_t* stays,
                                                      RandomState* random) {
  if (random == nullptr) return NothingToDrawFrom();
  const auto dropped = static_cast<uint64_t>(attrs.probability * 4294967296.0);  // 2^32
  const formulas::KeepOrDrop<T> f{static_cast<T>(attrs.kept_factor)};
  return formulas::DropOutBlock<T>{
      random->dropout.key, random->dropout.next_sequence++, dropped, f, size, x, out, stays};
}

// Says of one element after the other whether it is kept: of an op with a seed.
class DropoutDraws {
 public:
  DropoutDraws(const DropoutAttrs& attrs, int64_t seed)
      : engine_(static_cast<uint64_t>(seed)), probability_(static_cast<float>(attrs.probability)) {}

  uint8_t Next() { return !(draw_(engine_) < probability_); }

 private:
  std::mt19937_64 engine_;
  const float probability_;
  std::uniform_real_distribution<float> draw_{0, 1};
};

}  // namespace weft

#endif  // WEFT_OPS_CPU_DROPOUT_ATTRS_H_
