// The properties in the contracts of Weft's passes, and their detection.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_PROPERTIES_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_PROPERTIES_H_

#include "absl/status/statusor.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// The gradients of replicated parameters are summed or averaged over the ranks.
inline constexpr char kGradientsReduced[] = "gradients-reduced";
// Parameters are averaged over the ranks, in every step or periodically (LocalSGD).
inline constexpr char kParametersAveraged[] = "parameters-averaged";
// The gradient of every loss is divided by the number of ranks.
inline constexpr char kLossGradientScaled[] = "loss-gradient-scaled";
// The startup program sets up communication rings for the gradients.
inline constexpr char kRingsSetUp[] = "rings-set-up";
// After the startup program, parameters are equal on all ranks.
inline constexpr char kParametersEqual[] = "parameters-equal";
// A pass has made the program accumulate its gradients over several steps.
inline constexpr char kGradientsAccumulated[] = "gradients-accumulated";
// The main program broadcasts the parameters from one rank, in every step or periodically.
inline constexpr char kParametersBroadcast[] = "parameters-broadcast";
// Each rank has a part of the parameters between steps.
inline constexpr char kParametersDivided[] = "parameters-divided";
// Servers have some parameters.
inline constexpr char kParametersServed[] = "parameters-served";

// Detects kGradientsReduced and kParametersAveraged, each for one variable or more; the other
// properties leave no trace. Collectives on activations (tensor-parallel layers) do not count.
// `are_assumed`, if given: whether no collective shows one of them, but only unregistered ops may.
// O(arguments).
absl::StatusOr<Properties> DetectProperties(const ProgramPair& programs,
                                            bool* are_assumed = nullptr);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_PROPERTIES_H_
