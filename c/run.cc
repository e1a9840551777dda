// weft_run_*.
#include <limits>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "c/handles.h"
#include "c/weft.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"
#include "tools/cmd/evaluation.h"
#include "tools/cmd/run_session.h"
#include "tools/cmd/test_program.h"
#include "tools/cmd/validation.h"
#include "tools/cmd/weft_eval_flags.h"
#include "tools/cmd/weft_run_flags.h"
#include "tools/inspect/run_report.h"

struct weft_arrays {
  // Shapes are in the tensors, which do not move.
  std::vector<std::pair<std::string, weft::Tensor>> tensors;
};

struct weft_run {
  // Of a test program.
  struct Test {
    weft::EvalFlags flags;
    std::string startup;  // how messages name it; empty: there is none
    weft::TestProgram program;
    std::set<std::string> begun_with;  // the values that the session was given
    absl::optional<weft::Evaluation> evaluation;
  };
  std::unique_ptr<weft::RunSession> session;
  absl::optional<Test> test;
  absl::Span<const weft::StepResult> results;  // of the last step; empty if it has failed
  weft::c::Messages messages;
  std::vector<weft::Said> said;    // before the session began
  std::vector<std::string> names;  // of the last batch
};

namespace weft::c {
namespace {

weft_array ArrayOf(const Tensor& tensor) {
  return {static_cast<weft_dtype>(tensor.dtype()), tensor.rank(), tensor.dims().data(),
          tensor.raw()};
}

constexpr int kMaxDims = 64;  // as many as NumPy has at most

// A tensor over the memory of the caller.
absl::StatusOr<Tensor> TensorOf(const char* name, const weft_array& array) {
  const absl::optional<DType> dtype = DTypeFromProto(array.dtype);
  if (!dtype.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected an element type, found number ", array.dtype));
  }
  if (array.num_dims < 0 || array.num_dims > kMaxDims) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected 0 to ", kMaxDims, " dimensions, found ", array.num_dims));
  }
  if (array.dims == nullptr && array.num_dims > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected ", array.num_dims, " dimensions, found NULL"));
  }
  const Dims dims(array.dims, array.dims + array.num_dims);
  for (const int64_t dim : dims) {
    if (dim >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected dimensions of 0 or more, found ", DimsToString(dims)));
  }
  const int64_t size = NumElements(dims);
  if (size > std::numeric_limits<int64_t>::max() / static_cast<int64_t>(SizeOf(*dtype))) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected an array in memory, found dimensions ", DimsToString(dims)));
  }
  // An array without elements may be nowhere, and counts as allocated.
  static char nothing[64];
  void* const data = array.data != nullptr ? const_cast<void*>(array.data) : nothing;
  if (array.data == nullptr && size > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected data of dimensions ", DimsToString(dims), ", found NULL"));
  }
  return Tensor::Wrap(*dtype, dims, nullptr, data);
}

absl::StatusOr<RunFlags> ParseRun(const weft_options* options, const weft_program& main,
                                  const weft_program* startup, bool has_params) {
  CLI::App app;
  RunFlags flags;
  AddRunFlags(app, flags);
  flags.by_steps = true;
  app.callback([&] { CheckRunFlags(app, flags); });
  std::vector<std::string> more;
  if (startup != nullptr) more.emplace_back("--startup=startup");
  if (has_params) more.emplace_back("--params=params");
  more.insert(more.end(), {"--", "main"});
  WEFT_RETURN_IF_ERROR(Parse(app, "run", options, std::move(more)));
  flags.main = NameOf(main, "main");
  if (startup != nullptr) flags.startup = NameOf(*startup, "startup");
  return flags;
}

// Copies.
absl::StatusOr<std::map<std::string, Tensor>> TensorsOf(absl::Span<const char* const> names,
                                                        absl::Span<const weft_array> arrays) {
  std::map<std::string, Tensor> tensors;
  for (size_t i = 0; i < arrays.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const Tensor tensor, TensorOf(names[i], arrays[i]));
    tensors[names[i]] = tensor.Clone();
  }
  return tensors;
}

absl::StatusOr<ParamsInput> StartOf(const weft_run::Test& test, absl::Span<const char* const> names,
                                    absl::Span<const weft_array> params) {
  if (params.empty()) return StartParams(test.flags, test.program);
  WEFT_ASSIGN_OR_RETURN(auto tensors, TensorsOf(names, params));
  return TestParams(test.flags, test.program, std::move(tensors));
}

// A session of the test program that begins with the values.
absl::StatusOr<std::unique_ptr<RunSession>> NewSession(weft_run::Test& test, ParamsInput params,
                                                       bool are_given) {
  RunFlags flags;
  flags.main = test.flags.main;
  flags.startup = test.startup;
  if (are_given) flags.params = "params";
  flags.feed_layout = test.flags.feed_layout;
  flags.run = test.flags.run;
  flags.run.check_losses = false;
  flags.run.fetch.clear();
  for (const Metric& metric : test.program.metrics.all) flags.run.fetch.push_back(metric.name);
  const std::vector<std::string>& counts = test.program.metrics.batch_counts;
  flags.run.fetch.insert(flags.run.fetch.end(), counts.begin(), counts.end());
  test.begun_with.clear();
  for (const auto& [name, tensor] : params.params) test.begun_with.insert(name);
  RunFiles given;
  given.main = test.program.main;
  given.startup = test.program.startup;
  given.params = std::move(params);
  given.params->others.clear();
  return RunSession::Create(std::move(flags), std::move(given));
}

// Whether values of these names replace all that the session began with, and what its batches have
// left.
bool ReplacesAll(const weft_run::Test& test, const ParamsInput& params) {
  const auto has = [&](const std::string& name) { return params.params.count(name) > 0; };
  return params.params.size() == test.begun_with.size() && absl::c_all_of(test.begun_with, has) &&
         absl::c_all_of(test.program.metrics.states, has);
}

absl::Status NewEvaluation(const weft_options* options, const weft_program& program,
                           const weft_program* startup, absl::Span<const char* const> names,
                           absl::Span<const weft_array> params, weft_run** run) {
  auto made = std::make_unique<weft_run>();
  weft_run::Test& test = made->test.emplace();
  CLI::App app;
  AddEvalFlags(app, test.flags);
  WEFT_RETURN_IF_ERROR(Parse(app, "eval", options, {"--feeds=feeds", "--", "main"}));
  test.flags.main = NameOf(program, "test");
  test.flags.feeds.clear();
  std::vector<Said> said;
  test.flags.say = [&said](const Said& one) { said.push_back(one); };
  test.program.main = program.program;
  WEFT_ASSIGN_OR_RETURN(test.program.startup, StartupIfGiven(startup, "startup"));
  if (startup != nullptr) test.startup = NameOf(*startup, "startup");
  WEFT_ASSIGN_OR_RETURN(test.program, ReadTestProgram(test.flags, std::move(test.program)));
  test.flags.say = [](const Said&) {};
  test.evaluation.emplace(test.program.metrics);

  WEFT_ASSIGN_OR_RETURN(ParamsInput start, StartOf(test, names, params));
  WEFT_ASSIGN_OR_RETURN(made->session, NewSession(test, std::move(start), !params.empty()));
  made->said = std::move(said);
  *run = made.release();
  return absl::OkStatus();
}

absl::Status Restart(weft_run* run, absl::Span<const char* const> names,
                     absl::Span<const weft_array> params) {
  if (!run->test.has_value()) {
    return absl::InvalidArgumentError("expected a run that evaluates, found one that trains");
  }
  WEFT_ASSIGN_OR_RETURN(ParamsInput input, StartOf(*run->test, names, params));
  if (!params.empty() && ReplacesAll(*run->test, input)) {
    WEFT_RETURN_IF_ERROR(run->session->SetPersistables(input.params));
  } else {
    // What is not given begins as the startup program leaves it.
    WEFT_ASSIGN_OR_RETURN(auto session, NewSession(*run->test, std::move(input), !params.empty()));
    session.swap(run->session);
    for (Said& one : session->TakeSaid()) run->said.push_back(std::move(one));
    RunSession::Free(std::move(session));
  }
  run->test->evaluation.emplace(run->test->program.metrics);
  return absl::OkStatus();
}

absl::StatusOr<bool> IsBest(weft_run* run, const weft_run* evaluation, const char* choice,
                            absl::Span<const char* const> names, const double* values) {
  std::vector<Metric> metrics;
  if (evaluation != nullptr && evaluation->test.has_value()) {
    metrics = evaluation->test->program.metrics.all;
  } else {
    for (const char* name : names) metrics.emplace_back().name = name;
  }
  metrics = WithLossesOf(run->session->main(), std::move(metrics));
  WEFT_ASSIGN_OR_RETURN(BestMetric best, BestMetric::Of(choice, metrics));
  const std::string& before = run->session->best();
  if (!best.Restore(before)) {
    run->session->Say({Severity::kWarning, BestBeginsAnew(choice, before)});
    run->session->set_best("");
  }
  if (names.empty()) return false;
  const auto found = absl::c_find(names, metrics[best.metric()].name);
  if (found == names.end()) {
    return absl::InvalidArgumentError(absl::StrCat("option:keep_best ", choice, ": expected ",
                                                   metrics[best.metric()].name,
                                                   " among the values, found none"));
  }
  const bool is_best = best.Add(values[found - names.begin()]);
  run->session->set_best(best.text());
  return is_best;
}

absl::StatusOr<std::string> TotalsOf(weft_run* run) {
  if (!run->test.has_value()) {
    return absl::InvalidArgumentError("expected a run that evaluates, found one that trains");
  }
  Evaluation evaluation = *run->test->evaluation;
  if (evaluation.batches() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(run->test->flags.main, ": expected a batch, found none"));
  }
  if (!run->test->program.metrics.counts.empty()) {
    WEFT_ASSIGN_OR_RETURN(const auto variables, run->session->Persistables());
    evaluation.AddCounts(variables);
  }
  return TotalsJson(evaluation);
}

absl::Status NewRun(const weft_options* options, const weft_program& main,
                    const weft_program* startup, absl::Span<const char* const> names,
                    absl::Span<const weft_array> params, weft_run** run) {
  WEFT_ASSIGN_OR_RETURN(RunFlags flags, ParseRun(options, main, startup, !params.empty()));
  const bool in_job = flags.backend != "local";
  RunFiles given;
  given.main = main.program;
  WEFT_ASSIGN_OR_RETURN(given.startup, StartupIfGiven(startup, "startup"));
  if (!params.empty()) {
    WEFT_ASSIGN_OR_RETURN(auto tensors, TensorsOf(names, params));
    WEFT_ASSIGN_OR_RETURN(given.params, SplitParams(std::move(tensors), {&*given.main}));
  }
  auto made = std::make_unique<weft_run>();
  WEFT_ASSIGN_OR_RETURN(made->session,
                        RunSession::Create(std::move(flags), std::move(given), in_job));
  *run = made.release();
  return absl::OkStatus();
}

absl::Status Step(weft_run* run, absl::Span<const char* const> names,
                  absl::Span<const weft_array> batch) {
  run->results = {};
  run->names.clear();
  std::vector<Tensor> tensors;
  tensors.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_left =
        run->test.has_value() && !run->test->program.main->block(0).FindVar(names[i]).valid();
    if (is_left) continue;
    run->names.emplace_back(names[i]);
    WEFT_ASSIGN_OR_RETURN(tensors.emplace_back(), TensorOf(names[i], batch[i]));
  }
  WEFT_ASSIGN_OR_RETURN(run->results, run->session->Step(run->names, std::move(tensors)));
  if (run->test.has_value()) run->test->evaluation->Add(run->results[0]);
  return absl::OkStatus();
}

// The indices of rows of a taller tensor.
Tensor IndicesOf(const Tensor& tensor) {
  Tensor rows;
  rows.Resize(DType::kInt64, {static_cast<int64_t>(tensor.rows().size())});
  std::copy(tensor.rows().begin(), tensor.rows().end(), rows.data<int64_t>());
  return rows;
}

}  // namespace
}  // namespace weft::c

using weft::c::Guard;

size_t weft_arrays_count(const weft_arrays* arrays) { return arrays->tensors.size(); }
const char* weft_arrays_name(const weft_arrays* arrays, size_t index) {
  return index < arrays->tensors.size() ? arrays->tensors[index].first.c_str() : nullptr;
}
weft_array weft_arrays_get(const weft_arrays* arrays, size_t index) {
  if (index >= arrays->tensors.size()) return {};
  return weft::c::ArrayOf(arrays->tensors[index].second);
}
void weft_arrays_free(weft_arrays* arrays) { delete arrays; }

weft_status* weft_run_new(const weft_options* options, const weft_program* main,
                          const weft_program* startup, const char* const* param_names,
                          const weft_array* params, size_t num_params, weft_run** run) {
  return Guard([&] {
    return weft::c::NewRun(options, *main, startup, absl::MakeConstSpan(param_names, num_params),
                           absl::MakeConstSpan(params, num_params), run);
  });
}

weft_status* weft_run_step(weft_run* run, const char* const* names, const weft_array* batch,
                           size_t num_arrays) {
  return Guard([&] {
    return weft::c::Step(run, absl::MakeConstSpan(names, num_arrays),
                         absl::MakeConstSpan(batch, num_arrays));
  });
}

int weft_run_num_ranks(const weft_run* run) { return run->session->nranks(); }
int weft_run_process(const weft_run* run) { return run->session->process(); }
int weft_run_num_processes(const weft_run* run) { return run->session->num_processes(); }
int64_t weft_run_next_step(const weft_run* run) { return run->session->step(); }
size_t weft_run_num_fetched(const weft_run* run) {
  return run->results.empty() ? 0 : run->session->fetch().size();
}
const char* weft_run_fetched_name(const weft_run* run, size_t index) {
  const std::vector<std::string>& names = run->session->fetch();
  return index < names.size() ? names[index].c_str() : nullptr;
}

double weft_run_fetched_number(const weft_run* run, size_t index) {
  if (index >= weft_run_num_fetched(run)) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (const weft::StepResult& result : run->results) sum += weft::MeanOf(result.values[index]);
  const bool are_parts = run->session->sums().count(run->session->fetch()[index]) > 0;
  return are_parts ? sum : sum / static_cast<double>(run->results.size());
}

weft_array weft_run_fetched(const weft_run* run, size_t index, int rank) {
  const bool is_there = index < weft_run_num_fetched(run) && rank >= 0 &&
                        static_cast<size_t>(rank) < run->results.size();
  if (!is_there) return {};
  return weft::c::ArrayOf(run->results[rank].values[index]);
}

weft_status* weft_run_take_fetched(weft_run* run, weft_arrays** arrays) {
  return Guard([&] {
    auto made = std::make_unique<weft_arrays>();
    const std::vector<std::string>& fetch = run->session->fetch();
    std::vector<std::pair<std::string, weft::Tensor>> rows;
    for (size_t i = 0; i < fetch.size(); ++i) {
      for (const weft::StepResult& result : run->results) {
        const weft::Tensor& value = result.values[i];
        made->tensors.emplace_back(fetch[i], value.is_rows() ? value.RowValues() : value);
        if (value.is_rows()) rows.emplace_back(fetch[i] + "/rows", weft::c::IndicesOf(value));
      }
    }
    for (auto& one : rows) made->tensors.push_back(std::move(one));
    *arrays = made.release();
    return absl::OkStatus();
  });
}

weft_status* weft_run_state(weft_run* run, weft_arrays** arrays) {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(auto tensors, run->session->Persistables());
    auto made = std::make_unique<weft_arrays>();
    for (auto& [name, tensor] : tensors) made->tensors.emplace_back(name, std::move(tensor));
    *arrays = made.release();
    return absl::OkStatus();
  });
}

weft_status* weft_run_set_state(weft_run* run, const char* const* names, const weft_array* arrays,
                                size_t num_arrays) {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const auto tensors,
                          weft::c::TensorsOf(absl::MakeConstSpan(names, num_arrays),
                                             absl::MakeConstSpan(arrays, num_arrays)));
    return run->session->SetPersistables(tensors);
  });
}

weft_status* weft_evaluation_new(const weft_options* options, const weft_program* test,
                                 const weft_program* startup, const char* const* param_names,
                                 const weft_array* params, size_t num_params, weft_run** run) {
  return Guard([&] {
    return weft::c::NewEvaluation(options, *test, startup,
                                  absl::MakeConstSpan(param_names, num_params),
                                  absl::MakeConstSpan(params, num_params), run);
  });
}

weft_status* weft_evaluation_restart(weft_run* run, const char* const* param_names,
                                     const weft_array* params, size_t num_params) {
  return Guard([&] {
    return weft::c::Restart(run, absl::MakeConstSpan(param_names, num_params),
                            absl::MakeConstSpan(params, num_params));
  });
}

weft_status* weft_evaluation_totals(weft_run* run, weft_text** json) {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(std::string text, weft::c::TotalsOf(run));
    *json = weft::c::NewText(std::move(text));
    return absl::OkStatus();
  });
}

weft_status* weft_run_is_best(weft_run* run, const weft_run* evaluation, const char* choice,
                              const char* const* names, const double* values, size_t num_values,
                              int* is_best) {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(
        *is_best,
        weft::c::IsBest(run, evaluation, choice, absl::MakeConstSpan(names, num_values), values));
    return absl::OkStatus();
  });
}

int weft_run_plateau(weft_run* run, weft_plateau* plateau) {
  const absl::optional<weft::PlateauSchedule> found = run->session->Plateau();
  if (!found.has_value()) return 0;
  *plateau = {found->rate(), found->best().value_or(std::numeric_limits<double>::quiet_NaN()),
              found->num_bad(), found->cooldown_left()};
  return 1;
}

weft_status* weft_run_save(weft_run* run, const char* path) {
  return Guard([&] { return run->session->Save(path); });
}

weft_status* weft_run_checkpoint(weft_run* run, const char* path) {
  return Guard([&] { return run->session->WriteCheckpoint(path); });
}

size_t weft_run_take_messages(weft_run* run, const weft_message** messages) {
  std::vector<weft::Said> said = std::exchange(run->said, {});
  for (weft::Said& one : run->session->TakeSaid()) said.push_back(std::move(one));
  run->messages.Set(std::move(said));
  *messages = run->messages.all().data();
  return run->messages.all().size();
}

weft_status* weft_run_end(weft_run* run) {
  return Guard([&] { return run->session->End(); });
}

void weft_run_free(weft_run* run) {
  if (run == nullptr) return;
  weft::RunSession::Free(std::move(run->session));
  delete run;
}
