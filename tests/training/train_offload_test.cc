// Modes optimizer_offload and embedding_offload: updates are those of MindSpore's optimizers on the
// host, and ranks train to the bits of grad_allreduce.
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/run/memory_estimate.h"
#include "executor/run/runner.h"
#include "nlohmann/json.hpp"
#include "ops/analysis/devices/device_memory.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/analysis/devices/parameter_bytes.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/float16.h"
#include "ops/kernel.h"
#include "tests/support/rewrite.h"
#include "tests/support/training_programs.h"
#include "tests/support/training_spec.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

// By step, rank and variable.
using Results = std::map<std::string, Tensor>;

absl::StatusOr<Results> Train(const Program& main, const Program& startup, FeedSource feeds,
                              int64_t steps, int ranks, std::vector<std::string> fetch,
                              const std::map<std::string, Tensor>* params = nullptr,
                              ValueMemory* memory = nullptr) {
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = ranks;
  options.steps = steps;
  options.fetch = std::move(fetch);
  Results results;
  RunInputs inputs;
  inputs.main = &main;
  inputs.startup = &startup;
  inputs.params = params;
  inputs.feeds = std::move(feeds);
  inputs.on_result = [&results](const StepResult& result) {
    for (size_t v = 0; v < result.values.size(); ++v) {
      results[absl::StrCat(result.step, "/", result.rank, "/", v)] = result.values[v].Clone();
    }
    return absl::OkStatus();
  };
  WEFT_ASSIGN_OR_RETURN(const RunResult result, RunProgram(inputs, options));
  if (memory != nullptr) *memory = result.memory;
  return results;
}

// --- MindSpore's optimizers ----------------------------------------------------------------------

constexpr char kMain[] = R"(
    var g : GRAD[5] need_check_feed stop_gradient
    var rate : fp32[1] need_check_feed
    var w : PARAM[5] parameter persistable
    var m, v : fp32[5] persistable
    var b1, b2 : fp32[1] persistable
    var master : fp32[5] persistable
NORM_VARS    Out=[w@GRAD] = assign(X=[g]) role=backward vars=[w, w@GRAD]
NORM_OPS    Beta1PowOut=[b1], Beta2PowOut=[b2], MOUT Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = TYPE(Beta1Pow=[b1], Beta2Pow=[b2], Grad=[GRAD], LearningRate=[rate], MIN Moment1=[m], Moment2=[v], Param=[w]) role=optimize vars=[w, w@GRAD] {beta1=BETA1, beta2=BETA2, epsilon=EPSILON, multi_precision=MULTI DECAY}
)";
// MindSpore's FusedCastAdamWeightDecay divides the gradient by a norm, unless that is below 1e-10.
constexpr char kNormVars[] = R"(    var norm : fp32[1] need_check_feed
    var least, one : fp32[1]
    var divides : bool[1]
    var divisor : fp32[1]
    var g32, divided : fp32[5]
)";
constexpr char kNormOps[] =
    R"(    Out=[least] = fill_constant() role=optimize {shape=longs[1], dtype=5, value=1e-10}
    Out=[one] = fill_constant() role=optimize {shape=longs[1], dtype=5, value=1.0}
    Out=[divides] = greater_equal(X=[norm], Y=[least]) role=optimize
    Out=[divisor] = where(Condition=[divides], X=[norm], Y=[one]) role=optimize
    Out=[g32] = cast(X=[w@GRAD]) role=optimize {in_dtype=4, out_dtype=5}
    Out=[divided] = elementwise_div(X=[g32], Y=[divisor]) role=optimize
)";
constexpr char kStartup[] = R"(
    var w : PARAM[5] parameter persistable
    var m, v : fp32[5] persistable
    var b1, b2 : fp32[1] persistable
    Out=[w] = fill_constant() {shape=longs[5], dtype=DTYPE, value=0.0}
    Out=[m] = fill_constant() {shape=longs[5], dtype=5, value=0.0}
    Out=[v] = fill_constant() {shape=longs[5], dtype=5, value=0.0}
    Out=[b1] = fill_constant() {shape=longs[1], dtype=5, value=BETA1}
    Out=[b2] = fill_constant() {shape=longs[1], dtype=5, value=BETA2}
)";

Tensor TensorOf(const Json& json) {
  Tensor tensor;
  const Dims dims = {static_cast<int64_t>(json["values"].size())};
  const bool is_half = json["dtype"] == "float16";
  tensor.Resize(is_half ? DType::kFloat16 : DType::kFloat32, dims);
  for (int64_t i = 0; i < dims[0]; ++i) {
    const float value = json["values"][i];
    if (is_half) {
      tensor.data<Float16>()[i] = Float16(value);
    } else {
      tensor.data<float>()[i] = value;
    }
  }
  return tensor;
}

void ExpectNear(const Tensor& found, const Json& expected, double rtol, double atol) {
  const bool is_half = found.dtype() == DType::kFloat16;
  if (is_half) rtol = 1.0 / 1024;  // one unit
  for (int64_t i = 0; i < found.size(); ++i) {
    const double value = expected["values"][i];
    const double is =
        is_half ? static_cast<float>(found.data<Float16>()[i]) : found.data<float>()[i];
    EXPECT_LE(std::fabs(is - value), atol + rtol * std::fabs(value)) << "element " << i;
  }
}

// As program text: a number with a point or an exponent.
std::string Number(double value) {
  const std::string text = absl::StrCat(value);
  return text.find_first_of(".e") == std::string::npos ? absl::StrCat(text, ".0") : text;
}

// `has_master`: the update has a MasterParam.
std::string Text(const char* text, const Json& of, bool has_master) {
  const Json& params = of["params"];
  const auto type = [](const Json& tensor) {
    return tensor["dtype"] == "float16" ? "fp16" : "fp32";
  };
  const bool has_norm = params.contains("global_norm");
  const bool is_delta = of["kind"] == "adam_delta";
  const std::string decay =
      absl::StrCat(", with_decay=true, coeff=", Number(params.value("weight_decay", 0.0)));
  return absl::StrReplaceAll(
      text, {{"NORM_VARS", has_norm ? kNormVars : ""},
             {"NORM_OPS", has_norm ? kNormOps : ""},
             {"Grad=[GRAD]", has_norm ? "Grad=[divided]" : "Grad=[w@GRAD]"},
             {": GRAD[5]", absl::StrCat(": ", type(of["steps"][0]["grad"]), "[5]")},
             {"DTYPE", of["init"]["dtype"] == "float16" ? "4" : "5"},
             {"PARAM[5]", absl::StrCat(type(of["init"]), "[5]")},
             {"MOUT ", has_master ? "MasterParamOut=[master], " : ""},
             {"MIN ", has_master ? "MasterParam=[master], " : ""},
             {"MULTI", has_master ? "true" : "false"},
             {"TYPE", is_delta ? "adam" : "adamw"},
             {" DECAY", is_delta ? "" : decay},
             {"BETA1", Number(params["beta1"])},
             {"BETA2", Number(params["beta2"])},
             {"EPSILON", Number(params["eps"])}});
}

Tensor Scalar(double value) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, {1});
  *tensor.data<float>() = static_cast<float>(value);
  return tensor;
}

// The learning rate of a step. adam_delta corrects it for the start of the moments at 0, and not
// the epsilon, as Paddle's adam does, which therefore corrects nothing here.
double RateOf(const Json& of, int64_t step) {
  const Json& params = of["params"];
  const double rate = params["lr"];
  if (of["kind"] != "adam_delta") return rate;
  const auto t = static_cast<double>(step + 1);
  return rate * std::sqrt(1 - std::pow(params["beta2"].get<double>(), t)) /
         (1 - std::pow(params["beta1"].get<double>(), t));
}

// Trains the case and compares it. `has_master`: the program has a master weight; else the mode
// makes it, where the case has one.
void ExpectUpdatesOf(const Json& of, bool has_master) {
  Program main = testing::CompactProgram(Text(kMain, of, has_master));
  Program startup = testing::CompactProgram(Text(kStartup, of, has_master));
  TranspileOptions options;
  const bool keeps_master = of["params"].value("master_weight", "none") == "fp32";
  options.passes = of["kind"] == "adam_delta"
                       ? "optimizer-offload{offload=states,bias_correction=false}"
                       : absl::StrCat("optimizer-offload{bias_correction=false,master_weights=",
                                      keeps_master ? "fp32" : "none", "}");
  absl::StrAppend(&options.passes, ",hetero-partition{place=op_device}");
  options.cluster.nranks = 1;
  WEFT_ASSERT_OK(Rewrite(options, &main, &startup));
  ASSERT_TRUE(IsOnTwoDevices(main));
  const Json& steps = of["steps"];
  const bool has_norm = of["params"].contains("global_norm");
  FeedSource feeds;
  feeds.variables = {"g", "rate"};
  if (has_norm) feeds.variables.push_back("norm");
  feeds.num_steps = static_cast<int64_t>(steps.size());
  feeds.read = [&](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    std::vector<Tensor> values = {TensorOf(steps[step]["grad"]), Scalar(RateOf(of, step))};
    if (has_norm) values.push_back(Scalar(of["params"]["global_norm"]));
    return values;
  };
  Json init = of["init"];
  std::map<std::string, Tensor> params = {{"w", TensorOf(init)}};
  init["dtype"] = "float32";
  if (has_master) params["master"] = TensorOf(init);
  WEFT_ASSERT_OK_AND_ASSIGN(const Results results, Train(main, startup, feeds, feeds.num_steps, 1,
                                                         {"w", "m", "v"}, &params));
  for (size_t step = 0; step < steps.size(); ++step) {
    SCOPED_TRACE(step);
    const auto expect = [&](int fetched, const char* name) {
      ExpectNear(results.at(absl::StrCat(step, "/0/", fetched)), steps[step]["after"][name],
                 of["rtol"], of["atol"]);
    };
    expect(0, "Param");
    expect(1, "Moment1");
    expect(2, "Moment2");
  }
  // What master weights are for: updates below half a unit of the parameter add up.
  if (of["id"] == "mindspore/offload/stagnation_no_master") {
    const Tensor last = results.at(absl::StrCat(steps.size() - 1, "/0/0")), first = params["w"];
    for (int64_t i = 0; i < last.size(); ++i) {
      EXPECT_EQ(static_cast<float>(last.data<Float16>()[i]),
                static_cast<float>(first.data<Float16>()[i]));
    }
  }
}

TEST(TrainOffload, UpdatesAreThoseOfMindSpore) {
  std::ifstream file("tests/data/optimizers/offload.jsonl");
  int num_cases = 0;
  for (std::string line; std::getline(file, line); ++num_cases) {
    const Json of = Json::parse(line);
    SCOPED_TRACE(of["id"].get<std::string>());
    ExpectUpdatesOf(of, of["params"].value("master_weight", "none") == "fp32");
  }
  EXPECT_EQ(num_cases, 20);
}

// The parameters come from a file without the master weights.
TEST(TrainOffload, MasterWeightsThatTheModeMakesTrainAsThoseOfTheProgram) {
  std::ifstream file("tests/data/optimizers/offload.jsonl");
  int num_cases = 0;
  for (std::string line; std::getline(file, line);) {
    const Json of = Json::parse(line);
    if (of["params"].value("master_weight", "none") != "fp32") continue;
    SCOPED_TRACE(of["id"].get<std::string>());
    ExpectUpdatesOf(of, /*has_master=*/false);
    ++num_cases;
  }
  EXPECT_EQ(num_cases, 5);
}

// --- Only the change of a parameter returns ------------------------------------------------------

// The parameter after three steps from `first`.
absl::StatusOr<Tensor> TrainWith(absl::string_view offload, absl::string_view type,
                                 absl::string_view attrs, const std::vector<float>& first) {
  const Json of = Json::parse(absl::StrCat(
      R"({"kind":"adam_delta","params":{"lr":0.1,"beta1":0.9,"beta2":0.99,"eps":1e-6},)",
      R"("init":{"dtype":"float32"},"steps":[{"grad":{"dtype":"float32"}}]})"));
  std::string text = Text(kMain, of, /*has_master=*/false);
  text = absl::StrReplaceAll(text, {{" = adam(", absl::StrCat(" = ", type, "(")},
                                    {"multi_precision=false}", absl::StrCat(attrs, "}")}});
  if (type == "momentum") {
    text = absl::StrReplaceAll(
        text, {{"Beta1PowOut=[b1], Beta2PowOut=[b2], Moment1Out=[m], Moment2Out=[v],",
                "VelocityOut=[m],"},
               {"Beta1Pow=[b1], Beta2Pow=[b2], ", ""},
               {"Moment1=[m], Moment2=[v], Param=[w]", "Param=[w], Velocity=[m]"}});
    const size_t begin = text.find("beta1=");
    text.erase(begin, text.find("mu=") - begin);
  }
  Program main = testing::CompactProgram(text);
  Program startup = testing::CompactProgram(Text(kStartup, of, false));
  TranspileOptions options;
  options.passes =
      absl::StrCat("optimizer-offload{offload=", offload, "},hetero-partition{place=op_device}");
  options.cluster.nranks = 1;
  WEFT_RETURN_IF_ERROR(Rewrite(options, &main, &startup).status());
  const Json tensor = {{"dtype", "float32"}, {"values", first}};
  const std::map<std::string, Tensor> params = {{"w", TensorOf(tensor)}};
  FeedSource feeds;
  feeds.variables = {"g", "rate"};
  feeds.num_steps = 3;
  feeds.read = [&of](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    const auto scale = static_cast<float>(1 + step);
    const Json grad = {{"dtype", "float32"},
                       {"values", {0.5f * scale, -1.0f, 0.25f, 2.0f - scale, 1e-3f}}};
    std::vector<Tensor> values;
    values.push_back(TensorOf(grad));
    values.push_back(Scalar(of["params"]["lr"]));
    return values;
  };
  WEFT_ASSIGN_OR_RETURN(const Results results, Train(main, startup, feeds, 3, 1, {"w"}, &params));
  return results.at("2/0/0").Clone();
}

TEST(TrainOffload, ChangesOfDecayedParametersAreThoseOfTheWholeUpdate) {
  const struct {
    const char *type, *attrs;
    std::vector<float> first;
  } cases[] = {
      {"adamw", "coeff=0.5, with_decay=true", {1, -2, 0.5, 0, 3}},
      {"adamw", "coeff=0.5, lr_ratio=0.5, with_decay=true", {1, -2, 0.5, 0, 3}},
      {"lamb", "weight_decay=0.5", {1, -2, 0.5, 0, 3}},
      {"lamb", "weight_decay=0.5", {0, 0, 0, 0, 0}},  // a norm of 0 in the first step
      {"lamb", "weight_decay=0.0", {1, -2, 0.5, 0, 3}},
      {"lamb", "always_adapt=true, weight_decay=0.0", {1, -2, 0.5, 0, 3}},
      {"momentum",
       "mu=0.9, regularization_coeff=0.5, regularization_method=\"l2_decay\"",
       {1, -2, 0.5, 0.125, 3}},
      {"momentum",
       "mu=0.9, regularization_coeff=0.5, regularization_method=\"l2_decay\", rescale_grad=0.5, "
       "use_nesterov=true",
       {1, -2, 0.5, 0.125, 3}},
  };
  for (const auto& of : cases) {
    SCOPED_TRACE(absl::StrCat(of.type, ", ", of.attrs));
    WEFT_ASSERT_OK_AND_ASSIGN(const Tensor full, TrainWith("full", of.type, of.attrs, of.first));
    WEFT_ASSERT_OK_AND_ASSIGN(const Tensor states,
                              TrainWith("states", of.type, of.attrs, of.first));
    ASSERT_EQ(states.size(), full.size());
    for (int64_t i = 0; i < full.size(); ++i) {
      const float expected = full.data<float>()[i];
      EXPECT_NEAR(states.data<float>()[i], expected, 1e-6 + 2e-6 * std::fabs(expected)) << i;
      EXPECT_NE(expected, of.first[i]) << i;
    }
  }
}

// --- Data parallel -------------------------------------------------------------------------------

TrainingSpec Layers(OptimizerKind optimizer) {
  TrainingSpec spec;
  spec.layers = {{16, Activation::kTanh, /*bias=*/true},
                 {12, Activation::kRelu, /*bias=*/true},
                 {3, Activation::kNone, /*bias=*/true}};
  spec.head.layer = 3;  // on top of them
  spec.weights_by = spec.biases_by = optimizer;
  return spec;
}

std::map<std::string, std::string> BitsOf(const Results& results) {
  std::map<std::string, std::string> bits;
  for (const auto& [name, tensor] : results) {
    bits[name] = std::string(static_cast<const char*>(tensor.raw()), tensor.bytes());
  }
  return bits;
}

// The losses and parameters of two ranks.
absl::StatusOr<Results> TrainIn(const TranspileOptions& options, const TrainingSpec& spec) {
  TrainingPrograms programs = BuildPrograms(spec);
  WEFT_RETURN_IF_ERROR(Rewrite(options, &programs.main, &programs.startup).status());
  std::vector<std::string> fetch = programs.losses;
  fetch.insert(fetch.end(), programs.parameters.begin(), programs.parameters.end());
  return Train(programs.main, programs.startup, programs.feeds, /*steps=*/4, /*ranks=*/2, fetch);
}

TEST(TrainOffload, RanksTrainToTheBitsOfOneMemory) {
  for (OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kMomentum}) {
    const TrainingSpec spec = Layers(kind);
    WEFT_ASSERT_OK_AND_ASSIGN(const Results expected, TrainIn(InMode("grad_allreduce", 2), spec));
    for (const char* order : {"early_start", "few_switches"}) {
      WEFT_ASSERT_OK_AND_ASSIGN(const Results found,
                                TrainIn(InMode("optimizer_offload", 2, {{"order", order}}), spec));
      EXPECT_EQ(BitsOf(found), BitsOf(expected)) << order;
    }
  }
}

// The change of a parameter is rounded before it is added: not the same bits.
TEST(TrainOffload, ChangesOnTwoRanksTrainTheParametersOfOneRank) {
  constexpr int kSteps = 4;
  for (OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kAdam}) {
    const TrainingPrograms one = BuildPrograms(Layers(kind));
    TrainingPrograms two = BuildPrograms(Layers(kind));
    WEFT_ASSERT_OK_AND_ASSIGN(const Results expected, Train(one.main, one.startup, one.feeds,
                                                            kSteps, /*ranks=*/1, one.parameters));
    WEFT_ASSERT_OK(
        Rewrite(InMode("optimizer_offload", 2, {{"offload", "states"}}), &two.main, &two.startup));
    ASSERT_TRUE(IsOnTwoDevices(two.main));
    WEFT_ASSERT_OK_AND_ASSIGN(const Results found, Train(two.main, two.startup, two.feeds, kSteps,
                                                         /*ranks=*/2, two.parameters));
    for (const auto& [key, tensor] : found) {
      const std::string of_one = absl::StrReplaceAll(key, {{"/1/", "/0/"}});
      const Tensor& other = expected.at(of_one);
      ASSERT_EQ(tensor.size(), other.size());
      for (int64_t i = 0; i < tensor.size(); ++i) {
        EXPECT_NEAR(tensor.data<float>()[i], other.data<float>()[i], 1e-5) << key;
      }
    }
  }
}

TEST(TrainOffload, SomeOptimizersMayStayOnTheAccelerator) {
  const TrainingSpec spec = Layers(OptimizerKind::kAdam);
  TrainingPrograms programs = BuildPrograms(spec);
  WEFT_ASSERT_OK_AND_ASSIGN(const Results expected, TrainIn(InMode("grad_allreduce", 2), spec));
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Results found,
      TrainIn(InMode("optimizer_offload", 2, {{"offload_params", programs.parameters[0]}}), spec));
  EXPECT_EQ(BitsOf(found), BitsOf(expected));
}

// Learning rates and decays of parameters reach the host: two ranks train to the bits of the
// program that has them on one device, and not to those of the program without.
TEST(TrainOffload, OptionsOfParametersTrain) {
  const TrainingSpec spec = Layers(OptimizerKind::kMomentum);
  TrainingPrograms programs = BuildPrograms(spec);
  TranspileOptions options = InMode("optimizer_offload", 2);
  options.param_attrs[programs.parameters[0]].lr_ratio = 0.5;
  options.param_attrs[programs.parameters[0]].weight_decay = 0.25;
  options.param_attrs[programs.parameters[1]].lr_ratio = 0;
  WEFT_ASSERT_OK_AND_ASSIGN(const Results found, TrainIn(options, spec));
  options.mode.clear();
  options.passes =
      "param-options,comm-init,broadcast-params,scale-loss-grad,"
      "grad-all-reduce{buckets=bytes},sync-elimination";
  WEFT_ASSERT_OK_AND_ASSIGN(const Results expected, TrainIn(options, spec));
  EXPECT_EQ(BitsOf(found), BitsOf(expected));
  // Other modes change updates first, too.
  TranspileOptions other = InMode("grad_allreduce", 2);
  other.param_attrs = options.param_attrs;
  WEFT_ASSERT_OK_AND_ASSIGN(const Results in_other_mode, TrainIn(other, spec));
  EXPECT_EQ(BitsOf(found), BitsOf(in_other_mode));
  WEFT_ASSERT_OK_AND_ASSIGN(const Results without, TrainIn(InMode("grad_allreduce", 2), spec));
  EXPECT_NE(BitsOf(found), BitsOf(without));
  // A ratio of 0 leaves the parameter as it was.
  const std::string fetched = absl::StrCat("/0/", programs.losses.size() + 1);
  EXPECT_EQ(BitsOf(found).at("0" + fetched), BitsOf(found).at("3" + fetched));
}

TEST(TrainOffload, RatiosAndDecaysOfParametersAreThoseOfTheFormula) {
  TranspileOptions options;
  options.cluster.nranks = 1;
  options.passes = "param-options";
  options.param_attrs["w"].lr_ratio = 0.5;
  options.param_attrs["w"].weight_decay = 0.25;
  Program main = testing::CompactProgram(R"(
    var g : fp32[2] need_check_feed
    var lr : fp32[1] persistable
    var w : fp32[2] parameter persistable
    Out=[w@GRAD] = assign(X=[g]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize vars=[w, w@GRAD]
)");
  Program startup = testing::CompactProgram(R"(
    var lr : fp32[1] persistable
    var w : fp32[2] parameter persistable
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
    Out=[w] = fill_constant() {shape=longs[2], dtype=5, value=8.0}
)");
  WEFT_ASSERT_OK(Rewrite(options, &main, &startup));
  FeedSource feeds;
  feeds.variables = {"g"};
  feeds.num_steps = 1;
  feeds.read = [](int64_t) -> absl::StatusOr<std::vector<Tensor>> {
    return std::vector<Tensor>{TensorOf({{"dtype", "float32"}, {"values", {2.0, -6.0}}})};
  };
  WEFT_ASSERT_OK_AND_ASSIGN(const Results results, Train(main, startup, feeds, 1, 1, {"w"}));
  // w - 0.5 * 0.5 * (g + 0.25 * w)
  EXPECT_EQ(results.at("0/0/0").data<float>()[0], 7.0f);
  EXPECT_EQ(results.at("0/0/0").data<float>()[1], 9.0f);
}

TEST(TrainOffload, EmbeddingsOnTheHostTrainToTheSameBits) {
  TrainingSpec spec = Layers(OptimizerKind::kAdam);
  spec.lookups = 2;
  spec.sparse = true;
  WEFT_ASSERT_OK_AND_ASSIGN(const Results expected, TrainIn(InMode("grad_allreduce", 2), spec));
  WEFT_ASSERT_OK_AND_ASSIGN(const Results found, TrainIn(InMode("embedding_offload", 2), spec));
  EXPECT_EQ(BitsOf(found), BitsOf(expected));
}

TEST(TrainOffload, DenseGradientsOfEmbeddingsAreRefused) {
  TrainingSpec spec = Layers(OptimizerKind::kAdam);
  spec.lookups = 1;
  spec.sparse = false;
  EXPECT_THAT(TrainIn(InMode("embedding_offload", 2), spec).status(),
              IsFailedPrecondition("the gradient is dense"));
}

// What `weft stats` prints is what a run has, and no more than what placement by memory assumes.
TEST(TrainOffload, MemoryOfBothDevicesIsEstimated) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    TrainingPrograms programs = BuildPrograms(Layers(OptimizerKind::kAdam));
    TranspileOptions options = InMode("optimizer_offload", 2, {{"buckets", "count{count=2}"}});
    if (ranks == 1) {
      options = {};
      options.passes = "optimizer-offload,hetero-partition{place=op_device,staging=double}";
      options.cluster.nranks = 1;
    }
    WEFT_ASSERT_OK(Rewrite(options, &programs.main, &programs.startup));
    ValueMemory memory;
    WEFT_ASSERT_OK(
        Train(programs.main, programs.startup, programs.feeds, 1, ranks, {}, nullptr, &memory)
            .status());
    PlanOptions plan;
    plan.kernels = &CpuKernels();
    plan.nranks = ranks;
    WEFT_ASSERT_OK_AND_ASSIGN(const MemoryEstimate estimate,
                              EstimateMemory(programs.main, plan, kBatch / ranks));
    ASSERT_TRUE(memory.on_two_devices);
    EXPECT_EQ(estimate.memory.kept, memory.kept);
    EXPECT_EQ(estimate.memory.arena, memory.arena);
    EXPECT_EQ(estimate.memory.host_kept, memory.host_kept);
    EXPECT_EQ(estimate.memory.host_arena, memory.host_arena);
    const DeviceMemories above = EstimateDeviceMemory(programs.main, {}, kBatch / ranks);
    EXPECT_GE(above.Of(DeviceKind::kAccelerator).bytes(), memory.kept + memory.arena);
    EXPECT_GE(above.Of(DeviceKind::kHost).bytes(), memory.host_kept + memory.host_arena);
  }
}

// Also of gradients that travel as slices of buffers.
TEST(TrainOffload, BytesOfParametersInBucketsAreCounted) {
  for (const char* buckets : {"none", "count{count=2}"}) {
    TrainingPrograms programs = BuildPrograms(Layers(OptimizerKind::kAdam));
    WEFT_ASSERT_OK(Rewrite(InMode("optimizer_offload", 2, {{"buckets", buckets}}), &programs.main,
                           &programs.startup));
    const ParameterBytes bytes = FindParameterBytes(programs.main);
    EXPECT_EQ(bytes.Of(DeviceKind::kAccelerator), 8) << buckets;
    EXPECT_NEAR(bytes.Of(DeviceKind::kHost), 16, 0.5) << buckets;
  }
}

// --- Bytes of a parameter ------------------------------------------------------------------------

// Parameters of 64 KiElements in half precision with master weights: their gradients, updates, and
// a use of all of them at the end. The values of a step peak there.
std::string ManyParameters(int count) {
  std::string vars = "    var lr : fp32[1] persistable\n", gradients, updates, uses;
  for (int i = 0; i < count; ++i) {
    const std::vector<std::pair<absl::string_view, std::string>> name = {{"#", absl::StrCat(i)},
                                                                         {"SIZE", "65536"}};
    absl::StrAppend(&vars, absl::StrReplaceAll(R"(
    var w# : fp16[SIZE] parameter persistable
    var w#@GRAD, y# : fp16[SIZE]
    var m#, v#, master# : fp32[SIZE] persistable
    var a#, b# : fp32[1] persistable
)",
                                               name));
    absl::StrAppend(&gradients, absl::StrReplaceAll(R"(
    Out=[w#@GRAD] = fill_constant() role=backward vars=[w#, w#@GRAD] {shape=longs[SIZE], dtype=4, value=1.0}
)",
                                                    name));
    absl::StrAppend(&uses, absl::StrReplaceAll("    Out=[y#] = assign(X=[w#])\n", name));
    absl::StrAppend(&updates, absl::StrReplaceAll(R"(
    Beta1PowOut=[a#], Beta2PowOut=[b#], MasterParamOut=[master#], Moment1Out=[m#], Moment2Out=[v#], ParamOut=[w#] = adam(Beta1Pow=[a#], Beta2Pow=[b#], Grad=[w#@GRAD], LearningRate=[lr], MasterParam=[master#], Moment1=[m#], Moment2=[v#], Param=[w#]) role=optimize vars=[w#, w#@GRAD] {multi_precision=true}
)",
                                                  name));
  }
  std::string text;
  for (const std::string& part : {vars, gradients, uses, updates}) {
    text += absl::StrReplaceAll(part, {{"\n\n", "\n"}});
  }
  absl::StripLeadingAsciiWhitespace(&text);
  return text;
}

// Mixed precision takes 16 bytes of the accelerator for an element, offloaded 4: as counted, and as
// the values of a rank need.
TEST(TrainOffload, ParametersTakeTheBytesThatAreCounted) {
  const int kCount = 16;
  Program main = testing::CompactProgram(ManyParameters(kCount));
  const auto measured = [&](const Program& program) -> absl::StatusOr<double> {
    PlanOptions plan;
    plan.kernels = &CpuKernels();
    WEFT_ASSIGN_OR_RETURN(const MemoryEstimate estimate, EstimateMemory(program, plan, 1));
    return static_cast<double>(estimate.memory.kept + estimate.memory.arena) / (65536.0 * kCount);
  };
  EXPECT_NEAR(FindParameterBytes(main).Of(DeviceKind::kAccelerator), 16, 0.01);
  WEFT_ASSERT_OK_AND_ASSIGN(const double one_device, measured(main));
  EXPECT_GE(one_device, 16);
  EXPECT_LE(one_device, 17);  // one update at a time converts its arguments

  TranspileOptions options;
  options.passes = "optimizer-offload,hetero-partition{place=op_device}";
  options.cluster.nranks = 1;
  WEFT_ASSERT_OK(Rewrite(options, &main));
  EXPECT_NEAR(FindParameterBytes(main).Of(DeviceKind::kAccelerator), 4, 0.01);
  EXPECT_NEAR(FindParameterBytes(main).Of(DeviceKind::kHost), 16, 0.01);
  WEFT_ASSERT_OK_AND_ASSIGN(const double offloaded, measured(main));
  EXPECT_GE(offloaded, 4);
  EXPECT_LE(offloaded, 4.2);  // one y# at a time
}

}  // namespace
}  // namespace weft::testing
