// What the ranks of a run in one process share.
#ifndef WEFT_EXECUTOR_RUN_RUN_JOB_H_
#define WEFT_EXECUTOR_RUN_RUN_JOB_H_

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "executor/communicators/communicator.h"
#include "executor/communicators/world.h"
#include "executor/jobs/feedback.h"
#include "executor/jobs/job_link.h"
#include "executor/plan/plan.h"
#include "executor/run/feeder.h"
#include "executor/run/result_queue.h"
#include "executor/run/run_failures.h"
#include "executor/run/run_state.h"
#include "executor/run/runner.h"
#include "executor/run/shared_states.h"
#include "executor/run/start_values.h"
#include "executor/run/state_exchange.h"
#include "executor/run/step_gate.h"
#include "executor/servers/server_group.h"
#include "executor/servers/server_messages.h"
#include "ops/analysis/core/startup_buffers.h"

namespace weft {

struct RunJob {
  RunJob(const RunInputs& run_inputs, const RunOptions& run_options)
      : inputs(run_inputs),
        options(run_options),
        world(WorldOf(run_options.nranks + run_options.num_servers, run_options.link)),
        workers(WorkersOf(world, run_options.num_servers)) {}

  // The world of the workers. A process of servers prepares what the first one does, but has none.
  static World WorkersOf(const World& world, int num_servers) {
    if (num_servers == 0) return world;
    const int size = world.size - num_servers;
    const int count = std::min(world.count, size);
    return {size, world.first < size ? world.first : 0, count, size / count};
  }
  bool HasWorkers() const { return world.first < workers.size; }

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

  // Whether servers hold the variable.
  bool IsOfServers(const std::string& name) const {
    if (inputs.server == nullptr) return false;
    const VarId id = inputs.server->block(0).FindVar(name);
    return id.valid() && inputs.server->var(id).persistable();
  }

  // What RunInputs::params gives a variable, by its name or by that of its buffer; nullptr:
  // nothing.
  const Tensor* FindParam(const std::string& name) const {
    for (const auto* values : {inputs.params, &params_of_buffers}) {
      if (values == nullptr) continue;
      const auto found = values->find(name);
      if (found != values->end()) return &found->second;
    }
    return nullptr;
  }

  // Delivers a result to process 0. Returns its status, or the error that ends the run.
  absl::Status Post(StepResult result);

  const RunInputs& inputs;
  const RunOptions& options;
  const World world;    // workers and servers
  const World workers;  // those that run the main program
  ServerGroup servers;
  std::unique_ptr<ServerPost> post;  // null: no servers
  absl::optional<Plan> startup_plan;
  // With servers: what ranks run in its place, so that each keeps its values before the next part
  // makes more. Empty: the startup program.
  struct PartOfStartup {
    Plan plan;
    std::vector<std::string> done;  // StartupPart::done
  };
  std::vector<PartOfStartup> startup_parts;
  // The startup program has the kernels of the host (RunOptions::host_kernels).
  bool starts_on_host = false;
  absl::optional<Plan> main_plan;
  // States of which ranks have parts, and what inputs.params has of whole ones, with their master
  // weights.
  SharedStates shares;
  std::map<std::string, Tensor> shared_params;
  // inputs.resume, with shares in the place of whole tensors; none: it has no others.
  absl::optional<Checkpoint> divided;
  const Checkpoint* resume() const { return divided.has_value() ? &*divided : inputs.resume; }
  // Master weights that inputs.params lacks, from the parameters that it has.
  std::map<std::string, Tensor> masters;
  // Parameters that it lacks, from the startup program's buffers that it has. Those of workers get
  // them from their buffers.
  std::map<std::string, Tensor> params_of_buffers;
  // Of the startup program, also of the one that ran before a checkpoint; and how the main program
  // uses each.
  std::vector<StartupBuffer> buffers;
  std::vector<StartupBufferUse> buffer_uses;
  // The values of a buffer and its parts are in one memory, unless the main program moves parts.
  bool buffers_share_memory = false;
  bool fetches_buffers = false;  // or parts
  bool main_may_draw = false;
  std::unique_ptr<Feeder> feeder;
  std::vector<int> fetch;
  std::vector<std::string> fetch_names;
  std::vector<int> accessed;  // between steps, besides persistable variables
  std::vector<StateVariable> state;
  std::atomic<int> num_resumed{0};                 // ranks of this process
  std::map<std::string, std::vector<int>> groups;  // of variables that some ranks keep equal
  std::unique_ptr<StartValues> start_values;       // null: one rank, or no startup program
  std::unique_ptr<StepGate> steps;
  std::unique_ptr<StateExchange> exchange;  // null: this process has all ranks
  std::unique_ptr<StateGate> states;
  std::unique_ptr<ResultQueue> results;    // of process 0
  std::unique_ptr<FeedbackGate> feedback;  // null: none
  int feedback_variable = -1;              // of the plan
  std::unique_ptr<CommunicatorGroup> group;
  std::unique_ptr<RunFailures> failures;
  bool have_own_programs = false;  // ranks
  std::mutex trace_mutex;          // serializes calls of inputs.on_trace
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_RUN_JOB_H_
