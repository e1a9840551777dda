#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/communicators/communicator_decorators.h"
#include "executor/files/checkpoint.h"
#include "executor/files/checkpoint_series.h"
#include "executor/files/npz.h"
#include "executor/files/params_file.h"
#include "executor/run/runner.h"
#include "nlohmann/json.hpp"
#include "ops/analysis/core/op_traits.h"
#include "tools/cmd/elastic_run.h"
#include "tools/cmd/validation.h"
#include "tools/cmd/weft_commands.h"
#include "tools/cmd/weft_run_files.h"
#include "tools/cmd/weft_run_flags.h"
#include "tools/files/free_space.h"
#include "tools/inspect/chrome_trace.h"
#include "tools/inspect/event_file.h"
#include "tools/inspect/json_number.h"
#include "tools/inspect/op_profile.h"
#include "tools/inspect/program_stats.h"
#include "tools/inspect/run_report.h"
#include "tools/inspect/trace_summary.h"
#include "tools/job/generations.h"
#include "tools/job/job_environment.h"
#include "tools/job/job_session.h"
#include "tools/job/stop_signals.h"
#include "tools/schedules/run_schedule.h"

namespace weft {
namespace {

// Programs with equal variables may give their values another meaning, such as gradients that are
// accumulated over another number of steps.
void NoteAnotherProgram(const Checkpoint& checkpoint, const RunFlags& flags,
                        const std::string& fingerprint) {
  const auto program = checkpoint.settings.find(kProgramOfCheckpoint);
  if (program == checkpoint.settings.end() || program->second == fingerprint) return;
  flags.say(
      {Severity::kNote, absl::StrCat("option:resume ", flags.resume, ": another program than ",
                                     flags.main, " has written it")});
}

// Receives the results of a run in order; its errors name files. The first process writes those of
// all.
class Recorder {
 public:
  // `link` may be null.
  Recorder(const RunStart& start, JobLink* link)
      : start_(start),
        flags_(start.flags),
        inputs_(*start.files),
        link_(link),
        lines_(flags_.run.nranks, inputs_.sums),
        metrics_lines_(flags_.run.nranks, inputs_.sums),
        metrics_(flags_.metrics, KeepsMetrics()),
        checkpoints_(flags_.checkpoint, flags_.keep, flags_.run.begin_step, GoesOn()),
        progress_(stderr) {
    if (inputs_.plateau.has_value()) plateau_ = inputs_.plateau->schedule;
  }

  absl::Status Open() {
    if (start_.resume.has_value()) {
      const auto found = start_.resume->settings.find(kBestOfCheckpoint);
      if (found != start_.resume->settings.end()) best_before_ = found->second;
    }
    if (!start_.host.empty()) WEFT_RETURN_IF_ERROR(RestoreHost());
    if (!flags_.trace.empty()) {
      WEFT_ASSIGN_OR_RETURN(trace_, ChromeTrace::Create(flags_.trace, &*inputs_.main, link_));
    }
    if (!flags_.reports) return absl::OkStatus();
    if (!flags_.valid.main.empty()) WEFT_RETURN_IF_ERROR(OpenValidation());
    if (!flags_.tensorboard.empty()) {
      WEFT_ASSIGN_OR_RETURN(events_,
                            EventFile::Create(flags_.tensorboard, flags_.run.begin_step, "weft"));
    }
    if (!flags_.fetch_npz.empty()) {
      WEFT_ASSIGN_OR_RETURN(fetched_, NpzWriter::Create(flags_.fetch_npz));
    }
    if (!flags_.profile.empty()) {
      absl::StatusOr<AtomicFile> file = AtomicFile::Create(flags_.profile);
      WEFT_RETURN_IF_ERROR(Annotate(flags_.profile, file.status()));
      profile_file_ = *std::move(file);
    }
    return absl::OkStatus();
  }

  absl::Status Add(const StepResult& result) {
    failure_ = Write(result);
    return failure_;
  }

  // May be called concurrently with Add.
  absl::Status AddTrace(const StepTrace& trace) {
    if (profile_file_.has_value()) profile_.Add(trace);
    if (trace_ == nullptr) return absl::OkStatus();
    summary_.Add(trace);
    trace_failure_ = trace_->Add(trace);
    return trace_failure_;
  }

  // What the ranks of the run communicate; recorded for the summary of the trace.
  TrafficLog* traffic() { return &traffic_; }

  // What this knows before the step that follows the last result, as text.
  std::string HostState() const {
    return nlohmann::json{{kLines, lines_.State()},
                          {kPlateau, plateau_.has_value() ? plateau_->State() : ""},
                          {kBest, best()},
                          {kNumLines, num_lines_}}
        .dump();
  }

  // The rate from this step on, if it follows a metric of the results.
  double RateAt(int64_t step) { return plateau_->RateAt(step); }

  // The state before a step, or at the end.
  absl::Status AddCheckpoint(Checkpoint checkpoint) {
    const PlateauSchedule* const plateau = plateau_.has_value() ? &*plateau_ : nullptr;
    checkpoint.settings.merge(SettingsOf(flags_.schedule, plateau));
    checkpoint_failure_ = UseCheckpoint(&checkpoint);
    return checkpoint_failure_;
  }

  // Waits until the last checkpoint is in its file.
  absl::Status WaitForCheckpoint() {
    failure_ = checkpoints_.Wait();
    return failure_;
  }

  // The run has stopped before its end. What is written at its end is not; of the steps that have
  // run, the metrics are.
  absl::Status Stop() {
    progress_.Clear();
    WEFT_RETURN_IF_ERROR(checkpoints_.Wait());
    const bool has_metrics = flags_.reports && !flags_.metrics.empty();
    if (has_metrics) WEFT_RETURN_IF_ERROR(FinishMetrics());
    return validation_failure_;
  }

  absl::Status Finish(const RunResult& result) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_.time;
    progress_.Clear();
    // What was trained comes before what is said of it.
    if (flags_.reports) WEFT_RETURN_IF_ERROR(checkpoints_.Wait());
    if (flags_.reports && !flags_.save.empty())
      WEFT_RETURN_IF_ERROR(SaveState(flags_.save, inputs_, result.persistables));
    if (trace_ != nullptr) WEFT_RETURN_IF_ERROR(trace_->Finish());
    if (!flags_.reports) return absl::OkStatus();
    if (!flags_.metrics.empty()) WEFT_RETURN_IF_ERROR(FinishMetrics());
    if (fetched_.has_value()) WEFT_RETURN_IF_ERROR(fetched_->Finish());
    if (profile_file_.has_value()) {
      absl::Status status = profile_file_->Write(profile_.Json());
      if (status.ok()) status = profile_file_->Commit();
      WEFT_RETURN_IF_ERROR(Annotate(flags_.profile, status));
    }
    Print(absl::StrCat(lines_.Totals(inputs_.steps, seconds.count()), MemoryLine(result.memory),
                       GraphLine(result.graph), RowsLine(result.rows),
                       ServerMemoryLines(result.server_memory), summary_.Lines()));
    if (!flags_.keep_best.empty() && validation_failure_.ok() && best().empty()) {
      flags_.say({Severity::kWarning,
                  absl::StrCat("option:keep_best ", flags_.keep_best,
                               ": no validation has found a number, so there is no ", BestPath())});
    }
    return validation_failure_;
  }

  void ClearProgress() { progress_.Clear(); }

  // Whether nothing is written of what the run trains.
  bool LosesAll() const {
    const bool keeps = !flags_.save.empty() || !flags_.checkpoint.empty();
    // Who writes something else has not forgotten it.
    const bool writes = !flags_.metrics.empty() || !flags_.tensorboard.empty() ||
                        !flags_.fetch_npz.empty() || !flags_.trace.empty() ||
                        !flags_.profile.empty() || !flags_.valid.main.empty();
    return flags_.reports && !keeps && !writes && OpTraits(*inputs_.main).AnyHas(Trait::kOptimizer);
  }

  // Whether a function that adds something returned this error, which ended the run.
  bool Returned(const absl::Status& status) const {
    return !status.ok() &&
           (status == failure_ || status == trace_failure_ || status == checkpoint_failure_);
  }

 private:
  absl::Status OpenValidation() {
    TestFlags valid = flags_.valid;
    valid.ranks = flags_.run.nranks;
    valid.layout_of_training = flags_.feed_layout;
    valid.run.threads = flags_.run.threads;
    valid.run.seed = flags_.run.seed;
    valid.run.paddle_cpu_quirks = flags_.run.paddle_cpu_quirks;
    valid.run.check_nan = flags_.run.check_nan;
    absl::StatusOr<Validation> made =
        Validation::Create(std::move(valid), *inputs_.main, flags_.keep_best, best_before_);
    WEFT_RETURN_IF_ERROR(made.status());
    validation_ = *std::move(made);
    return absl::OkStatus();
  }

  absl::Status UseCheckpoint(Checkpoint* checkpoint) {
    const bool has_ended = checkpoint->step == start_.end_step;
    const int64_t every = flags_.valid_every;
    const bool validates = validation_.has_value() && validation_failure_.ok();
    if (validates && (has_ended || (every > 0 && checkpoint->step % every == 0))) {
      // What was trained counts more than what is said of it: the run fails at its end.
      validation_failure_ = Validate(checkpoint);
      if (!validation_failure_.ok() && !has_ended) {
        progress_.Clear();
        PrintWarning(kRunCommand, absl::StrCat(validation_failure_.message(),
                                               "; the run goes on without --valid"));
      }
    }
    if (!best().empty()) checkpoint->settings[kBestOfCheckpoint] = best();
    return flags_.checkpoint.empty() ? absl::OkStatus() : checkpoints_.Write(*checkpoint);
  }

  // Evaluates, and says and keeps what comes of it.
  absl::Status Validate(Checkpoint* checkpoint) {
    WEFT_RETURN_IF_ERROR(validation_->Run(PersistablesOf(*inputs_.main, *checkpoint)));
    nlohmann::ordered_json valid = nlohmann::ordered_json::object();
    std::vector<std::pair<std::string, double>> scalars;
    std::string lines;
    for (const Evaluation::Total& total : validation_->totals()) {
      absl::StrAppend(&lines, "after ", checkpoint->step, " steps: valid ", TotalLine(total));
      valid[total.metric.name] = NumberToJson(total.value);
      scalars.emplace_back(absl::StrCat("valid/", total.metric.name), total.value);
    }
    progress_.Clear();
    Print(lines);
    const int64_t step = checkpoint->step - 1;  // the last one
    if (!flags_.metrics.empty() && !IsCsv(flags_.metrics)) {
      WEFT_RETURN_IF_ERROR(
          WriteMetrics(JsonText({{"step", step}, {"valid", std::move(valid)}}) + "\n"));
    }
    if (events_.has_value())
      WEFT_RETURN_IF_ERROR(events_->Write(step, SecondsSince1970(), scalars));
    if (!validation_->is_best()) return absl::OkStatus();
    checkpoint->settings[kBestOfCheckpoint] = best();
    return weft::WriteCheckpoint(BestPath(), *checkpoint);
  }

  std::string BestPath() const { return flags_.checkpoint + ".best"; }

  // The best value so far, for a run that goes on.
  std::string best() const {
    const bool chooses = validation_.has_value() && !flags_.keep_best.empty();
    return chooses ? validation_->best() : best_before_;
  }

  static constexpr char kLines[] = "lines", kPlateau[] = "plateau", kNumLines[] = "num_lines",
                        kBest[] = "best";

  bool GoesOn() const { return !flags_.resume.empty() || flags_.run.goes_on; }

  // A run that goes on keeps the lines of earlier steps. There may be later ones: of a run that
  // went on after its last checkpoint. One that goes on after a loss validates its first state
  // again.
  LineFile::Keep KeepsMetrics() {
    if (!GoesOn()) return nullptr;
    return [begin = flags_.run.begin_step, this](absl::string_view line) -> absl::StatusOr<bool> {
      if (IsCsv(flags_.metrics)) {
        WEFT_ASSIGN_OR_RETURN(const absl::optional<int64_t> step, csv_.ReadStep(line));
        return !step.has_value() || *step < begin;
      }
      WEFT_ASSIGN_OR_RETURN(const int64_t step, StepOfMetricsLine(line));
      const bool is_last = flags_.run.goes_on && step + 1 == begin;
      if (is_last && nlohmann::json::parse(line, nullptr, false).contains("valid")) return false;
      return step < begin;
    };
  }

  absl::Status RestoreHost() {
    const auto json = nlohmann::json::parse(start_.host, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return absl::InternalError("what the host has kept cannot be read");
    num_lines_ = json.value(kNumLines, int64_t{0});
    best_before_ = json.value(kBest, "");
    WEFT_RETURN_IF_ERROR(lines_.Restore(json.value(kLines, "")));
    return plateau_.has_value() ? plateau_->Restore(json.value(kPlateau, "")) : absl::OkStatus();
  }

  // Writes to standard output what is not there yet.
  void Print(const std::string& lines) {
    for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
      if (num_lines_++ < start_.num_lines) continue;
      std::fwrite(line.data(), 1, line.size(), stdout);
      std::fputc('\n', stdout);
    }
    std::fflush(stdout);
  }

  absl::Status Write(const StepResult& result) {
    // That of another run.
    if (!flags_.keep_best.empty() && flags_.reports && !GoesOn() &&
        !std::exchange(has_begun_, true))
      std::remove(BestPath().c_str());
    if (plateau_.has_value()) WEFT_RETURN_IF_ERROR(plateau_->Add(result));
    const std::string lines = lines_.Add(result);
    samples_ += result.samples;
    if (!lines.empty()) {
      const bool is_shown = !flags_.quiet && result.step % flags_.log_every == 0;
      if (is_shown) progress_.Clear();
      if (is_shown) Print(lines);
      ++steps_done_;
      if (events_.has_value()) {
        WEFT_RETURN_IF_ERROR(events_->Write(result.step, SecondsSince1970(), lines_.Numbers()));
      }
      if (IsCsv(flags_.metrics)) {
        if (!has_metrics_) WEFT_RETURN_IF_ERROR(WriteMetrics(""));  // reads an earlier run's lines
        const absl::StatusOr<std::string> text = csv_.Add(result.step, lines_.Numbers());
        WEFT_RETURN_IF_ERROR(Annotate(flags_.metrics, text.status()));
        WEFT_RETURN_IF_ERROR(WriteMetrics(*text));
      }
    }
    if (progress_.IsDue() && steps_done_ > 0) {
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - since_;
      progress_.Show(FormatProgress(steps_done_, inputs_.steps, lines_.Last(),
                                    static_cast<double>(samples_) / seconds.count()));
    }
    if (fetched_.has_value()) WEFT_RETURN_IF_ERROR(WriteFetched(result, &*fetched_));
    if (flags_.metrics.empty() || IsCsv(flags_.metrics)) return absl::OkStatus();
    return WriteMetrics(metrics_lines_.Add(result));
  }

  // A log that cannot be written any more, on a full disk, ends no run: the run fails at its end.
  absl::Status WriteMetrics(const std::string& lines) {
    if (!metrics_failure_.ok()) return absl::OkStatus();
    const absl::Status status = metrics_.Write(lines);
    if (status.ok() || !has_metrics_) {
      has_metrics_ = true;
      return status;
    }
    metrics_failure_ = status;
    progress_.Clear();
    PrintWarning(kRunCommand,
                 absl::StrCat(status.message(), "; the run goes on without --metrics"));
    return absl::OkStatus();
  }

  absl::Status FinishMetrics() {
    return metrics_failure_.ok() ? metrics_.Finish() : metrics_failure_;
  }

  const RunStart& start_;
  const RunFlags& flags_;
  const RunFiles& inputs_;
  int64_t num_lines_ = 0;  // of the run, so far
  JobLink* const link_;
  StepLines lines_;
  MetricsLines metrics_lines_;
  LineFile metrics_;
  CsvLines csv_;  // of metrics_, if it is such a file
  CheckpointSeries checkpoints_;
  absl::optional<NpzWriter> fetched_;
  absl::optional<Validation> validation_;
  absl::optional<EventFile> events_;
  std::unique_ptr<ChromeTrace> trace_;
  TrafficLog traffic_;
  TraceSummary summary_{&traffic_};
  absl::optional<AtomicFile> profile_file_;
  OpProfile profile_;
  absl::optional<PlateauSchedule> plateau_;
  ProgressLine progress_;
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  int64_t steps_done_ = 0;
  int64_t samples_ = 0;
  bool has_begun_ = false;
  bool has_metrics_ = false;  // lines
  std::string best_before_;   // of an earlier part of the run
  absl::Status failure_, trace_failure_, checkpoint_failure_, metrics_failure_, validation_failure_;
};

// A checkpoint, and the best one, may replace the one with which the run begins.
absl::Status CheckFiles(const RunFlags& flags) {
  const bool replaces = !flags.checkpoint.empty() && !flags.resume.empty() &&
                        IsSameFile(flags.checkpoint, flags.resume);
  if (AtomicFile::WritesDirectly(flags.checkpoint)) {
    return absl::InvalidArgumentError(absl::StrCat(
        flags.checkpoint, ": a checkpoint replaces a file, and this is not a regular file"));
  }
  const std::string best = flags.keep_best.empty() ? "" : flags.checkpoint + ".best";
  const bool replaces_best =
      !best.empty() && !flags.resume.empty() && IsSameFile(best, flags.resume);
  return CheckOutputs(
      {flags.main, flags.startup, flags.server, flags.params, flags.params_names, flags.feeds,
       flags.valid.main, flags.valid.feeds, replaces || replaces_best ? "" : flags.resume},
      {flags.save, PdoptBeside(flags.save), flags.metrics, flags.fetch_npz, flags.trace,
       flags.profile, flags.checkpoint, best});
}

// The signal to this process, or to another one of the job, by which the run has stopped. All
// processes call it.
absl::StatusOr<int> FindStopSignal(JobLink* link) {
  if (link == nullptr) return StopSignal();
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                        link->AllGather(absl::StrCat(StopSignal())));
  for (const std::string& text : all) {
    int signal = 0;
    if (absl::SimpleAtoi(text, &signal) && signal != 0) return signal;
  }
  return SIGTERM;
}

void PrintStopped(const RunFlags& flags, const RunResult& result, int64_t end_step, int signal) {
  PrintNote(absl::StrCat("stopped by SIG", sigabbrev_np(signal), " before step ", result.end_step,
                         " of ", end_step, "; --resume ", flags.checkpoint, " goes on"));
}

// Of the ranks of the run, the last ones are servers.
absl::Status SeparateServers(RunFlags* flags) {
  RunOptions& run = flags->run;
  if (run.num_servers == 0) return absl::OkStatus();
  if (flags->device == "gpu") {
    return absl::UnimplementedError(
        "--server: workers and parameter servers exchange tensors of the host; expected --device "
        "cpu");
  }
  if (run.nranks <= run.num_servers) {
    return absl::InvalidArgumentError(absl::StrCat("--servers ", run.num_servers,
                                                   ": expected more ranks than servers, as the "
                                                   "others are workers, found ",
                                                   run.nranks));
  }
  run.nranks -= run.num_servers;
  return absl::OkStatus();
}

// Reads what the flags name.
absl::StatusOr<RunStart> ReadStart(RunFlags flags, JobLink* link) {
  WEFT_RETURN_IF_ERROR(CheckRunDevice(flags));
  WEFT_RETURN_IF_ERROR(CheckFiles(flags));
  RunStart start;
  if (!flags.resume.empty()) {
    WEFT_ASSIGN_OR_RETURN(start.resume, ReadCheckpoint(flags.resume));
    WEFT_RETURN_IF_ERROR(Annotate(flags.resume, ContinueFrom(*start.resume, &flags)));
  }
  WEFT_RETURN_IF_ERROR(SeparateServers(&flags));
  WEFT_ASSIGN_OR_RETURN(RunFiles files, ReadRunFiles(flags, link, {}));
  if (flags.reports) {
    const int64_t bytes = PersistableBytes(*files.main);
    WEFT_RETURN_IF_ERROR(CheckFreeSpace(flags.save, bytes));
    WEFT_RETURN_IF_ERROR(CheckFreeSpace(flags.checkpoint, bytes));
    if (start.resume.has_value()) NoteAnotherProgram(*start.resume, flags, FingerprintOf(files));
  }
  start.end_step = flags.run.begin_step + files.steps;
  start.flags = std::move(flags);
  start.files = std::make_shared<const RunFiles>(std::move(files));
  start.time = std::chrono::steady_clock::now();
  return start;
}

// Changes a run before it begins. `knows`: what the host knows before the step that follows the
// last result. `is_written`: waits until that is in its files.
using Attach = std::function<absl::Status(const std::function<std::string()>& knows,
                                          const std::function<absl::Status()>& is_written,
                                          RunInputs* inputs, RunOptions* options)>;

// Sets `exit_status` if a signal has stopped the run.
absl::Status TrainInJob(RunStart start, const JobSession& session, const Attach& attach,
                        const RunDecorator& decorate, int* exit_status) {
  const RunFlags& flags = start.flags;
  const RunFiles& read = *start.files;
  absl::optional<Checkpoint>& resume = start.resume;
  Recorder recorder(start, session.link());
  WEFT_RETURN_IF_ERROR(recorder.Open());

  RunInputs inputs;
  inputs.main = &*read.main;
  inputs.startup = read.startup.has_value() ? &*read.startup : nullptr;
  inputs.server = read.server.has_value() ? &*read.server : nullptr;
  inputs.params = read.params.has_value() ? &read.params->params : nullptr;
  inputs.resume = resume.has_value() ? &*resume : nullptr;
  inputs.feeds = read.feeds;
  inputs.on_result = [&recorder](const StepResult& result) { return recorder.Add(result); };
  RunOptions options = flags.run;
  options.link = session.link();
  options.new_group = session.new_group();
  if (!flags.trace.empty() || !flags.profile.empty()) {
    inputs.on_trace = [&recorder](const StepTrace& trace) { return recorder.AddTrace(trace); };
  }
  if (!flags.trace.empty()) {
    options.new_group =
        [&session, &recorder](
            GroupOptions group_options) -> absl::StatusOr<std::unique_ptr<CommunicatorGroup>> {
      WEFT_ASSIGN_OR_RETURN(auto group, session.new_group()(std::move(group_options)));
      return NewRecordingGroup(std::move(group), recorder.traffic());
    };
  }
  if (!flags.checkpoint.empty()) {
    const char* const id = std::getenv("WEFT_JOB_ID");
    const char* const restarts = std::getenv("WEFT_JOB_RESTARTS");
    const bool may_restart = restarts != nullptr && restarts != absl::string_view("0");
    const std::string job = may_restart && id != nullptr ? id : "";
    inputs.on_checkpoint = [&recorder, job, program = FingerprintOf(read)](Checkpoint checkpoint) {
      checkpoint.settings[kProgramOfCheckpoint] = program;
      if (!job.empty()) checkpoint.settings[kJobOfCheckpoint] = job;
      return recorder.AddCheckpoint(std::move(checkpoint));
    };
    // What another process has been told is not lost with it: this one tells the next generation.
    static std::atomic<bool> has_heard{false};
    options.stop_requested = [] { return StopSignal() != 0 || has_heard; };
    options.on_stop_requested = [] { has_heard = true; };
  } else if (!flags.valid.main.empty()) {
    inputs.on_checkpoint = [&recorder](Checkpoint checkpoint) {
      return recorder.AddCheckpoint(std::move(checkpoint));
    };
  }
  // Before the first step, when all that is checked is right.
  std::once_flag is_said;
  if (recorder.LosesAll()) {
    options.stop_requested = [&is_said, &flags] {
      std::call_once(is_said, [&flags] {
        flags.say(
            {Severity::kNote, "what is trained will be lost; --save or --checkpoint keeps it"});
      });
      return false;
    };
  }
  ChooseDevice(
      flags, [&session](int rank) { return session.GpuOf(rank); }, &options);
  options.steps = start.end_step - options.begin_step;
  options.returns_persistables = !flags.save.empty();
  if (read.plateau.has_value()) {
    options.feedback = Feedback{read.plateau->variable, read.plateau->schedule.every(),
                                [&recorder](int64_t step) { return recorder.RateAt(step); }};
    if (!read.plateau->schedule.metric().empty()) options.fetch = read.reported;
  }
  if (session.link() != nullptr) {
    WEFT_ASSIGN_OR_RETURN(options.settings, JobSettings(flags, read));
  }
  options.warn = [](const std::string& message) { PrintWarning(kRunCommand, message); };
  if (attach) {
    // Its values would be there a third time.
    inputs.on_resumed = [&resume] {
      resume->shared.clear();
      for (auto& of_rank : resume->own) of_rank.clear();
    };
    WEFT_RETURN_IF_ERROR(attach([&recorder] { return recorder.HostState(); },
                                [&recorder] { return recorder.WaitForCheckpoint(); }, &inputs,
                                &options));
  }
  if (decorate) decorate(&inputs, &options);

  const absl::StatusOr<RunResult> result = RunProgram(inputs, options);
  recorder.ClearProgress();
  if (!result.ok()) {
    return recorder.Returned(result.status()) ? result.status()
                                              : NameFile(flags, session.backend(), result.status());
  }
  if (result->end_step < start.end_step) {
    WEFT_RETURN_IF_ERROR(recorder.Stop());
    WEFT_ASSIGN_OR_RETURN(const int signal, FindStopSignal(session.link()));
    *exit_status = 128 + signal;
    if (flags.reports) PrintStopped(flags, *result, start.end_step, signal);
    return absl::OkStatus();
  }
  return recorder.Finish(*result);
}

// The part of this process in one generation after the other.
absl::Status TrainElastic(const RunFlags& flags, JobSessionOptions job,
                          const GenerationClient& client, const RunDecorator& decorate,
                          int* exit_status) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<Job> found, FindJob(std::getenv));
  if (!found.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kControlVariable, ": expected the variables of weft launch, found none"));
  }
  ElasticRun elastic;
  elastic.generation.process = found->process;
  elastic.generation.num_processes = found->num_processes;
  job.num_ranks = flags.run.nranks * found->num_processes;
  job.is_over = [&client] { return client.IsOver(); };
  if (!flags.checkpoint.empty()) CatchStopSignals();
  const auto train = [&](const JobSession& session) -> absl::Status {
    RunFlags of_generation = flags;
    of_generation.run.nranks = job.num_ranks;
    of_generation.reports = session.is_first();
    WEFT_ASSIGN_OR_RETURN(RunStart start,
                          elastic.Prepare(of_generation, session.link(), ReadStart));
    const Attach attach = [&](const auto& knows, const auto& is_written, RunInputs* inputs,
                              RunOptions* options) {
      return elastic.Attach(session.link(), knows, is_written, inputs, options);
    };
    return TrainInJob(std::move(start), session, attach, decorate, exit_status);
  };
  WEFT_ASSIGN_OR_RETURN(const absl::optional<int> joins_after,
                        GenerationClient::JoinsAfter(std::getenv));
  if (joins_after.has_value()) elastic.generation.number = *joins_after;
  for (bool joins = joins_after.has_value();; joins = false) {
    absl::Status status;
    *exit_status = kExitDone;
    if (joins) {
      status = absl::UnavailableError("the job has ended before this process could join it");
    } else {
      job.generation = elastic.generation;
      absl::StatusOr<std::unique_ptr<JobSession>> session = JobSession::Join(job, std::getenv);
      status = session.ok() ? (*session)->Finish(train(**session)) : session.status();
    }
    if (status.ok()) {
      client.Finish();
      return status;
    }
    const bool is_own = !absl::IsAborted(status) && !absl::IsUnavailable(status);
    switch (client.End(is_own, elastic.LastStep(), &elastic.generation)) {
      case GenerationClient::Next::kGoesOn:
        continue;
      case GenerationClient::Next::kIsDone:
        return absl::OkStatus();
      case GenerationClient::Next::kFails:
        return status;
    }
  }
}

// Makes the session, which must outlive the report of an error.
absl::Status Train(RunFlags flags, const RunDecorator& decorate,
                   std::unique_ptr<JobSession>* session, int* exit_status) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<GenerationClient> elastic,
                        GenerationClient::Find(std::getenv));
  JobSessionOptions job = JobOptions(flags);
  job.command = absl::StrCat("weft run", flags.trace.empty() ? "" : " --trace",
                             flags.resume.empty() ? "" : " --resume");
  if (elastic.has_value()) {
    return TrainElastic(flags, std::move(job), *elastic, decorate, exit_status);
  }
  WEFT_ASSIGN_OR_RETURN(*session, JobSession::Join(job, std::getenv));
  // Before, there is nothing to save.
  if (!flags.checkpoint.empty()) CatchStopSignals();
  flags.run.nranks *= (*session)->num_processes();
  flags.reports = (*session)->is_first();
  const auto train = [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(RunStart start, ReadStart(std::move(flags), (*session)->link()));
    return TrainInJob(std::move(start), **session, nullptr, decorate, exit_status);
  };
  return (*session)->Finish(train());
}

}  // namespace

Subcommand AddRun(CLI::App* weft, RunDecorator decorate) {
  CLI::App* app = weft->add_subcommand("run", "Trains a program.");
  auto flags = std::make_shared<RunFlags>();
  AddRunFlags(*app, *flags);
  ShowInHelp(*app, {"--startup", "--params", "--feeds", "--steps", "--ranks", "--fetch", "--device",
                    "--save", "--checkpoint", "--resume"});
  app->callback([app, flags] { CheckRunFlags(*app, *flags); });
  app->footer(
      "Example:\n  weft run main.pb --startup startup.pb --feeds feeds.npz --ranks 2 --save "
      "out.npz");
  return {app, [flags, decorate = std::move(decorate)] {
            int exit_status = kExitDone;
            std::unique_ptr<JobSession> session;
            const absl::Status status = Train(*flags, decorate, &session, &exit_status);
            return FinishCommand(kRunCommand, status, exit_status);
          }};
}

}  // namespace weft
