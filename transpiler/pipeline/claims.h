// What a pass claims about its result.
#ifndef WEFT_TRANSPILER_PIPELINE_CLAIMS_H_
#define WEFT_TRANSPILER_PIPELINE_CLAIMS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"

namespace weft {

// LocalSGD averages parameters in the steps that are multiples of `period`, starting at
// `first_step`. Steps count from 1.
struct AveragingSchedule {
  int period = 1;
  int first_step = 1;
  // Instead of these: each step averages one of K partitions of the parameters, in the order of the
  // program, so that each parameter is averaged once in K steps. The program says what K is.
  bool is_in_turn = false;

  static AveragingSchedule InTurn() {
    AveragingSchedule schedule;
    schedule.is_in_turn = true;
    return schedule;
  }

  friend bool operator==(const AveragingSchedule& a, const AveragingSchedule& b) {
    return a.period == b.period && a.first_step == b.first_step && a.is_in_turn == b.is_in_turn;
  }
};

// "every 4 steps from step 8 on", "in turn, one partition a step".
inline std::string ToString(const AveragingSchedule& schedule) {
  if (schedule.is_in_turn) return "in turn, one partition a step";
  return absl::StrCat(
      "every ", schedule.period, schedule.period == 1 ? " step" : " steps",
      schedule.first_step > 1 ? absl::StrCat(" from step ", schedule.first_step, " on") : "");
}

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
