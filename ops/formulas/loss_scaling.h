// The scale of the loss in mixed-precision training, for all devices.
#ifndef WEFT_OPS_FORMULAS_LOSS_SCALING_H_
#define WEFT_OPS_FORMULAS_LOSS_SCALING_H_

#include <cmath>
#include <cstdint>

#include "ops/host_device.h"
#include "ops/kernel_util.h"
#include "ops/schema/op_attrs.h"

namespace weft::formulas {

// After several steps in a row with gradients that are not finite the scale decreases, but not
// below
// 1. After several good steps in a row it increases, if it stays finite.
struct LossScaling {
  int64_t good_steps, bad_steps;
  float increase, decrease;

  explicit LossScaling(const OpAttrs& attrs)
      : good_steps(attrs.Int("incr_every_n_steps")),
        bad_steps(attrs.Int("decr_every_n_nan_or_inf")),
        increase(static_cast<float>(attrs.Float("incr_ratio"))),
        decrease(static_cast<float>(attrs.Float("decr_ratio"))) {}

  WEFT_HOST_DEVICE void operator()(bool found_infinite, float& scale, int32_t& good,
                                   int32_t& bad) const {
    if (found_infinite) {
      good = 0;
      bad = static_cast<int32_t>(Wrapping(bad) + 1);
      if (bad != bad_steps) return;
      scale = scale * decrease < 1.0F ? 1.0F : scale * decrease;
      bad = 0;
    } else {
      bad = 0;
      good = static_cast<int32_t>(Wrapping(good) + 1);
      if (good != good_steps) return;
      if (std::isfinite(scale * increase)) scale *= increase;
      good = 0;
    }
  }
};

}  // namespace weft::formulas

#endif  // WEFT_OPS_FORMULAS_LOSS_SCALING_H_
