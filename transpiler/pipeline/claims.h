// What a pass claims about the programs that it leaves.
#ifndef WEFT_TRANSPILER_PIPELINE_CLAIMS_H_
#define WEFT_TRANSPILER_PIPELINE_CLAIMS_H_

#include <string>

#include "absl/types/optional.h"

namespace weft {

// When LocalSGD averages parameters: in the steps that `period` divides, from `first_step` on.
// Steps count from 1.
struct AveragingSchedule {
  int period = 1;
  int first_step = 1;

  friend bool operator==(const AveragingSchedule& a, const AveragingSchedule& b) {
    return a.period == b.period && a.first_step == b.first_step;
  }
};

// "every 4 steps from step 8 on".
std::string ToString(const AveragingSchedule& schedule);

// What a rewrite means to do to gradients, replicas and the computation. The verifier holds the
// rewritten programs to it (transpiler/claim_verifier.h).
struct Claims {
  // What becomes of the gradients of replicated parameters before an optimizer uses them.
  enum class Gradients {
    kUntouched,  // each rank uses its own
    kAveraged,   // their mean over the ranks
    kSummed,     // their sum over the ranks; the user wants no division
  };
  // kPreserved: a step computes what one device computes with the batches of all ranks.
  enum class Computation { kPreserved, kChanged };

  Gradients gradients = Gradients::kUntouched;
  // When parameters are averaged over the ranks; none: never.
  absl::optional<AveragingSchedule> averaging;
  Computation computation = Computation::kPreserved;

  // One claim, and nothing else.
  static Claims Of(Gradients gradients) {
    Claims claims;
    claims.gradients = gradients;
    return claims;
  }
  static Claims Of(AveragingSchedule averaging) {
    Claims claims;
    claims.averaging = averaging;
    return claims;
  }
  static Claims Of(Computation computation) {
    Claims claims;
    claims.computation = computation;
    return claims;
  }

  // Whether ranks exchange what they learn.
  bool Communicate() const { return gradients != Gradients::kUntouched || averaging.has_value(); }
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_CLAIMS_H_
