// Small programs that Paddle 3.3.1 has trained for a few steps, in both of its formats:
// tools/paddle/op_programs.py writes them.
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "executor/files/npz.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "ops/kernel.h"
#include "proto/formats/program_file.h"
#include "tests/support/rewrite.h"
#include "tests/support/rounding.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

absl::StatusOr<Program> ReadBytes(const std::string& bytes, const std::string& name) {
  const std::string file = absl::StrCat(::testing::TempDir(), "/", name);
  WEFT_RETURN_IF_ERROR(WriteFile(file, bytes));
  return ReadProgram(file);
}

// A model of an archive.
struct SmallProgram {
  std::string model;
  Program main, startup;
  TrainingInputs inputs;
  std::vector<double> losses;  // that Paddle computed, of the steps that can be compared
};

// `format`: the end of the files' names.
absl::StatusOr<SmallProgram> ReadSmallProgram(const std::map<std::string, std::string>& files,
                                              const std::string& model, const std::string& format) {
  const auto bytes = [&](const std::string& name) -> const std::string& {
    return files.at(absl::StrCat(model, "/", name));
  };
  const std::string main_file = "main." + format, startup_file = "startup." + format;
  WEFT_ASSIGN_OR_RETURN(Program main, ReadBytes(bytes(main_file), model + main_file));
  WEFT_ASSIGN_OR_RETURN(Program startup, ReadBytes(bytes(startup_file), model + startup_file));
  SmallProgram small{model, std::move(main), std::move(startup), {}, {}};
  const std::string prefix = absl::StrCat(::testing::TempDir(), "/", format, "_", model);
  for (const std::string name : {"params.npz", "feeds.npz"}) {
    WEFT_RETURN_IF_ERROR(WriteFile(prefix + name, bytes(name)));
  }
  WEFT_ASSIGN_OR_RETURN(small.inputs.params, ReadNpz(prefix + "params.npz"));
  WEFT_ASSIGN_OR_RETURN(small.inputs.feeds, FeedsFromFile(prefix + "feeds.npz"));
  for (const absl::string_view loss : absl::StrSplit(bytes("loss"), ' ')) {
    small.losses.push_back(std::stod(std::string(loss)));
  }
  // Draws depend on the step in Weft, and on all earlier draws in Paddle.
  if (absl::StartsWith(model, "draw_")) small.losses.resize(1);
  return small;
}

absl::StatusOr<TrainingResults> Train(const SmallProgram& small, const TrainingInputs& from) {
  TrainingResults results;
  results.losses.resize(1);
  RunInputs inputs;
  inputs.feeds = from.feeds;
  inputs.main = &small.main;
  inputs.startup = &small.startup;
  inputs.params = &from.params;
  inputs.on_result = [&results](const StepResult& result) {
    results.losses[0].push_back(*result.values[0].data<float>());
    return absl::OkStatus();
  };
  RunOptions options;
  options.kernels = from.kernels;
  options.steps = static_cast<int64_t>(small.losses.size());
  // Paddle's kernels of these, or of their gradients, are the ones that are imitated.
  options.paddle_cpu_quirks = small.model == "spectral" || small.model == "hsigmoid";
  options.seed = 7;  // of paddle.seed
  WEFT_RETURN_IF_ERROR(RunProgram(inputs, options).status());
  return results;
}

// Whether the losses are Paddle's, but for rounding.
bool AreNear(const std::vector<double>& found, const SmallProgram& small,
             const RoundingBounds& bounds) {
  for (size_t step = 0; step < small.losses.size(); ++step) {
    if (!(std::abs(found[step] - small.losses[step]) <= bounds.OfLoss(0, step))) return false;
  }
  return true;
}

// A kernel of sgd that takes the gradients of weights of the first layer, 8 x 8, a thousandth too
// large.
absl::StatusOr<Kernel> WrongSgd(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(Kernel kernel, (*CpuKernels().Find("sgd"))(spec));
  kernel.merges_updates = false;
  kernel.prepare = [grad = spec.Input("Grad"), rate = spec.Input("LearningRate"),
                    prepare = std::move(kernel.prepare)](
                       const KernelContext& types) -> absl::StatusOr<KernelStep> {
    WEFT_ASSIGN_OR_RETURN(KernelStep step, prepare(types));
    return KernelStep([=, step = std::move(step)](const KernelContext& context) {
      WEFT_RETURN_IF_ERROR(step(context));
      Tensor& param = *context.outputs[0];
      if (param.dims() != Dims{8, 8}) return absl::OkStatus();
      const float lr = *context.inputs[rate]->data<float>();
      for (int64_t i = 0; i < param.size(); ++i) {
        param.data<float>()[i] -= 1e-3F * lr * context.inputs[grad]->data<float>()[i];
      }
      return absl::OkStatus();
    });
  };
  return kernel;
}

// The kernels of the CPU with another one for ops of a type.
KernelTable WithKernel(const std::string& op_type, const KernelFactory& factory) {
  KernelTable kernels;
  for (const std::string& type : CpuKernels().op_types()) {
    kernels.Add(type, type == op_type ? factory : *CpuKernels().Find(type));
  }
  for (const std::string& type : CpuKernels().op_types_for_rows()) {
    kernels.AddForRows(type, *CpuKernels().FindForRows(type));
  }
  return kernels;
}

// The gradients reduced, also in what is written, without findings.
void ReducesGradients(SmallProgram* small, const std::string& format) {
  WEFT_ASSERT_OK(Rewrite(InMode("grad_allreduce", 2), &small->main, &small->startup));
  const std::string out = absl::StrCat(::testing::TempDir(), "/out.", format);
  WEFT_ASSERT_OK(WriteProgram(small->main, out));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program written, ReadProgram(out));
  VerifyOptions verify;
  verify.setting.nranks = 2;
  verify.setting.ordered_by_data = format == "json";
  const Findings findings = Verify({{&written, &small->startup}}, verify);
  EXPECT_FALSE(findings.HasErrors()) << findings.all()[0].message;
}

absl::StatusOr<RoundingBounds> MeasureRounding(const SmallProgram& small) {
  return RoundingBounds::Measure(
      small.inputs, [&small](const TrainingInputs& from) { return Train(small, from); });
}

// The loss of each step, as Paddle has it.
void TrainsAsInPaddle(const SmallProgram& small) {
  WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds, MeasureRounding(small));
  bounds.ExpectLosses(0, bounds.results().losses[0], small.losses);
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
  EXPECT_THAT(temperatures, UnorderedElementsAre(1.0, 0.5));
}

// All programs of an archive.
absl::StatusOr<std::vector<SmallProgram>> ReadSmallPrograms(const std::string& archive,
                                                            const std::string& format) {
  WEFT_ASSIGN_OR_RETURN(const auto files,
                        ReadTarXz(absl::StrCat("tests/data/", archive, ".tar.xz")));
  std::vector<SmallProgram> programs;
  for (const auto& [name, unused] : files) {
    absl::string_view model = name;
    if (!absl::ConsumeSuffix(&model, "/loss")) continue;
    WEFT_ASSIGN_OR_RETURN(SmallProgram small, ReadSmallProgram(files, std::string(model), format));
    programs.push_back(std::move(small));
  }
  return programs;
}

struct Archive {
  const char* name;
  const char* format;
  size_t programs;
};

// In Paddle's own format, a program for most ops of the table; in the old format, those of the same
// models that Paddle 3.3.1 still builds so.
class SmallProgramsTest : public ::testing::TestWithParam<Archive> {};

void ComputesAsInPaddle(const Archive& archive) {
  WEFT_ASSERT_OK_AND_ASSIGN(std::vector<SmallProgram> programs,
                            ReadSmallPrograms(archive.name, archive.format));
  EXPECT_EQ(programs.size(), archive.programs);
  for (SmallProgram& small : programs) {
    SCOPED_TRACE(small.model);
    TrainsAsInPaddle(small);
    ReducesGradients(&small, archive.format);
  }
}

TEST_P(SmallProgramsTest, ComputesWhatItComputesInPaddle) { ComputesAsInPaddle(GetParam()); }

// Bounds that follow the condition of each program hide no defect.
TEST_P(SmallProgramsTest, AGradientThatIsAThousandthOffShows) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<SmallProgram> programs,
                            ReadSmallPrograms(GetParam().name, GetParam().format));
  const KernelTable wrong_kernels = WithKernel("sgd", WrongSgd);
  size_t affected = 0, shown = 0;
  for (const SmallProgram& small : programs) {
    SCOPED_TRACE(small.model);
    WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds, MeasureRounding(small));
    TrainingInputs inputs = small.inputs;
    inputs.kernels = &wrong_kernels;
    WEFT_ASSERT_OK_AND_ASSIGN(const TrainingResults wrong, Train(small, inputs));
    if (wrong.losses == bounds.results().losses) continue;
    ++affected;
    if (!AreNear(wrong.losses[0], small, bounds)) ++shown;
  }
  // Others update by another op than sgd, or end with their first update.
  EXPECT_GT(affected, GetParam().programs / 2);
  // It does not show of weights before a normalization, which moves the loss less than rounding.
  EXPECT_GE(shown, affected * 9 / 10);
}

// Also in the program that multiplies rounding most: its tangents are near pi/2.
TEST(RoundingOfProgramsTest, AWrongFormulaShows) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files, ReadTarXz("tests/data/paddle3_pir_more_ops.tar.xz"));
  WEFT_ASSERT_OK_AND_ASSIGN(const SmallProgram small, ReadSmallProgram(files, "unary", "json"));
  WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds, MeasureRounding(small));
  EXPECT_GT(bounds.OfLoss(0, 2), 1e-4 * std::abs(small.losses[2]));
  EXPECT_TRUE(AreNear(bounds.results().losses[0], small, bounds));
  const KernelTable wrong_kernels = WithKernel("atan", *CpuKernels().Find("tanh"));
  TrainingInputs inputs = small.inputs;
  inputs.kernels = &wrong_kernels;
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingResults wrong, Train(small, inputs));
  EXPECT_FALSE(AreNear(wrong.losses[0], small, bounds));
}

// Rounding does not depend on the format of a program.
TEST(FormatsTest, ProgramsThatAreWrittenInTheOldFormatComputeTheSameBits) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<SmallProgram> programs,
                            ReadSmallPrograms("paddle3_pir_more_ops", "json"));
  const std::string main_file = absl::StrCat(::testing::TempDir(), "/as_main.pb");
  const std::string startup_file = absl::StrCat(::testing::TempDir(), "/as_startup.pb");
  for (const SmallProgram& small : programs) {
    SCOPED_TRACE(small.model);
    SmallProgram written = small;
    WEFT_ASSERT_OK(WritePrograms({{&small.main, main_file}, {&small.startup, startup_file}}));
    WEFT_ASSERT_OK_AND_ASSIGN(written.main, ReadProgram(main_file));
    WEFT_ASSERT_OK_AND_ASSIGN(written.startup, ReadProgram(startup_file));
    WEFT_ASSERT_OK_AND_ASSIGN(const TrainingResults expected, Train(small, small.inputs));
    WEFT_ASSERT_OK_AND_ASSIGN(const TrainingResults found, Train(written, small.inputs));
    EXPECT_EQ(found.losses, expected.losses);
  }
}

INSTANTIATE_TEST_SUITE_P(Archives, SmallProgramsTest,
                         ::testing::Values(Archive{"paddle3_pir_ops", "json", 81},
                                           Archive{"paddle3_pir_more_ops", "json", 188},
                                           Archive{"paddle3_desc_ops", "pb", 128}),
                         [](const auto& info) { return info.param.name; });

// The same models as earlier versions build and train them: 2.6.2, 3.0.0, 3.1.1 and 3.2.2, where
// these can, and without the few that they compute otherwise than the op is defined
// (docs/compatibility.md).
class VersionsTest : public ::testing::TestWithParam<Archive> {};

TEST_P(VersionsTest, ComputesWhatItComputesInPaddle) { ComputesAsInPaddle(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Archives, VersionsTest,
                         ::testing::Values(Archive{"paddle2_6_desc_ops", "pb", 172},
                                           Archive{"paddle3_0_desc_ops", "pb", 179},
                                           Archive{"paddle3_0_pir_ops", "json", 87},
                                           Archive{"paddle3_1_pir_ops", "json", 88},
                                           Archive{"paddle3_2_pir_ops", "json", 187}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::testing
