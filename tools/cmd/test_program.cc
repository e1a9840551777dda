#include "tools/cmd/test_program.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/run/feed_sources.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/values/layout_guess.h"
#include "ops/kernel.h"
#include "ops/schema/tensor_type.h"
#include "proto/formats/program_file.h"
#include "tools/cmd/weft_commands.h"
#include "tools/files/setting_file.h"
#include "tools/inspect/json_number.h"
#include "tools/inspect/run_report.h"

namespace weft {
namespace {

void Note(const TestFlags& flags, std::string text) {
  flags.say({Severity::kNote, std::move(text)});
}

void Warn(const TestFlags& flags, std::string text) {
  flags.say({Severity::kWarning, std::move(text), /*names_command=*/true});
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

// Without the variables that the program does not have: training reads more data than tests.
FeedSource FeedsOf(const TestFlags& flags, const Program& main, FeedSource feeds) {
  std::vector<size_t> kept;
  std::vector<std::string> names, left;
  for (size_t i = 0; i < feeds.variables.size(); ++i) {
    const bool has = main.block(0).FindVar(feeds.variables[i]).valid();
    (has ? names : left).push_back(feeds.variables[i]);
    if (has) kept.push_back(i);
  }
  if (left.empty()) return feeds;
  Note(flags, absl::StrCat("the program has no variable ", absl::StrJoin(left, ", "),
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
absl::Status StartCountsAtZero(const Program& main, const Metrics& metrics, ParamsInput* input) {
  for (const std::string& name : metrics.counts) {
    const absl::optional<TensorType> type = DeclaredType(main.var(main.block(0).FindVar(name)));
    if (!type.has_value() || NumElements(type->dims) < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable ", name, ": expected a tensor of fixed dimensions"));
    }
    Tensor& zeros = input->params[name];
    zeros.Resize(type->dtype, type->dims);
    std::fill_n(static_cast<char*>(zeros.raw()), zeros.bytes(), 0);
  }
  return absl::OkStatus();
}

// Ranks evaluate different batches: a state that one batch leaves to the next makes the result
// depend on their number.
absl::Status CheckStates(const TestFlags& flags, const Metrics& metrics) {
  if (metrics.states.empty()) return absl::OkStatus();
  const std::string names = absl::StrJoin(metrics.states, ", ");
  if (flags.ranks > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a batch leaves values to the next in ", names,
        ", so ranks that evaluate different batches would find something else; use --ranks 1"));
  }
  Warn(flags, absl::StrCat(flags.main, ": a batch leaves values to the next in ", names,
                           "; is this a test program (docs/running.md#evaluating)?"));
  return absl::OkStatus();
}

absl::Status CheckProgram(const TestFlags& flags, const Program& main) {
  if (flags.ranks == 1 || !Communicates(main)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the program communicates, but ranks evaluate different batches by themselves; evaluate the "
      "program before its rewrite, or use --ranks 1");
}

absl::Status FindMetricsOf(const TestFlags& flags, const FeedLayouts& of_file, TestProgram* test) {
  const Program& main = *test->main;
  WEFT_ASSIGN_OR_RETURN(const FeedLayouts given, ParseFeedLayouts(flags.feed_layout));
  WEFT_ASSIGN_OR_RETURN(test->feeds.layouts, FeedLayoutsOf({&main}, given, of_file));
  WEFT_ASSIGN_OR_RETURN(test->metrics, FindMetrics(main, flags.run.fetch, test->feeds.layouts));
  return CheckStates(flags, test->metrics);
}

// The parameter that an average is of: the longest name before "_ema_<number>". Empty: none.
std::string AveragedParameter(const Program& program, absl::string_view average) {
  absl::string_view name = average;
  while (!name.empty() && absl::ascii_isdigit(name.back())) name.remove_suffix(1);
  if (name.size() == average.size() || !absl::ConsumeSuffix(&name, "_ema_")) return "";
  std::string longest;
  for (VarId id : program.block(0).vars()) {
    const Var var = program.var(id);
    const bool is_its = var.is_parameter() && absl::EndsWith(name, var.name());
    if (is_its && var.name().size() > longest.size()) longest = std::string(var.name());
  }
  return longest;
}

absl::StatusOr<double> NumberOf(const std::map<std::string, Tensor>& values,
                                const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end() || found->second.size() != 1) {
    return absl::NotFoundError(absl::StrCat(
        "variable ", name, ": expected the number by which moving averages are corrected, found ",
        found == values.end() ? "none"
                              : ToString(TensorType{found->second.dtype(), found->second.dims()})));
  }
  return MeanOf(found->second);
}

// Evaluates the batches from `begin` to `end`, as one rank by itself.
absl::Status EvaluatePart(
    const TestFlags& flags, const TestProgram& read, int64_t begin, int64_t end,
    const std::map<std::string, Tensor>& params, const std::atomic<bool>& failed,
    const std::function<absl::Status(const StepResult&)>& on_batch,
    const std::function<void(const std::map<std::string, Tensor>&)>& on_counts) {
  RunInputs inputs;
  inputs.main = &*read.main;
  inputs.startup = read.startup.has_value() ? &*read.startup : nullptr;
  inputs.params = &params;
  inputs.feeds = read.feeds;
  inputs.on_result = on_batch;
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
  options.warn = [&flags](const std::string& message) { Warn(flags, message); };
  WEFT_ASSIGN_OR_RETURN(const RunResult result, RunProgram(inputs, options));
  on_counts(result.persistables);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TestProgram> ReadTestProgram(const TestFlags& flags, TestProgram given) {
  TestProgram test = std::move(given);
  if (!test.main.has_value()) {
    WEFT_ASSIGN_OR_RETURN(test.main, ReadProgramOrExplain(flags.main));
  }
  const Program& main = *test.main;
  WEFT_RETURN_IF_ERROR(Annotate(flags.main, CheckProgram(flags, main)));
  if (!test.startup.has_value()) {
    WEFT_ASSIGN_OR_RETURN(test.startup, ReadProgramIfGiven(flags.startup));
  }
  if (!flags.feeds.empty()) {
    WEFT_ASSIGN_OR_RETURN(FeedSource feeds, FeedsFromFile(flags.feeds));
    test.feeds = FeedsOf(flags, main, std::move(feeds));
    test.batches = std::min(test.feeds.num_steps, flags.batches.value_or(test.feeds.num_steps));
  }
  WEFT_ASSIGN_OR_RETURN(const Setting setting, SettingOfFile(flags.main, main));
  WEFT_RETURN_IF_ERROR(Annotate(flags.main, FindMetricsOf(flags, setting.feeds, &test)));
  return test;
}

absl::Status UseMovingAverages(const Program& program, std::map<std::string, Tensor>* values) {
  std::map<std::string, std::string> averages;  // by parameter
  for (const auto& [name, tensor] : *values) {
    const std::string param = AveragedParameter(program, name);
    if (param.empty()) continue;
    const auto [other, is_first] = averages.emplace(param, name);
    if (!is_first) {
      return absl::InvalidArgumentError(absl::StrCat("parameter ", param,
                                                     ": expected one moving average, found ",
                                                     other->second, " and ", name));
    }
  }
  if (averages.empty()) {
    return absl::NotFoundError(
        "moving averages: expected <parameter>_ema_0 and more, as Paddle's "
        "ExponentialMovingAverage makes them, found none");
  }
  WEFT_ASSIGN_OR_RETURN(const double decay, NumberOf(*values, "scheduled_ema_decay_rate"));
  WEFT_ASSIGN_OR_RETURN(const double steps, NumberOf(*values, "@EMA_STEP_COUNTER@"));
  const float correction =
      steps > 0 ? 1.0F - std::pow(static_cast<float>(decay), static_cast<float>(steps)) : 1.0F;
  for (const auto& [param, name] : averages) {
    const Tensor& average = values->at(name);
    Tensor value;
    if (average.dtype() != DType::kFloat32) {
      return absl::UnimplementedError(
          absl::StrCat("moving average ", name, ": expected fp32, found ",
                       ToString(TensorType{average.dtype(), average.dims()})));
    }
    value.Resize(DType::kFloat32, average.dims());
    for (int64_t i = 0; i < average.size(); ++i) {
      value.data<float>()[i] = average.data<float>()[i] / correction;
    }
    (*values)[param] = std::move(value);
  }
  return absl::OkStatus();
}

absl::StatusOr<ParamsInput> StartParams(const TestFlags& flags, const TestProgram& test) {
  ParamsInput input;
  WEFT_RETURN_IF_ERROR(Annotate(flags.main, StartCountsAtZero(*test.main, test.metrics, &input)));
  return input;
}

absl::StatusOr<ParamsInput> TestParams(const TestFlags& flags, const TestProgram& test,
                                       std::map<std::string, Tensor> values) {
  if (flags.ema) WEFT_RETURN_IF_ERROR(UseMovingAverages(*test.main, &values));
  WEFT_ASSIGN_OR_RETURN(ParamsInput input, SplitParams(std::move(values), {&*test.main}));
  WEFT_RETURN_IF_ERROR(CheckHasAllParameters(input, *test.main));
  WEFT_RETURN_IF_ERROR(Annotate(flags.main, StartCountsAtZero(*test.main, test.metrics, &input)));
  return input;
}

// Each rank is a thread with its share of the batches.
absl::Status RunTestProgram(
    const TestFlags& flags, const TestProgram& test, const std::map<std::string, Tensor>& params,
    const std::function<absl::Status(const StepResult&)>& on_batch,
    const std::function<void(const std::map<std::string, Tensor>&)>& on_counts) {
  const int64_t ranks = std::max<int64_t>(1, std::min<int64_t>(flags.ranks, test.batches));
  std::vector<absl::Status> statuses(ranks);
  std::atomic<bool> failed = false;
  const auto evaluate = [&](int64_t rank) {
    const int64_t begin = test.batches * rank / ranks, end = test.batches * (rank + 1) / ranks;
    statuses[rank] = EvaluatePart(flags, test, begin, end, params, failed, on_batch, on_counts);
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

}  // namespace weft
