// weft launch: starts a command several times, as one job.
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/files/checkpoint.h"
#include "executor/files/safetensors.h"
#include "executor/jobs/job_token.h"
#include "nlohmann/json.hpp"
#include "tools/cmd/weft_commands.h"
#include "tools/cmd/weft_run_files.h"
#include "tools/job/controlled_launcher.h"
#include "tools/job/elastic_launcher.h"
#include "tools/job/job_environment.h"
#include "tools/job/launcher.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft launch";
// Every process takes two files and at least one thread: more are a mistake.
constexpr int kMaxProcesses = 256;
constexpr int kExitNotExecutable = 126, kExitNotFound = 127;  // as of shells

bool IsWeftRun(const std::vector<std::string>& command) {
  return command.size() > 2 && command[1] == "run" &&
         (command[0] == "weft" || absl::EndsWith(command[0], "/weft"));
}

// "--flag value" or "--flag=value" at arguments[i]. Returns how many arguments it takes; 0:
// another.
int TakesFlag(const std::vector<std::string>& arguments, size_t i, absl::string_view flag,
              std::string* value) {
  absl::string_view argument = arguments[i];
  if (!absl::ConsumePrefix(&argument, flag)) return 0;
  if (absl::ConsumePrefix(&argument, "=")) {
    *value = std::string(argument);
    return 1;
  }
  if (!argument.empty() || i + 1 == arguments.size()) return 0;
  *value = arguments[i + 1];
  return 2;
}

// The file of --checkpoint; empty: none.
std::string CheckpointOf(const std::vector<std::string>& command) {
  std::string path;
  if (!IsWeftRun(command)) return path;
  for (size_t i = 2; i < command.size(); ++i) TakesFlag(command, i, "--checkpoint", &path);
  return path;
}

// The command that goes on from a checkpoint to the end of its run. The flags that say where
// another run begins and ends are left out.
std::vector<std::string> Resumed(const std::vector<std::string>& command, const std::string& path) {
  std::vector<std::string> result(command.begin(), command.begin() + 2);
  for (size_t i = 2; i < command.size();) {
    int taken = 0;
    std::string value;
    for (const char* flag : {"--resume", "--resume_step", "--begin_step", "--steps"}) {
      if (taken == 0) taken = TakesFlag(command, i, flag, &value);
    }
    if (taken == 0) result.push_back(command[i++]);
    i += static_cast<size_t>(taken);
  }
  result.insert(result.end(), {"--resume", path});
  return result;
}

// Tells one version of a file from the next.
using Version = std::tuple<dev_t, ino_t, off_t, int64_t, int64_t>;

absl::optional<Version> VersionOf(const std::string& path) {
  struct stat info;
  if (path.empty() || stat(path.c_str(), &info) != 0) return absl::nullopt;
  return Version(info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

// The step of a checkpoint that the job has written; none if the file is another.
absl::optional<std::string> StepOf(const std::string& path, const std::string& job_id) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok() || !IsCheckpoint(*file)) return absl::nullopt;
  const auto settings = file->metadata().find("settings");
  if (settings == file->metadata().end()) return absl::nullopt;
  const auto json = nlohmann::json::parse(settings->second, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value(kJobOfCheckpoint, "") != job_id) return absl::nullopt;
  const auto step = file->metadata().find("step");
  if (step == file->metadata().end()) return absl::nullopt;
  return step->second;
}

int ExitStatusOf(const absl::Status& status) {
  if (absl::IsNotFound(status)) return kExitNotFound;
  if (absl::IsPermissionDenied(status)) return kExitNotExecutable;
  if (absl::IsCancelled(status)) return 128 + Launcher::PendingStop();
  return kExitFailed;
}

// Several launches of several processes each would be as many jobs.
absl::Status CheckIsAlone() {
  const absl::StatusOr<absl::optional<Job>> job =
      FindJob([](const char* name) -> const char* { return std::getenv(name); });
  WEFT_RETURN_IF_ERROR(job.status());
  if (!job->has_value() || (*job)->num_processes == 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("this is process ", (*job)->process, " of ", (*job)->num_processes, " that ",
                   (*job)->launcher, " has started: expected one launcher"));
}

struct ElasticFlags {
  bool is_elastic = false;
  int min_processes = 1, max_replacements = 0;
};

absl::Status Launch(LaunchOptions options, const ElasticFlags& elastic, int* exit_status) {
  *exit_status = kExitFailed;
  WEFT_RETURN_IF_ERROR(CheckIsAlone());
  const std::vector<std::string> command = options.command;
  const std::string checkpoint = CheckpointOf(command);
  // A checkpoint of an earlier run is not one of this job.
  const absl::optional<Version> before = VersionOf(checkpoint);
  std::unique_ptr<Launcher> launcher = std::make_unique<Launcher>();
  if (options.hosts.hosts > 1) {
    const char* const token = std::getenv("WEFT_JOB_TOKEN");
    options.hosts.token = token == nullptr ? "" : token;
    WEFT_RETURN_IF_ERROR(
        Annotate("weft launch --hosts: WEFT_JOB_TOKEN", CheckJobToken(options.hosts.token)));
  }
  if (options.hosts.host > 0) {
    launcher = std::make_unique<HostLauncher>();
  } else if (elastic.is_elastic) {
    launcher = std::make_unique<ElasticLauncher>(elastic.min_processes, elastic.max_replacements);
  }
  WEFT_RETURN_IF_ERROR(launcher->TakeSignals());
  const int attempts = options.max_restarts + 1;
  for (int attempt = 1;; ++attempt) {
    const absl::StatusOr<LaunchResult> result = launcher->Run(options, attempt);
    *exit_status = result.ok() ? result->exit_status : ExitStatusOf(result.status());
    WEFT_RETURN_IF_ERROR(result.status());
    if (!result->may_restart || attempt == attempts) return absl::OkStatus();

    const absl::optional<Version> now = VersionOf(checkpoint);
    const absl::optional<std::string> step =
        now.has_value() && now != before ? StepOf(checkpoint, launcher->job_id()) : absl::nullopt;
    options.command = step.has_value() ? Resumed(command, checkpoint) : command;
    const std::string how = step.has_value()
                                ? absl::StrCat("resuming from ", checkpoint, " (step ", *step, ")")
                                : "from the beginning";
    std::fprintf(stderr, "%s: note: attempt %d of %d, %s\n", kCommand, attempt + 1, attempts,
                 how.c_str());
  }
}

}  // namespace

std::vector<std::string> TakeLaunchedCommand(int* argc, char** argv) {
  char** const end = argv + *argc;
  if (*argc < 2 || absl::string_view(argv[1]) != "launch") return {};
  char** const mark = std::find(argv, end, absl::string_view("--"));
  if (mark == end) return {};
  *argc = static_cast<int>(mark - argv);
  return {mark + 1, end};
}

Subcommand AddLaunch(CLI::App* weft, std::vector<std::string> command) {
  CLI::App* app = weft->add_subcommand(
      "launch", "Starts the command that follows -- several times, as the processes of a job.");
  auto options = std::make_shared<LaunchOptions>();
  options->command = std::move(command);
  AddInteger(*app, "-n", options->processes, 1, kMaxProcesses, "Processes to start, on each host")
      ->required();
  AddInteger(*app, "--max_restarts", options->max_restarts, 0, 1000000,
             "After a failure, start all processes again, at most N times; weft run with "
             "--checkpoint then resumes from the last checkpoint of this job")
      ->capture_default_str();
  auto elastic = std::make_shared<ElasticFlags>();
  auto* elastic_flag =
      app->add_flag("--elastic", elastic->is_elastic,
                    "For weft run: when processes are killed or stopped, the others take over "
                    "their ranks and continue after the last step that all ranks have finished, "
                    "with the same bits as a run without the loss");
  AddInteger(*app, "--min_processes", elastic->min_processes, 1, kMaxProcesses,
             "End the job when fewer processes than N are left")
      ->needs(elastic_flag)
      ->capture_default_str();
  AddInteger(*app, "--max_replacements", elastic->max_replacements, 0, 1000000,
             "Start new processes in place of killed ones, at most N times; with several hosts, "
             "the N given on host 0 holds")
      ->needs(elastic_flag)
      ->capture_default_str();
  HostOptions& hosts = options->hosts;
  auto* hosts_flag =
      AddInteger(*app, "--hosts", hosts.hosts, 1, kMaxProcesses,
                 "Hosts of the job: on each, start weft launch with --host and --at");
  hosts_flag->needs(elastic_flag)->capture_default_str();
  auto* host_flag =
      AddInteger(*app, "--host", hosts.host, 0, kMaxProcesses - 1,
                 "The number of this host, from 0; processes of host 0 report and write files");
  host_flag->needs(hosts_flag)->capture_default_str();
  auto* at_flag = app->add_option("--at", hosts.address,
                                  "Where processes meet, on host 0; the launcher there listens for "
                                  "the launcher of host K at PORT + K");
  at_flag->needs(hosts_flag)->type_name("HOST:PORT");
  app->add_option("--grace_s", options->grace_s,
                  "Kill processes that have not ended S seconds after SIGTERM or SIGINT")
      ->check(NumberThat([](double s) { return s >= 0 && s <= 1e6; }, "seconds, from 0 to 1000000"))
      ->capture_default_str()
      ->type_name("S");
  app->callback([options, elastic] {
    const HostOptions& of_job = options->hosts;
    const int processes = of_job.hosts * options->processes;
    Require(!options->command.empty(), "--", "expected a command after --");
    Require(processes <= kMaxProcesses, "--hosts",
            absl::StrCat("expected at most ", kMaxProcesses, " processes, found ", processes));
    Require(of_job.host < of_job.hosts, "--host",
            absl::StrCat("expected a number less than --hosts ", of_job.hosts, ", found ",
                         of_job.host));
    Require((of_job.hosts > 1) != of_job.address.empty(), "--at",
            "expected it with --hosts, of 2 or more");
    Require(of_job.hosts == 1 || options->max_restarts == 0, "--hosts",
            "expected no --max_restarts");
    Require(elastic->min_processes <= processes, "--min_processes",
            absl::StrCat("expected at most the ", processes, " processes of -n, found ",
                         elastic->min_processes));
  });
  app->footer(
      "Every line of output begins with the rank of its process: \"[0] \". When a process fails, "
      "the\nothers get SIGTERM. SIGINT and SIGTERM go to all processes.\n"
      "On several hosts, all launchers need the same WEFT_JOB_TOKEN, as openssl rand -hex 16 "
      "prints "
      "it.\n"
      "Exit status: the status of the process that failed first, or 128 + the signal that killed "
      "it.\n\n"
      "Example:\n  weft launch -n 2 --max_restarts 3 -- weft run out.pb --startup out_startup.pb "
      "\\\n      --feeds feeds.npz --checkpoint run.ckpt --save_every 100");
  return {app, [options, elastic] {
            int exit_status = kExitDone;
            const absl::Status status = Launch(*options, *elastic, &exit_status);
            return FinishCommand(kCommand, status, exit_status, exit_status);
          }};
}

}  // namespace weft
