// Small programs that Paddle 3.3.1 has trained for a few steps, in both of its formats:
// tools/paddle/op_programs.py writes them.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "base/testing/archive.h"
#include "executor/files/npz.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/kernel.h"
#include "proto/formats/program_file.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/verify.h"

namespace weft {
namespace {

using ::weft::testing::ReadTarXz;

using Tensors = std::map<std::string, Tensor>;

absl::StatusOr<Program> ReadBytes(const std::string& bytes, const std::string& name) {
  const std::string file = absl::StrCat(::testing::TempDir(), "/", name);
  WEFT_RETURN_IF_ERROR(WriteFile(file, bytes));
  return ReadProgram(file);
}

// The loss of each step, as Paddle has it, and the gradients reduced, also in what is written.
// `format`: the end of the files' names.
void TrainsAsInPaddle(const std::map<std::string, std::string>& files, absl::string_view model,
                      const std::string& format) {
  const std::string folder = ::testing::TempDir();
  const std::string main_file = "main." + format, startup_file = "startup." + format;
  for (const std::string& name :
       {main_file, startup_file, std::string("params.npz"), std::string("feeds.npz")}) {
    WEFT_ASSERT_OK(
        WriteFile(absl::StrCat(folder, "/", name), files.at(absl::StrCat(model, "/", name))));
  }
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, ReadProgram(absl::StrCat(folder, "/", main_file)));
  WEFT_ASSERT_OK_AND_ASSIGN(Program startup, ReadProgram(absl::StrCat(folder, "/", startup_file)));
  WEFT_ASSERT_OK_AND_ASSIGN(const Tensors params, ReadNpz(folder + "/params.npz"));
  std::vector<float> found;
  RunInputs inputs;
  WEFT_ASSERT_OK_AND_ASSIGN(inputs.feeds, FeedsFromFile(folder + "/feeds.npz"));
  inputs.main = &main;
  inputs.startup = &startup;
  inputs.params = &params;
  inputs.on_result = [&found](const StepResult& result) {
    found.push_back(*result.values[0].data<float>());
    return absl::OkStatus();
  };
  RunOptions options;
  options.kernels = &CpuKernels();
  options.steps = inputs.feeds.num_steps;
  // Paddle's kernels of these, or of their gradients, are the ones that are imitated.
  options.paddle_cpu_quirks = model == "spectral" || model == "hsigmoid";
  options.seed = 7;  // of paddle.seed
  WEFT_ASSERT_OK(RunProgram(inputs, options).status());
  std::vector<std::string> expected = absl::StrSplit(files.at(absl::StrCat(model, "/loss")), ' ');
  ASSERT_EQ(found.size(), expected.size());
  // Draws depend on the step in Weft, and on all earlier draws in Paddle.
  if (absl::StartsWith(model, "draw_")) expected.resize(1);
  for (size_t step = 0; step < expected.size(); ++step) {
    const double loss = std::stod(expected[step]);
    EXPECT_NEAR(found[step], loss, 1e-5 * std::fabs(loss) + 1e-6) << "step " << step;
  }
  TranspileOptions transpile;
  transpile.mode = "grad_allreduce";
  transpile.cluster.nranks = 2;
  ProgramPair programs{&main, &startup};
  WEFT_ASSERT_OK(Transpile(transpile, programs));
  const std::string out = absl::StrCat(folder, "/out.", format);
  WEFT_ASSERT_OK(WriteProgram(main, out));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program written, ReadProgram(out));
  VerifyOptions verify;
  verify.setting.nranks = 2;
  verify.setting.ordered_by_data = format == "json";
  const Findings findings = Verify({{&written, &startup}}, verify);
  EXPECT_FALSE(findings.HasErrors()) << findings.all()[0].message;
}

// Paddle declares it as an integer, which it is not.
TEST(PirOpsTest, TheAreaUnderTheCurveIsFp64) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files, ReadTarXz("tests/data/paddle3_pir_more_ops.tar.xz"));
  const std::string file = absl::StrCat(::testing::TempDir(), "/auc.json");
  WEFT_ASSERT_OK(WriteFile(file, files.at("auc/main.json")));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program main, ReadProgram(file));
  int count = 0;
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    if (op.type() != "auc") continue;
    ++count;
    const Var area = main.var(main.block(0).FindVar(op.Output("AUC")[0]));
    EXPECT_EQ(area.Tensor()->data_type(), paddle::framework::proto::VarType::FP64);
    const Var counts = main.var(main.block(0).FindVar(op.Output("StatPosOut")[0]));
    EXPECT_EQ(counts.Tensor()->data_type(), paddle::framework::proto::VarType::INT64);
  }
  EXPECT_EQ(count, 1);
}

// In the file, only the forward op has it.
TEST(PirOpsTest, TheGradientOfGumbelSoftmaxHasItsTemperature) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files, ReadTarXz("tests/data/paddle3_pir_more_ops.tar.xz"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program main,
                            ReadBytes(files.at("gumbel/main.json"), "gumbel.json"));
  std::vector<double> temperatures;
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    if (op.type() == "gumbel_softmax_grad") {
      temperatures.push_back(op.FloatAttr("temperature").value_or(0));
    }
  }
  EXPECT_THAT(temperatures, ::testing::UnorderedElementsAre(1.0, 0.5));
}

// Trains all programs of an archive, and returns their number.
int TrainAll(const std::string& archive, const std::string& format) {
  const auto files = ReadTarXz(absl::StrCat("tests/data/", archive, ".tar.xz"));
  WEFT_EXPECT_OK(files);
  if (!files.ok()) return 0;
  int count = 0;
  for (auto it = files->begin(); it != files->end(); ++it) {
    absl::string_view model = it->first;
    if (!absl::ConsumeSuffix(&model, "/loss")) continue;
    SCOPED_TRACE(model);
    TrainsAsInPaddle(*files, model, format);
    ++count;
  }
  return count;
}

// In Paddle's own format: a program for most ops of the table.
TEST(SmallProgramsTest, PirComputesWhatItComputesInPaddle) {
  EXPECT_EQ(TrainAll("paddle3_pir_ops", "json"), 81);
  EXPECT_EQ(TrainAll("paddle3_pir_more_ops", "json"), 188);
}

// In the old format, those of the same models that Paddle 3.3.1 still builds so.
TEST(SmallProgramsTest, ProgramDescComputesWhatItComputesInPaddle) {
  EXPECT_EQ(TrainAll("paddle3_desc_ops", "pb"), 127);
}

}  // namespace
}  // namespace weft
