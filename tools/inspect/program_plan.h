// The buckets of a program's gradients, when their collectives run, and why gradients are apart.
#ifndef WEFT_TOOLS_INSPECT_PROGRAM_PLAN_H_
#define WEFT_TOOLS_INSPECT_PROGRAM_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"
#include "transpiler/buckets/bucket_policy.h"
#include "transpiler/buckets/step_times.h"
#include "transpiler/buckets/timeline.h"
#include "transpiler/pipeline/param_attrs.h"

namespace weft {

struct PlannedBucket {
  std::vector<std::string> gradients;  // names, in the order of completion
  std::string dtype;                   // of all of them
  int64_t bytes = 0;                   // 0 if the size is unknown
  int ring = 0;
  double ready = 0;  // seconds since the step began
  Interval run;
  std::string why_alone;  // why its gradient cannot share a bucket
  std::string why_ended;  // why no further gradient joined
  std::string ranks;      // over which it is reduced: "all ranks", "ranks 0, 1"
};

struct ProgramPlan {
  std::vector<PlannedBucket> buckets;  // in the order of their collectives
  std::vector<std::string> warnings;
  double backward_end = 0;   // forward and backward compute until then
  double exposed = 0;        // communication that they do not cover, in seconds
  double least_exposed = 0;  // of policy `optimal`
  double lower_bound = 0;    // no buckets leave less exposed
};

// The plan of grad-all-reduce with this policy on `nrings` rings. times.op_seconds has a time for
// every op of the root block. `params`: resolved (ResolveGroups). The plan is that of a rank that
// belongs to all groups. Errors: those of AnalyzeGradients and FillBuckets. O(arguments).
absl::StatusOr<ProgramPlan> PlanProgram(const Program& program, const BucketPolicy& policy,
                                        const StepTimes& times, int nrings,
                                        const ParamAttrsByName& params = {});

// Why two gradients do not share a bucket, or that they do. NotFound for a name that the plan does
// not have.
absl::StatusOr<std::string> WhyApart(const ProgramPlan& plan, absl::string_view a,
                                     absl::string_view b);

// The timeline as a picture: computation, and a lane for each ring.
std::string PlanSvg(const ProgramPlan& plan);

}  // namespace weft

#endif  // WEFT_TOOLS_INSPECT_PROGRAM_PLAN_H_
