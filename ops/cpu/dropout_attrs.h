// Dropout: elements become 0 with probability p, independently. Attribute dropout_implementation
// selects how to compensate:
//   upscale_in_train    kept elements are divided by 1 - p; a test changes nothing
//   downgrade_in_infer  kept elements stay; a test multiplies everything by 1 - p
//
// All devices draw on the host, so that they drop the same elements.
#ifndef WEFT_OPS_CPU_DROPOUT_ATTRS_H_
#define WEFT_OPS_CPU_DROPOUT_ATTRS_H_

#include <cstdint>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

// Says of one element after the other whether it is kept.
class DropoutDraws {
 public:
  DropoutDraws(const DropoutAttrs& attrs, std::mt19937_64* engine)
      : engine_(engine), probability_(static_cast<float>(attrs.probability)) {}

  uint8_t Next() { return !(draw_(*engine_) < probability_); }

 private:
  std::mt19937_64* engine_;
  const float probability_;
  std::uniform_real_distribution<float> draw_{0, 1};
};

}  // namespace weft

#endif  // WEFT_OPS_CPU_DROPOUT_ATTRS_H_
