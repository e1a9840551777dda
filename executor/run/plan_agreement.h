// Compares what the processes of a run are about to do, before the first step.
#ifndef WEFT_EXECUTOR_RUN_PLAN_AGREEMENT_H_
#define WEFT_EXECUTOR_RUN_PLAN_AGREEMENT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/communicators/communicator.h"
#include "executor/communicators/world.h"
#include "executor/jobs/job_link.h"
#include "executor/plan/plan.h"

namespace weft {

// A collective of a plan.
struct PlannedCall {
  // What all ranks of the ring must agree on: "all-reduce of fp32, 200704 elements".
  std::string call;
  // "op 17 (c_allreduce_sum) of fc_0.w_0@GRAD"
  std::string where;
};

struct RunFingerprint {
  // What must be equal in all processes, as messages name it: "steps" -> "100".
  std::map<std::string, std::string> settings;
  // By ring, in the order of the plan; an op of a loop counts once.
  std::map<RingKey, std::vector<PlannedCall>> calls;
};

// Adds the collectives of a plan, after those of plans that run before it.
void AddCalls(const Plan& plan, RunFingerprint* fingerprint);

// Compares the fingerprints of all processes. Returns the rings that any of them has, the same in
// the same order in all. Every process calls it.
//   FailedPrecondition  the first difference, the same message in all processes: a setting; or
//                       ring, number of the call, and the two calls
// or an error of JobLink::AllGather. The processes exchange O(settings + rings), and the calls only
// if they differ.
absl::StatusOr<std::vector<RingKey>> AgreeOnPlan(const RunFingerprint& fingerprint,
                                                 const World& world, JobLink* link);

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_PLAN_AGREEMENT_H_
