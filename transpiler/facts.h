// The facts in the contracts of Weft's own passes, and which of them hold in a program.
#ifndef WEFT_TRANSPILER_FACTS_H_
#define WEFT_TRANSPILER_FACTS_H_

#include "absl/status/statusor.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Gradients that are paired with replicated parameters are summed or averaged over the ranks.
inline constexpr char kGradientsReduced[] = "gradients-reduced";
// Parameters are averaged over the ranks, every step or every few steps (LocalSGD).
inline constexpr char kParametersAveraged[] = "parameters-averaged";
// The gradient of every loss is divided by the number of ranks.
inline constexpr char kLossGradientScaled[] = "loss-gradient-scaled";
// The startup program sets communication rings up for the gradients.
inline constexpr char kRingsSetUp[] = "rings-set-up";
// After the startup program, parameters are equal on all ranks.
inline constexpr char kParametersEqual[] = "parameters-equal";
// What holds in programs as they come. Only what can be seen: kGradientsReduced and
// kParametersAveraged, for one variable or more. Collectives of tensor-parallel layers, which work
// on activations, do not count. O(arguments).
absl::StatusOr<Facts> DetectFacts(const ProgramPair& programs);

}  // namespace weft

#endif  // WEFT_TRANSPILER_FACTS_H_
