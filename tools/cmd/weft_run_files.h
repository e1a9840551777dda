// The flags of weft run, and the files that they name.
#ifndef WEFT_TOOLS_CMD_WEFT_RUN_FILES_H_
#define WEFT_TOOLS_CMD_WEFT_RUN_FILES_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "executor/files/checkpoint.h"
#include "executor/jobs/job_link.h"
#include "executor/run/runner.h"
#include "ops/tensor.h"
#include "proto/feed_layout.h"
#include "proto/program.h"
#include "proto/setting.h"
#include "tools/cmd/test_program.h"
#include "tools/files/params_input.h"
#include "tools/flags/said.h"
#include "tools/job/job_session.h"
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
  std::string save, metrics, tensorboard, fetch_npz, trace, profile;
  int64_t log_every = 1;                    // steps
  int64_t save_every = 0, valid_every = 0;  // 0: at the end
  bool quiet = false;                       // no notes, and no lines of steps
  TestFlags valid;                          // main and feeds: empty, or both given
  std::string keep_best;                    // the choice of BestMetric
  std::string checkpoint, resume;
  int keep = 1;  // checkpoints
  bool drop_last = false;
  bool force = false;                        // run what is proved wrong
  bool has_ranks = false, has_seed = false;  // on the command line
  bool reports = true;                       // of the processes of a job, the first does
  bool by_steps = false;                     // a caller orders steps: their number is open
  std::function<void(const Said&)> say = [](const Said& said) { Print(kRunCommand, said); };
  // nranks: of this process, then of the run, then of its workers.
  RunOptions run;
};

// The setting of a checkpoint that has the fingerprint of the program that wrote it.
inline constexpr char kProgramOfCheckpoint[] = "program";

// The setting of a checkpoint that names the job of `weft launch`, if that may start again and go
// on from it. Other runs leave it out: equal runs write equal checkpoints.
inline constexpr char kJobOfCheckpoint[] = "job";

// The setting of a checkpoint that has BestMetric::text.
inline constexpr char kBestOfCheckpoint[] = "best";

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
// `given`: programs, parameters and feeds that are in memory already; messages name them as the
// flags do.
absl::StatusOr<RunFiles> ReadRunFiles(const RunFlags& flags, JobLink* link, RunFiles given);

// Says that each rank gets one row of a variable and several of another one: ops may take the one
// for all, where one device would refuse the batch. Empty if it is not so.
std::string LoneRowsText(int64_t step, absl::Span<const std::string> variables,
                         absl::Span<const Dims> batch, const FeedLayouts& layouts, int nranks);

std::string FingerprintOf(const RunFiles& files);

// The persistable variables of the program: as on rank 0, or on the first rank of a group that
// keeps them equal.
std::map<std::string, Tensor> PersistablesOf(const Program& main, const Checkpoint& checkpoint);

// Takes from the checkpoint of --resume what the flags do not say.
absl::Status ContinueFrom(const Checkpoint& checkpoint, RunFlags* flags);

// What feeds and host values depend on, for RunOptions::settings. Feeds count by their size and
// their ends: the last one has the checksums of all arrays.
absl::StatusOr<std::map<std::string, std::string>> JobSettings(const RunFlags& flags,
                                                               const RunFiles& inputs);
// How the run joins its job, but for JobSessionOptions::command.
JobSessionOptions JobOptions(const RunFlags& flags);

// InvalidArgument for flags that do not go with --device, and the error of a device that is not
// there.
absl::Status CheckRunDevice(const RunFlags& flags);
// Sets the kernels, devices and graphs that the flags choose; `gpu_of`: the number of the CUDA
// device of a rank.
void ChooseDevice(const RunFlags& flags, std::function<int(int rank)> gpu_of, RunOptions* options);

// Writes persistable variables as --save does, with the arrays that came with the parameters and
// belong to another program, such as the generator of a GAN: the two train in turn.
absl::Status SaveState(const std::string& path, const RunFiles& files,
                       std::map<std::string, Tensor> tensors);

// Adds the file to messages about programs, and the flag to those about the engine that connects
// ranks. Those about feeds have theirs.
absl::Status NameFile(const RunFlags& flags, const std::string& backend,
                      const absl::Status& status);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_WEFT_RUN_FILES_H_
