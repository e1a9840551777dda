#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

TEST(OptimizerTest, OutputsAreLikeTheStateTheyUpdate) {
  EXPECT_THAT(Infer("adam(Beta1Pow: fp32[1], Beta2Pow: fp32[1], Grad: fp32[2, 3], LearningRate: "
                    "fp32[], Moment1: fp32[2, 3], Moment2: fp32[2, 3], Param: fp32[2, 3]) -> "
                    "Beta1PowOut, Beta2PowOut, Moment1Out, Moment2Out, ParamOut"),
              IsOkAndHolds("Beta1PowOut: fp32[1], Beta2PowOut: fp32[1], Moment1Out: fp32[2, 3], "
                           "Moment2Out: fp32[2, 3], ParamOut: fp32[2, 3]"));
  EXPECT_THAT(
      Infer("adamw(Beta1Pow: fp32[1], Beta2Pow: fp32[1], Grad: fp32[2, 3], LearningRate: fp32[], "
            "Moment1: fp32[2, 3], Moment2: fp32[2, 3], Param: fp32[2, 3]) -> ParamOut"),
      IsOkAndHolds("ParamOut: fp32[2, 3]"));
  EXPECT_THAT(
      Infer("lamb(Beta1Pow: fp32[1], Beta2Pow: fp32[1], Grad: fp32[2, 3], LearningRate: fp32[], "
            "Moment1: fp32[2, 3], Moment2: fp32[2, 3], Param: fp32[2, 3]) -> ParamOut",
            {{"weight_decay", 0.0f}}),
      IsOkAndHolds("ParamOut: fp32[2, 3]"));
}

TEST(OptimizerTest, TheLargestSecondMomentIsAStateOfAmsgrad) {
  const auto adam = [](InferenceCase op) {
    op.In("Beta1Pow", {"fp32[1]"}).In("Beta2Pow", {"fp32[1]"}).In("LearningRate", {"fp32[]"});
    for (const char* slot : {"Grad", "Moment1", "Moment2", "Param"}) op.In(slot, {"fp32[2, 3]"});
    return op.Out("ParamOut");
  };
  EXPECT_THAT(adam(InferenceCase("adam"))
                  .In("Moment2Max", {"fp32[2, 3]"})
                  .Out("Moment2MaxOut")
                  .Attr("amsgrad", true)
                  .Infer(),
              IsOkAndHolds("Moment2MaxOut: fp32[2, 3], ParamOut: fp32[2, 3]"));
  EXPECT_THAT(adam(InferenceCase("adamw")).In("Moment2Max", {"fp32[6]"}).Infer(),
              IsInvalidArgument("input Moment2Max (Moment2Max_0): expected dimensions [2, 3]"));
  EXPECT_THAT(
      adam(InferenceCase("adam")).Attr("amsgrad", true).Infer(),
      IsInvalidArgument("attribute amsgrad: expected an input Moment2Max, or false, found true"));
}

TEST(OptimizerTest, LearningRateMayHaveOneDimension) {
  EXPECT_THAT(Infer("sgd(Grad: fp32[2, 3], LearningRate: fp32[1], Param: fp32[2, 3]) -> ParamOut"),
              IsOkAndHolds("ParamOut: fp32[2, 3]"));
}

TEST(OptimizerTest, GradientMayBeRowsOfTheParameter) {
  EXPECT_THAT(
      Infer("sgd(Grad: rows fp32[2, 3], LearningRate: fp32[], Param: fp32[2, 3]) -> ParamOut"),
      IsOkAndHolds("ParamOut: fp32[2, 3]"));
}

TEST(OptimizerTest, HalfPrecisionParametersHaveFp32State) {
  EXPECT_THAT(Infer("momentum(Grad: fp16[2], LearningRate: fp32[], MasterParam: fp32[2], Param: "
                    "fp16[2], Velocity: fp32[2]) -> MasterParamOut, ParamOut, VelocityOut",
                    {{"mu", 0.9f}}),
              IsOkAndHolds("MasterParamOut: fp32[2], ParamOut: fp16[2], VelocityOut: fp32[2]"));
}

TEST(OptimizerTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(
      Infer("sgd(Grad: fp32[3, 2], LearningRate: fp32[], Param: fp32[2, 3]) -> ParamOut"),
      IsInvalidArgument(
          "op 0 (sgd) input Grad (Grad_0): expected dimensions [2, 3] of Param, found fp32[3, 2]"));
}

TEST(OptimizerTest, MissingGradientIsAnError) {
  EXPECT_THAT(Infer("merged_momentum(Grad: fp32[2], LearningRate: fp32[1], Param: fp32[2] | "
                    "fp32[2], Velocity: fp32[2] | fp32[2]) -> ParamOut*2, VelocityOut*2",
                    {{"mu", 0.9f}}),
              IsInvalidArgument("input Grad: expected 2 variables, as in slot Param, found 1"));
}

TEST(OptimizerTest, StateOfAnotherShapeIsAnError) {
  EXPECT_THAT(Infer("adam(Beta1Pow: fp32[1], Beta2Pow: fp32[1], Grad: fp32[2, 3], LearningRate: "
                    "fp32[], Moment1: fp32[2, 3], Moment2: fp32[6], Param: fp32[2, 3]) -> "
                    "Beta1PowOut, Beta2PowOut, Moment1Out, Moment2Out, ParamOut"),
              IsInvalidArgument(
                  "input Moment2 (Moment2_0): expected dimensions [2, 3] of Param, found fp32[6]"));
  EXPECT_THAT(Infer("rmsprop(Grad: fp32[2, 3], LearningRate: fp32[], Param: fp32[2, 3], "
                    "MeanSquare: fp32[2, 3], Moment: fp32[3]) -> ParamOut"),
              IsInvalidArgument("input Moment (Moment_0)"));
  EXPECT_THAT(Infer("adagrad(Grad: fp32[2, 3], LearningRate: fp32[], Param: fp32[2, 3], Moment: "
                    "fp32[3]) -> ParamOut"),
              IsInvalidArgument("input Moment (Moment_0)"));
}

TEST(OptimizerTest, LearningRateOfSeveralElementsIsAnError) {
  EXPECT_THAT(Infer("sgd(Grad: fp32[2, 3], LearningRate: fp32[2], Param: fp32[2, 3]) -> ParamOut"),
              IsInvalidArgument(
                  "input LearningRate (LearningRate_0): expected one element, found fp32[2]"));
}

TEST(OptimizerTest, RequiredAttributesHaveNoDefault) {
  EXPECT_THAT(Infer("momentum(Grad: fp32[2, 3], LearningRate: fp32[], Param: fp32[2, 3], Velocity: "
                    "fp32[2, 3]) -> ParamOut"),
              IsInvalidArgument("attribute mu: expected FLOAT, found none"));
  EXPECT_THAT(Infer("lamb(Beta1Pow: fp32[1], Beta2Pow: fp32[1], Grad: fp32[2, 3], LearningRate: "
                    "fp32[], Moment1: fp32[2, 3], Moment2: fp32[2, 3], Param: fp32[2, 3]) -> "
                    "Beta1PowOut, Beta2PowOut, Moment1Out, Moment2Out, ParamOut"),
              IsInvalidArgument("attribute weight_decay: expected FLOAT, found none"));
}

TEST(MergedMomentumTest, StatesHaveTheDimensionsOfTheirParameters) {
  const auto infer = [](const std::string& second_velocity) {
    return Infer(absl::StrCat("merged_momentum(Grad: fp32[2] | fp32[3], LearningRate: fp32[1], "
                              "Param: fp32[2] | fp32[3], Velocity: fp32[2] | ",
                              second_velocity, ") -> ParamOut*2, VelocityOut*2"),
                 {{"mu", 0.9f}});
  };
  EXPECT_THAT(infer("fp32[3]"),
              IsOkAndHolds("ParamOut: fp32[2] | fp32[3], VelocityOut: fp32[2] | fp32[3]"));
  EXPECT_THAT(infer("fp32[2]"),
              IsInvalidArgument("input Velocity (Velocity_1): expected dimensions [3] of Param"));
}

}  // namespace
}  // namespace weft::testing
