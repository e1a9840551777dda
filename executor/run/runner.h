// Trains a program on N ranks: threads of one process, or of several. Each rank has separate
// variables, streams and random generators.
#ifndef WEFT_EXECUTOR_RUN_RUNNER_H_
#define WEFT_EXECUTOR_RUN_RUNNER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "executor/communicators/communicator.h"
#include "executor/communicators/local_communicator.h"
#include "executor/communicators/row_traffic.h"
#include "executor/files/checkpoint.h"
#include "executor/jobs/feedback.h"
#include "executor/jobs/job_link.h"
#include "executor/plan/plan.h"
#include "executor/run/feeder.h"
#include "executor/run/result_queue.h"
#include "executor/servers/server_traffic.h"
#include "executor/step/plan_executor.h"
#include "executor/streams/sim_device.h"
#include "executor/streams/stream.h"
#include "executor/streams/thread_stream.h"
#include "ops/tensor.h"
#include "proto/program.h"

namespace weft {

class KeptStates;  // executor/run/kept_states.h
class RunControl;  // executor/run/run_control.h

// The largest number of ranks of a process. Every rank is a thread, and has one more thread per
// stream: more ranks are a mistake.
inline constexpr int kMaxRanks = 1024;
inline constexpr int kMaxThreads = 256;  // of a rank

// The kernels are for the memory of the devices that new_device makes. If that is not the host's,
// host_kernels, for host memory, run a main program on two devices.
struct RunOptions : PlanOptions {
  // To the other processes of the run, which have equally many of its `nranks` ranks, or share them
  // out if the run keeps states (WorldOf);
  // null: this process has all. All processes run equal programs with equal options, feeds and
  // checkpoints; RunProgram compares what it can (AgreeOnPlan). Results, and the states of all
  // ranks, come to process 0. Must outlive the run. The caller calls JobLink::Finish.
  JobLink* link = nullptr;
  // More that must be equal in all processes, by name: what the caller makes feeds of.
  std::map<std::string, std::string> settings;
  // Makes the device of a rank; called by its thread. `memory` is that of the group for tensors on
  // the host (CommunicatorGroup::host_memory), or null.
  std::function<absl::StatusOr<std::unique_ptr<Device>>(int rank, Memory* memory)> new_device =
      [](int, Memory* memory) { return NewHostDevice(memory != nullptr ? memory : HostMemory()); };
  // Whether that is one device for all ranks (WithHostStream).
  bool ranks_share_device = false;
  // Makes the communicators between the ranks.
  std::function<absl::StatusOr<std::unique_ptr<CommunicatorGroup>>(GroupOptions)> new_group =
      NewLocalGroup;
  // A main program on two devices (ops/schema/device_ops.h) runs on the host and the device that
  // new_device makes. If that is the host, too, the accelerator is a simulated one; with
  // memory_bytes, also that of a main program on one device. The startup program runs on the host,
  // which has room for the whole model; but with collectives between devices, which communicate
  // among each other, on the device.
  SimDeviceOptions sim;
  // Threads of a rank on which kernels compute (ops/threads.h), its own included; at most
  // kMaxThreads.
  int threads = 1;
  // Parameter servers: the ranks that follow the `nranks` workers. With several processes, each has
  // workers or servers alone.
  int num_servers = 0;
  // With servers, ranks run the startup program in parts that make about so many bytes, or one
  // variable if that is larger, and keep what is theirs before the next part.
  int64_t startup_part_bytes = 16 << 20;
  // Whether the caller wants RunResult::persistables. With several processes, each sends what the
  // first lacks, and the first has all of them in memory at the end. Of all processes alike.
  bool returns_persistables = true;
  int64_t steps = 1;
  // The first step. A run resumes after this many steps, with the feeds and the random draws of the
  // following steps. With the persistable variables as parameters, it computes what an
  // uninterrupted run would, bit for bit, if the variables are replicated: not between two
  // averaging steps of LocalSGD. RunInputs::resume has no such limit.
  int64_t begin_step = 0;
  // RunInputs::on_checkpoint receives the state before every step that is a multiple of this; 0: of
  // none.
  int64_t checkpoint_every = 0;
  // RunInputs::resume is a step of a run that goes on: of those multiples, too.
  bool goes_on = false;
  // Keeps the state of each rank of this process before every step, and at the end. All ranks run
  // one program: FailedPrecondition if they send to each other. RunInputs::resume then has the
  // values of the ranks of this process alone. May be null; must outlive the run.
  KeptStates* kept = nullptr;
  // Orders every step of the run, or its end, and asks for states besides those of
  // checkpoint_every; in all processes, the same in the same order. Expects no parameter servers.
  // May be null; must outlive the run.
  RunControl* control = nullptr;
  // A fed variable of one element, fp32 or fp64, that results set. All processes have one, or none.
  absl::optional<Feedback> feedback;
  // Asked by every rank before every step, from any thread: true ends the run at the next end of a
  // step, the same one on all ranks of all processes. May be empty.
  std::function<bool()> stop_requested;
  // In a run of several processes, called when `stop_requested` of one has said true; from any
  // thread. May be empty.
  std::function<void()> on_stop_requested;
  // Seed of RandomState: initializers of the startup program draw the same numbers on every rank,
  // dropout and ops of the main program draw different ones. From step 1 on, the draws of a step
  // depend only on seed, rank and step.
  uint64_t seed = 0;
  // Variables to report after every step. Empty: the losses.
  std::vector<std::string> fetch;
  // A rank that does not arrive at a collective is reported, then an error. An endless loop in the
  // program is an error.
  double warn_after_s = 60;
  double timeout_s = 600;
  // Receives warnings: called from any thread, one call at a time per ring. May be empty.
  std::function<void(const std::string&)> warn;
  // Accept a main program that updates parameters on several ranks without any collective; each
  // rank trains a separate model.
  bool allow_unsynchronized = false;
  // Stop at the first op that produces a NaN or an infinity.
  bool check_nan = false;
  // Whether a loss that becomes NaN or infinite is an error. Of an evaluation, it is a result.
  bool check_losses = true;
  // Whether steps of the main program run as graphs of the device (executor/step/step_graph.h).
  GraphMode graph = GraphMode::kOff;
  // Run the main program as rewritten for speed (executor/rewrites/rewrites.h): the same results,
  // but for rounding.
  bool rewrites_plan = true;
};

// When the ops of a step of the main program ran on one rank. Valid in the callback.
struct StepTrace {
  int64_t step;
  int rank;
  const Plan* plan;
  // By stream of the plan.
  absl::Span<const std::vector<OpSpan>> spans;
  absl::Span<const std::vector<WaitSpan>> waits = {};
  // Of a worker: the rows for this step that the step before has asked for.
  absl::Span<const PrefetchSpan> prefetches = {};
  // Of a worker: what it has exchanged with each server since the run began.
  absl::Span<const ServerTraffic> server_traffic = {};
};

struct RunInputs {
  // All ranks run the same programs.
  const Program* main = nullptr;
  // Run once on every rank, first. May be null: rings then count as set up.
  const Program* startup = nullptr;
  // The program of the parameter servers (transpiler/passes/servers/parameter_server.h); null:
  // there are none. Servers run the startup program, too, and keep what their program has. Each
  // holds a part of the parameters (executor/servers/server_part.h).
  const Program* server = nullptr;
  // Values of persistable variables of the main program, set on every rank after the startup
  // program, and of the servers' program. A master weight that they lack is set to the value of its
  // parameter, and so is what an outer optimizer keeps of a parameter. May be null.
  const std::map<std::string, Tensor>* params = nullptr;
  // The state with which the run begins, instead of that of `startup` and `params`, which are not
  // used then. RunOptions::begin_step must be its step, and RunOptions::seed should be its seed.
  // The run goes on with the same bits. May be null.
  const Checkpoint* resume = nullptr;
  // Called when no rank of this process needs the values of `resume` any more. May be empty.
  std::function<void()> on_resumed = nullptr;
  FeedSource feeds;
  // In process 0, receives fetched values by step, and by rank within a step, as soon as they are
  // next in order; one call at a time, from any thread. An error stops the run. May be empty.
  ResultCallback on_result;
  // Receives the trace of a rank of this process, step by step; one call at a time, from any
  // thread, ranks in any order. An error stops the run. Empty: nothing is measured.
  std::function<absl::Status(const StepTrace&)> on_trace = nullptr;
  // Receives the state of all ranks, without settings: as often as RunOptions::checkpoint_every
  // says, and where the run ends, unless it fails. All results of earlier steps have been
  // delivered. Called by one thread, while all ranks wait for it; the tensors are theirs, and must
  // be gone when it returns. An error stops the run. May be empty. With several processes, called
  // in process 0; empty in all of them or in none.
  std::function<absl::Status(Checkpoint)> on_checkpoint = nullptr;
};

struct RunResult {
  // The step before which the run has ended.
  int64_t end_step = 0;
  // The names of the fetched variables, in the order of StepResult::values.
  std::vector<std::string> fetch;
  // Persistable variables of the main program that have a value, as on rank 0 after the last step;
  // and of the servers' program, put together from all servers;
  // those that a group of ranks keeps equal (FindGroupVariables), as on the first rank of the
  // group. Empty in other processes than the first.
  std::map<std::string, Tensor> persistables;
  // Of the first rank of this process.
  ValueMemory memory;
  GraphUse graph;
  RowTraffic rows;
  std::vector<ServerTraffic> server_traffic;  // by server
  // In process 0: by server.
  std::vector<ServerMemory> server_memory;
};

// Runs the startup program, sets parameters, and runs the main program options.steps times: feed,
// run, fetch. Every rank is a host thread and its streams; one more thread reads feeds ahead of
// them. A rank waits for others in collectives, and where it is a step or two ahead of them. It
// blocks once per step to return results.
//
// All of this is checked before anything runs: kernels, attributes and types (see Plan::Build),
// feeds (see Feeder), names and types of parameters and fetched variables; that every variable read
// before an op writes it is fed, a parameter, or written by the startup program; and that several
// ranks communicate (see allow_unsynchronized).
//
// Ranks begin with equal values of persistable variables: the startup program is one, initializers
// draw the same numbers on every rank, and parameters are those of one file. Other ops of the
// startup program may draw different numbers: if ranks then begin with different values,
// options.warn says of which variable.
//
// The state of a run, which a checkpoint holds, is: persistable variables, those of blocks too;
// values that a step leaves to the next in other variables (executor/plan/carried_values.h); and
// before step 0 the generators. A checkpoint that does not fit the program is an error that begins
// with "checkpoint: " (CheckResume).
//
// An error of one rank ends the run on all ranks: the first to fail releases the others. The
// message begins with step and rank ("step 3, rank 1: op 17 (mul): ...", "startup, rank 0: ..."). A
// loss that becomes NaN or infinite is such an error, fetched or not (RunOptions::check_losses).
// Earlier results have been delivered. Other processes return Aborted: "rank 1 failed: step 3, rank
// 1: ...". One that is killed or stopped is Unavailable in the others (JobLink::OnFailure).
absl::StatusOr<RunResult> RunProgram(const RunInputs& inputs, const RunOptions& options);

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_RUNNER_H_
