// A run that goes on when processes of its job are lost (docs/reliability.md).
#ifndef WEFT_TOOLS_CMD_ELASTIC_RUN_H_
#define WEFT_TOOLS_CMD_ELASTIC_RUN_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "executor/communicators/world.h"
#include "executor/files/checkpoint.h"
#include "executor/jobs/job_link.h"
#include "executor/run/kept_states.h"
#include "ops/analysis/core/startup_buffers.h"
#include "proto/program.h"
#include "tools/cmd/weft_run_files.h"
#include "tools/job/generations.h"

namespace weft {

// What a process keeps from one generation of the job to the next. Everything else is made anew, as
// a run that resumes does.
class ElasticRun {
 public:
  // The flags with what the checkpoint of --resume says, and the files, as the first generation
  // that has read them; null: none has.
  struct Prepared {
    RunFlags flags;
    RunFiles files;
    std::vector<StartupBuffer> buffers;  // of the checkpoint
  };
  std::unique_ptr<Prepared> prepared;

  // InvalidArgument for flags that need what is lost with a process.
  static absl::Status CheckFlags(const RunFlags& flags);
  // Unimplemented for a program that prints.
  static absl::Status CheckProgram(const RunFlags& flags, const Program& main);

  struct Start {
    absl::optional<int64_t> step;  // none: the beginning of the run
    std::string host;              // KeptStates::Host
    bool all_have_read = false;    // `prepared`
  };
  // Where the processes of this generation begin: with the last step that they can all read. All
  // call it. DataLoss: there were states, and there is no such step.
  absl::StatusOr<Start> Agree(JobLink* link);

  // The states of the ranks of this process before the step that Agree has returned, as a
  // checkpoint of `flags`.
  absl::StatusOr<Checkpoint> Resume(const World& world, const RunFlags& flags, int64_t step,
                                    int64_t end_step) const;

  // Makes memory for states, in all processes. In process 0, the host knows `host` before `step`.
  absl::Status Begin(const World& world, JobLink* link, int64_t step, const std::string& host);
  KeptStates* kept() const { return kept_.get(); }
  // Of process 0: KeptStates::Deliver. Says once what it costs.
  absl::Status Deliver(int64_t step, const std::string& host);

  Generation generation;
  // Of the first generation.
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

 private:
  std::shared_ptr<KeptStates> kept_;
  bool has_said_cost_ = false;
};

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_ELASTIC_RUN_H_
