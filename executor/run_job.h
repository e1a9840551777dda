// What the ranks of a run in one process share.
#ifndef WEFT_EXECUTOR_RUN_JOB_H_
#define WEFT_EXECUTOR_RUN_JOB_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "executor/communicator.h"
#include "executor/feeder.h"
#include "executor/job_link.h"
#include "executor/plan.h"
#include "executor/result_queue.h"
#include "executor/run_failures.h"
#include "executor/run_state.h"
#include "executor/runner.h"
#include "executor/start_values.h"
#include "executor/state_exchange.h"
#include "executor/step_gate.h"
#include "executor/world.h"

namespace weft {

struct RunJob {
  RunJob(const RunInputs& run_inputs, const RunOptions& run_options)
      : inputs(run_inputs),
        options(run_options),
        world(WorldOf(run_options.nranks, run_options.link)) {}

  // The link calls nothing of this any more.
  ~RunJob() {
    if (options.link == nullptr) return;
    options.link->OnFailure(nullptr);
    options.link->Listen(JobLink::Topic::kResult, nullptr);
  }

  // The ranks that keep the variable equal; null: all.
  const std::vector<int>* GroupOf(const std::string& name) const {
    const auto found = groups.find(name);
    return found == groups.end() ? nullptr : &found->second;
  }

  // Delivers a result to process 0. Returns its status, or the error that ends the run.
  absl::Status Post(StepResult result);

  const RunInputs& inputs;
  const RunOptions& options;
  const World world;
  absl::optional<Plan> startup_plan;
  absl::optional<Plan> main_plan;
  bool main_may_draw = false;
  std::unique_ptr<Feeder> feeder;
  std::vector<int> fetch;
  std::vector<std::string> fetch_names;
  std::vector<int> accessed;  // between steps, besides persistable variables
  std::vector<StateVariable> state;
  std::map<std::string, std::vector<int>> groups;  // of variables that some ranks keep equal
  std::unique_ptr<StartValues> start_values;       // null: one rank, or no startup program
  std::unique_ptr<StepGate> steps;
  std::unique_ptr<StateExchange> exchange;  // null: this process has all ranks
  std::unique_ptr<StateGate> states;
  std::unique_ptr<ResultQueue> results;  // of process 0
  std::unique_ptr<CommunicatorGroup> group;
  std::unique_ptr<RunFailures> failures;
  std::mutex trace_mutex;  // serializes calls of inputs.on_trace
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_JOB_H_
