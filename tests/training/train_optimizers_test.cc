// Pass set-optimizer: what it writes trains as Apache SINGA's classes do, as programs that were
// written with the optimizer do, and on several ranks as on one.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/run/runner.h"
#include "nlohmann/json.hpp"
#include "ops/float16.h"
#include "ops/kernel.h"
#include "ops/schema/tensor_type.h"
#include "proto/text/program_text.h"
#include "tests/support/models.h"
#include "tests/support/rewrite.h"
#include "tests/support/stream_sanitizer.h"
#include "tests/support/training_programs.h"
#include "tests/support/training_spec.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

constexpr char kDataParallel[] =
    "comm-init,broadcast-params,scale-loss-grad,grad-all-reduce,sync-elimination";

absl::Status RewriteBy(const std::string& passes, int ranks, Program* main, Program* startup) {
  TranspileOptions options;
  options.passes = passes;
  options.cluster.nranks = ranks;
  options.verification = Verification::kAfterEachPass;
  return Rewrite(options, main, startup).status();
}

// The fetched values: by step, variable and element, on rank 0.
using Fetched = std::vector<std::vector<std::vector<double>>>;

std::vector<double> AsDoubles(const Tensor& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    values.push_back(
        tensor.dtype() == DType::kInt64     ? static_cast<double>(tensor.data<int64_t>()[i])
        : tensor.dtype() == DType::kFloat16 ? double{static_cast<float>(tensor.data<Float16>()[i])}
                                            : tensor.data<float>()[i]);
  }
  return values;
}

struct Training {
  const Program* main;
  const Program* startup;
  FeedSource feeds;
  std::vector<std::string> fetch;
  int64_t steps = 6;
  int ranks = 1;
  const std::map<std::string, Tensor>* params = nullptr;
};

absl::StatusOr<Fetched> Train(const Training& training) {
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = training.ranks;
  options.steps = training.steps;
  options.fetch = training.fetch;
  Fetched fetched(training.steps);
  RunInputs inputs;
  inputs.main = training.main;
  inputs.startup = training.startup;
  inputs.params = training.params;
  inputs.feeds = training.feeds;
  inputs.on_result = [&fetched](const StepResult& result) {
    if (result.rank != 0) return absl::OkStatus();
    for (const Tensor& value : result.values) fetched[result.step].push_back(AsDoubles(value));
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(RunChecked(inputs, options).status());
  return fetched;
}

void ExpectNear(const Fetched& found, const Fetched& expected,
                const std::vector<std::string>& names, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t step = 0; step < found.size(); ++step) {
    ASSERT_EQ(found[step].size(), names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      ASSERT_EQ(found[step][i].size(), expected[step][i].size());
      for (size_t k = 0; k < found[step][i].size(); ++k) {
        const double value = expected[step][i][k];
        ASSERT_NEAR(found[step][i][k], value, tolerance * (1 + std::abs(value)))
            << names[i] << "[" << k << "] in step " << step;
      }
    }
  }
}

// --- SINGA's classes -----------------------------------------------------------------------------

constexpr char kMain[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var x : fp32[3, 2] need_check_feed stop_gradient
    var w : fp32[3, 2] parameter persistable
    var w@GRAD : fp32[3, 2]
    Out=[w@GRAD] = scale(X=[x]) role=backward vars=[w, w@GRAD] {scale=1.0}
  }
})";
constexpr char kStartup[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var w : fp32[3, 2] parameter persistable
    Out=[w] = fill_constant() role=forward {shape=longs[3, 2], dtype=5, value=0.0}
  }
})";

// What SINGA calls a state: the variable of the program.
const std::map<std::string, std::string>& StateNames() {
  static const auto* const names =
      new std::map<std::string, std::string>{{"Param", "w"},
                                             {"Moment", "w_velocity_0"},
                                             {"MeanSquare", "w_mean_square_0"},
                                             {"History", "w_history_0"},
                                             {"Moment1", "w_moment1_0"},
                                             {"Moment2", "w_moment2_0"}};
  return *names;
}

Tensor TensorOf(const Json& json) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, json["shape"].get<std::vector<int64_t>>().size() == 1
                                     ? Dims{json["shape"][0].get<int64_t>()}
                                     : Dims{3, 2});
  const std::string hex = json["hex"];
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const auto bits = static_cast<uint32_t>(std::stoul(hex.substr(8 * i, 8), nullptr, 16));
    std::memcpy(tensor.data<float>() + i, &bits, sizeof(bits));
  }
  return tensor;
}

std::vector<Json> ReadCases(const char* name) {
  std::ifstream file(absl::StrCat("tests/data/optimizers/", name));
  std::vector<Json> cases;
  for (std::string line; std::getline(file, line);) cases.push_back(Json::parse(line));
  return cases;
}

struct SingaPrograms {
  Program main, startup;
  std::string learning_rate;
  bool counts = false;
};

absl::StatusOr<SingaPrograms> SetTo(const std::string& options,
                                    const std::string& main_text = kMain,
                                    const std::string& startup_text = kStartup) {
  WEFT_ASSIGN_OR_RETURN(Program main, ParseProgramText(main_text));
  WEFT_ASSIGN_OR_RETURN(Program startup, ParseProgramText(startup_text));
  WEFT_RETURN_IF_ERROR(RewriteBy("set-optimizer" + options, 1, &main, &startup));
  SingaPrograms programs{std::move(main), std::move(startup), "", false};
  for (OpId id : programs.main.block(0).ops()) {
    for (Symbol rate : programs.main.op(id).Input("LearningRate")) {
      programs.learning_rate = std::string(programs.main.name(rate));
    }
  }
  programs.counts = programs.main.block(0).FindVar("step_counter_0").valid();
  return programs;
}

void ExpectWithin(const std::vector<double>& found, const Tensor& expected, const Json& json,
                  const std::string& what) {
  ASSERT_EQ(static_cast<int64_t>(found.size()), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    const double value = expected.data<float>()[i];
    EXPECT_NEAR(found[i], value,
                json["atol"].get<double>() + json["rtol"].get<double>() * std::abs(value))
        << what << "[" << i << "]";
  }
}

void ExpectStepsOf(const Json& json) {
  const std::string shape = absl::StrCat(
      "[", absl::StrJoin(json["param"]["shape"].get<std::vector<int64_t>>(), ", "), "]");
  WEFT_ASSERT_OK_AND_ASSIGN(const SingaPrograms programs,
                            SetTo(json["options"], absl::StrReplaceAll(kMain, {{"[3, 2]", shape}}),
                                  absl::StrReplaceAll(kStartup, {{"[3, 2]", shape}})));
  const Json& steps = json["steps"];
  Training training{&programs.main, &programs.startup, {}, {programs.learning_rate}};
  training.steps = static_cast<int64_t>(steps.size());
  training.feeds = {
      {"x"}, [&steps](int64_t step) { return std::vector<Tensor>{TensorOf(steps[step]["grad"])}; }};
  if (programs.counts) training.fetch.push_back("step_counter_0");
  const size_t first_state = training.fetch.size();
  std::vector<std::string> states;
  for (const auto& [name, unused] : steps[0]["after"].items()) {
    states.push_back(name);
    training.fetch.push_back(StateNames().at(name));
  }
  std::map<std::string, Tensor> params;
  params["w"] = TensorOf(json["param"]);
  training.params = &params;
  WEFT_ASSERT_OK_AND_ASSIGN(const Fetched fetched, Train(training));
  for (size_t step = 0; step < fetched.size(); ++step) {
    const std::string at = absl::StrCat(" in step ", step);
    ExpectWithin(fetched[step][0], TensorOf(steps[step]["lr"]), json, "learning rate" + at);
    if (programs.counts) {
      EXPECT_EQ(fetched[step][1][0], steps[step]["step_counter"]) << "counter" << at;
    }
    for (size_t i = 0; i < states.size(); ++i) {
      ExpectWithin(fetched[step][first_state + i], TensorOf(steps[step]["after"][states[i]]), json,
                   states[i] + at);
    }
  }
}

void ExpectRatesOf(const Json& json) {
  WEFT_ASSERT_OK_AND_ASSIGN(const SingaPrograms programs, SetTo(json["options"]));
  Training training{&programs.main, &programs.startup, {}, {programs.learning_rate}};
  const Tensor rates = TensorOf(json["rates"]);
  training.steps = rates.size();
  training.feeds = {{"x"}, [](int64_t) {
                      std::vector<Tensor> tensors(1);
                      tensors[0].Resize(DType::kFloat32, {3, 2});
                      std::fill_n(tensors[0].data<float>(), 6, 0.0f);
                      return tensors;
                    }};
  WEFT_ASSERT_OK_AND_ASSIGN(const Fetched fetched, Train(training));
  std::vector<double> found;
  for (const auto& step : fetched) found.push_back(step[0][0]);
  ExpectWithin(found, rates, json, "rate");
}

TEST(TrainOptimizersTest, UpdatesAreThoseOfSinga) {
  int updates = 0, rates = 0;
  for (const Json& json : ReadCases("singa.jsonl")) {
    SCOPED_TRACE(json["id"].get<std::string>());
    if (json.contains("steps")) {
      ++updates;
      ExpectStepsOf(json);
    } else {
      ++rates;
      ExpectRatesOf(json);
    }
  }
  EXPECT_EQ(updates, 35);
  EXPECT_EQ(rates, 6);
}

// Of the 9 cases, the file has 7. Left out are those of Adadelta, which set-optimizer does not
// write (Paddle's op has vectors of its own), and of Adagrad with lr_decay, which is no exponential
// decay. MultiStepLR, of which there are 2 cases, is no schedule of set-optimizer either.
TEST(TrainOptimizersTest, UpdatesAreThoseOfMegEngine) {
  const std::vector<Json> cases = ReadCases("megengine.jsonl");
  EXPECT_EQ(cases.size(), 7u);
  for (const Json& json : cases) {
    SCOPED_TRACE(json["id"].get<std::string>());
    ExpectStepsOf(json);
  }
}

// All that SINGA's SGD keeps has the type of the parameter.
TEST(TrainOptimizersTest, SgdOfHalvesIsThatOfFloatsRounded) {
  const std::string main =
      absl::StrReplaceAll(kMain, {{"w : fp32", "w : fp16"},
                                  {"w@GRAD : fp32", "w@GRAD : fp16"},
                                  {"scale(X=[x])", "cast(X=[x])"},
                                  {"{scale=1.0}", "{in_dtype=5, out_dtype=4}"}});
  const std::string startup =
      absl::StrReplaceAll(kStartup, {{"fp32", "fp16"}, {"dtype=5", "dtype=4"}});
  const FeedSource feeds = {{"x"}, [](int64_t step) {
                              std::vector<Tensor> tensors(1);
                              tensors[0].Resize(DType::kFloat32, {3, 2});
                              for (int i = 0; i < 6; ++i) {
                                tensors[0].data<float>()[i] = (i - 2.5F) / (2 << step);
                              }
                              return tensors;
                            }};
  for (const char* options :
       {"{lr=0.1}", "{lr=0.1,momentum=0.9,weight_decay=0.05}",
        "{lr=0.1,momentum=0.9,nesterov=true}", "{lr=0.1,momentum=0.9,dampening=0.5}",
        "{lr=exp(0.1:2:0.5),momentum=exp(0.9:1:0.8),nesterov=true}"}) {
    SCOPED_TRACE(options);
    WEFT_ASSERT_OK_AND_ASSIGN(const SingaPrograms halves, SetTo(options, main, startup));
    WEFT_ASSERT_OK_AND_ASSIGN(const SingaPrograms floats, SetTo(options));
    const std::string state = absl::StrContains(options, "momentum") ? "w_velocity_0" : "w";
    const VarId var = halves.main.block(0).FindVar(state);
    EXPECT_EQ(DeclaredType(halves.main.var(var))->dtype, DType::kFloat16);
    std::vector<std::string> fetch = {"w"};
    if (state != "w") fetch.push_back(state);
    WEFT_ASSERT_OK_AND_ASSIGN(const Fetched found,
                              Train({&halves.main, &halves.startup, feeds, fetch}));
    WEFT_ASSERT_OK_AND_ASSIGN(const Fetched expected,
                              Train({&floats.main, &floats.startup, feeds, fetch}));
    ExpectNear(found, expected, fetch, 2e-3);
  }
}

// --- Training programs ---------------------------------------------------------------------------

struct NamedSpec {
  const char* name;
  TrainingSpec spec;
};
void PrintTo(const NamedSpec& spec, std::ostream* out) { *out << spec.name; }

TrainingSpec TwoLayers(void (*change)(TrainingSpec*)) {
  TrainingSpec spec;
  spec.layers.resize(2);
  for (auto& layer : spec.layers) {
    layer.width = 3;
    layer.bias = true;
  }
  change(&spec);
  return spec;
}

std::vector<NamedSpec> Specs() {
  return {
      {"Plain", TwoLayers([](TrainingSpec*) {})},
      {"ClippedByValue", TwoLayers([](TrainingSpec* spec) { spec->clip = ClipKind::kByValue; })},
      {"ClippedByNorm", TwoLayers([](TrainingSpec* spec) { spec->clip = ClipKind::kByNorm; })},
      {"ClippedInPlace", TwoLayers([](TrainingSpec* spec) {
         spec->clip = ClipKind::kByGlobalNorm;
         spec->clips_in_place = true;
       })},
      {"Regularized", TwoLayers([](TrainingSpec* spec) { spec->l2_decay = true; })},
      {"Merged", TwoLayers([](TrainingSpec* spec) { spec->merged_steps = 2; })},
      {"MergedAndClipped", TwoLayers([](TrainingSpec* spec) {
         spec->merged_steps = 2;
         spec->clip = ClipKind::kByGlobalNorm;
       })},
      {"SharedWeight", TwoLayers([](TrainingSpec* spec) { spec->layers[1].shares_weight = true; })},
      {"Rows", TwoLayers([](TrainingSpec* spec) {
         spec->lookups = 2;
         spec->sparse = true;
       })},
      {"TwoLosses", TwoLayers([](TrainingSpec* spec) { spec->more_heads.resize(1); })},
      {"TwoLossesApart", TwoLayers([](TrainingSpec* spec) {
         spec->more_heads.resize(1);
         spec->apart = true;
       })},
  };
}

TrainingPrograms With(OptimizerKind kind, TrainingSpec spec) {
  spec.weights_by = spec.biases_by = kind;
  return BuildPrograms(spec);
}

absl::StatusOr<Fetched> Train(const TrainingPrograms& programs, int ranks) {
  return Train({&programs.main, &programs.startup, programs.feeds, programs.parameters, 6, ranks});
}

class ReplacedTest : public ::testing::TestWithParam<NamedSpec> {};

// The optimizers of the programs are replaced by one of another type, with their hyperparameters.
TEST_P(ReplacedTest, TrainsAsAProgramThatWasWrittenWithIt) {
  const std::tuple<OptimizerKind, OptimizerKind, const char*> cases[] = {
      {OptimizerKind::kAdam, OptimizerKind::kSgd, "{type=sgd,lr=0.1}"},
      {OptimizerKind::kAdam, OptimizerKind::kMomentum, "{type=sgd,lr=0.1,momentum=0.5}"},
      {OptimizerKind::kMomentum, OptimizerKind::kAdam,
       "{type=adam,lr=0.1,beta_2=0.99,epsilon=0.1}"},
      {OptimizerKind::kSgd, OptimizerKind::kMomentum,
       "{type=sgd,lr=exp(0.1:1:1),momentum=exp(0.5:1:1)}"},
  };
  for (const auto& [before, after, options] : cases) {
    SCOPED_TRACE(options);
    TrainingSpec spec = GetParam().spec;
    const TrainingPrograms expected = With(after, spec);
    spec.learning_rate = LearningRateKind::kHalvedInBlock;  // goes with the old updates
    TrainingPrograms replaced = With(before, spec);
    WEFT_ASSERT_OK(
        RewriteBy(absl::StrCat("set-optimizer", options), 1, &replaced.main, &replaced.startup));
    WEFT_ASSERT_OK_AND_ASSIGN(const Fetched found, Train(replaced, 1));
    WEFT_ASSERT_OK_AND_ASSIGN(const Fetched trained, Train(expected, 1));
    ExpectNear(found, trained, expected.parameters, 1e-6);
  }
}

const char* const kSettings[] = {
    "{type=sgd,lr=0.05}",
    "{type=sgd,lr=0.05,momentum=0.9,dampening=0.5,weight_decay=0.01}",
    "{type=sgd,lr=exp(0.1:2:0.5:staircase),momentum=exp(0.9:3:0.5),nesterov=true}",
    "{type=rmsprop,lr=0.01,epsilon=0.01}",
    "{type=rmsprop,lr=0.01,rho=exp(0.9:3:0.5),epsilon=exp(0.01:1:0.9)}",
    "{type=adagrad,lr=0.01,epsilon=0.01}",
    "{type=adam,lr=0.01,epsilon=0.01}",
    "{type=adam,lr=0.01,epsilon=exp(0.01:1:0.9),beta_1=exp(0.9:2:0.5),weight_decay=exp(0.1:1:0.5)}",
};

TEST_P(ReplacedTest, RanksTrainAsOneDevice) {
  for (const std::string options : kSettings) {
    SCOPED_TRACE(options);
    TrainingPrograms one = With(OptimizerKind::kMomentum, GetParam().spec);
    TrainingPrograms two = one;
    WEFT_ASSERT_OK(RewriteBy("set-optimizer" + options, 1, &one.main, &one.startup));
    WEFT_ASSERT_OK(RewriteBy(absl::StrCat("set-optimizer", options, ",", kDataParallel), 2,
                             &two.main, &two.startup));
    WEFT_ASSERT_OK_AND_ASSIGN(const Fetched found, Train(two, 2));
    WEFT_ASSERT_OK_AND_ASSIGN(const Fetched expected, Train(one, 1));
    ExpectNear(found, expected, one.parameters, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReplacedTest, ValuesIn(Specs()),
                         [](const auto& info) { return info.param.name; });

TEST(TrainOptimizersTest, RowsTrainAsTheirTensor) {
  for (const std::string options : kSettings) {
    SCOPED_TRACE(options);
    TrainingSpec spec = TwoLayers([](TrainingSpec* spec) { spec->lookups = 2; });
    TrainingPrograms dense = With(OptimizerKind::kSgd, spec);
    spec.sparse = true;
    TrainingPrograms rows = With(OptimizerKind::kSgd, spec);
    WEFT_ASSERT_OK(RewriteBy("set-optimizer" + options, 1, &dense.main, &dense.startup));
    WEFT_ASSERT_OK(RewriteBy("set-optimizer" + options, 1, &rows.main, &rows.startup));
    WEFT_ASSERT_OK_AND_ASSIGN(const Fetched found, Train(rows, 1));
    WEFT_ASSERT_OK_AND_ASSIGN(const Fetched expected, Train(dense, 1));
    ExpectNear(found, expected, dense.parameters, 1e-6);
  }
}

// A decay by the rate 1 takes other ops than a constant.
TEST(TrainOptimizersTest, DecayThatStandsStillIsAConstant) {
  const std::pair<const char*, const char*> cases[] = {
      {"{lr=0.05,momentum=0.9,nesterov=true,weight_decay=0.1}",
       "{lr=exp(0.05:1:1),momentum=exp(0.9:1:1),nesterov=true,weight_decay=exp(0.1:1:1)}"},
      {"{lr=0.05,momentum=0.9,dampening=0.25}",
       "{lr=0.05,momentum=exp(0.9:1:1),dampening=exp(0.25:1:1)}"},
      {"{type=rmsprop,lr=0.01,rho=0.8,epsilon=0.01}",
       "{type=rmsprop,lr=0.01,rho=exp(0.8:1:1),epsilon=0.01}"},
      {"{type=rmsprop,lr=0.01,rho=0.8,epsilon=0.01}",
       "{type=rmsprop,lr=0.01,rho=0.8,epsilon=exp(0.01:1:1)}"},
      {"{type=adagrad,lr=0.01,epsilon=0.01}", "{type=adagrad,lr=0.01,epsilon=exp(0.01:1:1)}"},
      {"{type=adam,lr=0.01,beta_1=0.8,beta_2=0.9,epsilon=0.01}",
       "{type=adam,lr=0.01,beta_1=0.8,beta_2=exp(0.9:1:1),epsilon=0.01}"},
      {"{type=adam,lr=0.01,beta_1=0.8,beta_2=0.9,epsilon=0.01}",
       "{type=adam,lr=0.01,beta_1=exp(0.8:1:1),beta_2=0.9,epsilon=exp(0.01:1:1)}"},
  };
  for (const auto& [constant, decaying] : cases) {
    SCOPED_TRACE(decaying);
    TrainingPrograms expected = With(OptimizerKind::kSgd, TwoLayers([](TrainingSpec*) {}));
    TrainingPrograms found = expected;
    WEFT_ASSERT_OK(
        RewriteBy(absl::StrCat("set-optimizer", constant), 1, &expected.main, &expected.startup));
    WEFT_ASSERT_OK(
        RewriteBy(absl::StrCat("set-optimizer", decaying), 1, &found.main, &found.startup));
    WEFT_ASSERT_OK_AND_ASSIGN(const Fetched of_decaying, Train(found, 1));
    WEFT_ASSERT_OK_AND_ASSIGN(const Fetched of_constant, Train(expected, 1));
    ExpectNear(of_decaying, of_constant, expected.parameters, 1e-6);
  }
}

// --- Programs that Paddle wrote ------------------------------------------------------------------

std::set<std::string> Persistables(const Program& program) {
  std::set<std::string> names;
  for (VarId id : program.block(0).vars()) {
    const Var var = program.var(id);
    // Host memory of feed and fetch ops, which the startup program does not know.
    if (var.persistable() && DeclaredType(var).has_value()) names.emplace(var.name());
  }
  return names;
}

// Persistable variables that only the main program declares.
std::set<std::string> Uninitialized(const Model& model) {
  std::set<std::string> names = Persistables(model.main);
  for (const std::string& name : Persistables(model.startup)) names.erase(name);
  return names;
}

// The pass finds what it replaces, leaves nothing behind, and other passes take its result.
void ExpectReplaced(const Model& model, const std::string& passes) {
  Model replaced = model;
  WEFT_ASSERT_OK(RewriteBy(passes, 1, &replaced.main, &replaced.startup));
  EXPECT_EQ(Uninitialized(replaced), Uninitialized(model));
  Model apart = replaced;
  WEFT_EXPECT_OK(
      RewriteBy(absl::StrCat(passes, ",", kDataParallel), 2, &apart.main, &apart.startup));
  // Verified against the program with the new optimizer.
  const std::pair<const char*, std::map<std::string, std::string>> modes[] = {
      {"grad_allreduce", {}}, {"local_sgd", {{"k_steps", "2"}, {"state", "reset"}}}};
  for (const auto& [mode, flags] : modes) {
    SCOPED_TRACE(mode);
    apart = replaced;
    WEFT_EXPECT_OK(Rewrite(InMode(mode, 2, flags), &apart.main, &apart.startup));
  }
}

TEST(TrainOptimizersTest, RealProgramsAreReplacedAndVerified) {
  for (const auto& [name, model] : ReadModels()) {
    if (name == "bert_base_program" || name == "resnet50") continue;  // large, and nothing new
    for (const std::string options : kSettings) {
      SCOPED_TRACE(name + options);
      // It skips updates, which only adam can.
      const bool is_refused =
          name == "mlp_amp_bf16" && options.find("type=adam,") == std::string::npos;
      if (!is_refused) {
        ExpectReplaced(model, "set-optimizer" + options);
        continue;
      }
      Model refused = model;
      EXPECT_THAT(RewriteBy("set-optimizer" + options, 1, &refused.main, &refused.startup),
                  IsFailedPrecondition("SkipUpdate"));
    }
  }
}

}  // namespace
}  // namespace weft::testing
