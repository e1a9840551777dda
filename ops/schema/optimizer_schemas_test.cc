#include <utility>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::weft::testing::InferenceCase;
using ::weft::testing::IsOkAndHolds;
using ::weft::testing::StatusIs;

TEST(OptimizerTest, OutputsAreLikeTheStateTheyUpdate) {
  EXPECT_THAT(
      InferenceCase("adam")
          .In("Beta1Pow", {"fp32[1]"})
          .In("Beta2Pow", {"fp32[1]"})
          .In("Grad", {"fp32[2, 3]"})
          .In("LearningRate", {"fp32[]"})
          .In("Moment1", {"fp32[2, 3]"})
          .In("Moment2", {"fp32[2, 3]"})
          .In("Param", {"fp32[2, 3]"})
          .Out("Beta1PowOut")
          .Out("Beta2PowOut")
          .Out("Moment1Out")
          .Out("Moment2Out")
          .Out("ParamOut")
          .Infer(),
      IsOkAndHolds(ElementsAre(Pair("Beta1PowOut", "fp32[1]"), Pair("Beta2PowOut", "fp32[1]"),
                               Pair("Moment1Out", "fp32[2, 3]"), Pair("Moment2Out", "fp32[2, 3]"),
                               Pair("ParamOut", "fp32[2, 3]"))));
  EXPECT_THAT(InferenceCase("adamw")
                  .In("Beta1Pow", {"fp32[1]"})
                  .In("Beta2Pow", {"fp32[1]"})
                  .In("Grad", {"fp32[2, 3]"})
                  .In("LearningRate", {"fp32[]"})
                  .In("Moment1", {"fp32[2, 3]"})
                  .In("Moment2", {"fp32[2, 3]"})
                  .In("Param", {"fp32[2, 3]"})
                  .Out("ParamOut")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("ParamOut", "fp32[2, 3]"))));
  EXPECT_THAT(InferenceCase("lamb")
                  .In("Beta1Pow", {"fp32[1]"})
                  .In("Beta2Pow", {"fp32[1]"})
                  .In("Grad", {"fp32[2, 3]"})
                  .In("LearningRate", {"fp32[]"})
                  .In("Moment1", {"fp32[2, 3]"})
                  .In("Moment2", {"fp32[2, 3]"})
                  .In("Param", {"fp32[2, 3]"})
                  .Out("ParamOut")
                  .Attr("weight_decay", 0.0f)
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("ParamOut", "fp32[2, 3]"))));
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
              IsOkAndHolds(ElementsAre(Pair("Moment2MaxOut", "fp32[2, 3]"),
                                       Pair("ParamOut", "fp32[2, 3]"))));
  EXPECT_THAT(adam(InferenceCase("adamw")).In("Moment2Max", {"fp32[6]"}).Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input Moment2Max (Moment2Max_0): expected dimensions [2, 3]")));
  EXPECT_THAT(
      adam(InferenceCase("adam")).Attr("amsgrad", true).Infer(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("attribute amsgrad: expected an input Moment2Max, or false, found true")));
}

TEST(OptimizerTest, LearningRateMayHaveOneDimension) {
  EXPECT_THAT(InferenceCase("sgd")
                  .In("Grad", {"fp32[2, 3]"})
                  .In("LearningRate", {"fp32[1]"})
                  .In("Param", {"fp32[2, 3]"})
                  .Out("ParamOut")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("ParamOut", "fp32[2, 3]"))));
}

TEST(OptimizerTest, GradientMayBeRowsOfTheParameter) {
  EXPECT_THAT(InferenceCase("sgd")
                  .In("Grad", {"rows fp32[2, 3]"})
                  .In("LearningRate", {"fp32[]"})
                  .In("Param", {"fp32[2, 3]"})
                  .Out("ParamOut")
                  .Infer(),
              IsOkAndHolds(ElementsAre(Pair("ParamOut", "fp32[2, 3]"))));
}

TEST(OptimizerTest, HalfPrecisionParametersHaveFp32State) {
  EXPECT_THAT(
      InferenceCase("momentum")
          .In("Grad", {"fp16[2]"})
          .In("LearningRate", {"fp32[]"})
          .In("MasterParam", {"fp32[2]"})
          .In("Param", {"fp16[2]"})
          .In("Velocity", {"fp32[2]"})
          .Out("MasterParamOut")
          .Out("ParamOut")
          .Out("VelocityOut")
          .Attr("mu", 0.9f)
          .Infer(),
      IsOkAndHolds(ElementsAre(Pair("MasterParamOut", "fp32[2]"), Pair("ParamOut", "fp16[2]"),
                               Pair("VelocityOut", "fp32[2]"))));
}

TEST(OptimizerTest, GradientOfAnotherShapeIsAnError) {
  EXPECT_THAT(InferenceCase("sgd")
                  .In("Grad", {"fp32[3, 2]"})
                  .In("LearningRate", {"fp32[]"})
                  .In("Param", {"fp32[2, 3]"})
                  .Out("ParamOut")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("op 0 (sgd) input Grad (Grad_0): expected dimensions [2, 3] of "
                                 "Param, found fp32[3, 2]")));
}

TEST(OptimizerTest, MissingGradientIsAnError) {
  EXPECT_THAT(InferenceCase("merged_momentum")
                  .In("Grad", {"fp32[2]"})
                  .In("LearningRate", {"fp32[1]"})
                  .In("Param", {"fp32[2]", "fp32[2]"})
                  .In("Velocity", {"fp32[2]", "fp32[2]"})
                  .Out("ParamOut", 2)
                  .Out("VelocityOut", 2)
                  .Attr("mu", 0.9f)
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input Grad: expected 2 variables, as in slot Param, found 1")));
}

TEST(OptimizerTest, StateOfAnotherShapeIsAnError) {
  EXPECT_THAT(
      InferenceCase("adam")
          .In("Beta1Pow", {"fp32[1]"})
          .In("Beta2Pow", {"fp32[1]"})
          .In("Grad", {"fp32[2, 3]"})
          .In("LearningRate", {"fp32[]"})
          .In("Moment1", {"fp32[2, 3]"})
          .In("Moment2", {"fp32[6]"})
          .In("Param", {"fp32[2, 3]"})
          .Out("Beta1PowOut")
          .Out("Beta2PowOut")
          .Out("Moment1Out")
          .Out("Moment2Out")
          .Out("ParamOut")
          .Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr(
              "input Moment2 (Moment2_0): expected dimensions [2, 3] of Param, found fp32[6]")));
  EXPECT_THAT(InferenceCase("rmsprop")
                  .In("Grad", {"fp32[2, 3]"})
                  .In("LearningRate", {"fp32[]"})
                  .In("Param", {"fp32[2, 3]"})
                  .In("MeanSquare", {"fp32[2, 3]"})
                  .In("Moment", {"fp32[3]"})
                  .Out("ParamOut")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input Moment (Moment_0)")));
  EXPECT_THAT(InferenceCase("adagrad")
                  .In("Grad", {"fp32[2, 3]"})
                  .In("LearningRate", {"fp32[]"})
                  .In("Param", {"fp32[2, 3]"})
                  .In("Moment", {"fp32[3]"})
                  .Out("ParamOut")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input Moment (Moment_0)")));
}

TEST(OptimizerTest, LearningRateOfSeveralElementsIsAnError) {
  EXPECT_THAT(
      InferenceCase("sgd")
          .In("Grad", {"fp32[2, 3]"})
          .In("LearningRate", {"fp32[2]"})
          .In("Param", {"fp32[2, 3]"})
          .Out("ParamOut")
          .Infer(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr("input LearningRate (LearningRate_0): expected one element, found fp32[2]")));
}

TEST(OptimizerTest, RequiredAttributesHaveNoDefault) {
  EXPECT_THAT(InferenceCase("momentum")
                  .In("Grad", {"fp32[2, 3]"})
                  .In("LearningRate", {"fp32[]"})
                  .In("Param", {"fp32[2, 3]"})
                  .In("Velocity", {"fp32[2, 3]"})
                  .Out("ParamOut")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute mu: expected FLOAT, found none")));
  EXPECT_THAT(InferenceCase("lamb")
                  .In("Beta1Pow", {"fp32[1]"})
                  .In("Beta2Pow", {"fp32[1]"})
                  .In("Grad", {"fp32[2, 3]"})
                  .In("LearningRate", {"fp32[]"})
                  .In("Moment1", {"fp32[2, 3]"})
                  .In("Moment2", {"fp32[2, 3]"})
                  .In("Param", {"fp32[2, 3]"})
                  .Out("Beta1PowOut")
                  .Out("Beta2PowOut")
                  .Out("Moment1Out")
                  .Out("Moment2Out")
                  .Out("ParamOut")
                  .Infer(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute weight_decay: expected FLOAT, found none")));
}

TEST(MergedMomentumTest, StatesHaveTheDimensionsOfTheirParameters) {
  const auto infer = [](const std::string& second_velocity) {
    return InferenceCase("merged_momentum")
        .In("Grad", {"fp32[2]", "fp32[3]"})
        .In("LearningRate", {"fp32[1]"})
        .In("Param", {"fp32[2]", "fp32[3]"})
        .In("Velocity", {"fp32[2]", second_velocity})
        .Out("ParamOut", 2)
        .Out("VelocityOut", 2)
        .Attr("mu", 0.9f)
        .Infer();
  };
  EXPECT_THAT(infer("fp32[3]"),
              IsOkAndHolds(ElementsAre(Pair("ParamOut", "fp32[2] | fp32[3]"),
                                       Pair("VelocityOut", "fp32[2] | fp32[3]"))));
  EXPECT_THAT(infer("fp32[2]"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input Velocity (Velocity_1): expected dimensions [3] of Param")));
}

}  // namespace
}  // namespace weft
