// What LocalSGD averages over the ranks.
#ifndef WEFT_TRANSPILER_PASSES_AVERAGING_AVERAGING_PLAN_H_
#define WEFT_TRANSPILER_PASSES_AVERAGING_AVERAGING_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"
#include "transpiler/passes/support/fused_buffer.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// What happens to optimizer states when parameters are averaged.
enum class OptimizerState {
  kLocal,    // they stay local
  kAverage,  // they are averaged too
  kReset,    // they are initialized again, as in the startup program
};

struct AveragingPlan {
  // A parameter that is cast from its averaged master weights.
  struct Cast {
    std::string master, param;
    DType master_type, param_type;
  };
  struct Reset {
    std::string state;
    pb::OpDesc op;  // initializes it
  };
  std::vector<FusedTensors> averaged;  // by element type; each variable once
  std::vector<Cast> casts;
  std::vector<Reset> resets;
};

struct AveragingChoices {
  OptimizerState state = OptimizerState::kLocal;
  bool statistics = false;  // average running statistics too
  // Parameters may have groups of ranks. With endpoints, the rank of the programs may then have
  // nothing to average: the plan is empty.
  bool has_groups = false;
};

// Plans for every replicated parameter that the main program updates: its master weights if there
// are any, else the parameter itself. FailedPrecondition: no op updates a replicated parameter; a
// variable to average is no dense floating-point tensor of a known shape; a state to reset is not
// the only output of one startup op without inputs. InvalidArgument: an undeclared distributed
// parameter. Unimplemented: groups of ranks without AveragingChoices::has_groups. O(arguments).
absl::StatusOr<AveragingPlan> PlanAveraging(const ProgramPair& programs, const PassContext& context,
                                            const AveragingChoices& choices);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_AVERAGING_AVERAGING_PLAN_H_
