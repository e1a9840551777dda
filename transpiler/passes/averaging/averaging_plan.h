// What LocalSGD averages over the ranks.
#ifndef WEFT_TRANSPILER_PASSES_AVERAGING_AVERAGING_PLAN_H_
#define WEFT_TRANSPILER_PASSES_AVERAGING_AVERAGING_PLAN_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/schema/tensor_type.h"
#include "proto/outer_optimizer.h"
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
  // What an outer optimizer needs to move tensors.
  struct Outer {
    FusedTensors last;      // the tensors after the last synchronization
    FusedTensors velocity;  // none without momentum
    FusedTensors gradient;  // the mean outer gradients, on their way; none without delay
    FusedTensors error;     // what rounding took from outer gradients; none if they travel whole
    DType sent = DType::kFloat32;  // the element type in which they travel
    // SlowMo: the learning rate of their own optimizer.
    std::string rate = {};
    DType rate_type = DType::kFloat32;

    bool HasDelay() const { return !gradient.names.empty(); }
    bool IsRounded() const { return !error.names.empty(); }
  };
  // By element type; each variable once. In PIR, each parameter that an outer optimizer moves is
  // alone.
  std::vector<FusedTensors> averaged;
  std::map<size_t, Outer> outer;  // of parameters: by the index in `averaged`
  std::vector<Cast> casts;
  std::vector<Reset> resets;
};

struct AveragingChoices {
  OptimizerState state = OptimizerState::kLocal;
  bool statistics = false;  // average running statistics too
  // Moves parameters, or the master weights that stand for them.
  OuterOptimizer outer = {};
  bool has_delay = false;  // of the outer optimizer
  // The element type in which its fp32 gradients travel.
  DType sent = DType::kFloat32;
  // Parameters may have groups of ranks. With endpoints, the rank of the programs may then have
  // nothing to average: the plan is empty.
  bool has_groups = false;
};

// Plans for every replicated parameter that the main program updates: its master weights if there
// are any, else the parameter itself. FailedPrecondition: no op updates a replicated parameter; a
// variable to average is no dense floating-point tensor of a known shape; a state to reset is not
// the only output of one startup op without inputs. InvalidArgument: an undeclared distributed
// parameter. Unimplemented: groups of ranks without AveragingChoices::has_groups.
// With an outer optimizer also FailedPrecondition: the startup program does not initialize a
// parameter; SlowMo: an op without learning rate updates a parameter, or with two of them.
// O(arguments).
absl::StatusOr<AveragingPlan> PlanAveraging(const ProgramPair& programs, const PassContext& context,
                                            const AveragingChoices& choices);

// Cuts the plan into `fragments` parts of about equal bytes, in the order of its tensors.
// FailedPrecondition: it has fewer tensors, or resets states. O(tensors).
absl::StatusOr<std::vector<AveragingPlan>> CutIntoFragments(const AveragingPlan& plan,
                                                            int fragments);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_AVERAGING_AVERAGING_PLAN_H_
