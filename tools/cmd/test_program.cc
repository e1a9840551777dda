#include "tools/cmd/test_program.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/plan/run_checks.h"
#include "executor/run/feed_sources.h"
#include "executor/run/shared_states.h"
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
  WEFT_ASSIGN_OR_RETURN(FeedLayouts known, ParseFeedLayouts(flags.layout_of_training));
  known.insert(of_file.begin(), of_file.end());
  WEFT_ASSIGN_OR_RETURN(test->feeds.layouts, FeedLayoutsOf({&main}, given, known));
  WEFT_ASSIGN_OR_RETURN(test->metrics, FindMetrics(main, flags.run.fetch, test->feeds.layouts));
  return CheckStates(flags, test->metrics);
}

constexpr char kEmaDecay[] = "scheduled_ema_decay_rate", kEmaSteps[] = "@EMA_STEP_COUNTER@";

// What stands before "_ema_<number>"; empty: the name is of no average.
absl::string_view AveragedName(absl::string_view average) {
  absl::string_view name = average;
  while (!name.empty() && absl::ascii_isdigit(name.back())) name.remove_suffix(1);
  if (name.size() == average.size() || !absl::ConsumeSuffix(&name, "_ema_")) return "";
  return name;
}

// The moving averages of parameters of the program: parameter -> average. See UseMovingAverages.
absl::StatusOr<std::map<std::string, std::string>> FindAverages(
    const Program& program, const std::map<std::string, Tensor>& values) {
  std::set<std::string> params, known;  // known: what there may be averages of
  for (VarId id : program.block(0).vars()) {
    if (program.var(id).is_parameter()) params.emplace(program.var(id).name());
  }
  known = params;
  std::vector<std::pair<std::string, std::string>> averages;  // with the name that it is of
  for (const auto& [name, tensor] : values) {
    known.insert(name);
    const absl::string_view of = AveragedName(name);
    if (!of.empty()) averages.emplace_back(name, of);
  }
  const auto fits = [&](absl::string_view prefix) {
    return absl::c_all_of(averages, [&](const auto& average) {
      absl::string_view name = average.second;
      return absl::ConsumePrefix(&name, prefix) && known.count(std::string(name)) > 0;
    });
  };
  const bool has_exact = absl::c_any_of(
      averages, [&](const auto& average) { return known.count(average.second) > 0; });
  std::string prefix;
  if (!has_exact && !averages.empty()) {
    const std::string& first = averages[0].second;
    size_t length = 1;
    while (length < first.size() && !fits(first.substr(0, length))) ++length;
    if (length == first.size()) {
      return absl::NotFoundError(absl::StrCat(
          "moving averages: expected <parameter>_ema_0 and more, with the same prefix for all, "
          "found ",
          averages[0].first, averages.size() > 1 ? absl::StrCat(" and ", averages[1].first) : ""));
    }
    prefix = first.substr(0, length);
  }
  std::map<std::string, std::string> found;
  for (const auto& [name, of] : averages) {
    const std::string param = of.substr(prefix.size());
    if (params.count(param) == 0) continue;
    const auto [other, is_first] = found.emplace(param, name);
    if (is_first) continue;
    return absl::InvalidArgumentError(absl::StrCat("parameter ", param,
                                                   ": expected one moving average, found ",
                                                   other->second, " and ", name));
  }
  // Those of a second ExponentialMovingAverage.
  for (const auto& [name, of] : averages) {
    if (known.count(of.substr(prefix.size())) > 0) continue;
    for (const auto& [param, other] : found) {
      if (!absl::EndsWith(of, param)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", param, ": expected one moving average, found ", other, " and ", name));
    }
  }
  if (!found.empty()) return found;
  return absl::NotFoundError(
      "moving averages: expected <parameter>_ema_0 and more, as Paddle's "
      "ExponentialMovingAverage makes them, found none");
}

absl::Status CheckAverage(const std::string& name, const Tensor& average) {
  if (average.dtype() == DType::kFloat32) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("moving average ", name, ": expected fp32, found ",
                   ToString(TensorType{average.dtype(), average.dims()})));
}

absl::Status CheckHasNumber(const std::map<std::string, Tensor>& values, const std::string& name) {
  const auto found = values.find(name);
  if (found != values.end() && found->second.size() == 1) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      "variable ", name, ": expected the number by which moving averages are corrected, found ",
      found == values.end() ? "none"
                            : ToString(TensorType{found->second.dtype(), found->second.dims()})));
}

absl::StatusOr<double> NumberOf(const std::map<std::string, Tensor>& values,
                                const std::string& name) {
  WEFT_RETURN_IF_ERROR(CheckHasNumber(values, name));
  return MeanOf(values.at(name));
}

// What training keeps, by its declarations: tensors without memory. Of a size that the program does
// not say, and of a tensor of which ranks have parts, the type is that of the test program.
absl::StatusOr<std::map<std::string, Tensor>> DeclaredValues(const Program& trains,
                                                             const Program& test) {
  std::map<std::string, Tensor> values;
  static char nothing[64];
  const auto add = [&values](const std::string& name, const absl::optional<TensorType>& type) {
    if (!type.has_value() || NumElements(type->dims) < 0) return false;
    values[name] = Tensor::Wrap(type->dtype, type->dims, nullptr, nothing);
    return true;
  };
  const auto add_as_in_test = [&](const std::string& name) {
    const VarId var = test.block(0).FindVar(name);
    if (var.valid()) add(name, DeclaredType(test.var(var)));
  };
  for (VarId id : trains.block(0).vars()) {
    const Var var = trains.var(id);
    const std::string name(var.name());
    if (var.persistable() && !add(name, DeclaredType(var))) add_as_in_test(name);
  }
  WEFT_ASSIGN_OR_RETURN(const SharedStates shares, SharedStates::Of(trains));
  for (const std::string& name : shares.whole()) add_as_in_test(name);
  return values;
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
  options.check_losses = false;
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
    WEFT_ASSIGN_OR_RETURN(test.startup, ReadStartupIfGiven(flags.startup));
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
  WEFT_ASSIGN_OR_RETURN(const auto averages, FindAverages(program, *values));
  WEFT_ASSIGN_OR_RETURN(const double decay, NumberOf(*values, kEmaDecay));
  WEFT_ASSIGN_OR_RETURN(const double steps, NumberOf(*values, kEmaSteps));
  const float correction =
      steps > 0 ? 1.0F - std::pow(static_cast<float>(decay), static_cast<float>(steps)) : 1.0F;
  for (const auto& [param, name] : averages) {
    const Tensor& average = values->at(name);
    Tensor value;
    WEFT_RETURN_IF_ERROR(CheckAverage(name, average));
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

absl::Status CheckTestParams(const TestFlags& flags, const TestProgram& test,
                             const Program& trains) {
  WEFT_ASSIGN_OR_RETURN(auto values, DeclaredValues(trains, *test.main));
  if (flags.ema) {
    WEFT_ASSIGN_OR_RETURN(const auto averages, FindAverages(*test.main, values));
    for (const char* name : {kEmaDecay, kEmaSteps}) {
      WEFT_RETURN_IF_ERROR(CheckHasNumber(values, name));
    }
    for (const auto& [param, name] : averages) {
      WEFT_RETURN_IF_ERROR(CheckAverage(name, values.at(name)));
      values[param] = values.at(name);
    }
  }
  WEFT_ASSIGN_OR_RETURN(const ParamsInput input, SplitParams(std::move(values), {&*test.main}));
  for (const auto& [name, tensor] : input.params) {
    WEFT_RETURN_IF_ERROR(CheckParam(*test.main, name, {tensor.dtype(), tensor.dims()}));
  }
  return CheckHasAllParameters(input, *test.main);
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
