#include "transpiler/mode_choice.h"

#include <string>
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// One update; `reduced` is an op before it.
std::string Step(const std::string& reduced = "") {
  return R"(program {
  block 0 parent=-1 {
    var x : fp32[-1, 4] need_check_feed
    var w : fp32[4, 1] parameter persistable
    var w@GRAD : fp32[4, 1]
    var lr : fp32[1] persistable
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w]) role=backward vars=[w, w@GRAD]
    )" + reduced +
         R"(
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  }
}
)";
}

absl::StatusOr<ModeChoice> Choose(const std::string& text, const TranspileOptions& options = {}) {
  absl::StatusOr<Program> program = ParseProgramText(text);
  if (!program.ok()) return program.status();
  return ChooseMode({&*program, nullptr}, options);
}

TEST(ModeChoiceTest, TrainingProgramIsDataParallel) {
  WEFT_ASSERT_OK_AND_ASSIGN(const ModeChoice choice, Choose(Step()));
  EXPECT_EQ(choice.mode, "grad_allreduce");
  EXPECT_THAT(choice.why, HasSubstr("gradients are averaged over the ranks"));
}

TEST(ModeChoiceTest, AnOptimizerWithoutASchemaTrains) {
  for (const char* update : {"ParamOut=[w] = my_opt(Param=[w], Grad=[w@GRAD], LearningRate=[lr])",
                             "Z=[w] = my_opt(A=[w@GRAD], B=[lr], C=[w])"}) {
    const std::string text = absl::StrReplaceAll(
        Step(), {{"ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr])", update}});
    WEFT_ASSERT_OK_AND_ASSIGN(const ModeChoice choice, Choose(text));
    EXPECT_EQ(choice.mode, "grad_allreduce");
  }
}

TEST(ModeChoiceTest, FlagOfOneModeChoosesItAndSaysWhyNotTheOther) {
  TranspileOptions options;
  options.mode_flags["k_steps"] = "4";
  WEFT_ASSERT_OK_AND_ASSIGN(const ModeChoice choice, Choose(Step(), options));
  EXPECT_EQ(choice.mode, "local_sgd");
  EXPECT_THAT(choice.why, HasSubstr("mode grad_allreduce does not read option:k_steps"));
}

TEST(ModeChoiceTest, FlagThatOneModeReadsChoosesIt) {
  const std::pair<const char*, const char*> all[] = {
      {"master_weights", "optimizer_offload"},
      {"tables", "embedding_offload"},
      {"async", "parameter_server"},

      {"division", "singa_half"},
  };
  for (const auto& [flag, mode] : all) {
    TranspileOptions options;
    options.mode_flags[flag] = "1";
    WEFT_ASSERT_OK_AND_ASSIGN(const ModeChoice choice, Choose(Step(), options));
    EXPECT_EQ(choice.mode, mode);
    EXPECT_THAT(choice.why, HasSubstr("no other mode reads these flags"));
  }
}

TEST(ModeChoiceTest, FlagsThatSeveralOtherModesReadAreRefused) {
  TranspileOptions options;
  options.mode_flags["order"] = "early_start";
  EXPECT_THAT(
      Choose(Step(), options),
      IsInvalidArgument(
          "several modes read these flags: optimizer_offload, embedding_offload; name one"));
}

TEST(ModeChoiceTest, ProgramWithoutUpdatesIsRefusedWithTheNextStep) {
  EXPECT_THAT(Choose("program {\n  block 0 parent=-1 {\n    var x : fp32[1]\n    Out=[x] = "
                     "fill_constant()\n  }\n}\n"),
              IsFailedPrecondition(
                  AllOf(HasSubstr("no op updates a parameter; was it saved before minimize()"),
                        HasSubstr("tools/paddle/export_program.py"),
                        HasSubstr("option:mode none copies the program"))));
}

TEST(ModeChoiceTest, UpdatesThatAreNoOptimizersAreNamed) {
  EXPECT_THAT(
      Choose("program {\n  block 0 parent=-1 {\n    var w : fp32[1] parameter persistable\n"
             "    Out=[w] = scale(X=[w]) {scale=0.5}\n  }\n}\n"),
      IsFailedPrecondition("op 0 (scale) updates w without one; optimizer.apply_gradients"));
}

TEST(ModeChoiceTest, ProgramThatIsRewrittenAlreadyIsLeft) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const ModeChoice choice,
      Choose(Step("Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {ring_id=0, "
                  "use_calc_stream=true}")));
  EXPECT_EQ(choice.mode, "none");
  EXPECT_THAT(choice.why, HasSubstr("c_allreduce_avg"));
}

TEST(ModeChoiceTest, UnregisteredOpsAreNoReasonToCopyATrainingProgram) {
  const std::string step = R"(
    Out=[w@GRAD] = mystery(X=[w@GRAD]) role=backward)";
  EXPECT_THAT(Choose(Step(step)),
              IsFailedPrecondition("op 1 (mystery), an unregistered op, takes w@GRAD and may "
                                   "reduce it; if it does not communicate, pass option:assume"));
  // A collective on something else changes nothing.
  EXPECT_THAT(Choose(Step(step + R"(
    Out=[x] = c_allreduce_avg(X=[x]) role=forward {ring_id=0, use_calc_stream=true})")),
              IsFailedPrecondition("op 1 (mystery), an unregistered op, takes w@GRAD and may "
                                   "reduce it"));
  // A gradient op reads what it differentiates.
  WEFT_ASSERT_OK_AND_ASSIGN(
      const ModeChoice of_gradient,
      Choose(Step("W@GRAD=[v] = mystery_grad(W=[w], Out@GRAD=[y@GRAD]) role=backward")));
  EXPECT_EQ(of_gradient.mode, "grad_allreduce");
}

TEST(ModeChoiceTest, FlagsForAProgramThatIsRewrittenAlreadyAreRefusedWithTheReason) {
  TranspileOptions options;
  options.cluster.nranks = 2;
  EXPECT_THAT(Choose(Step("Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {ring_id=0, "
                          "use_calc_stream=true}"),
                     options),
              IsInvalidArgument(AllOf(HasSubstr("ranks exchange values already: "),
                                      HasSubstr("mode none does not read option:nranks"))));
}

TEST(ModeChoiceTest, FlagsThatNoModeReadsTogetherAreRefused) {
  TranspileOptions options;
  options.mode_flags = {{"k_steps", "4"}, {"trans_mode", "all_gather"}};
  EXPECT_THAT(
      Choose(Step(), options),
      IsInvalidArgument("option:mode auto finds no mode for these flags; mode grad_allreduce"));
}

}  // namespace
}  // namespace weft::testing
