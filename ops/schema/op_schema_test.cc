#include "ops/schema/op_schema.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/op_attrs.h"

namespace weft {
namespace {

namespace pb = ::paddle::framework::proto;

using ::testing::IsEmpty;

std::vector<std::string> TypesWith(Trait trait) {
  std::vector<std::string> types;
  for (const OpSchema* schema : AllOpSchemas()) {
    if (schema->Has(trait)) types.push_back(schema->type());
  }
  return types;
}

TEST(OpSchemaTest, HoldsWhatItsExpressionSays) {
  const OpSchema schema = OpSchema("fuse", "X*, Axis{axis}, New?^, Sizes*{a b}")
                              .LossScaleIn("Scale?")
                              .Out("Fused, Mask~, Left!, Out*=X, View*&X")
                              .Attr("axis", 0)
                              .RequiredAttr("size", int64_t{0})
                              .AttrSincePaddle3("values", std::vector<Scalar>{})
                              .With(Trait::kAlias, Trait::kLinear);
  EXPECT_EQ(schema.type(), "fuse");
  EXPECT_TRUE(schema.FindInput("X")->duplicable);
  EXPECT_FALSE(schema.FindInput("X")->optional);
  EXPECT_TRUE(schema.FindInput("Scale")->optional);
  EXPECT_TRUE(schema.FindInput("Axis")->optional);
  EXPECT_THAT(schema.FindInput("Axis")->attrs, ::testing::ElementsAre("axis"));
  EXPECT_TRUE(schema.FindInput("Sizes")->duplicable);
  EXPECT_THAT(schema.FindInput("Sizes")->attrs, ::testing::ElementsAre("a", "b"));
  EXPECT_TRUE(schema.FindOutput("Out")->duplicable);
  EXPECT_EQ(schema.FindInput("Out"), nullptr);
  EXPECT_EQ(schema.FindOutput("Out")->in_place_of, "X");
  EXPECT_EQ(schema.FindOutput("Fused")->in_place_of, "");
  EXPECT_EQ(schema.FindOutput("View")->memory_of, "X");
  EXPECT_TRUE(schema.FindOutput("View")->duplicable);
  EXPECT_EQ(schema.FindOutput("Out")->memory_of, "");
  EXPECT_TRUE(schema.FindInput("Scale")->is_loss_scale);
  EXPECT_FALSE(schema.FindInput("X")->is_loss_scale);
  EXPECT_TRUE(schema.FindOutput("Mask")->loose_type);
  EXPECT_TRUE(schema.FindOutput("Left")->unwritten);
  EXPECT_FALSE(schema.FindOutput("Fused")->loose_type || schema.FindOutput("Fused")->unwritten);
  EXPECT_FALSE(schema.FindAttr("axis")->required);
  EXPECT_TRUE(schema.FindAttr("size")->required);
  EXPECT_TRUE(schema.FindInput("New")->since == kPaddle3 && schema.FindInput("New")->optional);
  EXPECT_EQ(schema.FindAttr("values")->since, kPaddle3);
  EXPECT_FALSE(schema.FindInput("X")->since > 0 || schema.FindAttr("axis")->since > 0);
  EXPECT_TRUE(schema.Has(Trait::kAlias));
  EXPECT_TRUE(schema.Has(Trait::kLinear));
  EXPECT_FALSE(schema.Has(Trait::kCollective));
  EXPECT_EQ(schema.infer(), nullptr);
}

TEST(OpSchemaTest, TextOfSlotsMayLackInputsOrOutputs) {
  EXPECT_TRUE(OpSchema("none").inputs().empty());
  const OpSchema source = OpSchema("source", "-> Out?");
  EXPECT_TRUE(source.inputs().empty());
  EXPECT_TRUE(source.FindOutput("Out")->optional);
  const OpSchema sink = OpSchema("sink", "X, Y");
  EXPECT_NE(sink.FindInput("Y"), nullptr);
  EXPECT_TRUE(sink.outputs().empty());
}

TEST(OpSchemaDeathTest, TextThatIsNoSlotAborts) {
  EXPECT_DEATH(OpSchema("bad", "X?y -> Out"), "not a slot: X[?]y");
}

// What Paddle calls intermediate, and metrics.
TEST(OpSchemaTest, OutputsThatOnlyGradientOpsReadHaveLooseTypes) {
  for (const OpSchema* schema : AllOpSchemas()) {
    for (const char* slot : {"XShape", "SavedMean", "SavedVariance", "ReserveSpace", "Reserve"}) {
      const SlotSchema* output = schema->FindOutput(slot);
      if (output == nullptr) continue;
      EXPECT_TRUE(output->loose_type) << schema->type() << " " << slot;
    }
  }
  EXPECT_TRUE(FindOpSchema("group_norm")->FindOutput("Mean")->loose_type);
  EXPECT_FALSE(FindOpSchema("dropout")->FindOutput("Mask")->loose_type);
  EXPECT_TRUE(FindOpSchema("max_pool2d_with_index")->FindOutput("Mask")->loose_type);
}

TEST(OpSchemaTest, LiteralsBecomeTheAttributeTypesThatTheyLookLike) {
  const OpSchema schema = OpSchema("literals")
                              .Attr("zero", 0)
                              .Attr("long", int64_t{0})
                              .Attr("float", 0.0f)
                              .Attr("double", 0.0)
                              .Attr("bool", false)
                              .Attr("text", "x")
                              .Attr("empty", "");
  std::vector<pb::AttrType> types;
  for (const AttrSchema& attr : schema.attrs()) types.push_back(AttrTypeOf(attr.default_value));
  EXPECT_THAT(types, ::testing::ElementsAre(pb::INT, pb::LONG, pb::FLOAT, pb::FLOAT64, pb::BOOLEAN,
                                            pb::STRING, pb::STRING));
}

TEST(OpSchemaTest, EveryAlternativeOfAnAttributeHasItsType) {
  EXPECT_EQ(AttrTypeOf(std::vector<int32_t>{}), pb::INTS);
  EXPECT_EQ(AttrTypeOf(std::vector<int64_t>{}), pb::LONGS);
  EXPECT_EQ(AttrTypeOf(std::vector<float>{}), pb::FLOATS);
  EXPECT_EQ(AttrTypeOf(std::vector<double>{}), pb::FLOAT64S);
  EXPECT_EQ(AttrTypeOf(std::vector<bool>{}), pb::BOOLEANS);
  EXPECT_EQ(AttrTypeOf(std::vector<std::string>{}), pb::STRINGS);
  EXPECT_EQ(AttrTypeOf(BlockRef{}), pb::BLOCK);
}

TEST(OpSchemaTableTest, FindsByType) {
  ASSERT_NE(FindOpSchema("mul"), nullptr);
  EXPECT_EQ(FindOpSchema("mul")->type(), "mul");
  EXPECT_EQ(FindOpSchema("mul"), FindOpSchema(std::string("mul")));
}

TEST(OpSchemaTableTest, UnknownTypeHasNoSchema) { EXPECT_EQ(FindOpSchema("no_such_op"), nullptr); }

// What layer 7 of the verifier cannot follow is a decision, not an oversight.
TEST(OpSchemaTableDeathTest, AnOpHasARuleAlongTheBatchOrSaysWhyNot) {
  OpSchemaTable table;
  EXPECT_DEATH(
      table.Add(OpSchema("silent", "X -> Out")),
      "op type silent: expected .Batch\\(a rule\\), or .Batch\\(batch::Unrelated\\(why\\)\\)");
  table.Add(OpSchema("explained", "X -> Out").Batch(batch::Unrelated("it is a test")));
  EXPECT_EQ(table.Find("explained")->batch_rule().why_none, "it is a test");
  // Their traits, or the op that they differentiate, say it.
  table.Add(OpSchema("elementwise", "X -> Out").With(Trait::kElementwise));
  table.Add(OpSchema("silent_grad", "Out@GRAD -> X@GRAD"));
}

TEST(OpSchemaTest, PostOpsAreOpsOfXAndPerhapsY) {
  for (const OpSchema* schema : AllOpSchemas()) {
    SCOPED_TRACE(schema->type());
    EXPECT_NE(schema->post_op(), PostOpKind::kBias);
    if (schema->post_op() == PostOpKind::kNone) continue;
    EXPECT_NE(schema->FindInput("X"), nullptr);
    EXPECT_EQ(schema->FindInput("Y") != nullptr, schema->post_op() == PostOpKind::kAdd);
    EXPECT_NE(schema->FindOutput("Out"), nullptr);
  }
  EXPECT_EQ(FindOpSchema("elementwise_add")->post_op(), PostOpKind::kAdd);
  EXPECT_EQ(FindOpSchema("relu")->post_op(), PostOpKind::kRelu);
}

TEST(OpSchemaTest, GradientOpsComputeAsTheirOpsDo) {
  for (const char* op : {"mul", "conv2d_transpose", "relu"}) {
    const WorkKind work = FindOpSchema(op)->work();
    EXPECT_EQ(FindOpSchema(std::string(op) + "_grad")->work(), work) << op;
    EXPECT_EQ(work == WorkKind::kElements, op == std::string("relu"));
  }
}

TEST(OpSchemaTableTest, AllAreSortedByType) {
  const std::vector<const OpSchema*> all = AllOpSchemas();
  EXPECT_GT(all.size(), 100u);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](const OpSchema* a, const OpSchema* b) {
    return a->type() < b->type();
  }));
}

TEST(OpSchemaTableTest, NoSchemaNamesASlotOrAttributeTwice) {
  std::vector<std::string> twice;
  const auto check = [&](const OpSchema& schema, const auto& items) {
    std::set<std::string> names;
    for (const auto& item : items) {
      if (!names.insert(item.name).second) twice.push_back(schema.type() + "." + item.name);
    }
  };
  for (const OpSchema* schema : AllOpSchemas()) {
    check(*schema, schema->inputs());
    check(*schema, schema->outputs());
    check(*schema, schema->attrs());
  }
  EXPECT_THAT(twice, IsEmpty());
}

TEST(OpSchemaTableTest, OutputsInPlaceNameAnInputOfTheSameKind) {
  std::vector<std::string> wrong;
  for (const OpSchema* schema : AllOpSchemas()) {
    for (const SlotSchema& output : schema->outputs()) {
      if (output.in_place_of.empty()) continue;
      const SlotSchema* input = schema->FindInput(output.in_place_of);
      if (input == nullptr || input->duplicable != output.duplicable ||
          input->optional != output.optional) {
        wrong.push_back(schema->type() + "." + output.name);
      }
    }
  }
  EXPECT_THAT(wrong, IsEmpty());
}

// Of Paddle's ops, those whose output is another variable and has the memory of an input whatever
// the attributes are: print before Paddle 2, the others in all versions that have them. Reshapes,
// casts and elementwise ops are none: they copy unless a pass of Paddle makes them work in place,
// which it does where nothing reads the input afterwards.
TEST(OpSchemaTableTest, ViewsAreThoseOfPaddle) {
  std::vector<std::string> views;
  for (const OpSchema* schema : AllOpSchemas()) {
    for (const SlotSchema& output : schema->outputs()) {
      if (output.memory_of.empty()) continue;
      views.push_back(schema->type() + ": " + output.name + " of " + output.memory_of);
      const SlotSchema* input = schema->FindInput(output.memory_of);
      ASSERT_NE(input, nullptr) << views.back();
      EXPECT_EQ(input->duplicable, output.duplicable) << views.back();
    }
  }
  EXPECT_THAT(views,
              ::testing::ElementsAre("as_strided: out of input", "print: Out of In",
                                     "rnn_memory_helper: Out of X", "share_buffer: Out of X",
                                     "share_data: Out of X", "tensor_unfold: out of input",
                                     "view_dtype: out of input", "view_shape: out of input"));
}

// Ops of Paddle, and of Weft, that write the variable of an input: optimizers aside.
TEST(OpSchemaTableTest, OpsInPlaceAreKnown) {
  std::vector<std::string> in_place;
  for (const OpSchema* schema : AllOpSchemas()) {
    if (schema->Has(Trait::kOptimizer)) continue;
    for (const SlotSchema& output : schema->outputs()) {
      if (output.in_place_of.empty()) continue;
      in_place.push_back(schema->type() + ": " + output.name + " is " + output.in_place_of);
    }
  }
  EXPECT_THAT(
      in_place,
      ::testing::ElementsAre(
          "average_accumulates: out_num_accumulates is in_num_accumulates",
          "average_accumulates: out_num_updates is in_num_updates",
          "average_accumulates: out_old_num_accumulates is in_old_num_accumulates",
          "average_accumulates: out_sum_1 is in_sum_1",
          "average_accumulates: out_sum_2 is in_sum_2",
          "average_accumulates: out_sum_3 is in_sum_3", "batch_norm: MeanOut is Mean",
          "batch_norm: VarianceOut is Variance", "c_allreduce_xsum: Out is X",
          "c_sync_calc_stream: Out is X", "c_sync_comm_stream: Out is X", "c_wait_comm: Out is X",
          "c_wait_compute: Out is X", "center_loss: CentersOut is Centers",
          "check_finite_and_unscale: Out is X", "depend: Out is X", "dgc: U_out is U",
          "dgc: V_out is V", "sparsify_threshold: ResidualOut is Residual",
          "sparsify_topk: ResidualOut is Residual", "stream_wait: Out is X",
          "sync_batch_norm: MeanOut is Mean", "sync_batch_norm: VarianceOut is Variance",
          "update_loss_scaling: LossScaling is PrevLossScaling", "update_loss_scaling: Out is X",
          "update_loss_scaling: OutBadSteps is InBadSteps",
          "update_loss_scaling: OutGoodSteps is InGoodSteps"));
}

TEST(TraitsTest, CollectivesAreTheOpsThatCommunicateOnARing) {
  EXPECT_THAT(TypesWith(Trait::kCollective),
              ::testing::ElementsAre(
                  "all_gather", "all_reduce", "all_to_all", "alltoall", "broadcast", "c_allgather",
                  "c_allreduce_avg", "c_allreduce_max", "c_allreduce_min", "c_allreduce_prod",
                  "c_allreduce_sum", "c_allreduce_xsum", "c_broadcast", "c_reduce_sum",
                  "c_reducescatter", "reduce", "reduce_scatter"));
}

TEST(TraitsTest, EveryCollectiveNamesItsRing) {
  for (const std::string& type : TypesWith(Trait::kCollective)) {
    EXPECT_NE(FindOpSchema(type)->FindAttr("ring_id"), nullptr) << type;
  }
}

TEST(TraitsTest, RingsAreSetUpBySevenOps) {
  EXPECT_THAT(
      TypesWith(Trait::kRingSetup),
      ::testing::ElementsAre("c_comm_init", "c_comm_init_all", "c_comm_init_multitrainer",
                             "c_gen_bkcl_id", "c_gen_nccl_id", "c_gen_xccl_id", "comm_init_all"));
}

TEST(TraitsTest, StreamsAreOrderedByFiveOps) {
  EXPECT_THAT(TypesWith(Trait::kStreamSync),
              ::testing::ElementsAre("c_sync_calc_stream", "c_sync_comm_stream", "c_wait_comm",
                                     "c_wait_compute", "stream_wait"));
}

TEST(TraitsTest, OptimizersUpdateParamByGradAndLearningRate) {
  EXPECT_THAT(TypesWith(Trait::kOptimizer),
              ::testing::ElementsAre("adadelta", "adagrad", "adam", "adamax", "adamw", "asgd",
                                     "decayed_adagrad", "dpsgd", "ftrl", "lamb", "lars_momentum",
                                     "merged_adam", "merged_momentum", "momentum", "nadam", "radam",
                                     "rmsprop", "rprop", "sgd"));
  for (const std::string& type : TypesWith(Trait::kOptimizer)) {
    const OpSchema& schema = *FindOpSchema(type);
    EXPECT_NE(schema.FindInput("Grad"), nullptr) << type;
    EXPECT_NE(schema.FindInput("LearningRate"), nullptr) << type;
    ASSERT_NE(schema.FindOutput("ParamOut"), nullptr) << type;
    for (const SlotSchema& output : schema.outputs()) EXPECT_NE(output.in_place_of, "") << type;
  }
}

TEST(TraitsTest, OptimizersThatLookAtTheWholeParameterAreNotElementwise) {
  EXPECT_FALSE(FindOpSchema("lamb")->Has(Trait::kElementwise));
  EXPECT_TRUE(FindOpSchema("adam")->Has(Trait::kElementwise));
}

TEST(TraitsTest, RandomDrawsAndSubBlocksAreSideEffects) {
  for (const char* type : {"conditional_block", "dropout", "gaussian_random",
                           "truncated_gaussian_random", "uniform_random"}) {
    EXPECT_TRUE(FindOpSchema(type)->Has(Trait::kSideEffect)) << type;
  }
  EXPECT_FALSE(FindOpSchema("fill_constant")->Has(Trait::kSideEffect));
}

TEST(TraitsTest, GradientsThatSumOverRowsAreNotRowSplittable) {
  for (const char* type : {"mul_grad", "conv2d_grad", "elementwise_add_grad", "layer_norm_grad",
                           "batch_norm", "reduce_mean", "squared_l2_norm"}) {
    EXPECT_FALSE(FindOpSchema(type)->Has(Trait::kRowSplittable)) << type;
  }
}

TEST(OpSchemaTest, SlotsAndBehaviorsBelongToVersions) {
  const OpSchema schema = OpSchema("fold", "Old-, New+ -> Out").Since(kPaddle2, "rounds");
  const SlotSchema &old_slot = *schema.FindInput("Old"), &new_slot = *schema.FindInput("New");
  EXPECT_TRUE(old_slot.IsRequired(1'008'005));
  EXPECT_FALSE(new_slot.IsRequired(1'008'005));
  EXPECT_FALSE(OpAttrs::Make(schema, {}, 1'008'005).Does("rounds"));
  for (int64_t later : {kPaddle2, kPaddle3, int64_t{0}}) {
    EXPECT_FALSE(old_slot.IsRequired(later));
    EXPECT_TRUE(new_slot.IsRequired(later));
    EXPECT_TRUE(OpAttrs::Make(schema, {}, later).Does("rounds"));
  }
}

}  // namespace
}  // namespace weft
