// A run that goes on when processes of its job are lost (docs/reliability.md).
#ifndef WEFT_TOOLS_CMD_ELASTIC_RUN_H_
#define WEFT_TOOLS_CMD_ELASTIC_RUN_H_

#include <cstdint>
#include <functional>
#include <map>
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
#include "executor/run/run_state.h"
#include "executor/run/runner.h"
#include "ops/analysis/core/startup_buffers.h"
#include "tools/cmd/weft_run_files.h"
#include "tools/job/generations.h"

namespace weft {

// What a process keeps from one generation of the job to the next. Everything else is made anew, as
// a run that resumes does.
class ElasticRun {
 public:
  using Reader = std::function<absl::StatusOr<RunStart>(RunFlags, JobLink*)>;

  // Where the part of this process in the generation begins: where `read` says, or with the last
  // step of which a process has all states. All call it. `flags` as on the command line, of all
  // ranks. InvalidArgument for flags that need what is lost with a process; Unimplemented for a
  // program that prints; DataLoss: states are not as they were kept.
  absl::StatusOr<RunStart> Prepare(const RunFlags& flags, JobLink* link, const Reader& read);

  // Makes memory for the states of the ranks, in all processes, and has the run keep them there.
  // `knows` and `is_written`: what the host knows before the step that follows the last result;
  // waits until that is in its files.
  absl::Status Attach(JobLink* link, std::function<std::string()> knows,
                      std::function<absl::Status()> is_written, RunInputs* inputs,
                      RunOptions* options);

  // The last step that all ranks have kept; 0: none. When nothing of the run goes on.
  int64_t LastStep() const;

  Generation generation;

 private:
  friend class ElasticRunPeer;  // of the test

  struct Agreed {
    absl::optional<int64_t> step;  // none: the beginning of the run
    std::string host;              // KeptStates::Host
    bool all_have_read = false;    // `first_`
  };
  // The last step of which a process of the generation has all states. All call it. A process that
  // has not, as it has just joined the job, or is on a host that got no further, gets from another
  // what it needs of that step. DeadlineExceeded: that has not come.
  absl::StatusOr<Agreed> Agree(const World& world, JobLink* link, double timeout_s);
  // Gives each process that lacks them the states of its ranks before the step, and what the host
  // knew. The process `giver` has them.
  absl::Status Give(const World& world, const std::function<bool(int)>& lacks, int64_t step,
                    JobLink* link, const std::string& host) const;
  absl::Status Take(const World& world, int giver, JobLink* link, double timeout_s,
                    std::string* host);
  // The states of the ranks of this process before the step, as a checkpoint.
  absl::StatusOr<Checkpoint> Resume(const World& world, int64_t step) const;

  absl::optional<RunStart> first_;      // of the first generation that has read; without its values
  std::vector<StartupBuffer> buffers_;  // of the checkpoint of --resume
  std::shared_ptr<KeptStates> kept_;
  std::map<int, RankState> given_;  // by rank, by another process
};

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_ELASTIC_RUN_H_
