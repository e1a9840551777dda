// A hyperparameter of an optimizer: a constant, or a value that decays from step to step.
#ifndef WEFT_TRANSPILER_PASSES_UPDATES_SCHEDULE_VALUE_H_
#define WEFT_TRANSPILER_PASSES_UPDATES_SCHEDULE_VALUE_H_

#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace weft {

// The value of step k, counted from 0: `init`, or with a decay
//
//   init * rate^(k / steps)           in stairs: init * rate^floor(k / steps)
//
// which are Constant and ExponentialDecay of Apache SINGA (python/singa/opt.py).
struct ScheduleValue {
  struct Decay {
    double steps = 1;
    double rate = 1;
    bool in_stairs = false;

    friend bool operator==(const Decay& a, const Decay& b) {
      return a.steps == b.steps && a.rate == b.rate && a.in_stairs == b.in_stairs;
    }
  };

  double init = 0;
  absl::optional<Decay> decay = absl::nullopt;

  // In every step: a decay keeps zero.
  bool IsZero() const { return init == 0; }

  friend bool operator==(const ScheduleValue& a, const ScheduleValue& b) {
    return a.init == b.init && a.decay == b.decay;
  }
};

// What a hyperparameter may be in all steps.
struct ValueRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool includes_max = true;
};

// "a number >= 0, or exp(...)": what ParseScheduleValue takes.
std::string ExpectedScheduleValue(const ValueRange& range);

// Parses a number, or exp(INIT:STEPS:RATE) or exp(INIT:STEPS:RATE:staircase); commas may stand in
// place of the colons. InvalidArgument for other text; numbers that are not finite, or become zero,
// in fp32; STEPS <= 0; RATE < 0; a value outside of the range in fp32, now or, if RATE > 1, later.
absl::StatusOr<ScheduleValue> ParseScheduleValue(absl::string_view text, const ValueRange& range);

// The text that ParseScheduleValue reads, with colons. Equal values give equal text.
std::string ToString(const ScheduleValue& value);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_UPDATES_SCHEDULE_VALUE_H_
