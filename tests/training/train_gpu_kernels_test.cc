// Whole models with the kernels of GPUs, compiled for the host, on a device that records graphs as
// a GPU does: they train as with the kernels of CPUs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/files/params_file.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "executor/step/graph_device_testing.h"
#include "ops/kernel.h"
#include "proto/formats/program_file.h"
#include "tests/support/rounding.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Tensors = std::map<std::string, Tensor>;

constexpr int64_t kSteps = 3, kRows = 4;

// The first rows of the batches: the kernels are loops without optimization here.
FeedSource Shortened(FeedSource all) {
  FeedSource source;
  source.variables = all.variables;
  source.read = [read = all.read](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> batch, read(step));
    for (Tensor& whole : batch) {
      Dims dims = whole.dims();
      if (dims.empty() || dims[0] < kRows) continue;
      dims[0] = kRows;
      Tensor part;
      part.Resize(whole.dtype(), dims);
      std::memcpy(part.raw(), whole.raw(), part.bytes());
      whole = std::move(part);
    }
    return batch;
  };
  return source;
}

struct ModelCase {
  const char* name;
  const char* obstacle;  // of a graph; empty: later steps are replayed
  // More than one: with batch normalization by the statistics of all ranks.
  int nranks = 1;
};

class TrainGpuKernelsTest : public ::testing::TestWithParam<ModelCase> {
 protected:
  static std::string Path(const std::string& file) {
    return absl::StrCat("tests/data/", GetParam().name, "/", file);
  }

  // A bias of keys, which moves all scores of a query by the same number. Its gradient is noise,
  // and Adam takes the sign of that.
  static bool HasNoGradient(const std::string& name) {
    return GetParam().name == std::string("bert_tiny") &&
           (absl::StartsWith(name, "linear_1.b_0") || absl::StartsWith(name, "linear_7.b_0"));
  }

  // The losses are one series, by step and rank.
  static absl::StatusOr<RunResult> Run(const TrainingInputs& from, GraphMode graph,
                                       TrainingResults* results) {
    WEFT_ASSIGN_OR_RETURN(Program main, ReadProgram(Path("main.pb")));
    if (GetParam().nranks > 1) {
      TranspileOptions transpile;
      transpile.mode = "grad_allreduce";
      transpile.cluster.nranks = GetParam().nranks;
      transpile.mode_flags["sync_batch_norm"] = "on";
      ProgramPair programs{&main, /*startup=*/nullptr};
      WEFT_RETURN_IF_ERROR(Transpile(transpile, programs).status());
    }
    RunOptions options;
    options.kernels = from.kernels;
    options.nranks = GetParam().nranks;
    options.steps = kSteps;
    options.graph = graph;
    options.new_device = [](int, Memory*) -> std::unique_ptr<Device> {
      return std::make_unique<RecordingDevice>();
    };
    RunInputs inputs;
    inputs.main = &main;
    inputs.params = &from.params;
    inputs.feeds = from.feeds;
    results->losses.resize(1);
    inputs.on_result = [results](const StepResult& result) {
      for (const Tensor& loss : result.values) results->losses[0].push_back(*loss.data<float>());
      return absl::OkStatus();
    };
    WEFT_ASSIGN_OR_RETURN(RunResult result, RunProgram(inputs, options));
    results->state = result.persistables;
    return result;
  }
};

TEST_P(TrainGpuKernelsTest, ModelsTrainAsOnCpus) {
  TrainingInputs inputs;
  WEFT_ASSERT_OK_AND_ASSIGN(inputs.params,
                            LoadParams(Path("init.params"), Path("persistables.txt")));
  WEFT_ASSERT_OK_AND_ASSIGN(FeedSource feeds, FeedsFromFile(Path("feeds.npz")));
  inputs.feeds = Shortened(std::move(feeds));
  const auto train = [](const TrainingInputs& from) -> absl::StatusOr<TrainingResults> {
    TrainingResults results;
    WEFT_RETURN_IF_ERROR(Run(from, GraphMode::kOff, &results).status());
    return results;
  };
  WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds, RoundingBounds::Measure(inputs, train));
  inputs.kernels = &GpuKernels();
  TrainingResults on_gpu;
  WEFT_ASSERT_OK_AND_ASSIGN(const RunResult found, Run(inputs, GraphMode::kAuto, &on_gpu));
  const TrainingResults& expected = bounds.results();
  EXPECT_GE(expected.losses[0].size(), kSteps);
  bounds.ExpectLosses(0, on_gpu.losses[0], expected.losses[0]);
  ASSERT_EQ(on_gpu.state.size(), expected.state.size());
  for (const auto& [name, want] : expected.state) {
    if (want.dtype() != DType::kFloat32 || HasNoGradient(name)) continue;
    ASSERT_EQ(on_gpu.state.at(name).dims(), want.dims()) << name;
    bounds.ExpectState(name, on_gpu.state.at(name), want);
  }
  const std::string obstacle = GetParam().obstacle;
  EXPECT_THAT(found.graph.obstacle, HasSubstr(obstacle));
  EXPECT_EQ(found.graph.replayed, obstacle.empty() ? kSteps - 1 : 0) << found.graph.obstacle;
}

INSTANTIATE_TEST_SUITE_P(
    Paddle, TrainGpuKernelsTest,
    ::testing::Values(ModelCase{"bert_tiny", ""}, ModelCase{"lenet_momentum", ""},
                      ModelCase{"mlp_adam", ""}, ModelCase{"mlp_clip_global_norm", ""},
                      ModelCase{"mlp_dropout", "(dropout) uses the host"},
                      ModelCase{"resnet18_cifar", ""},
                      ModelCase{"resnet18_cifar", "communicates", 2}, ModelCase{"wide_deep", ""},
                      ModelCase{"word2vec_sparse_sgd", "types that are known only when it runs"}),
    [](const ::testing::TestParamInfo<ModelCase>& info) {
      return info.param.nranks == 1 ? info.param.name
                                    : absl::StrCat(info.param.name, "_", info.param.nranks);
    });

// A label that is no class ends one run, with the rank and the op; the process runs on.
TEST(TrainGpuKernels, AWrongLabelEndsTheRun) {
  const std::string folder = "tests/data/mlp_adam/";
  WEFT_ASSERT_OK_AND_ASSIGN(const Program main, ReadProgram(folder + "main.pb"));
  RunInputs inputs;
  inputs.main = &main;
  WEFT_ASSERT_OK_AND_ASSIGN(const auto params,
                            LoadParams(folder + "init.params", folder + "persistables.txt"));
  inputs.params = &params;
  WEFT_ASSERT_OK_AND_ASSIGN(const FeedSource feeds, FeedsFromFile(folder + "feeds.npz"));
  RunOptions options;
  options.kernels = &GpuKernels();
  options.steps = kSteps;
  options.new_device = [](int, Memory*) -> std::unique_ptr<Device> {
    return std::make_unique<RecordingDevice>();
  };
  for (const bool check_nan : {false, true}) {
    options.check_nan = check_nan;
    for (const bool is_wrong : {true, false}) {
      inputs.feeds = feeds;
      inputs.feeds.read = [&feeds, is_wrong](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
        WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> batch, feeds.read(step));
        for (Tensor& values : batch) {
          if (values.dtype() != DType::kInt64 || step != 1 || !is_wrong) continue;
          values.data<int64_t>()[3] = 77;
        }
        return batch;
      };
      const absl::Status status = RunProgram(inputs, options).status();
      if (!is_wrong) {
        WEFT_EXPECT_OK(status);
        continue;
      }
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  ::testing::MatchesRegex("step 1, rank 0: op [0-9]+ .softmax_with_cross_entropy.: "
                                          "input Label: 77 at position 3 is not in .0, 10."));
    }
  }
}

}  // namespace
}  // namespace weft::testing
