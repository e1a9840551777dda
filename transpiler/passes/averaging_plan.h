// What LocalSGD averages over the ranks, and what follows from it.
#ifndef WEFT_TRANSPILER_PASSES_AVERAGING_PLAN_H_
#define WEFT_TRANSPILER_PASSES_AVERAGING_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"
#include "transpiler/passes/fused_buffer.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// What happens to the state of optimizers (moments, powers of beta) where parameters are averaged.
enum class OptimizerState {
  kLocal,    // each rank keeps its own
  kAverage,  // averaged too
  kReset,    // made again, as the startup program makes it
};

struct AveragingPlan {
  // A parameter that becomes the cast of its averaged master weight.
  struct Cast {
    std::string master, param;
    DType master_type, param_type;
  };
  struct Reset {
    std::string state;
    pb::OpDesc op;  // that makes it
  };
  std::vector<FusedTensors> averaged;  // by element type; each variable once
  std::vector<Cast> casts;
  std::vector<Reset> resets;
};

struct AveragingChoices {
  OptimizerState state = OptimizerState::kLocal;
  bool statistics = false;  // average running statistics too
};

// Plans for every replicated parameter that the main program updates: its master weight, where it
// has one, else the parameter itself. FailedPrecondition: no op updates a replicated parameter; a
// variable to average that is no dense floating-point tensor of a known shape; a state to reset
// that is not made by one op without inputs of the startup program. InvalidArgument: a distributed
// parameter that is not declared. O(arguments).
absl::StatusOr<AveragingPlan> PlanAveraging(const ProgramPair& programs, const PassContext& context,
                                            const AveragingChoices& choices);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_AVERAGING_PLAN_H_
