#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/files/checkpoint.h"
#include "executor/files/npz.h"
#include "executor/files/params_file.h"
#include "executor/run/runner.h"
#include "tools/cmd/evaluation.h"
#include "tools/cmd/test_program.h"
#include "tools/cmd/weft_commands.h"
#include "tools/cmd/weft_eval_flags.h"
#include "tools/cmd/weft_run_files.h"
#include "tools/files/params_input.h"
#include "tools/inspect/event_file.h"
#include "tools/inspect/run_report.h"
#include "tools/job/job_environment.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft eval";

// The values of a checkpoint: those of rank 0 where ranks differ. Sets `last_step`.
absl::StatusOr<std::map<std::string, Tensor>> ValuesOfCheckpoint(const std::string& path,
                                                                 const Program& main,
                                                                 int64_t* last_step) {
  WEFT_ASSIGN_OR_RETURN(Checkpoint checkpoint, ReadCheckpoint(path));
  *last_step = std::max<int64_t>(checkpoint.step - 1, 0);
  std::map<std::string, Tensor> values = std::move(checkpoint.shared);
  std::vector<std::string> differ;
  if (!checkpoint.own.empty()) {
    for (auto& [name, tensor] : checkpoint.own[0]) {
      if (main.block(0).FindVar(name).valid()) differ.push_back(name);
      values.emplace(name, std::move(tensor));
    }
  }
  if (!differ.empty()) {
    PrintWarning(kCommand,
                 absl::StrCat(path, ": ranks have different values of ",
                              absl::StrJoin(differ, ", "), "; the values of rank 0 are used"));
  }
  return values;
}

// `last_step`: the last step of training, 0 where the file does not say it.
absl::StatusOr<ParamsInput> ReadValues(const EvalFlags& flags, const TestProgram& test,
                                       int64_t* last_step) {
  const Program& main = *test.main;
  std::map<std::string, Tensor> values;
  if (!flags.params.empty()) {
    WEFT_ASSIGN_OR_RETURN(ParamsInput input, ReadParams(flags.params, flags.params_names, {&main}));
    values = std::move(input.params);
    values.merge(input.others);
  } else if (!flags.checkpoint.empty()) {
    WEFT_ASSIGN_OR_RETURN(values, ValuesOfCheckpoint(flags.checkpoint, main, last_step));
  } else if (flags.ema) {
    return absl::InvalidArgumentError("--ema: expected --params or --checkpoint");
  } else {
    return StartParams(flags, test);
  }
  absl::StatusOr<ParamsInput> input = TestParams(flags, test, std::move(values));
  WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat(flags.params, flags.checkpoint), input.status()));
  const std::string others = OthersText(*input);
  if (!others.empty()) PrintNote(absl::StrCat(flags.params, flags.checkpoint, ": ", others));
  return input;
}

// Receives the values of batches from all ranks. Writes files in the order of the batches: those of
// later ranks wait in memory.
class Collector {
 public:
  Collector(const EvalFlags& flags, const TestProgram& inputs)
      : flags_(flags),
        evaluation_(inputs.metrics),
        queue_(1, NamesOf(inputs.metrics), [this](const StepResult& r) { return Write(r); }),
        lines_(flags.metrics),
        num_metrics_(inputs.metrics.all.size()),
        batches_(inputs.batches),
        progress_(stderr) {}

  absl::Status Open() {
    if (flags_.fetch_npz.empty()) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(fetched_, NpzWriter::Create(flags_.fetch_npz));
    return absl::OkStatus();
  }

  // Thread-safe.
  absl::Status Add(const StepResult& result) {
    std::lock_guard<std::mutex> lock(mutex_);
    evaluation_.Add(result);
    if (progress_.IsDue()) progress_.Show(FormatProgress(evaluation_.batches(), batches_, "", 0));
    if (flags_.metrics.empty() && flags_.fetch_npz.empty()) return absl::OkStatus();
    StepResult copy;
    copy.step = result.step;
    copy.samples = result.samples;
    copy.ms = result.ms;
    for (size_t i = 0; i < num_metrics_; ++i) {
      WEFT_RETURN_IF_ERROR(copy.values.emplace_back().CopyFrom(result.values[i]));
    }
    return queue_.Post(std::move(copy));
  }

  void AddCounts(const std::map<std::string, Tensor>& variables) {
    std::lock_guard<std::mutex> lock(mutex_);
    evaluation_.AddCounts(variables);
  }

  absl::Status Finish() {
    progress_.Clear();
    if (!flags_.metrics.empty()) WEFT_RETURN_IF_ERROR(lines_.Finish());
    return fetched_.has_value() ? fetched_->Finish() : absl::OkStatus();
  }
  void ClearProgress() { progress_.Clear(); }

  const Evaluation& evaluation() const { return evaluation_; }

 private:
  static std::vector<std::string> NamesOf(const Metrics& metrics) {
    std::vector<std::string> names;
    for (const Metric& metric : metrics.all) names.push_back(metric.name);
    return names;
  }

  absl::Status Write(const StepResult& result) {
    if (fetched_.has_value()) WEFT_RETURN_IF_ERROR(WriteFetched(result, &*fetched_));
    if (flags_.metrics.empty()) return absl::OkStatus();
    if (!IsCsv(flags_.metrics)) return lines_.Write(MetricsLine(result));
    numbers_.Add(result);
    WEFT_ASSIGN_OR_RETURN(const std::string line, csv_.Add(result.step, numbers_.Numbers()));
    return lines_.Write(line);
  }

  const EvalFlags& flags_;
  std::mutex mutex_;
  Evaluation evaluation_;
  ResultQueue queue_;
  LineFile lines_;
  StepLines numbers_{1};
  CsvLines csv_;
  absl::optional<NpzWriter> fetched_;
  const size_t num_metrics_;
  const int64_t batches_;
  ProgressLine progress_;
};

void PrintTotals(const EvalFlags& flags, const Evaluation& evaluation, double seconds) {
  std::vector<std::string> others;
  for (const Evaluation::Total& total : evaluation.Totals()) {
    if (total.metric.kind == MetricKind::kOther) others.push_back(total.metric.name);
  }
  if (!others.empty()) {
    PrintNote(absl::StrCat(
        absl::StrJoin(others, ", "),
        " of all batches together may be another number: it is no mean or sum over the samples"));
  }
  if (flags.format == "json") {
    std::fputs(TotalsJson(evaluation).c_str(), stdout);
    return;
  }
  for (const Evaluation::Total& total : evaluation.Totals()) {
    std::fputs(TotalLine(total).c_str(), stdout);
  }
  std::fputs(absl::StrFormat("%d batch%s, %d sample%s, %d rank%s, %.3f s\n", evaluation.batches(),
                             evaluation.batches() == 1 ? "" : "es", evaluation.samples(),
                             evaluation.samples() == 1 ? "" : "s", flags.ranks,
                             flags.ranks == 1 ? "" : "s", seconds)
                 .c_str(),
             stdout);
}

// Names and steps as those of the validations in weft run.
absl::Status WriteTotals(const std::string& folder, int64_t step, const Evaluation& evaluation) {
  std::vector<std::pair<std::string, double>> scalars;
  for (const Evaluation::Total& total : evaluation.Totals()) {
    scalars.emplace_back(absl::StrCat("valid/", total.metric.name), total.value);
  }
  WEFT_ASSIGN_OR_RETURN(EventFile events, EventFile::Create(folder, step, "weft_eval"));
  return events.Write(step, SecondsSince1970(), scalars);
}

absl::Status Evaluate(const EvalFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<Job> job, FindJob(std::getenv));
  if (job.has_value() && job->num_processes > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a launcher has started ", job->num_processes,
        " processes, each of which would evaluate all batches; start one, with --ranks"));
  }
  WEFT_RETURN_IF_ERROR(CheckOutputs(
      {flags.main, flags.startup, flags.params, flags.params_names, flags.checkpoint, flags.feeds},
      {flags.metrics, flags.fetch_npz}));
  WEFT_ASSIGN_OR_RETURN(const TestProgram test, ReadTestProgram(flags, {}));
  int64_t last_step = 0;
  WEFT_ASSIGN_OR_RETURN(const ParamsInput params, ReadValues(flags, test, &last_step));
  Collector collector(flags, test);
  WEFT_RETURN_IF_ERROR(collector.Open());
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = RunTestProgram(
      flags, test, params.params,
      [&collector](const StepResult& result) { return collector.Add(result); },
      [&collector](const auto& variables) { collector.AddCounts(variables); });
  collector.ClearProgress();
  if (!status.ok()) {
    // Errors about feeds name their file.
    return absl::StartsWith(status.message(), flags.feeds) ? status : Annotate(flags.main, status);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  WEFT_RETURN_IF_ERROR(collector.Finish());
  PrintTotals(flags, collector.evaluation(), seconds.count());
  return flags.tensorboard.empty()
             ? absl::OkStatus()
             : WriteTotals(flags.tensorboard, last_step, collector.evaluation());
}

// Checks combinations of flags.
void CheckFlags(const EvalFlags& flags) {
  CheckStandardInput({{"MAIN", flags.main},
                      {"--startup", flags.startup},
                      {"--params", flags.params},
                      {"--params_names", flags.params_names},
                      {"--checkpoint", flags.checkpoint},
                      {"--feeds", flags.feeds}});
  Require(!HasNames(flags.params) || flags.params_names.empty(), "--params_names",
          "only a save_combine file needs it");
}

void AddInputFlags(CLI::App& app, EvalFlags& flags) {
  AddOption(app, "main", "MAIN", flags.main, "The test program; - is standard input")->required();
  AddOption(app, "--startup", "FILE", flags.startup, "The startup program, run once on every rank");
  auto* params =
      AddOption(app, "--params", "FILE", flags.params,
                "Parameters, as for weft run; arrays of other names are counted and ignored");
  AddOption(app, "--params_names", "FILE", flags.params_names,
            "Names of the tensors in a save_combine stream, in order")
      ->needs(params);
  AddOption(app, "--checkpoint", "FILE", flags.checkpoint,
            "Parameters of a checkpoint of weft run, instead of --params")
      ->excludes(params);
  app.add_flag("--ema", flags.ema,
               "Evaluate with the moving averages of the parameters that Paddle's "
               "ExponentialMovingAverage has made in training");
  AddOption(app, "--feeds", "FILE.npz", flags.feeds,
            "Arrays named <batch>/<variable>; variables that the program does not have are ignored")
      ->required();
  AddOption(app, "--feed_layout", "x=axis:1,...", flags.feed_layout,
            "Which axis of feed variables is the batch; whole: they have no samples; default: as "
            "the file says, else as their declarations suggest");
}

void AddCourseFlags(CLI::App& app, EvalFlags& flags) {
  RunOptions& run = flags.run;
  AddOption(app, "--fetch", "A,B", run.fetch,
            "Comma-separated variables to evaluate; default: losses, and numbers that no op reads")
      ->delimiter(',')
      ->allow_extra_args(false);
  AddInteger(app, "--batches", flags.batches, 1, std::numeric_limits<int64_t>::max(),
             "Evaluate the first N batches; default: all");
  AddInteger(app, "--ranks", flags.ranks, 1, kMaxRanks,
             "Ranks; each evaluates a share of the batches")
      ->capture_default_str();
  AddInteger(app, "--threads", run.threads, 1, kMaxThreads, "Compute threads per rank")
      ->capture_default_str();
  AddInteger(app, "--seed", run.seed, 0, std::numeric_limits<uint64_t>::max(),
             "Random seed for ops whose own seed is 0")
      ->capture_default_str();
  app.add_flag("--paddle_cpu_quirks", run.paddle_cpu_quirks,
               "Reproduce known bugs of Paddle's CPU kernels");
  app.add_flag("--check_nan", run.check_nan, "Stop at the first op that produces a NaN or Inf");
  AddOption(app, "--metrics", "FILE", flags.metrics,
            "Write a line for each batch: FILE.csv has comma-separated values, another name JSON "
            "objects");
  AddOption(app, "--tensorboard", "DIR", flags.tensorboard,
            "Write the totals to a file in this folder, for TensorBoard, at the last step of the "
            "checkpoint, or at step 0");
  AddOption(app, "--fetch_npz", "FILE.npz", flags.fetch_npz,
            "Write the fetched arrays in full, named <batch>/0/<variable>");
  app.add_option("--format", flags.format, "How to print the totals")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

}  // namespace

void AddEvalFlags(CLI::App& app, EvalFlags& flags) {
  AddInputFlags(app, flags);
  AddCourseFlags(app, flags);
}

Subcommand AddEval(CLI::App* weft) {
  CLI::App* app =
      weft->add_subcommand("eval", "Evaluates a test program on all batches, and prints metrics.");
  auto flags = std::make_shared<EvalFlags>();
  AddEvalFlags(*app, *flags);
  app->callback([flags] { CheckFlags(*flags); });
  app->footer("Example:\n  weft eval test.pb --params trained.npz --feeds feeds.npz --ranks 2");
  return {app, [flags] { return FinishCommand(kCommand, Evaluate(*flags)); }};
}

}  // namespace weft
