// Mixed precision: what a program of Paddle's AMP computes in half precision trains, and the scale
// of its loss follows the gradients. Paddle's CPU build does not run these programs: what is
// expected is the rule of update_loss_scaling.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "executor/run/runner.h"
#include "ops/kernel.h"
#include "proto/program.h"
#include "tests/support/stream_sanitizer.h"
#include "transpiler/modes.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

constexpr int64_t kRows = 32, kFeatures = 64, kBatches = 4;

// Rows whose label says which of the first ten features is largest.
std::vector<Tensor> Batch(int64_t step) {
  Tensor x, y;
  x.Resize(DType::kFloat32, {kRows, kFeatures});
  y.Resize(DType::kInt64, {kRows, 1});
  for (int64_t row = 0; row < kRows; ++row) {
    float* features = x.data<float>() + row * kFeatures;
    for (int64_t i = 0; i < kFeatures; ++i) {
      features[i] = std::sin(static_cast<float>((step % kBatches * kRows + row) * 7 + i * i));
    }
    y.data<int64_t>()[row] = std::max_element(features, features + 10) - features;
  }
  return {std::move(x), std::move(y)};
}

// Images, labelled by the channel that is brightest.
std::vector<Tensor> Images(int64_t step) {
  Tensor x, y;
  x.Resize(DType::kFloat32, {kRows, 3, 8, 8});
  y.Resize(DType::kInt64, {kRows, 1});
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t row = i / (3 * 64), channel = i / 64 % 3, label = (row * 5 + step) % 3;
    x.data<float>()[i] =
        std::sin(static_cast<float>(i * 7 + step % kBatches)) + (channel == label ? 1.0f : 0.0f);
    y.data<int64_t>()[row] = label;
  }
  return {std::move(x), std::move(y)};
}

// Modes that make gradients smaller on their way.
bool NeedsFloats(const Mode& mode) {
  return mode.name == "singa_half" || mode.name == "singa_sparse_topk" ||
         mode.name == "singa_sparse_threshold";
}

class TrainAmpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* archive : {"tests/data/programs.tar.xz", "tests/data/conv_amp.tar.xz"}) {
      WEFT_ASSERT_OK_AND_ASSIGN(auto files, testing::ReadTarXz(archive));
      files_.merge(files);
    }
    options_.kernels = &CpuKernels();
    options_.steps = 40;
  }

  // With options_.nranks above 1 it is transpiled first.
  absl::StatusOr<RunResult> Train(const std::string& model,
                                  const std::map<std::string, Tensor>& params = {}) {
    WEFT_ASSIGN_OR_RETURN(Program main, Program::Parse(files_.at(model + "/main.pb")));
    WEFT_ASSIGN_OR_RETURN(Program startup, Program::Parse(files_.at(model + "/startup.pb")));
    if (options_.nranks > 1) {
      TranspileOptions options = transpile_options_;
      options.cluster.nranks = options_.nranks;
      options.verification = Verification::kAfterEachPass;
      ProgramPair programs{&main, &startup};
      WEFT_ASSIGN_OR_RETURN(const TranspileResult result, Transpile(options, programs));
      setting_ = result.setting;
    }
    RunInputs inputs;
    inputs.main = &main;
    inputs.startup = &startup;
    inputs.params = &params;
    inputs.feeds = {{"x", "y"}, [this](int64_t step) { return batch_(step); }};
    inputs.on_result = [this](const StepResult& result) {
      if (result.rank == 0) results_.push_back(result);
      return absl::OkStatus();
    };
    results_.clear();
    return RunChecked(inputs, options_);
  }

  // The mean of the losses of the batches, from `step` on.
  double LossFrom(int64_t step) const {
    double sum = 0;
    for (int64_t i = 0; i < kBatches; ++i) sum += *results_[step + i].values[0].data<float>();
    return sum / kBatches;
  }

  static std::map<std::string, Tensor> Scale(float value) {
    std::map<std::string, Tensor> params;
    params["loss_scaling_0"].Resize(DType::kFloat32, {1});
    *params["loss_scaling_0"].data<float>() = value;
    return params;
  }

  static TranspileOptions InMode(const std::string& mode) {
    TranspileOptions options;
    options.mode = mode;
    options.mode_flags = (*FindMode(mode))->required;
    return options;
  }

  std::map<std::string, std::string> files_;
  RunOptions options_;
  TranspileOptions transpile_options_ = InMode("grad_allreduce");
  Setting setting_;  // that the last program was transpiled for
  std::function<std::vector<Tensor>(int64_t step)> batch_ = Batch;
  std::vector<StepResult> results_;
};

TEST_F(TrainAmpTest, LossFallsInBothHalfPrecisions) {
  options_.fetch = {"mean_0.tmp_0"};
  for (int ranks : {1, 2}) {
    options_.nranks = ranks;
    for (const char* model : {"mlp_amp", "mlp_amp_bf16"}) {
      WEFT_ASSERT_OK(Train(model).status());
      ASSERT_THAT(results_, SizeIs(40));
      EXPECT_LT(LossFrom(36), 0.8 * LossFrom(0)) << model << " on " << ranks << " ranks";
    }
  }
}

// What is reported is what the user has defined, and not its product with the scale.
TEST_F(TrainAmpTest, ReportsTheUnscaledLoss) {
  for (const char* model : {"mlp_amp", "mlp_amp_bf16"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, Train(model));
    EXPECT_THAT(result.fetch, ElementsAre("mean_0.tmp_0")) << model;
    ASSERT_THAT(results_, SizeIs(40));
    EXPECT_LT(LossFrom(0), 10) << model;
  }
}

// A scale of 2^127 makes the scaled loss infinite: the step is skipped, the scale is halved, and
// the run goes on.
TEST_F(TrainAmpTest, InfiniteScaledLossDoesNotEndTheRun) {
  options_.fetch = {"tmp_0", "find_infinite_scale.tmp_0"};
  WEFT_ASSERT_OK(Train("mlp_amp", Scale(0x1p127f)).status());
  ASSERT_THAT(results_, SizeIs(40));
  EXPECT_TRUE(std::isinf(*results_[0].values[0].data<float>()));
  EXPECT_TRUE(*results_[0].values[1].data<bool>());
  EXPECT_TRUE(std::isfinite(*results_[39].values[0].data<float>()));
}

TEST_F(TrainAmpTest, SavedStateIsSinglePrecision) {
  for (const char* model : {"mlp_amp", "mlp_amp_bf16"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, Train(model));
    for (const auto& [name, tensor] : result.persistables) {
      EXPECT_NE(tensor.dtype(), DType::kFloat16) << name;
      EXPECT_NE(tensor.dtype(), DType::kBFloat16) << name;
    }
  }
}

// A scale of 2^30 is too large for fp16: it is halved at every step, without an update, until the
// gradients are finite; then it doubles after every four good steps.
TEST_F(TrainAmpTest, ScaleFollowsTheGradients) {
  options_.fetch = {"find_infinite_scale.tmp_0", "loss_scaling_0", "num_good_steps_0",
                    "num_bad_steps_0", "fc_0.w_0"};
  WEFT_ASSERT_OK(Train("mlp_amp", Scale(0x1p30f)).status());
  double scale = 0x1p30;
  int good = 0, found = 0;
  std::vector<float> first_weights;
  for (const StepResult& step : results_) {
    const bool is_infinite = *step.values[0].data<bool>();
    found += is_infinite ? 1 : 0;
    good = is_infinite ? 0 : good + 1;
    if (is_infinite) scale /= 2;
    if (good == 4) {
      scale *= 2;
      good = 0;
    }
    EXPECT_EQ(*step.values[1].data<float>(), scale) << step.step;
    EXPECT_EQ(*step.values[2].data<int32_t>(), good) << step.step;
    EXPECT_EQ(*step.values[3].data<int32_t>(), 0) << step.step;
    const Tensor& w = step.values[4];
    const std::vector<float> weights(w.data<float>(), w.data<float>() + w.size());
    if (found == step.step + 1) {  // none but infinite gradients so far
      if (first_weights.empty()) first_weights = weights;
      EXPECT_EQ(weights, first_weights) << step.step;
    }
  }
  EXPECT_GT(found, 5);
  EXPECT_LT(found, 35);
}

// All ranks find the same, and keep the same scale.
TEST_F(TrainAmpTest, RanksAgreeOnTheScale) {
  options_.fetch = {"loss_scaling_0"};
  options_.nranks = 2;
  WEFT_ASSERT_OK(Train("mlp_amp", Scale(0x1p30f)).status());
  const double last = *results_.back().values[0].data<float>();
  EXPECT_LT(last, 0x1p28);
  EXPECT_GE(last, 1);
}

// Each rank searches its shares for elements that are not finite. All skip the same steps.
TEST_F(TrainAmpTest, SharesTrainAsWholeGradientsDo) {
  options_.fetch = {"loss_scaling_0", "mean_0.tmp_0"};
  options_.steps = 16;
  for (const int nranks : {1, 2, 4}) {
    options_.nranks = nranks;
    transpile_options_ = InMode("grad_allreduce");
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult expected, Train("mlp_amp", Scale(0x1p26f)));
    const std::vector<StepResult> steps = std::move(results_);
    for (const char* stage : {"1", "3"}) {
      SCOPED_TRACE(absl::StrCat(nranks, " ranks, stage ", stage));
      transpile_options_ = InMode("zero");
      transpile_options_.mode_flags["stage"] = stage;
      WEFT_ASSERT_OK_AND_ASSIGN(const RunResult found, Train("mlp_amp", Scale(0x1p26f)));
      EXPECT_EQ(setting_.shares.empty(), nranks == 1);
      ASSERT_EQ(results_.size(), steps.size());
      for (size_t step = 0; step < steps.size(); ++step) {
        for (size_t i = 0; i < options_.fetch.size(); ++i) {
          EXPECT_EQ(*results_[step].values[i].data<float>(), *steps[step].values[i].data<float>())
              << options_.fetch[i] << " in step " << step;
        }
      }
      EXPECT_LT(*results_.back().values[0].data<float>(), 0x1p26f) << "no step was skipped";
    }
  }
}

// A convolutional net of batch and group normalization, a residual connection, pooling and dropout.
// Paddle declares what the normalizations keep for their gradients in other types than they have.
TEST_F(TrainAmpTest, ConvolutionalNetTrainsInEveryMode) {
  batch_ = Images;
  options_.steps = 8;
  options_.fetch = {"mean_1.tmp_0"};
  for (const char* model : {"conv_amp_fp16", "conv_amp_bf16"}) {
    SCOPED_TRACE(model);
    for (const Mode& mode : Modes()) {
      SCOPED_TRACE(mode.name);
      options_.nranks = mode.pipelines.empty() ? 1 : 2;
      transpile_options_ = InMode(mode.name);
      const absl::Status status = Train(model).status();
      if (NeedsFloats(mode)) {
        EXPECT_THAT(status, IsFailedPrecondition("expected fp32"));
        continue;
      }
      WEFT_ASSERT_OK(status);
      ASSERT_THAT(results_, SizeIs(8));
      EXPECT_LT(LossFrom(4), 0.9 * LossFrom(0));
    }
  }
}

// Paddle declares a variable @EMPTY@ in place of the gradients that the branch does not give.
TEST_F(TrainAmpTest, NormalizationInABranchTrainsInEveryMode) {
  batch_ = Images;
  options_.steps = 8;
  options_.fetch = {"mean_2.tmp_0"};
  for (const Mode& mode : Modes()) {
    SCOPED_TRACE(mode.name);
    options_.nranks = mode.pipelines.empty() ? 1 : 2;
    transpile_options_ = InMode(mode.name);
    WEFT_ASSERT_OK(Train("branch_norm").status());
    ASSERT_THAT(results_, SizeIs(8));
    EXPECT_LT(LossFrom(4), LossFrom(0));
  }
}

// Parameters in fp16, with master weights. Their values come from amp_init, outside of the startup
// program.
TEST_F(TrainAmpTest, ConvolutionalNetOfHalfParametersIsTranspiledInEveryMode) {
  for (const Mode& mode : Modes()) {
    for (Dialect dialect : DialectsOf(mode)) {
      SCOPED_TRACE(absl::StrCat(mode.name, dialect == Dialect::kWeft ? " weft" : " paddle"));
      WEFT_ASSERT_OK_AND_ASSIGN(Program main,
                                Program::Parse(files_.at("conv_amp_fp16_o2/main.pb")));
      WEFT_ASSERT_OK_AND_ASSIGN(Program startup,
                                Program::Parse(files_.at("conv_amp_fp16_o2/startup.pb")));
      ProgramPair programs{&main, &startup};
      TranspileOptions options = InMode(mode.name);
      options.dialect = dialect;
      options.verification = Verification::kAfterEachPass;
      if (!mode.pipelines.empty()) options.cluster.endpoints = {"a:6170", "b:6170"};
      if (mode.trainers == Mode::Trainers::kOneOrMoreWithDevices) {
        options.cluster.devices = std::vector<int>{0};
      }
      const absl::Status status = Transpile(options, programs).status();
      if (NeedsFloats(mode)) {
        EXPECT_THAT(status, IsFailedPrecondition("expected fp32"));
      } else {
        WEFT_EXPECT_OK(status);
      }
    }
  }
}

}  // namespace
}  // namespace weft::testing
