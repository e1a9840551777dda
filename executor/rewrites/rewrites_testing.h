// Runs small programs with and without rewrites of their plan.
#ifndef WEFT_EXECUTOR_REWRITES_REWRITES_TESTING_H_
#define WEFT_EXECUTOR_REWRITES_REWRITES_TESTING_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "executor/plan/plan.h"
#include "executor/plan/scope.h"
#include "executor/step/plan_executor.h"
#include "executor/streams/stream.h"
#include "ops/kernel.h"
#include "ops/tensor.h"

namespace weft::testing {

// Changes a plan some of whose variables are read between steps.
using Rewrite = std::function<void(const std::vector<int>& accessed, Plan* plan)>;

// A compact program (ops/analysis/testing/compact_program.h) with `accessed` read after the step.
// All other variables that nothing writes hold numbers between 0 and 1 before it.
class RewrittenProgram {
 public:
  // `options`: how its steps are run, measured and checked.
  RewrittenProgram(const std::string& block, const std::vector<std::string>& accessed,
                   const Rewrite& rewrite, PlanExecutorOptions options = {});

  absl::Status RunStep() { return executor_->RunStep(); }
  Tensor& operator[](const std::string& name) {
    return *executor_->tensor(plan_.FindVariable(name));
  }
  const Plan& plan() const { return plan_; }
  const PlanExecutor& executor() const { return *executor_; }

 private:
  void SetNumbers(int v);

  std::unique_ptr<Device> device_;
  RandomState random_;
  Plan plan_;
  Scope scope_;
  std::unique_ptr<PlanExecutor> executor_;
};

// Expects that the rewritten program computes what it computes as written, in two steps, up to
// `tolerance` times the largest element, or 1 if all are smaller. Returns its plan.
Plan ExpectSameResults(const std::string& block, const std::vector<std::string>& results,
                       const Rewrite& rewrite, float tolerance);

// The types of the ops that run, in order.
std::vector<std::string> OpTypes(const Plan& plan);

}  // namespace weft::testing

#endif  // WEFT_EXECUTOR_REWRITES_REWRITES_TESTING_H_
