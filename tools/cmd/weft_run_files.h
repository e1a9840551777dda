// The flags of weft run, and the files that they name.
#ifndef WEFT_TOOLS_CMD_WEFT_RUN_FILES_H_
#define WEFT_TOOLS_CMD_WEFT_RUN_FILES_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "executor/files/checkpoint.h"
#include "executor/jobs/job_link.h"
#include "executor/run/runner.h"
#include "proto/program.h"
#include "proto/setting.h"
#include "tools/files/params_input.h"
#include "tools/schedules/run_schedule.h"

namespace weft {

inline constexpr char kRunCommand[] = "weft run";

struct RunFlags {
  std::string main, startup, server;
  std::string params, params_names;
  std::string feeds, feed_layout, assume, order;
  absl::optional<int64_t> steps;
  RunSchedule schedule;
  std::string backend;       // empty: the default of the device
  std::string nccl_id_file;  // empty: over the connection of the processes
  std::string job_token_file;
  std::string device = "cpu";
  std::string cuda_graph = "off";
  std::string save, metrics, fetch_npz, trace, profile;
  std::string checkpoint, resume;
  int keep = 1;  // checkpoints
  bool drop_last = false;
  bool force = false;                        // run what is proved wrong
  bool has_ranks = false, has_seed = false;  // on the command line
  bool reports = true;                       // of the processes of a job, the first does
  // nranks: of this process, then of the run, then of its workers.
  RunOptions run;
};

// The setting of a checkpoint that names the job of `weft launch`, if that may start again and go
// on from it. Other runs leave it out: equal runs write equal checkpoints.
inline constexpr char kJobOfCheckpoint[] = "job";

// "note: ..." on standard error.
void PrintNote(absl::string_view note);

// What the command line names: the inputs of a run, which must outlive it.
struct RunFiles {
  absl::optional<Program> main, startup, server;
  absl::optional<ParamsInput> params;
  FeedSource feeds;
  Setting setting;                      // of the main program
  absl::optional<PlateauRate> plateau;  // none: no rate follows a metric
  std::string fingerprint;  // of the main program in the file, where the run has changed it
  // The schedules that the run takes from the program, by variable.
  std::map<std::string, std::string> schedules;
  // What the run reports or follows; of these, the variables of which ranks have partial sums.
  std::vector<std::string> reported;
  std::set<std::string> sums;
  int64_t steps = 0;
};

// With what a process begins its part of a run.
struct RunStart {
  RunFlags flags;                         // with what a checkpoint says
  std::shared_ptr<const RunFiles> files;  // of the flags
  absl::optional<Checkpoint> resume;
  int64_t end_step = 0;
  std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();
  // Of a run that goes on without processes that it has lost: what the host knows before the first
  // step (empty: nothing), and how many of the lines of the run are on standard output.
  std::string host;
  int64_t num_lines = 0;
};

// Reads the files and compares them with the program. Says, if `flags.reports`, what does not fit,
// what the run adds (schedules, layouts of data), and what differs from one device and from Paddle.
// Verifies the programs (CheckRunPrograms, with `link`). Errors begin with the path of a file.
absl::StatusOr<RunFiles> ReadRunFiles(const RunFlags& flags, JobLink* link);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_WEFT_RUN_FILES_H_
