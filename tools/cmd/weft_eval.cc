#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/values/layout_guess.h"
#include "ops/kernel.h"
#include "tools/cmd/evaluation.h"
#include "tools/cmd/weft_commands.h"
#include "tools/cmd/weft_run_files.h"
#include "tools/files/params_input.h"
#include "tools/files/setting_file.h"
#include "tools/inspect/json_number.h"
#include "tools/inspect/run_report.h"
#include "tools/job/job_environment.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft eval";

struct Flags {
  std::string main, startup;
  std::string params, params_names, checkpoint;
  std::string feeds, feed_layout;
  std::string metrics, fetch_npz;
  std::string format = "text";
  absl::optional<int64_t> batches;
  int ranks = 1;
  RunOptions run;  // of each rank, which runs by itself
};

struct Inputs {
  absl::optional<Program> main, startup;
  ParamsInput params;
  FeedSource feeds;
  int64_t batches = 0;
  Metrics metrics;
};

// The values of a checkpoint: those of rank 0 where ranks differ.
absl::StatusOr<std::map<std::string, Tensor>> ValuesOfCheckpoint(const std::string& path,
                                                                 const Program& main) {
  WEFT_ASSIGN_OR_RETURN(Checkpoint checkpoint, ReadCheckpoint(path));
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

// Others would keep the random values of the startup program.
absl::Status CheckHasAllParameters(const ParamsInput& input, const Program& main) {
  std::vector<absl::string_view> missing;
  size_t parameters = 0;
  for (VarId id : main.block(0).vars()) {
    const Var var = main.var(id);
    if (!var.is_parameter()) continue;
    ++parameters;
    if (input.params.count(std::string(var.name())) == 0) missing.push_back(var.name());
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected all parameters of the program, found ",
                                                 parameters - missing.size(), " of ", parameters,
                                                 "; the first that is missing is ", missing[0]));
}

absl::StatusOr<ParamsInput> ReadValues(const Flags& flags, const Program& main) {
  if (flags.params.empty() && flags.checkpoint.empty()) return ParamsInput();
  ParamsInput input;
  if (!flags.params.empty()) {
    WEFT_ASSIGN_OR_RETURN(input, ReadParams(flags.params, flags.params_names, {&main}));
  } else {
    WEFT_ASSIGN_OR_RETURN(auto values, ValuesOfCheckpoint(flags.checkpoint, main));
    absl::StatusOr<ParamsInput> split = SplitParams(std::move(values), {&main});
    WEFT_RETURN_IF_ERROR(Annotate(flags.checkpoint, split.status()));
    input = *std::move(split);
  }
  WEFT_RETURN_IF_ERROR(
      Annotate(absl::StrCat(flags.params, flags.checkpoint), CheckHasAllParameters(input, main)));
  return input;
}

// Without the variables that the program does not have: training reads more data than tests.
FeedSource FeedsOf(const Program& main, FeedSource feeds) {
  std::vector<size_t> kept;
  std::vector<std::string> names, left;
  for (size_t i = 0; i < feeds.variables.size(); ++i) {
    const bool has = main.block(0).FindVar(feeds.variables[i]).valid();
    (has ? names : left).push_back(feeds.variables[i]);
    if (has) kept.push_back(i);
  }
  if (left.empty()) return feeds;
  PrintNote(absl::StrCat("the program has no variable ", absl::StrJoin(left, ", "),
                         ", which the feeds have"));
  feeds.variables = names;
  feeds.types = [types = std::move(feeds.types),
                 kept](int64_t step) -> absl::StatusOr<std::vector<TensorType>> {
    WEFT_ASSIGN_OR_RETURN(const std::vector<TensorType> all, types(step));
    std::vector<TensorType> own;
    for (size_t i : kept) own.push_back(all[i]);
    return own;
  };
  feeds.read = [read = std::move(feeds.read),
                kept](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> all, read(step));
    std::vector<Tensor> own;
    for (size_t i : kept) own.push_back(std::move(all[i]));
    return own;
  };
  return feeds;
}

// Metrics count the batches of this evaluation alone.
absl::Status StartCountsAtZero(const Program& main, Inputs* inputs) {
  for (const std::string& name : inputs->metrics.counts) {
    const absl::optional<TensorType> type = DeclaredType(main.var(main.block(0).FindVar(name)));
    if (!type.has_value() || NumElements(type->dims) < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable ", name, ": expected a tensor of fixed dimensions"));
    }
    Tensor& zeros = inputs->params.params[name];
    zeros.Resize(type->dtype, type->dims);
    std::fill_n(static_cast<char*>(zeros.raw()), zeros.bytes(), 0);
  }
  return absl::OkStatus();
}

// Ranks evaluate different batches: a state that one batch leaves to the next makes the result
// depend on their number.
absl::Status CheckStates(const Flags& flags, const Metrics& metrics) {
  if (metrics.states.empty()) return absl::OkStatus();
  const std::string names = absl::StrJoin(metrics.states, ", ");
  if (flags.ranks > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a batch leaves values to the next in ", names,
        ", so ranks that evaluate different batches would find something else; use --ranks 1"));
  }
  PrintWarning(kCommand, absl::StrCat(flags.main, ": a batch leaves values to the next in ", names,
                                      "; is this a test program (docs/running.md#evaluating)?"));
  return absl::OkStatus();
}

absl::Status CheckProgram(const Flags& flags, const Program& main) {
  if (flags.ranks == 1 || !Communicates(main)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the program communicates, but ranks evaluate different batches by themselves; evaluate the "
      "program before its rewrite, or use --ranks 1");
}

absl::Status FindMetricsOf(const Flags& flags, const FeedLayouts& of_file, Inputs* inputs) {
  const Program& main = *inputs->main;
  WEFT_ASSIGN_OR_RETURN(const FeedLayouts given, ParseFeedLayouts(flags.feed_layout));
  WEFT_ASSIGN_OR_RETURN(inputs->feeds.layouts, FeedLayoutsOf({&main}, given, of_file));
  WEFT_ASSIGN_OR_RETURN(inputs->metrics, FindMetrics(main, flags.run.fetch, inputs->feeds.layouts));
  WEFT_RETURN_IF_ERROR(CheckStates(flags, inputs->metrics));
  return StartCountsAtZero(main, inputs);
}

absl::StatusOr<Inputs> ReadInputs(const Flags& flags) {
  Inputs inputs;
  WEFT_ASSIGN_OR_RETURN(inputs.main, ReadProgramOrExplain(flags.main));
  const Program& main = *inputs.main;
  WEFT_RETURN_IF_ERROR(Annotate(flags.main, CheckProgram(flags, main)));
  WEFT_ASSIGN_OR_RETURN(inputs.startup, ReadProgramIfGiven(flags.startup));
  WEFT_ASSIGN_OR_RETURN(inputs.params, ReadValues(flags, main));
  const std::string others = OthersText(inputs.params);
  if (!others.empty()) PrintNote(absl::StrCat(flags.params, flags.checkpoint, ": ", others));
  WEFT_ASSIGN_OR_RETURN(FeedSource feeds, FeedsFromFile(flags.feeds));
  inputs.feeds = FeedsOf(main, std::move(feeds));
  inputs.batches = std::min(inputs.feeds.num_steps, flags.batches.value_or(inputs.feeds.num_steps));
  WEFT_ASSIGN_OR_RETURN(const Setting setting, SettingOfFile(flags.main, main));
  WEFT_RETURN_IF_ERROR(Annotate(flags.main, FindMetricsOf(flags, setting.feeds, &inputs)));
  return inputs;
}

// Receives the values of batches from all ranks. Writes files in the order of the batches: those of
// later ranks wait in memory.
class Collector {
 public:
  Collector(const Flags& flags, const Inputs& inputs)
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
    return flags_.metrics.empty() ? absl::OkStatus() : lines_.Write(MetricsLine(result));
  }

  const Flags& flags_;
  std::mutex mutex_;
  Evaluation evaluation_;
  ResultQueue queue_;
  LineFile lines_;
  absl::optional<NpzWriter> fetched_;
  const size_t num_metrics_;
  const int64_t batches_;
  ProgressLine progress_;
};

// Evaluates the batches from `begin` to `end`, as one rank by itself.
absl::Status EvaluatePart(const Flags& flags, const Inputs& read, int64_t begin, int64_t end,
                          const std::atomic<bool>& failed, Collector* collector) {
  RunInputs inputs;
  inputs.main = &*read.main;
  inputs.startup = read.startup.has_value() ? &*read.startup : nullptr;
  inputs.params = &read.params.params;
  inputs.feeds = read.feeds;
  inputs.on_result = [collector](const StepResult& result) { return collector->Add(result); };
  RunOptions options = flags.run;
  options.nranks = 1;
  options.kernels = &CpuKernels();
  options.begin_step = begin;
  options.steps = end - begin;
  options.fetch.clear();
  for (const Metric& metric : read.metrics.all) options.fetch.push_back(metric.name);
  options.fetch.insert(options.fetch.end(), read.metrics.batch_counts.begin(),
                       read.metrics.batch_counts.end());
  options.stop_requested = [&failed] { return failed.load(); };
  options.warn = [](const std::string& message) { PrintWarning(kCommand, message); };
  WEFT_ASSIGN_OR_RETURN(const RunResult result, RunProgram(inputs, options));
  collector->AddCounts(result.persistables);
  return absl::OkStatus();
}

// Each rank is a thread with its share of the batches. Returns the error of the first rank that has
// one.
absl::Status EvaluateAll(const Flags& flags, const Inputs& inputs, Collector* collector) {
  const int64_t ranks = std::max<int64_t>(1, std::min<int64_t>(flags.ranks, inputs.batches));
  std::vector<absl::Status> statuses(ranks);
  std::atomic<bool> failed = false;
  const auto evaluate = [&](int64_t rank) {
    const int64_t begin = inputs.batches * rank / ranks, end = inputs.batches * (rank + 1) / ranks;
    statuses[rank] = EvaluatePart(flags, inputs, begin, end, failed, collector);
    if (!statuses[rank].ok()) failed = true;
  };
  std::vector<std::thread> threads;
  for (int64_t rank = 1; rank < ranks; ++rank) threads.emplace_back(evaluate, rank);
  evaluate(0);
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) WEFT_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

std::string TotalsJson(const Evaluation& evaluation) {
  nlohmann::ordered_json metrics = nlohmann::ordered_json::object();
  for (const Evaluation::Total& total : evaluation.Totals()) {
    metrics[total.metric.name] = NumberToJson(total.value);
  }
  return JsonText({{"batches", evaluation.batches()},
                   {"samples", evaluation.samples()},
                   {"metrics", std::move(metrics)}}) +
         "\n";
}

void PrintTotals(const Flags& flags, const Evaluation& evaluation, double seconds) {
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

absl::Status Evaluate(const Flags& flags) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<Job> job, FindJob(std::getenv));
  if (job.has_value() && job->num_processes > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a launcher has started ", job->num_processes,
        " processes, each of which would evaluate all batches; start one, with --ranks"));
  }
  WEFT_RETURN_IF_ERROR(CheckOutputs(
      {flags.main, flags.startup, flags.params, flags.params_names, flags.checkpoint, flags.feeds},
      {flags.metrics, flags.fetch_npz}));
  WEFT_ASSIGN_OR_RETURN(const Inputs inputs, ReadInputs(flags));
  Collector collector(flags, inputs);
  WEFT_RETURN_IF_ERROR(collector.Open());
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = EvaluateAll(flags, inputs, &collector);
  collector.ClearProgress();
  if (!status.ok()) {
    // Errors about feeds name their file.
    return absl::StartsWith(status.message(), flags.feeds) ? status : Annotate(flags.main, status);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  WEFT_RETURN_IF_ERROR(collector.Finish());
  PrintTotals(flags, collector.evaluation(), seconds.count());
  return absl::OkStatus();
}

// Checks combinations of flags.
void CheckFlags(const Flags& flags) {
  CheckStandardInput({{"MAIN", flags.main},
                      {"--startup", flags.startup},
                      {"--params", flags.params},
                      {"--params_names", flags.params_names},
                      {"--checkpoint", flags.checkpoint},
                      {"--feeds", flags.feeds}});
  Require(!HasNames(flags.params) || flags.params_names.empty(), "--params_names",
          "only a save_combine file needs it");
}

void AddInputFlags(CLI::App& app, Flags& flags) {
  AddOption(app, "main", "MAIN", flags.main, "The test program; - is standard input")->required();
  AddOption(app, "--startup", "FILE", flags.startup, "The startup program, run once on every rank");
  auto* params = AddOption(app, "--params", "FILE", flags.params,
                           "Parameters, as for weft run; arrays of other names are counted and "
                           "left");
  AddOption(app, "--params_names", "FILE", flags.params_names,
            "Names of the tensors in a save_combine stream, in order")
      ->needs(params);
  AddOption(app, "--checkpoint", "FILE", flags.checkpoint,
            "Parameters of a checkpoint of weft run, instead of --params")
      ->excludes(params);
  AddOption(app, "--feeds", "FILE.npz", flags.feeds,
            "Arrays named <batch>/<variable>; variables that the program does not have are left")
      ->required();
  AddOption(app, "--feed_layout", "x=axis:1,...", flags.feed_layout,
            "Which axis of data variables is the batch, or whole: no samples; default: as the "
            "file or their declarations suggest");
}

void AddRunFlags(CLI::App& app, Flags& flags) {
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
  AddOption(app, "--metrics", "FILE.jsonl", flags.metrics,
            "Write one JSON object per line for each batch");
  AddOption(app, "--fetch_npz", "FILE.npz", flags.fetch_npz,
            "Write the fetched arrays in full, named <batch>/0/<variable>");
  app.add_option("--format", flags.format, "How to print the totals")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

}  // namespace

Subcommand AddEval(CLI::App* weft) {
  CLI::App* app =
      weft->add_subcommand("eval", "Evaluates a test program on all batches, and prints metrics.");
  auto flags = std::make_shared<Flags>();
  AddInputFlags(*app, *flags);
  AddRunFlags(*app, *flags);
  app->callback([flags] { CheckFlags(*flags); });
  app->footer("Example:\n  weft eval test.pb --params trained.npz --feeds feeds.npz --ranks 2");
  return {app, [flags] { return FinishCommand(kCommand, Evaluate(*flags)); }};
}

}  // namespace weft
