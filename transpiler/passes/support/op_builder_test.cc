#include "transpiler/passes/support/op_builder.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/op_role.h"
#include "proto/program.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

NewOp AllReduce() {
  return {"c_allreduce_sum", {{"X", {"g"}}}, {{"Out", {"g"}}}, {{"ring_id", 3}}, kRoleBackward};
}

std::vector<std::string> Slots(const google::protobuf::RepeatedPtrField<pb::OpDesc::Var>& slots) {
  std::vector<std::string> texts;
  for (const auto& slot : slots) {
    std::string text = slot.parameter() + "=";
    for (const std::string& arg : slot.arguments()) text += arg;
    texts.push_back(text);
  }
  return texts;
}

std::vector<std::string> AttrNames(const pb::OpDesc& op) {
  std::vector<std::string> names;
  for (const auto& attr : op.attrs()) names.push_back(attr.name());
  return names;
}

const pb::OpDesc::Attr& Attr(const pb::OpDesc& op, const std::string& name) {
  for (const auto& attr : op.attrs()) {
    if (attr.name() == name) return attr;
  }
  ADD_FAILURE() << "no attribute " << name;
  return pb::OpDesc::Attr::default_instance();
}

TEST(BuildOp, WeftDialectWritesGivenAttributesAndTheRole) {
  const pb::OpDesc op = BuildOp(AllReduce());
  EXPECT_EQ(op.type(), "c_allreduce_sum");
  EXPECT_THAT(Slots(op.inputs()), ElementsAre("X=g"));
  EXPECT_THAT(Slots(op.outputs()), ElementsAre("Out=g"));
  EXPECT_THAT(AttrNames(op), ElementsAre("op_role", "ring_id"));
  EXPECT_EQ(Attr(op, "op_role").i(), kRoleBackward);
  EXPECT_EQ(Attr(op, "ring_id").i(), 3);
}

TEST(BuildOp, PaddleDialectWritesEverySlotAndAttributeOfTheSchemaAndTheBookkeeping) {
  const pb::OpDesc op = BuildOp(AllReduce(), Dialect::kPaddle);
  EXPECT_THAT(Slots(op.inputs()), ElementsAre("Cond=", "X=g"));
  EXPECT_THAT(AttrNames(op),
              ElementsAre("op_device", "op_namescope", "op_role", "op_role_var", "ring_id",
                          "use_calc_stream", "use_model_parallel", "with_quant_attr"));
  EXPECT_EQ(Attr(op, "ring_id").i(), 3);
  EXPECT_EQ(Attr(op, "use_calc_stream").type(), pb::BOOLEAN);
  EXPECT_FALSE(Attr(op, "use_calc_stream").b());
  EXPECT_EQ(Attr(op, "op_role_var").type(), pb::STRINGS);
  EXPECT_EQ(Attr(op, "op_role_var").strings_size(), 0);
}

TEST(BuildOp, PaddleDialectLeavesOptionalOutputsOut) {
  NewOp adam{"adam", {{"Param", {"w"}}}, {{"ParamOut", {"w"}}}, {}, kRoleOptimize};
  const pb::OpDesc op = BuildOp(adam, Dialect::kPaddle);
  EXPECT_THAT(Slots(op.inputs()), Contains("MasterParam="));
  EXPECT_THAT(Slots(op.outputs()), Contains("ParamOut=w"));
  EXPECT_THAT(Slots(op.outputs()), Not(Contains("MasterParamOut=")));
}

TEST(BuildOp, PaddleDialectWritesTheBackEndSwitchOnceAndFirst) {
  const pb::OpDesc op =
      BuildOp({"scale", {{"X", {"g"}}}, {{"Out", {"g"}}}, {{"scale", 0.5f}}, kRoleBackward},
              Dialect::kPaddle);
  EXPECT_THAT(AttrNames(op),
              ElementsAre("use_mkldnn", "bias", "bias_after_scale", "op_device", "op_namescope",
                          "op_role", "op_role_var", "scale", "with_quant_attr"));
  EXPECT_EQ(Attr(op, "scale").f(), 0.5f);
}

TEST(BuildOp, AttributesHaveTheTypesOfTheirValues) {
  const pb::OpDesc op = BuildOp({"c_gen_nccl_id",
                                 {},
                                 {{"Out", {"id"}}},
                                 {{"rank", 1},
                                  {"endpoint", std::string("a:1")},
                                  {"other_endpoints", std::vector<std::string>{"b:1", "c:1"}}},
                                 kRoleForward});
  EXPECT_EQ(Attr(op, "rank").type(), pb::INT);
  EXPECT_EQ(Attr(op, "endpoint").type(), pb::STRING);
  EXPECT_EQ(Attr(op, "endpoint").s(), "a:1");
  EXPECT_EQ(Attr(op, "other_endpoints").type(), pb::STRINGS);
  EXPECT_THAT(Attr(op, "other_endpoints").strings(), ElementsAre("b:1", "c:1"));
}

TEST(BuildOp, CommonOpsHaveTheirAttributes) {
  const pb::OpDesc fill = BuildOp(FillOp("c", DType::kFloat64, {2, 3}, 0.5, kRoleOptimize));
  EXPECT_EQ(fill.type(), "fill_constant");
  EXPECT_EQ(Attr(fill, "dtype").i(), 6);
  EXPECT_THAT(Attr(fill, "shape").longs(), ElementsAre(2, 3));
  EXPECT_EQ(Attr(fill, "value").f(), 0.5f);
  const pb::OpDesc cast =
      BuildOp(CastOp("a", DType::kFloat32, "b", DType::kFloat16, kRoleBackward));
  EXPECT_EQ(Attr(cast, "in_dtype").i(), 5);
  EXPECT_EQ(Attr(cast, "out_dtype").i(), 4);
  EXPECT_THAT(Slots(cast.inputs()), ElementsAre("X=a"));
  EXPECT_THAT(Slots(cast.outputs()), ElementsAre("Out=b"));
  EXPECT_EQ(Attr(BuildOp(ScaleOp("a", "b", 0.25, kRoleForward)), "scale").f(), 0.25f);
  const pb::OpDesc sum = BuildOp(BinaryOp("elementwise_add", "a", "b", "c", kRoleForward));
  EXPECT_THAT(Slots(sum.inputs()), ElementsAre("X=a", "Y=b"));
}

TEST(BuildOpDeathTest, UnknownNamesCheckFail) {
  NewOp op = AllReduce();
  op.attrs.push_back({"ring", 0});
  EXPECT_DEATH(BuildOp(op), "c_allreduce_sum has no attribute ring");
  op = AllReduce();
  op.inputs.push_back({"Y", {"g"}});
  EXPECT_DEATH(BuildOp(op), "c_allreduce_sum has no slot Y");
  op.type = "c_allreduce_some";
  EXPECT_DEATH(BuildOp(op), "c_allreduce_some has no schema");
}

TEST(BuildOpDeathTest, MissingRequiredAttributeIsAProgrammersError) {
  const NewOp op{"c_comm_init", {{"X", {"id"}}}, {}, {{"nranks", 2}}, kRoleForward};
  EXPECT_DEATH(BuildOp(op, Dialect::kPaddle), "c_comm_init has no value for attribute rank");
}

TEST(OpTemplate, TakesOtherVariablesAndKeepsTheRest) {
  OpTemplate reduce(BuildOp(AllReduce(), Dialect::kPaddle));
  NewOp expected = AllReduce();
  for (const std::string name : {"first", "second"}) {
    expected.inputs[0].second = expected.outputs[0].second = {name};
    EXPECT_EQ(reduce.In("X", {name}).Out("Out", {name}).op().SerializeAsString(),
              BuildOp(expected, Dialect::kPaddle).SerializeAsString());
  }
}

TEST(OpTemplate, SlotsMayTakeMoreVariablesThanBeforeOrFewer) {
  OpTemplate sum(BuildOp({"sum", {{"X", {}}}, {{"Out", {}}}, {}, kRoleBackward}));
  EXPECT_THAT(Slots(sum.In("X", {"a", "b"}).op().inputs()), ElementsAre("X=ab"));
  EXPECT_THAT(Slots(sum.In("X", {"c"}).op().inputs()), ElementsAre("X=c"));
}

TEST(OpTemplateDeathTest, UnknownSlotIsAMistakeOfTheCaller) {
  OpTemplate reduce(BuildOp(AllReduce()));
  EXPECT_DEATH(reduce.In("Y", {}), "c_allreduce_sum has no slot Y");
}

}  // namespace
}  // namespace weft
