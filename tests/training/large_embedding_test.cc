// A table that does not fit on the accelerator trains on the host: 4 GiB beside 64 MiB.
//
//   bazel test //tests/training:large_embedding_test           takes 5 GiB of memory
//   bazel run //tests/training:large_embedding_test -- --gib=1
#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "executor/run/runner.h"
#include "ops/kernel.h"
#include "proto/text/program_text.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

int64_t gib = 4;  // --gib

constexpr int64_t kWidth = 256;
constexpr int64_t kDeviceBytes = int64_t{64} << 20;
int64_t NumRows() { return (gib << 30) / (kWidth * int64_t{sizeof(float)}); }

// All elements begin as 1, and the gradient of each lookup is 1.
constexpr char kMain[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var ids : int64[-1, 1] need_check_feed stop_gradient
    var lr : fp32[1] persistable
    var w : fp32[ROWS, 256] parameter persistable
    var e : fp32[-1, 1, 256]
    var y : fp32[-1, 1, 256]
    var e@GRAD : fp32[-1, 1, 256]
    var w@GRAD : selected_rows<fp32[ROWS, 256]>
    Out=[e] = lookup_table_v2(Ids=[ids], W=[w]) {is_sparse=true}
    Out=[y] = scale(X=[e]) {scale=1.0}
    Out=[e@GRAD] = scale(X=[y]) role=backward {scale=0.0, bias=1.0}
    W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[e@GRAD], W=[w]) role=backward vars=[w, w@GRAD] {is_sparse=true}
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize vars=[w, w@GRAD]
  }
})";
constexpr char kStartup[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var lr : fp32[1] persistable
    var w : fp32[ROWS, 256] parameter persistable
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.25}
    Out=[w] = fill_constant() {shape=longs[ROWS, 256], dtype=5, value=1.0}
  }
})";

absl::StatusOr<Program> ProgramOf(const char* text) {
  return ParseProgramText(absl::StrReplaceAll(text, {{"ROWS", absl::StrCat(NumRows())}}));
}

TEST(LargeEmbedding, TrainsBesideASmallDevice) {
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, ProgramOf(kMain));
  WEFT_ASSERT_OK_AND_ASSIGN(Program startup, ProgramOf(kStartup));
  TranspileOptions rewrite;
  rewrite.passes = "embedding-offload,hetero-partition{place=op_device}";
  rewrite.cluster.nranks = 1;
  ProgramPair pair{&main, &startup};
  WEFT_ASSERT_OK(Transpile(rewrite, pair).status());
  // The first row, one of the middle, twice, and the last one.
  const std::vector<int64_t> looked_up = {0, NumRows() / 2, NumRows() - 1, NumRows() / 2};
  RunOptions options;
  options.kernels = &CpuKernels();
  options.steps = 3;
  options.fetch = {"y"};
  options.sim.memory_bytes = kDeviceBytes;
  RunInputs inputs;
  inputs.main = &main;
  inputs.startup = &startup;
  inputs.feeds = {{"ids"}, [&](int64_t) -> absl::StatusOr<std::vector<Tensor>> {
                    std::vector<Tensor> feeds(1);
                    feeds[0].Resize(DType::kInt64, {static_cast<int64_t>(looked_up.size()), 1});
                    std::copy(looked_up.begin(), looked_up.end(), feeds[0].data<int64_t>());
                    return feeds;
                  }};
  inputs.on_result = [&](const StepResult& result) {
    const float* const y = result.values[0].data<float>();
    for (size_t i = 0; i < looked_up.size(); ++i) {
      const float times = looked_up[i] == NumRows() / 2 ? 2 : 1;
      const std::vector<float> row(y + i * kWidth, y + (i + 1) * kWidth);
      EXPECT_THAT(row, Each(1 - 0.25f * times * static_cast<float>(result.step))) << i;
    }
    return absl::OkStatus();
  };
  WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, RunProgram(inputs, options));
  EXPECT_GE(result.memory.host_kept, gib << 30);
  EXPECT_LE(result.memory.kept + result.memory.arena, kDeviceBytes);
}

}  // namespace
}  // namespace weft::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const absl::string_view arg = argv[i];
    if (absl::StartsWith(arg, "--gib=") && !absl::SimpleAtoi(arg.substr(6), &weft::gib)) return 2;
  }
  return RUN_ALL_TESTS();
}
