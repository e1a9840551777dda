#include "ops/schema/infer.h"

#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

TEST(InferOutputsTest, OpWithoutSchemaGivesNothing) {
  EXPECT_THAT(Infer("no_such_op(X: fp32[2]) -> Out"), IsOkAndHolds(""));
}

TEST(InferOutputsTest, OpWithoutInferenceGivesNothing) {
  EXPECT_THAT(Infer("c_gen_nccl_id() -> Out", {{"endpoint", std::string("h:1")}}),
              IsOkAndHolds(""));
}

TEST(InferOutputsTest, UnknownInputLeavesOutputsThatDependOnItUnknown) {
  EXPECT_THAT(Infer("relu(X: ?) -> Out"), IsOkAndHolds(""));
  EXPECT_THAT(Infer("mul(X: ?, Y: fp32[3, 4]) -> Out"), IsOkAndHolds(""));
}

TEST(InferOutputsTest, GradientsOfKnownInputsAreKnown) {
  EXPECT_THAT(Infer("mul_grad(Out@GRAD: ?, X: ?, Y: fp32[3, 4]) -> X@GRAD, Y@GRAD"),
              IsOkAndHolds("Y@GRAD: fp32[3, 4]"));
}

TEST(InferOutputsTest, OmittedOutputsAreNotInferred) {
  EXPECT_THAT(Infer("mul_grad(Out@GRAD: fp32[2, 4], X: fp32[2, 3], Y: fp32[3, 4]) -> Y@GRAD"),
              IsOkAndHolds("Y@GRAD: fp32[3, 4]"));
}

TEST(InferOutputsTest, OutputsInPlaceHaveTheTypeOfTheirInput) {
  EXPECT_THAT(Infer("c_wait_comm(X: fp32[2] | fp16[3]) -> Out*2"),
              IsOkAndHolds("Out: fp32[2] | fp16[3]"));
}

TEST(InferOutputsTest, SlotOutsideOfTheSchemaIsIgnored) {
  EXPECT_THAT(Infer("relu(X: fp32[2], Later: fp32[9]) -> Out, More"), IsOkAndHolds("Out: fp32[2]"));
}

TEST(InferOutputsTest, MissingInputIsAnError) {
  EXPECT_THAT(Infer("mul(X: fp32[2, 3]) -> Out"),
              IsInvalidArgument("op 0 (mul) input Y: expected a variable, found none"));
}

TEST(InferOutputsTest, SeveralVariablesInASingleSlotAreAnError) {
  EXPECT_THAT(Infer("mul(X: fp32[2, 3], Y: fp32[3, 4] | fp32[3, 4]) -> Out"),
              IsInvalidArgument("op 0 (mul) input Y: expected one variable, found 2"));
  EXPECT_THAT(Infer("relu(X: fp32[2, 3]) -> Out*2"),
              IsInvalidArgument("op 0 (relu) output Out: expected one variable, found 2"));
}

TEST(InferOutputsTest, WrongAttributeIsAnError) {
  EXPECT_THAT(Infer("softmax(X: fp32[2, 3]) -> Out", {{"axis", std::string("last")}}),
              IsInvalidArgument("op 0 (softmax) attribute axis: expected INT, found STRING"));
}

TEST(InferOutputsTest, ErrorNamesOpSlotVariableExpectedAndFound) {
  EXPECT_THAT(Infer("mul(X: fp32[-1, 784], Y: fp32[700, 10]) -> Out"),
              IsInvalidArgument("op 0 (mul) input Y (Y_0): expected 784 rows, as many as X has "
                                "columns, found fp32[700, 10]"));
}

TEST(InferOutputsTest, EmptyArgumentIsNoVariable) {
  InferenceCase grad("relu_grad");
  grad.In("Out", {"fp32[2]"}).In("Out@GRAD", {"fp32[2]"}).Out("X@GRAD");
  pb::ProgramDesc desc = grad.program();
  desc.mutable_blocks(0)->mutable_ops(0)->mutable_inputs(0)->set_arguments(0, "@EMPTY@");
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, Program::FromProto(desc));
  int lookups = 0;
  WEFT_ASSERT_OK_AND_ASSIGN(const auto types,
                            InferOutputs(program.op(program.block(0).ops()[0]), [&](Symbol name) {
                              EXPECT_NE(program.name(name), "@EMPTY@");
                              ++lookups;
                              return absl::optional<TensorType>(TensorType{DType::kFloat32, {2}});
                            }));
  EXPECT_EQ(lookups, 1);
  EXPECT_THAT(types, ElementsAre(absl::nullopt));
}

TEST(CheckNoUnknownSlotsTest, NamesTheSlotThatTheSchemaDoesNotHave) {
  InferenceCase relu("relu");
  relu.In("X", {"fp32[2]"}).In("Later", {"fp32[9]"}).Out("Out");
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, Program::FromProto(relu.program()));
  EXPECT_THAT(CheckNoUnknownSlots(program.op(program.block(0).ops()[0]), *FindOpSchema("relu")),
              IsInvalidArgument("op 0 (relu) input Later: unknown slot"));
}

TEST(CheckNoUnknownSlotsTest, EmptySlotsAreFine) {
  InferenceCase relu("relu");
  relu.In("X", {"fp32[2]"}).In("Later", {}).Out("Out");
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, Program::FromProto(relu.program()));
  WEFT_EXPECT_OK(CheckNoUnknownSlots(program.op(program.block(0).ops()[0]), *FindOpSchema("relu")));
}

}  // namespace
}  // namespace weft::testing
