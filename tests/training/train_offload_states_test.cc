// Option offload=states: the accelerator keeps parameters, also in half precision, and steps are
// those of the whole update, which a skipped step and a branch that is not taken leave out.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/files/checkpoint.h"
#include "executor/run/runner.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/float16.h"
#include "ops/kernel.h"
#include "proto/text/program_text.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

constexpr int kSize = 5;
constexpr int kSteps = 5;
constexpr int kSkipped = 2;  // this step has gradients of NaN

// The main program: its parameter is in PARAM, and its update in UPDATE. The gradient is
// the mean of g over the samples, times factor.
constexpr char kMain[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var g : PARAM[-1, 5] need_check_feed stop_gradient
    var found : bool[1] need_check_feed stop_gradient
    var due : bool[1] need_check_feed stop_gradient
    var factor : PARAM[1] need_check_feed stop_gradient
    var scope : step_scopes
    var lr : fp32[1] persistable
    var w : PARAM[5] parameter persistable
    var mean : PARAM[5]
    var w@GRAD : PARAM[5]
    var y : PARAM[-1, 5]
    var y@GRAD : PARAM[-1, 5]
    var sample : PARAM[-1]
    var sample@GRAD : PARAM[-1]
    var loss : PARAM[]
    var loss@GRAD : PARAM[]
    var m : fp32[5] persistable
    var v : fp32[5] persistable
    var b1 : fp32[1] persistable
    var b2 : fp32[1] persistable
    var master : fp32[5] persistable
    Out=[y] = elementwise_mul(X=[g], Y=[w]) {axis=-1}
    Out=[sample] = reduce_sum(X=[y]) {dim=ints[1], keep_dim=false, reduce_all=false}
    Out=[loss] = mean(X=[sample]) role=loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=DTYPE, value=1.0}
    X@GRAD=[sample@GRAD] = mean_grad(X=[sample], Out@GRAD=[loss@GRAD]) role=backward
    X@GRAD=[y@GRAD] = reduce_sum_grad(X=[y], Out@GRAD=[sample@GRAD]) role=backward {dim=ints[1], keep_dim=false, reduce_all=false}
    Y@GRAD=[mean] = elementwise_mul_grad(X=[g], Y=[w], Out@GRAD=[y@GRAD]) role=backward {axis=-1}
    Out=[w@GRAD] = elementwise_mul(X=[mean], Y=[factor]) role=backward vars=[w, w@GRAD] {axis=-1}
UPDATE
  }
})";
constexpr char kBranch[] =
    "    Out=[w, master, m, v, b1, b2], Scope=[scope] = conditional_block(Cond=[due], Input=[w, "
    "master, m, v, b1, b2, w@GRAD, lr, found]) role=optimize {is_scalar_condition=true, "
    "sub_block=block(1)}\n  }\n  block 1 parent=0 {\n";
constexpr char kStartup[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var lr : fp32[1] persistable
    var w : PARAM[5] parameter persistable
    var m : fp32[5] persistable
    var v : fp32[5] persistable
    var b1 : fp32[1] persistable
    var b2 : fp32[1] persistable
    var master : fp32[5] persistable
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.01}
    Out=[w] = fill_constant() {shape=longs[5], dtype=DTYPE, value=0.0}
    Out=[m] = fill_constant() {shape=longs[5], dtype=5, value=0.0}
    Out=[v] = fill_constant() {shape=longs[5], dtype=5, value=0.0}
    Out=[b1] = fill_constant() {shape=longs[1], dtype=5, value=0.9}
    Out=[b2] = fill_constant() {shape=longs[1], dtype=5, value=0.99}
    Out=[master] = fill_constant() {shape=longs[5], dtype=5, value=0.0}
  }
})";

struct Case {
  const char *type, *attrs;
  const char* dtype = "fp32";
  bool has_master = false;
  bool skips = false;  // has a SkipUpdate
  bool in_branch = false;
  int ranks = 1;
};

std::string Update(const Case& of) {
  const bool is_plain = absl::string_view(of.type) == "sgd";
  const bool has_velocity = absl::string_view(of.type) == "momentum";
  const std::string master_in = of.has_master ? "MasterParam=[master], " : "";
  const std::string master_out = of.has_master ? "MasterParamOut=[master], " : "";
  std::string outputs, inputs;
  if (has_velocity) {
    outputs = ", VelocityOut=[m]";
    inputs = ", Velocity=[m]";
  } else if (!is_plain) {
    outputs = ", Beta1PowOut=[b1], Beta2PowOut=[b2], Moment1Out=[m], Moment2Out=[v]";
    inputs = ", Beta1Pow=[b1], Beta2Pow=[b2], Moment1=[m], Moment2=[v]";
  }
  return absl::StrCat("    ", master_out, "ParamOut=[w]", outputs, " = ", of.type,
                      "(Grad=[w@GRAD], LearningRate=[lr], ", master_in, "Param=[w]", inputs,
                      of.skips ? ", SkipUpdate=[found]" : "",
                      ") role=optimize vars=[w, w@GRAD] {multi_precision=",
                      of.has_master ? "true" : "false", of.attrs, "}");
}

float Value(const Tensor& tensor, int64_t i) {
  if (tensor.dtype() == DType::kFloat16) return static_cast<float>(tensor.data<Float16>()[i]);
  if (tensor.dtype() == DType::kBFloat16) return static_cast<float>(tensor.data<BFloat16>()[i]);
  return tensor.data<float>()[i];
}

DType TypeOf(const Case& of) {
  const absl::string_view name = of.dtype;
  if (name == "fp16") return DType::kFloat16;
  return name == "bf16" ? DType::kBFloat16 : DType::kFloat32;
}

Tensor TensorOf(DType dtype, const std::vector<float>& values) {
  Tensor tensor;
  tensor.Resize(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kFloat16) tensor.data<Float16>()[i] = Float16(values[i]);
    if (dtype == DType::kBFloat16) tensor.data<BFloat16>()[i] = BFloat16(values[i]);
    if (dtype == DType::kFloat32) tensor.data<float>()[i] = values[i];
  }
  return tensor;
}

// One for each rank.
Tensor Flags(bool value, int ranks) {
  Tensor tensor;
  tensor.Resize(DType::kBool, {ranks});
  std::fill_n(tensor.data<bool>(), ranks, value);
  return tensor;
}

const std::vector<float> kFirst = {1, -2, 0.5, 0.125, 3};

// The gradients of two samples, whose mean is `grad`, also in half precision.
std::vector<float> SamplesOf(const std::vector<float>& grad) {
  std::vector<float> samples;
  for (size_t sample : {0, 1}) {
    for (size_t i = 0; i < grad.size(); ++i) samples.push_back(i % 2 == sample ? 2 * grad[i] : 0);
  }
  return samples;
}

// Feeds gradients of NaN in the step that is skipped, or in which the branch is not taken.
FeedSource Feeds(const Case& of) {
  FeedSource feeds;
  feeds.variables = {"g", "found", "due", "factor"};
  feeds.num_steps = kSteps;
  feeds.read = [of](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    const auto scale = static_cast<float>(1 + step);
    const std::vector<float> grad = {0.5f * scale, -1.0f, 0.25f, 2.0f - scale, 1e-3f};
    const bool skips = step == kSkipped && (of.skips || of.in_branch);
    std::vector<Tensor> values;
    Tensor samples = TensorOf(TypeOf(of), SamplesOf(grad));
    samples.Resize(samples.dtype(), {2, kSize});
    values.push_back(std::move(samples));
    values.push_back(Flags(skips && of.skips, of.ranks));
    values.push_back(Flags(!skips || of.skips, of.ranks));
    const float factor = skips ? std::numeric_limits<float>::quiet_NaN() : 1;
    values.push_back(TensorOf(TypeOf(of), std::vector<float>(of.ranks, factor)));
    return values;
  };
  return feeds;
}

struct Programs {
  Program main, startup;
};

absl::StatusOr<Programs> Offloaded(const Case& of, absl::string_view offload) {
  const std::string update = absl::StrCat(of.in_branch ? kBranch : "", Update(of));
  const std::vector<std::pair<std::string, std::string>> values = {
      {"UPDATE", update},
      {"PARAM", of.dtype},
      {"DTYPE", absl::StrCat(static_cast<int>(TypeOf(of)))}};
  WEFT_ASSIGN_OR_RETURN(Program main, ParseProgramText(absl::StrReplaceAll(kMain, values)));
  WEFT_ASSIGN_OR_RETURN(Program startup, ParseProgramText(absl::StrReplaceAll(kStartup, values)));
  const std::string exchange =
      of.ranks == 1 ? "" : "comm-init,broadcast-params,grad-all-reduce{scale=avg,buckets=bytes},";
  TranspileOptions options;
  options.passes = absl::StrCat(exchange, "optimizer-offload{offload=", offload,
                                ",master_weights=", of.has_master ? "fp32" : "none",
                                "},hetero-partition{place=op_device,", "staging=double}");
  options.cluster.nranks = of.ranks;
  options.verification = Verification::kAfterEachPass;
  ProgramPair pair{&main, &startup};
  WEFT_RETURN_IF_ERROR(Transpile(options, pair).status());
  return Programs{std::move(main), std::move(startup)};
}

std::string BitsOf(const Tensor& tensor) {
  return std::string(static_cast<const char*>(tensor.raw()), tensor.bytes());
}

const std::vector<std::string> kFetched = {"w", "master", "m", "v", "b1"};

// By step and name; equal on all ranks. `at_third`: where to write a checkpoint of the state before
// step 3.
using Results = std::map<std::pair<int64_t, std::string>, Tensor>;

absl::StatusOr<Results> Train(const Case& of, const Programs& programs,
                              const std::string& at_third = "",
                              const Checkpoint* resume = nullptr) {
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = of.ranks;
  options.begin_step = resume == nullptr ? 0 : resume->step;
  options.steps = kSteps - options.begin_step;
  options.fetch = kFetched;
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  std::map<std::string, Tensor> params;
  params["w"] = TensorOf(TypeOf(of), kFirst);
  params["master"] = TensorOf(DType::kFloat32, kFirst);
  inputs.params = &params;
  inputs.feeds = Feeds(of);
  inputs.resume = resume;
  if (!at_third.empty()) {
    options.checkpoint_every = 3;
    inputs.on_checkpoint = [&](Checkpoint checkpoint) {
      return checkpoint.step == 3 ? WriteCheckpoint(at_third, checkpoint) : absl::OkStatus();
    };
  }
  Results results;
  inputs.on_result = [&](const StepResult& result) {
    for (size_t i = 0; i < kFetched.size(); ++i) {
      Tensor& first = results[{result.step, kFetched[i]}];
      if (result.rank == 0) first = result.values[i].Clone();
      EXPECT_EQ(BitsOf(result.values[i]), BitsOf(first)) << result.rank << " " << kFetched[i];
    }
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(RunProgram(inputs, options).status());
  return results;
}

// A unit in the last place of a number, relative to it.
double UnitOf(DType dtype) {
  if (dtype == DType::kFloat16) return 1.0 / 1024;
  return dtype == DType::kBFloat16 ? 1.0 / 128 : 2e-6;
}

void ExpectNear(const Tensor& found, const Tensor& expected, double units) {
  ASSERT_EQ(found.dtype(), expected.dtype());
  ASSERT_EQ(found.size(), expected.size());
  const double unit = units * UnitOf(expected.dtype());
  for (int64_t i = 0; i < found.size(); ++i) {
    const float value = Value(expected, i);
    EXPECT_LE(std::fabs(Value(found, i) - value), 1e-6 + unit * std::fabs(value)) << i;
  }
}

constexpr char kRegularized[] =
    ", mu=0.9, regularization_coeff=0.5, regularization_method=\"l2_decay\", rescale_grad=0.5";

// Trains with the whole update on the host, on one rank, and with offload=states.
void ExpectStepsOfTheWholeUpdate(const Case& of) {
  SCOPED_TRACE(absl::StrCat(of.type, of.attrs, " ", of.dtype, of.has_master ? ", master" : "",
                            of.skips ? ", skips" : "", of.in_branch ? ", branch" : "", ", ",
                            of.ranks, " ranks"));
  Case on_one_rank = of;
  on_one_rank.ranks = 1;
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs whole, Offloaded(on_one_rank, "full"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs split, Offloaded(of, "states"));
  ASSERT_TRUE(IsOnTwoDevices(split.main));
  ASSERT_TRUE(absl::StrContains(ProgramText(split.main), "w@DELTA"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Results expected, Train(on_one_rank, whole));
  const std::string path = ::testing::TempDir() + "/at_third.ckpt";
  WEFT_ASSERT_OK_AND_ASSIGN(const Results found, Train(of, split, path));
  // Without a master weight, steps start from parameters that are rounded, once, or twice where the
  // change is, too: errors add up.
  const bool rounds = TypeOf(of) != DType::kFloat32 && !of.has_master;
  const bool moves_by_parameter = absl::StrContains(of.attrs, "regularization");
  for (int64_t step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    ExpectNear(found.at({step, "w"}), expected.at({step, "w"}), rounds ? 1.0 + step : 1.0);
    if (of.has_master) ExpectNear(found.at({step, "master"}), expected.at({step, "master"}), 1);
    for (const char* state : {"m", "v", "b1"}) {
      if (rounds && moves_by_parameter) continue;
      ExpectNear(found.at({step, state}), expected.at({step, state}), moves_by_parameter ? 1 : 0);
    }
    for (int64_t i = 0; i < kSize; ++i) EXPECT_TRUE(std::isfinite(Value(found.at({step, "w"}), i)));
  }
  EXPECT_NE(BitsOf(found.at({0, "w"})), BitsOf(TensorOf(TypeOf(of), kFirst)));
  if (of.skips || of.in_branch) {
    for (const std::string& name : kFetched) {
      EXPECT_EQ(BitsOf(found.at({kSkipped, name})), BitsOf(found.at({kSkipped - 1, name}))) << name;
    }
  }
  EXPECT_NE(BitsOf(found.at({3, "w"})), BitsOf(found.at({kSkipped, "w"})));
  WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, ReadCheckpoint(path));
  WEFT_ASSERT_OK_AND_ASSIGN(const Results resumed, Train(of, split, "", &checkpoint));
  for (const auto& [key, tensor] : resumed) EXPECT_EQ(BitsOf(tensor), BitsOf(found.at(key)));
  EXPECT_EQ(resumed.size(), kFetched.size() * 2);
}

TEST(TrainOffloadStates, ParametersInHalfPrecisionTrain) {
  for (const char* dtype : {"fp16", "bf16"}) {
    for (const bool has_master : {true, false}) {
      ExpectStepsOfTheWholeUpdate({"sgd", "", dtype, has_master});
      ExpectStepsOfTheWholeUpdate({"momentum", ", mu=0.9", dtype, has_master});
      ExpectStepsOfTheWholeUpdate({"momentum", kRegularized, dtype, has_master});
      ExpectStepsOfTheWholeUpdate({"adam", "", dtype, has_master});
      ExpectStepsOfTheWholeUpdate({"adamw", ", coeff=0.5, with_decay=true", dtype, has_master});
      ExpectStepsOfTheWholeUpdate({"lamb", ", weight_decay=0.5", dtype, has_master});
      ExpectStepsOfTheWholeUpdate({"lamb", ", weight_decay=0.0", dtype, has_master});
    }
  }
}

TEST(TrainOffloadStates, TwoRanksTrainAsOneDevice) {
  for (const char* dtype : {"fp32", "fp16", "bf16"}) {
    for (const bool has_master : {true, false}) {
      if (has_master && absl::string_view(dtype) == "fp32") continue;
      for (const auto& [type, attrs] : std::vector<std::pair<const char*, const char*>>{
               {"sgd", ""},
               {"momentum", ", mu=0.9"},
               {"momentum", kRegularized},
               {"adam", ""},
               {"adamw", ", coeff=0.5, with_decay=true"},
               {"lamb", ", weight_decay=0.5"}}) {
        ExpectStepsOfTheWholeUpdate(
            {type, attrs, dtype, has_master, /*skips=*/false, /*in_branch=*/false, /*ranks=*/2});
      }
    }
  }
}

TEST(TrainOffloadStates, SkippedStepsChangeNothing) {
  for (const char* dtype : {"fp32", "fp16"}) {
    for (const bool has_master : {false, true}) {
      if (has_master && absl::string_view(dtype) == "fp32") continue;
      ExpectStepsOfTheWholeUpdate({"adam", "", dtype, has_master, /*skips=*/true});
      ExpectStepsOfTheWholeUpdate(
          {"adamw", ", coeff=0.5, with_decay=true, lr_ratio=0.5", dtype, has_master, true});
      ExpectStepsOfTheWholeUpdate({"lamb", ", weight_decay=0.5", dtype, has_master, true});
      ExpectStepsOfTheWholeUpdate(
          {"lamb", ", weight_decay=0.0, always_adapt=true", dtype, has_master, true});
    }
  }
}

TEST(TrainOffloadStates, BranchesThatAreNotTakenChangeNothing) {
  for (const char* dtype : {"fp32", "bf16"}) {
    const bool has_master = absl::string_view(dtype) == "bf16";
    ExpectStepsOfTheWholeUpdate({"sgd", "", dtype, has_master, false, /*in_branch=*/true});
    ExpectStepsOfTheWholeUpdate({"adam", "", dtype, false, false, true});
    for (const bool skips : {false, true}) {
      ExpectStepsOfTheWholeUpdate(
          {"adamw", ", coeff=0.5, with_decay=true", dtype, has_master, skips, true});
      ExpectStepsOfTheWholeUpdate({"lamb", ", weight_decay=0.5", dtype, false, skips, true});
    }
  }
}

}  // namespace
}  // namespace weft::testing
