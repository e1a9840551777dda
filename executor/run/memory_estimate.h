// The memory of the values of a rank, before anything runs.
#ifndef WEFT_EXECUTOR_RUN_MEMORY_ESTIMATE_H_
#define WEFT_EXECUTOR_RUN_MEMORY_ESTIMATE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "executor/plan/plan.h"
#include "executor/step/plan_executor.h"
#include "proto/program.h"

namespace weft {

struct MemoryEstimate {
  // What RunProgram will report for rank 0 (RunResult::memory).
  ValueMemory memory;
  // Variables whose types depend on values or are not declared; `memory` omits them.
  int64_t num_unknown = 0;
};

// Binds a step of the program as RunProgram does, with `batch` rows of data for each rank, and with
// declared types otherwise. Losses are fetched. Values get addresses, but no memory. Errors are
// those of Plan::Build, and ResourceExhausted if no machine has as many addresses. O(plan), and the
// cost of preparing kernels.
absl::StatusOr<MemoryEstimate> EstimateMemory(const Program& main, const PlanOptions& options,
                                              int64_t batch);

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_MEMORY_ESTIMATE_H_
