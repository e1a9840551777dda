// A step does not depend on the steps before it but through the state: whatever the batches were,
// a run of many steps gives, bit for bit, what the same steps give one by one, each in a run of its
// own that begins with the state that the one before has left.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/files/params_file.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "ops/kernel.h"
#include "proto/formats/program_file.h"
#include "tests/support/stream_sanitizer.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Tensors = std::map<std::string, Tensor>;

// The batches of steps take these parts of those in the file.
constexpr int64_t kPart[] = {1, 2, 1, 4, 2};

// The first rows of the batches of `all`.
FeedSource Shortened(FeedSource all) {
  FeedSource source;
  source.variables = all.variables;
  source.read = [read = all.read](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> batch, read(step));
    for (Tensor& whole : batch) {
      Dims dims = whole.dims();
      if (dims.empty() || dims[0] < 4) continue;                      // no batch: a learning rate
      dims[0] = std::max<int64_t>(2, dims[0] / kPart[step] / 2 * 2);  // for two ranks
      Tensor part;
      part.Resize(whole.dtype(), dims);
      std::memcpy(part.raw(), whole.raw(), part.bytes());
      whole = std::move(part);
    }
    return batch;
  };
  return source;
}

class TrainBatchesTest : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  static std::string Path(const std::string& file) {
    return absl::StrCat("tests/data/", std::get<0>(GetParam()), "/", file);
  }

  void SetUp() override {
    ranks_ = std::get<1>(GetParam());
    WEFT_ASSERT_OK_AND_ASSIGN(Program main, ReadProgram(Path("main.pb")));
    if (ranks_ > 1) {
      TranspileOptions options;
      options.mode = "grad_allreduce";
      options.cluster.nranks = ranks_;
      ProgramPair programs{&main, /*startup=*/nullptr};
      WEFT_ASSERT_OK(Transpile(options, programs).status());
    }
    main_ = std::make_unique<Program>(std::move(main));
    WEFT_ASSERT_OK_AND_ASSIGN(state_, LoadParams(Path("init.params"), Path("persistables.txt")));
    WEFT_ASSERT_OK_AND_ASSIGN(FeedSource feeds, FeedsFromFile(Path("feeds.npz")));
    feeds_ = Shortened(std::move(feeds));
  }

  absl::StatusOr<Tensors> Run(int64_t begin_step, int64_t steps, const Tensors& state) {
    RunOptions options;
    options.kernels = &CpuKernels();
    options.nranks = ranks_;
    options.begin_step = begin_step;
    options.steps = steps;
    RunInputs inputs;
    inputs.main = main_.get();
    inputs.params = &state;
    inputs.feeds = feeds_;
    WEFT_ASSIGN_OR_RETURN(RunResult result, RunChecked(inputs, options));
    return std::move(result.persistables);
  }

  int ranks_ = 1;
  std::unique_ptr<Program> main_;
  Tensors state_;
  FeedSource feeds_;
};

TEST_P(TrainBatchesTest, StepsDoNotDependOnEarlierBatchSizes) {
  constexpr auto kSteps = static_cast<int64_t>(std::size(kPart));
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors through, Run(0, kSteps, state_));
  Tensors state = std::move(state_);
  for (int64_t step = 0; step < kSteps; ++step) {
    WEFT_ASSERT_OK_AND_ASSIGN(state, Run(step, 1, state));
  }
  ASSERT_EQ(through.size(), state.size());
  for (const auto& [name, expected] : through) {
    const Tensor& found = state.at(name);
    ASSERT_EQ(found.dims(), expected.dims()) << name;
    EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), expected.bytes()), 0) << name;
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<const char*, int>>& info) {
  return absl::StrCat(std::get<0>(info.param), "_", std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
    Paddle, TrainBatchesTest,
    ::testing::Combine(::testing::Values("bert_tiny", "fit_a_line", "lenet_momentum", "mlp_adam",
                                         "mlp_clip_global_norm", "mlp_lr_host", "resnet18_cifar",
                                         "two_losses", "wide_deep", "word2vec_sparse_adam"),
                       ::testing::Values(1, 2)),
    NameOf);

}  // namespace
}  // namespace weft::testing
