// Optimizers that Paddle has since version 3, in programs of its old format: trained as Paddle
// 3.3.1 trained them, and rewritten. tools/paddle/op_programs.py writes them, with
// FLAGS_enable_pir_api=0.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "executor/files/npz.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "ops/kernel.h"
#include "proto/program.h"
#include "tests/support/rounding.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

class Paddle3OptimizersTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    WEFT_ASSERT_OK_AND_ASSIGN(files_, ReadTarXz("tests/data/paddle3_optimizers.tar.xz"));
  }

  const std::string& Bytes(const std::string& file) const {
    return files_.at(absl::StrCat(GetParam(), "/", file));
  }

  std::map<std::string, std::string> files_;
};

void ExpectNoErrors(const Program& main, const Program& startup, const VerifyOptions& options) {
  const Findings findings = Verify({{&main, &startup}}, options);
  EXPECT_FALSE(findings.HasErrors()) << findings.all()[0].message;
}

TEST_P(Paddle3OptimizersTest, LossesAreThoseOfPaddle) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program main, Program::Parse(Bytes("main.pb")));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program startup, Program::Parse(Bytes("startup.pb")));
  ExpectNoErrors(main, startup, VerifyOptions());
  const std::string folder = ::testing::TempDir();
  for (const std::string name : {"params.npz", "feeds.npz"}) {
    WEFT_ASSERT_OK(WriteFile(absl::StrCat(folder, "/", name), Bytes(name)));
  }
  TrainingInputs inputs;
  WEFT_ASSERT_OK_AND_ASSIGN(inputs.params, ReadNpz(folder + "/params.npz"));
  WEFT_ASSERT_OK_AND_ASSIGN(inputs.feeds, FeedsFromFile(folder + "/feeds.npz"));
  const auto train = [&](const TrainingInputs& from) -> absl::StatusOr<TrainingResults> {
    TrainingResults results;
    results.losses.resize(1);
    RunInputs inputs;
    inputs.feeds = from.feeds;
    inputs.main = &main;
    inputs.startup = &startup;
    inputs.params = &from.params;
    inputs.on_result = [&results](const StepResult& result) {
      results.losses[0].push_back(*result.values[0].data<float>());
      return absl::OkStatus();
    };
    RunOptions options;
    options.kernels = from.kernels;
    options.steps = inputs.feeds.num_steps;
    options.fetch = {"mean_0.tmp_0"};
    WEFT_RETURN_IF_ERROR(RunProgram(inputs, options).status());
    return results;
  };
  WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds, RoundingBounds::Measure(inputs, train));
  std::vector<double> expected;
  for (const absl::string_view loss : absl::StrSplit(Bytes("loss"), ' ')) {
    expected.push_back(std::stod(std::string(loss)));
  }
  bounds.ExpectLosses(0, bounds.results().losses[0], expected);
}

TEST_P(Paddle3OptimizersTest, GradientsAreReduced) {
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, Program::Parse(Bytes("main.pb")));
  WEFT_ASSERT_OK_AND_ASSIGN(Program startup, Program::Parse(Bytes("startup.pb")));
  const Program main_before = main, startup_before = startup;
  TranspileOptions options;
  options.mode = "grad_allreduce";
  options.cluster.nranks = 2;
  options.device_kind = TargetDevice::kCpu;
  ProgramPair programs{&main, &startup};
  WEFT_ASSERT_OK(Transpile(options, programs));
  VerifyOptions verify;
  verify.setting.nranks = 2;
  verify.original = {&main_before, &startup_before};
  WEFT_ASSERT_OK_AND_ASSIGN(const Program written, Program::Parse(main.Serialize()));
  ExpectNoErrors(written, startup, verify);
}

INSTANTIATE_TEST_SUITE_P(Models, Paddle3OptimizersTest,
                         ::testing::Values("nadam", "radam", "rprop"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace weft::testing
