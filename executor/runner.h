// Trains: N ranks in one process, each with variables, streams and generators of its own.
#ifndef WEFT_EXECUTOR_RUNNER_H_
#define WEFT_EXECUTOR_RUNNER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "executor/communicator.h"
#include "executor/feeder.h"
#include "executor/plan.h"
#include "executor/plan_executor.h"
#include "executor/result_queue.h"
#include "executor/stream.h"
#include "ops/kernel.h"
#include "ops/tensor.h"
#include "proto/program.h"

namespace weft {

// Every rank is a thread, and has a thread for each of its streams: more than this is a mistake.
inline constexpr int kMaxRanks = 1024;

struct RunOptions {
  // Kernels for the memory of the devices (CpuKernels()); must be given.
  const KernelTable* kernels = nullptr;
  // Where a rank computes: called by its thread. Empty: on the host (executor/thread_stream.h).
  std::function<absl::StatusOr<std::unique_ptr<Device>>(int rank)> new_device;
  // Who carries collectives between so many ranks. Empty: threads (executor/local_communicator.h).
  std::function<absl::StatusOr<std::unique_ptr<CommunicatorGroup>>(int nranks)> new_group;
  int ranks = 1;  // at most kMaxRanks
  int64_t steps = 1;
  // The number of the first step: a run goes on where one of so many steps has ended, with the
  // feeds, and the random draws, of the steps that follow. Given the persistable variables as
  // parameters, it computes what a run that was not interrupted would, bit for bit, as long as they
  // are the same on all ranks: not between two averages of LocalSGD.
  int64_t begin_step = 0;
  // Of RandomState: initializers draw the same on every rank, dropout differs. From step 1 on, a
  // step's draws follow from seed, rank and the number of the step.
  uint64_t seed = 0;
  // Variables to report after every step. Empty: the losses.
  std::vector<std::string> fetch;
  // A rank that does not arrive at a collective: told of, then an error. A loop of the program that
  // does not end: an error.
  double warn_after_s = 60;
  double timeout_s = 600;
  // What is told: called from any thread, one call at a time per ring. May be empty.
  std::function<void(const std::string&)> warn;
  // Accept a main program that updates parameters without any collective on several ranks, which
  // train a model each.
  bool allow_unsynchronized = false;
  // Paddle's literal meaning of c_sync_*: see PlanOptions.
  bool strict_host_sync = false;
  // What Paddle's CPU kernels give where they deviate from what is right: see KernelSpec.
  bool paddle_cpu_quirks = false;
  // Stop at the first op that makes a NaN or an infinity.
  bool check_nan = false;
};

// When the ops of a step of the main program ran on one rank. Valid in the callback.
struct StepTrace {
  int64_t step;
  int rank;
  const Plan* plan;
  absl::Span<const std::vector<OpSpan>> spans;  // by stream of the plan
};

struct RunInputs {
  // All ranks run the same programs.
  const Program* main = nullptr;
  // Run once on every rank, first. May be null: then rings count as set up.
  const Program* startup = nullptr;
  // Values of persistable variables of the main program, set on every rank after the startup
  // program. May be null.
  const std::map<std::string, Tensor>* params = nullptr;
  FeedSource feeds;
  // Gets what was fetched, by step and by rank within a step, as soon as it can be told in order;
  // one call at a time, from any thread. An error stops the run. May be empty.
  ResultCallback on_result;
  // Gets what a rank did, step by step; one call at a time, from any thread, ranks in any order. An
  // error stops the run. Empty: nothing is measured.
  std::function<absl::Status(const StepTrace&)> on_trace = nullptr;
};

struct RunResult {
  // What was fetched, in the order of StepResult::values.
  std::vector<std::string> fetch;
  // Persistable variables of the main program that hold something, as rank 0 has them after the
  // last step.
  std::map<std::string, Tensor> persistables;
};

// Runs the startup program, sets parameters, and runs the main program options.steps times: feed,
// run, fetch. Every rank is a host thread and its streams; a rank waits for others only in
// collectives, and blocks once a step, to hand out results.
//
// Nothing runs before all of this is found right: kernels, attributes and types (see Plan::Build),
// feeds (see Feeder), names and types of parameters and fetched variables, that every variable that
// is read before an op writes it is fed, a parameter, or written by the startup program, and that
// several ranks do not train apart (see allow_unsynchronized).
//
// An error of one rank ends the run on all: the first to fail releases the others. The message
// begins with step and rank ("step 3, rank 1: op 17 (mul): ...", "startup, rank 0: ..."). A loss
// that becomes NaN or infinite is such an error, fetched or not. Results up to there have been
// handed out.
absl::StatusOr<RunResult> RunProgram(const RunInputs& inputs, const RunOptions& options);

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUNNER_H_
