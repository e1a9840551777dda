// What a pass claims about its result.
#ifndef WEFT_TRANSPILER_PIPELINE_CLAIMS_H_
#define WEFT_TRANSPILER_PIPELINE_CLAIMS_H_

#include "absl/types/optional.h"
#include "proto/averaging_schedule.h"

namespace weft {

// What a pass does to gradients, replicas and the computation. The verifier checks the rewritten
// programs against it (transpiler/claim_verifier.h).
struct Claims {
  // What optimizers use as the gradients of replicated parameters.
  enum class Gradients {
    kUntouched,  // the local gradients
    kAveraged,   // their mean over the ranks
    kSummed,     // their sum over the ranks, undivided on request
    kByLoss,     // the sum of those of losses that are sums over the batch, the mean of others
  };
  // kPreserved: a step computes what one device computes with the global batch.
  enum class Computation { kPreserved, kChanged };

  Gradients gradients = Gradients::kUntouched;
  // None: parameters are not averaged.
  absl::optional<AveragingSchedule> averaging;
  Computation computation = Computation::kPreserved;
  // Gradients are rounded to half precision and back on their way.
  bool rounds_gradients = false;
  // The result is a program for one device, as before: passes that change what is computed may
  // follow, and later ones are compared with what they leave.
  bool is_for_one_device = false;

  // A single claim.
  static Claims Of(Gradients gradients) {
    return {gradients, absl::nullopt, Computation::kPreserved};
  }
  static Claims Of(AveragingSchedule averaging) {
    return {Gradients::kUntouched, averaging, Computation::kPreserved};
  }
  static Claims Of(Computation computation) {
    return {Gradients::kUntouched, absl::nullopt, computation};
  }

  // Whether ranks exchange gradients or parameters.
  bool Communicate() const { return gradients != Gradients::kUntouched || averaging.has_value(); }
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_CLAIMS_H_
