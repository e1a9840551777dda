// Modes optimizer_offload and embedding_offload: updates are those of MindSpore's optimizers on the
// host, and ranks train to the bits of grad_allreduce.
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
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
#include "base/status_matchers.h"
#include "executor/memory_estimate.h"
#include "executor/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "ops/analysis/device_placement.h"
#include "ops/analysis/parameter_bytes.h"
#include "ops/float16.h"
#include "ops/kernel.h"
#include "proto/text/program_text.h"
#include "tests/training_programs.h"
#include "tests/training_spec.h"
#include "transpiler/transpile.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::Activation;
using ::weft::testing::BuildPrograms;
using ::weft::testing::kBatch;
using ::weft::testing::OptimizerKind;
using ::weft::testing::StatusIs;
using ::weft::testing::TrainingPrograms;
using ::weft::testing::TrainingSpec;
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

absl::Status Rewrite(const TranspileOptions& options, Program* main, Program* startup) {
  ProgramPair pair{main, startup};
  return Transpile(options, pair).status();
}

// --- MindSpore's optimizers ----------------------------------------------------------------------

constexpr char kMain[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var g : GRAD[5] need_check_feed stop_gradient
    var lr : fp32[1] persistable
    var w : PARAM[5] parameter persistable
    var w@GRAD : GRAD[5]
    var m : fp32[5] persistable
    var v : fp32[5] persistable
    var b1 : fp32[1] persistable
    var b2 : fp32[1] persistable
    var master : fp32[5] persistable
    Out=[w@GRAD] = assign(X=[g]) role=backward vars=[w, w@GRAD]
    Beta1PowOut=[b1], Beta2PowOut=[b2], MOUT Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = TYPE(Beta1Pow=[b1], Beta2Pow=[b2], Grad=[w@GRAD], LearningRate=[lr], MIN Moment1=[m], Moment2=[v], Param=[w]) role=optimize vars=[w, w@GRAD] {beta1=BETA1, beta2=BETA2, epsilon=EPSILON, multi_precision=MULTI DECAY}
  }
})";
constexpr char kStartup[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var lr : fp32[1] persistable
    var m : fp32[5] persistable
    var v : fp32[5] persistable
    var b1 : fp32[1] persistable
    var b2 : fp32[1] persistable
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=RATE}
    Out=[m] = fill_constant() {shape=longs[5], dtype=5, value=0.0}
    Out=[v] = fill_constant() {shape=longs[5], dtype=5, value=0.0}
    Out=[b1] = fill_constant() {shape=longs[1], dtype=5, value=BETA1}
    Out=[b2] = fill_constant() {shape=longs[1], dtype=5, value=BETA2}
  }
})";

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

std::string Text(const char* text, const Json& of) {
  const Json& params = of["params"];
  const auto type = [](const Json& tensor) {
    return tensor["dtype"] == "float16" ? "fp16" : "fp32";
  };
  const bool has_master = params.value("master_weight", "") == "fp32";
  const bool is_delta = of["kind"] == "adam_delta";
  const std::string decay =
      absl::StrCat(", with_decay=true, coeff=", Number(params.value("weight_decay", 0.0)));
  return absl::StrReplaceAll(
      text, {{": GRAD[5]", absl::StrCat(": ", type(of["steps"][0]["grad"]), "[5]")},
             {"PARAM[5]", absl::StrCat(type(of["init"]), "[5]")},
             {"MOUT ", has_master ? "MasterParamOut=[master], " : ""},
             {"MIN ", has_master ? "MasterParam=[master], " : ""},
             {"MULTI", has_master ? "true" : "false"},
             {"TYPE", is_delta ? "adam" : "adamw"},
             {" DECAY", is_delta ? "" : decay},
             {"BETA1", Number(params["beta1"])},
             {"BETA2", Number(params["beta2"])},
             {"EPSILON", Number(params["eps"])},
             {"RATE", Number(params["lr"])}});
}

TEST(TrainOffload, UpdatesAreThoseOfMindSpore) {
  std::ifstream file("tests/data/optimizers/offload.jsonl");
  int num_cases = 0;
  for (std::string line; std::getline(file, line); ++num_cases) {
    const Json of = Json::parse(line);
    SCOPED_TRACE(of["id"].get<std::string>());
    WEFT_ASSERT_OK_AND_ASSIGN(Program main, ParseProgramText(Text(kMain, of)));
    WEFT_ASSERT_OK_AND_ASSIGN(Program startup, ParseProgramText(Text(kStartup, of)));
    TranspileOptions options;
    const std::string master = of["params"].value("master_weight", "fp32");
    options.passes =
        of["kind"] == "adam_delta"
            ? "optimizer-offload{offload=states}"
            : absl::StrCat("optimizer-offload{bias_correction=false,master_weights=", master, "}");
    absl::StrAppend(&options.passes, ",hetero-partition{place=op_device}");
    options.cluster.nranks = 1;
    WEFT_ASSERT_OK(Rewrite(options, &main, &startup));
    ASSERT_TRUE(IsOnTwoDevices(main));
    const Json& steps = of["steps"];
    FeedSource feeds;
    feeds.variables = {"g"};
    feeds.num_steps = static_cast<int64_t>(steps.size());
    feeds.read = [&steps](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
      return std::vector<Tensor>{TensorOf(steps[step]["grad"])};
    };
    Json init = of["init"];
    std::map<std::string, Tensor> params = {{"w", TensorOf(init)}};
    init["dtype"] = "float32";
    params["master"] = TensorOf(init);
    WEFT_ASSERT_OK_AND_ASSIGN(const Results results, Train(main, startup, feeds, feeds.num_steps, 1,
                                                           {"w", "m", "v"}, &params));
    for (size_t step = 0; step < steps.size(); ++step) {
      SCOPED_TRACE(step);
      // Paddle's adam, which the program has, also corrects the epsilon.
      const double tolerance = of["kind"] == "adam_delta" ? 5e-5 : of["atol"].get<double>();
      const auto expect = [&](int fetched, const char* name) {
        ExpectNear(results.at(absl::StrCat(step, "/0/", fetched)), steps[step]["after"][name],
                   of["rtol"], tolerance);
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
  EXPECT_EQ(num_cases, 16);
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

TranspileOptions Mode(const std::string& mode, std::map<std::string, std::string> flags = {}) {
  TranspileOptions options;
  options.mode = mode;
  options.mode_flags = std::move(flags);
  options.cluster.nranks = 2;
  return options;
}

// The losses and parameters of two ranks.
absl::StatusOr<Results> TrainIn(const TranspileOptions& options, const TrainingSpec& spec) {
  TrainingPrograms programs = BuildPrograms(spec);
  WEFT_RETURN_IF_ERROR(Rewrite(options, &programs.main, &programs.startup));
  std::vector<std::string> fetch = programs.losses;
  fetch.insert(fetch.end(), programs.parameters.begin(), programs.parameters.end());
  return Train(programs.main, programs.startup, programs.feeds, /*steps=*/4, /*ranks=*/2, fetch);
}

TEST(TrainOffload, RanksTrainToTheBitsOfOneMemory) {
  for (OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kMomentum}) {
    const TrainingSpec spec = Layers(kind);
    WEFT_ASSERT_OK_AND_ASSIGN(const Results expected, TrainIn(Mode("grad_allreduce"), spec));
    for (const char* order : {"early_start", "few_switches"}) {
      WEFT_ASSERT_OK_AND_ASSIGN(const Results found,
                                TrainIn(Mode("optimizer_offload", {{"order", order}}), spec));
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
        Rewrite(Mode("optimizer_offload", {{"offload", "states"}}), &two.main, &two.startup));
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
  WEFT_ASSERT_OK_AND_ASSIGN(const Results expected, TrainIn(Mode("grad_allreduce"), spec));
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Results found,
      TrainIn(Mode("optimizer_offload", {{"params", programs.parameters[0]}}), spec));
  EXPECT_EQ(BitsOf(found), BitsOf(expected));
}

TEST(TrainOffload, EmbeddingsOnTheHostTrainToTheSameBits) {
  TrainingSpec spec = Layers(OptimizerKind::kAdam);
  spec.lookups = 2;
  spec.sparse = true;
  WEFT_ASSERT_OK_AND_ASSIGN(const Results expected, TrainIn(Mode("grad_allreduce"), spec));
  WEFT_ASSERT_OK_AND_ASSIGN(const Results found, TrainIn(Mode("embedding_offload"), spec));
  EXPECT_EQ(BitsOf(found), BitsOf(expected));
}

TEST(TrainOffload, DenseGradientsOfEmbeddingsAreRefused) {
  TrainingSpec spec = Layers(OptimizerKind::kAdam);
  spec.lookups = 1;
  spec.sparse = false;
  EXPECT_THAT(TrainIn(Mode("embedding_offload"), spec).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("the gradient is dense")));
}

// What `weft stats` prints is what a run has.
TEST(TrainOffload, MemoryOfTheAcceleratorIsEstimated) {
  TrainingPrograms programs = BuildPrograms(Layers(OptimizerKind::kAdam));
  TranspileOptions options;
  options.passes = "optimizer-offload,hetero-partition{place=op_device}";
  options.cluster.nranks = 1;
  WEFT_ASSERT_OK(Rewrite(options, &programs.main, &programs.startup));
  ValueMemory memory;
  WEFT_ASSERT_OK(
      Train(programs.main, programs.startup, programs.feeds, 1, 1, {}, nullptr, &memory).status());
  PlanOptions plan;
  plan.kernels = &CpuKernels();
  WEFT_ASSERT_OK_AND_ASSIGN(const MemoryEstimate estimate,
                            EstimateMemory(programs.main, plan, kBatch));
  ASSERT_TRUE(memory.on_two_devices);
  EXPECT_EQ(estimate.memory.kept, memory.kept);
  EXPECT_EQ(estimate.memory.arena, memory.arena);
  EXPECT_EQ(estimate.memory.host_kept, memory.host_kept);
  EXPECT_EQ(estimate.memory.host_arena, memory.host_arena);
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
    var w#@GRAD : fp16[SIZE]
    var y# : fp16[SIZE]
    var m# : fp32[SIZE] persistable
    var v# : fp32[SIZE] persistable
    var master# : fp32[SIZE] persistable
    var a# : fp32[1] persistable
    var b# : fp32[1] persistable
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
  return absl::StrCat("program version=2006002 {\n  block 0 parent=-1 {\n    ", text, "  }\n}\n");
}

// Mixed precision takes 16 bytes of the accelerator for an element, offloaded 4: as counted, and as
// the values of a rank need.
TEST(TrainOffload, ParametersTakeTheBytesThatAreCounted) {
  const int kCount = 16;
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, ParseProgramText(ManyParameters(kCount)));
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
  ProgramPair pair{&main, nullptr};
  WEFT_ASSERT_OK(Transpile(options, pair).status());
  EXPECT_NEAR(FindParameterBytes(main).Of(DeviceKind::kAccelerator), 4, 0.01);
  EXPECT_NEAR(FindParameterBytes(main).Of(DeviceKind::kHost), 16, 0.01);
  WEFT_ASSERT_OK_AND_ASSIGN(const double offloaded, measured(main));
  EXPECT_GE(offloaded, 4);
  EXPECT_LE(offloaded, 4.2);  // one y# at a time
}

}  // namespace
}  // namespace weft
