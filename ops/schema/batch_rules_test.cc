#include "ops/schema/batch_rules.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

using Relations = std::map<std::string, BatchRelation>;

constexpr BatchRelation kReplicated = BatchRelation::Replicated();
constexpr BatchRelation kRows = BatchRelation::Sharded(0);
constexpr BatchRelation kColumns = BatchRelation::Sharded(1);
constexpr BatchRelation kMean = BatchRelation::Partial();
constexpr BatchRelation kSum = BatchRelation::PartialSum();
constexpr BatchRelation kSize = BatchRelation::Replicated(-1);
constexpr BatchRelation kUnrelated = BatchRelation::Unrelated();

// Variables that start with b are fed with a share of the batch, those with t along dimension 1;
// p and q are partial means, s and u partial sums, r is the size of the rank's batch, h the shape
// of a value with rows; M is a partial maximum; n is unrelated. All others are replicated.
BatchRelation InitialRelation(absl::string_view name) {
  switch (name[0]) {
    case 'b':
      return kRows;
    case 't':
      return kColumns;
    case 'p':
    case 'q':
      return kMean;
    case 's':
    case 'u':
      return kSum;
    case 'r':
      return kSize;
    case 'h':
      return BatchRelation::Shape(0);
    case 'M':
      return BatchRelation::PartialMax();
    case 'n':
      return kUnrelated;
    default:
      return kReplicated;
  }
}

// Applies the op of a program `vars` and `op`. Relations of its outputs, in their order.
BatchOutputs Apply(const std::string& vars, const std::string& op_text) {
  const absl::StatusOr<Program> program = ParseProgramText(
      absl::StrCat("program {\nblock 0 parent=-1 {\n", vars, "\n", op_text, "\n}\n}\n"));
  EXPECT_TRUE(program.ok()) << program.status() << "\n" << op_text;
  const Op op = program->op(program->block(0).ops()[0]);
  std::vector<BatchRelation> inputs;
  for (Symbol name : op.input_args()) inputs.push_back(InitialRelation(program->name(name)));
  const TypeLookup types = [&](Symbol name) {
    return DeclaredType(program->var(program->block(0).FindVar(name)));
  };
  return ApplyBatchRule(op, FindOpSchema(op.type()), types, inputs);
}

struct Case {
  std::string vars, op;
  BatchRelation expected;  // of the first output
};

void Check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const BatchOutputs out = Apply(c.vars, c.op);
    EXPECT_EQ(ToString(out.relations[0]), ToString(c.expected)) << c.op << "\n" << c.vars;
  }
}

TEST(BatchRulesTest, ElementwiseOpsKeepShares) {
  const std::string vars =
      "var b : fp32[-1, 4]\nvar b2 : fp32[-1, 4]\nvar w : fp32[4]\nvar y : fp32[-1, 4]\n"
      "var b1 : fp32[-1]\nvar z : fp32[-1, -1]\nvar c : fp32[-1, 4]\nvar bc : fp32[-1, 1]";
  Check({
      {vars, "Out=[y] = relu(X=[b])", kRows},
      {vars, "Out=[y] = elementwise_add(X=[b], Y=[b2]) {axis=-1}", kRows},
      {vars, "Out=[y] = elementwise_add(X=[b], Y=[w]) {axis=-1}", kRows},
      {vars, "Out=[y] = elementwise_add(X=[b], Y=[w]) {axis=1}", kRows},
      {vars, "Out=[y] = elementwise_mul(X=[b], Y=[b1]) {axis=0}", kRows},
      // Each sample with each other one.
      {vars, "Out=[z] = elementwise_sub(X=[bc], Y=[b1]) {axis=-1}", kUnrelated},
      // A constant as long as the batch of one device.
      {vars, "Out=[y] = elementwise_add(X=[b], Y=[c]) {axis=-1}", kUnrelated},
      {vars, "Out=[y] = elementwise_add(X=[b], Y=[n]) {axis=-1}", kUnrelated},
  });
}

TEST(BatchRulesTest, PartialMeansAndSumsAreLinear) {
  const std::string vars =
      "var p : fp32[1]\nvar q : fp32[1]\nvar s : fp32[1]\nvar u : fp32[1]\nvar c : fp32[1]\n"
      "var y : fp32[1]\nvar b : fp32[-1]\nvar z : fp32[-1]\nvar i : int64[1]";
  Check({
      {vars, "Out=[y] = elementwise_add(X=[p], Y=[q]) {axis=-1}", kMean},
      {vars, "Out=[y] = elementwise_add(X=[p], Y=[c]) {axis=-1}", kMean},
      {vars, "Out=[y] = elementwise_sub(X=[s], Y=[u]) {axis=-1}", kSum},
      // The constant would be added once for each rank.
      {vars, "Out=[y] = elementwise_add(X=[s], Y=[c]) {axis=-1}", kUnrelated},
      {vars, "Out=[y] = elementwise_add(X=[s], Y=[p]) {axis=-1}", kUnrelated},
      {vars, "Out=[y] = elementwise_mul(X=[p], Y=[c]) {axis=-1}", kMean},
      {vars, "Out=[y] = elementwise_mul(X=[p], Y=[q]) {axis=-1}", kUnrelated},
      {vars, "Out=[y] = elementwise_div(X=[s], Y=[c]) {axis=-1}", kSum},
      {vars, "Out=[y] = elementwise_div(X=[c], Y=[s]) {axis=-1}", kUnrelated},
      // A weighted mean.
      {vars, "Out=[y] = elementwise_div(X=[s], Y=[u]) {axis=-1}", kUnrelated},
      {vars, "Out=[y] = scale(X=[p]) {scale=2.0, bias=1.0, bias_after_scale=true}", kMean},
      {vars, "Out=[y] = scale(X=[s]) {scale=2.0, bias=0.0, bias_after_scale=true}", kSum},
      {vars, "Out=[y] = scale(X=[s]) {scale=2.0, bias=1.0, bias_after_scale=true}", kUnrelated},
      {vars, "Out=[y] = sqrt(X=[p])", kUnrelated},
      {vars, "Out=[y] = sum(X=[p, q])", kMean},
      {vars, "Out=[i] = cast(X=[p]) {in_dtype=5, out_dtype=3}", kUnrelated},
      // A sample less the mean of its share.
      {vars, "Out=[z] = elementwise_sub(X=[b], Y=[p]) {axis=-1}", kUnrelated},
      {vars, "Out=[y] = fill_any_like(X=[p]) {dtype=-1, value=1.0}", kReplicated},
  });
}

// Of a shape that Paddle joins from those of two tensors, for broadcasting.
TEST(BatchRulesTest, SizesJoinToAShape) {
  const std::string vars =
      "var h : int64[2]\nvar r : int64[1]\nvar i : int64[1]\nvar o : int64[2]\nvar o3 : int64[3]\n"
      "var r2 : fp32[1]\nvar i2 : fp32[1]\nvar o2 : fp32[2]\nvar r3 : int64[-1]\nvar k : int64[-1]";
  Check({
      {vars, "Out=[o] = concat(X=[r, i]) {axis=0}", BatchRelation::Shape(0)},
      {vars, "Out=[o] = concat(X=[i, r]) {axis=0}", BatchRelation::Shape(1)},
      {vars, "Out=[o3] = concat(X=[i, h]) {axis=0}", BatchRelation::Shape(1)},
      {vars, "Out=[o3] = concat(X=[h, r]) {axis=0}", kUnrelated},
      {vars, "Out=[o3] = concat(X=[h, r, i]) {axis=0}", kUnrelated},
      {vars, "Out=[o] = concat(X=[r, r]) {axis=0}", kSize},
      // Where the size stands is unknown, or the numbers are no sizes.
      {vars, "Out=[o] = concat(X=[k, r]) {axis=0}", kUnrelated},
      {vars, "Out=[o2] = concat(X=[r2, i2]) {axis=0}", kUnrelated},
  });
}

TEST(BatchRulesTest, PowersFollowSizesOfTheBatch) {
  const std::string vars =
      "var b : fp32[-1, 4]\nvar h : int32[2]\nvar r : int32[1]\nvar r2 : fp32[1]\n"
      "var s : fp32[1]\nvar u : fp32[1]\nvar p : fp32[1]\nvar y : fp32[1]\nvar i : int32[1]\n"
      "var z : fp32[-1, 4]\nvar c : fp32[1]\nvar q : bool[2]";
  Check({
      {vars, "Out=[h] = shape(Input=[b])", BatchRelation::Shape(0)},
      {vars, "Out=[i] = slice(Input=[h]) {axes=ints[0], starts=ints[0], ends=ints[1]}", kSize},
      {vars, "Out=[i] = slice(Input=[h]) {axes=ints[0], starts=ints[1], ends=ints[2]}",
       kReplicated},
      {vars, "Out=[i] = size(Input=[b])", kSize},
      {vars, "Out=[y] = cast(X=[r]) {in_dtype=2, out_dtype=5}", kSize},
      {vars, "Out=[q] = cast(X=[h]) {in_dtype=2, out_dtype=0}", kUnrelated},
      // The sum of the losses by the number of samples.
      {vars, "Out=[y] = elementwise_div(X=[s], Y=[r2]) {axis=-1}", kMean},
      {vars, "Out=[y] = elementwise_mul(X=[p], Y=[r2]) {axis=-1}", kSum},
      {vars, "Out=[y] = elementwise_add(X=[s], Y=[r2]) {axis=-1}", kSum},
      {vars, "Out=[y] = elementwise_add(X=[r2], Y=[c]) {axis=-1}", kUnrelated},
      {vars, "Out=[y] = sqrt(X=[r2])", kUnrelated},
      {vars, "Out=[i] = elementwise_floordiv(X=[r], Y=[c]) {axis=-1}", kUnrelated},
      {vars,
       "Out=[z] = fill_constant(ShapeTensorList=[r, c]) {dtype=5, value=1.0, shape=ints[-1, 4]}",
       kRows},
      {vars, "Out=[z] = elementwise_mul(X=[b], Y=[r2]) {axis=-1}", BatchRelation::Sharded(0, -1)},
  });
}

TEST(BatchRulesTest, CollectivesJoinPartialValues) {
  const auto after = [](const char* type, BatchRelation in) {
    return AfterCollective(*FindCollectiveOp(type), in);
  };
  EXPECT_EQ(after("c_allreduce_sum", kSum), kReplicated);
  EXPECT_EQ(after("c_allreduce_sum", kMean), BatchRelation::Replicated(1));
  EXPECT_EQ(after("c_allreduce_avg", kMean), kReplicated);
  EXPECT_EQ(after("c_allreduce_max", kReplicated), kReplicated);
  EXPECT_EQ(after("c_allreduce_max", kMean), kUnrelated);
  EXPECT_EQ(after("c_allreduce_sum", kRows), kUnrelated);
  EXPECT_EQ(after("c_allgather", kRows), kReplicated);
  EXPECT_EQ(after("c_allgather", kReplicated), kUnrelated);
  // The value of one rank is not that of one device.
  EXPECT_EQ(after("c_broadcast", kMean), kUnrelated);
  EXPECT_EQ(after("c_broadcast", kReplicated), kReplicated);
}

TEST(BatchRelationTest, GradientsFollowFromValues) {
  // Of a mean loss: each rank divides by the size of its own batch.
  EXPECT_EQ(GradientRelation(kReplicated, 0), kMean);
  EXPECT_EQ(GradientRelation(kRows, 0), BatchRelation::Sharded(0, 1));
  EXPECT_EQ(GradientRelation(kMean, 0), kReplicated);
  // Of a sum.
  EXPECT_EQ(GradientRelation(kReplicated, -1), kSum);
  EXPECT_EQ(GradientRelation(kRows, -1), kRows);
  EXPECT_EQ(GradientRelation(kSum, -1), kReplicated);
  EXPECT_EQ(GradientRelation(kUnrelated, 0), kUnrelated);
  for (BatchRelation value : {kReplicated, kRows, kColumns, kMean, kSum, kSize}) {
    for (int power = -2; power <= 2; ++power) {
      EXPECT_EQ(LossPower(value, GradientRelation(value, power)), power) << ToString(value);
    }
  }
  EXPECT_EQ(LossPower(kRows, kColumns), absl::nullopt);
  EXPECT_EQ(LossPower(kMean, kMean), absl::nullopt);
}

TEST(BatchRelationTest, JoinsOfValues) {
  EXPECT_EQ(Join(kRows, kRows), kRows);
  EXPECT_EQ(Join(kReplicated, kMean), kMean);
  EXPECT_EQ(Join(kReplicated, kSum), kUnrelated);
  EXPECT_EQ(Join(kRows, kColumns), kUnrelated);
}

TEST(BatchRulesTest, ReductionsOverTheBatchArePartial) {
  const std::string vars =
      "var b : fp32[-1, 4, 8]\nvar t : fp32[4, -1, 8]\nvar y : fp32[1]\nvar z : fp32[-1, 8]";
  Check({
      {vars, "Out=[y] = mean(X=[b])", kMean},
      {vars, "Out=[y] = reduce_mean(X=[b]) {reduce_all=true, dim=ints[0], keep_dim=false}", kMean},
      {vars, "Out=[y] = reduce_sum(X=[b]) {reduce_all=false, dim=ints[0, 1, 2], keep_dim=false}",
       kSum},
      {vars, "Out=[y] = reduce_max(X=[b]) {reduce_all=true, dim=ints[0], keep_dim=false}",
       BatchRelation::PartialMax()},
      {vars, "Out=[y] = frobenius_norm(X=[b]) {reduce_all=true, dim=ints[0], keep_dim=false}",
       kUnrelated},
      {vars, "Out=[z] = reduce_sum(X=[b]) {reduce_all=false, dim=ints[1], keep_dim=false}", kRows},
      {vars, "Out=[z] = reduce_max(X=[t]) {reduce_all=false, dim=ints[0], keep_dim=false}", kRows},
      {vars, "Out=[z] = reduce_max(X=[t]) {reduce_all=false, dim=ints[0], keep_dim=true}",
       kColumns},
      {vars, "Out=[y] = squared_l2_norm(X=[b])", kSum},
  });
}

TEST(BatchRulesTest, ProductsOfSharesAreSharesOrPartialSums) {
  const std::string vars =
      "var b : fp32[-1, 4]\nvar b2 : fp32[-1, 4]\nvar w : fp32[4, 8]\nvar y : fp32[-1, 8]\n"
      "var z : fp32[-1, -1]\nvar g : fp32[4, 4]\nvar b3 : fp32[-1, 4, 8]\nvar b4 : fp32[-1, 8, 2]\n"
      "var x : fp32[-1, 4, 2]";
  Check({
      {vars, "Out=[y] = matmul_v2(X=[b], Y=[w]) {trans_x=false, trans_y=false}", kRows},
      {vars, "Out=[y] = mul(X=[b], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}", kRows},
      // Each sample with each other one, as in-batch contrastive losses have it.
      {vars, "Out=[z] = matmul_v2(X=[b], Y=[b2]) {trans_x=false, trans_y=true}", kUnrelated},
      {vars, "Out=[g] = matmul_v2(X=[b], Y=[b2]) {trans_x=true, trans_y=false}", kSum},
      {vars, "Out=[x] = matmul_v2(X=[b3], Y=[b4]) {trans_x=false, trans_y=false}", kRows},
  });
}

TEST(BatchRulesTest, ShapesMoveTheBatch) {
  const std::string vars =
      "var b : fp32[-1, 4, 8]\nvar t : fp32[6, -1, 8]\nvar y : fp32[-1, 32]\nvar z : fp32[-1, 8]\n"
      "var x : fp32[0]\nvar v : fp32[32, -1]\nvar k : fp32[4, -1, 8]\nvar c : fp32[-1, 8, 8]\n"
      "var o : fp32[1, -1, 4, 8]\nvar t2 : fp32[6, -1, 2, 4]";
  Check({
      {vars, "Out=[y], XShape=[x] = reshape2(X=[b]) {shape=ints[-1, 32]}", kRows},
      {vars, "Out=[z], XShape=[x] = reshape2(X=[b]) {shape=ints[-1, 8]}", kRows},
      {vars, "Out=[v], XShape=[x] = reshape2(X=[b]) {shape=ints[32, -1]}", kUnrelated},
      {vars, "Out=[z], XShape=[x] = reshape2(X=[t]) {shape=ints[-1, 8]}", kUnrelated},
      {vars, "Out=[t2], XShape=[x] = reshape2(X=[t]) {shape=ints[6, -1, 2, 4]}", kColumns},
      {vars, "Out=[o], XShape=[x] = unsqueeze2(X=[b]) {axes=ints[0]}", kColumns},
      {vars, "Out=[k], XShape=[x] = transpose2(X=[b]) {axis=ints[1, 0, 2]}", kColumns},
      {vars, "Out=[c] = concat(X=[b, b]) {axis=1}", kRows},
      {vars, "Out=[c] = concat(X=[b, b]) {axis=0}", kUnrelated},
      {vars,
       "Out=[z] = slice(Input=[b]) {axes=ints[1], starts=ints[0], ends=ints[1], "
       "decrease_axis=ints[1]}",
       kRows},
      {vars,
       "Out=[z] = slice(Input=[t]) {axes=ints[0], starts=ints[0], ends=ints[1], "
       "decrease_axis=ints[0]}",
       kRows},
      {vars,
       "Out=[z] = slice(Input=[b]) {axes=ints[0], starts=ints[0], ends=ints[1], "
       "decrease_axis=ints[0]}",
       kUnrelated},
  });
}

// Zeros depend on the places in the last two dimensions.
TEST(BatchRulesTest, TrianglesAreOfEachMatrixOfABatch) {
  const std::string vars =
      "var b : fp32[-1, 4, 8]\nvar b2 : fp32[-1, 8]\nvar t : fp32[6, -1, 8]\nvar p : fp32[4, 4]\n"
      "var s : fp32[4, 4]\nvar y : fp32[-1, 4, 8]\nvar z : fp32[-1, 8]\nvar k : fp32[6, -1, 8]\n"
      "var g : fp32[4, 4]\nvar t4 : fp32[6, -1, 8, 8]\nvar k4 : fp32[6, -1, 8, 8]";
  Check({
      {vars, "Out=[y] = tril_triu(X=[b]) {diagonal=0, lower=true}", kRows},
      {vars, "Out=[k4] = tril_triu(X=[t4]) {diagonal=1, lower=false}", kColumns},
      {vars, "Out=[g] = tril_triu(X=[p]) {diagonal=0, lower=true}", kMean},
      {vars, "Out=[g] = tril_triu(X=[s]) {diagonal=0, lower=true}", kSum},
      // The rows of the second rank are others of one device's matrix.
      {vars, "Out=[z] = tril_triu(X=[b2]) {diagonal=0, lower=true}", kUnrelated},
      {vars, "Out=[k] = tril_triu(X=[t]) {diagonal=0, lower=true}", kUnrelated},
  });
}

TEST(BatchRulesTest, LayersAndLossesKeepRows) {
  const std::string vars =
      "var b : fp32[-1, 4]\nvar bl : int64[-1, 1]\nvar w : fp32[4]\nvar y : fp32[-1, 4]\n"
      "var z : fp32[-1, 1]\nvar m : fp32[-1]\nvar v : fp32[-1]\nvar e : fp32[9, 4]\n"
      "var k : fp32[-1, 1, 4]\nvar acc : fp32[1]\nvar c : int32[1]\nvar d : int32[1]";
  Check({
      {vars, "Out=[y] = softmax(X=[b]) {axis=-1}", kRows},
      {vars, "Out=[y] = softmax(X=[b]) {axis=0}", kUnrelated},
      {vars, "Loss=[z], Softmax=[y] = softmax_with_cross_entropy(Logits=[b], Label=[bl]) {axis=-1}",
       kRows},
      {vars, "Loss=[z], Softmax=[y] = softmax_with_cross_entropy(Logits=[b], Label=[w]) {axis=-1}",
       kUnrelated},
      {vars,
       "Mean=[m], Variance=[v], Y=[y] = layer_norm(Bias=[w], Scale=[w], X=[b]) "
       "{begin_norm_axis=1}",
       kRows},
      {vars, "Out=[k] = lookup_table_v2(Ids=[bl], W=[e])", kRows},
      {vars,
       "Accuracy=[acc], Correct=[c], Total=[d] = accuracy(Indices=[bl], Label=[bl], Out=[bl])",
       kMean},
      {vars, "Out=[acc] = nll_loss(Label=[bl], Weight=[w], X=[b]) {reduction=\"mean\"}",
       kUnrelated},
  });
}

// A mean of integers is rounded, and an integer picks a row of a table.
TEST(BatchRulesTest, FunctionsOfIntegersAreNotLinear) {
  const std::string vars =
      "var bl : int64[-1, 1]\nvar i : int64[1]\nvar s : int64[1]\nvar r : int64[1]\n"
      "var p : fp32[9, 4]\nvar e : fp32[9, 4]\nvar y : fp32[1, 4]";
  Check({
      {vars, "Out=[i] = reduce_mean(X=[bl]) {reduce_all=true, dim=ints[0]}", kUnrelated},
      {vars, "Out=[i] = reduce_sum(X=[bl]) {reduce_all=true, dim=ints[0]}", kSum},
      {vars, "Out=[y] = lookup_table_v2(Ids=[s], W=[e])", kUnrelated},
      {vars, "Out=[y] = lookup_table_v2(Ids=[r], W=[e])", kUnrelated},
      {vars, "Out=[y] = lookup_table_v2(Ids=[i], W=[p])", kMean},
  });
}

// A list of sizes is no share of a batch.
TEST(BatchRulesTest, SizesAreNoShares) {
  const std::string vars =
      "var h : int32[2]\nvar i : int32[1]\nvar j : int32[2]\nvar n : fp32[4]\nvar y : fp32[-1]\n"
      "var r : int64[1]\nvar z : fp32[-1, 4]\nvar l : int64[2]";
  Check({
      {vars, "Out=[i] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}", kUnrelated},
      {vars, "Out=[j] = fill_any_like(X=[h]) {dtype=-1, value=1.0}", kReplicated},
      {vars, "Out=[i] = size(Input=[n])", kUnrelated},
      {vars, "Out=[y] = fill_constant(ShapeTensor=[r]) {dtype=5, value=1.0}", kUnrelated},
      {vars, "Out=[z] = fill_constant(ShapeTensor=[h]) {dtype=5, value=1.0}", kRows},
      {vars, "Out=[l] = cast(X=[h]) {in_dtype=2, out_dtype=3}", BatchRelation::Shape(0)},
      {vars, "Out=[j] = scale(X=[h]) {scale=2.0}", kUnrelated},
  });
}

TEST(BatchRulesTest, AttributesThatInputsGiveAreUnknown) {
  const std::string vars =
      "var b : fp32[-1, 8]\nvar y : fp32[-1, 8]\nvar z : fp32[-1, 4]\nvar z2 : fp32[-1, 4]\n"
      "var i : int32[1]\nvar j : int32[2]\nvar h : int32[2]\nvar r : int32[1]\nvar x : fp32[0]\n"
      "var u : fp32[-1, -1]";
  Check({
      {vars, "Out=[y] = concat(AxisTensor=[i], X=[b, b]) {axis=1}", kUnrelated},
      {vars, "Out=[z, z2] = split(AxisTensor=[i], X=[b]) {axis=1, num=2}", kUnrelated},
      {vars, "Out=[z, z2] = split(X=[b]) {axis=1, num=2}", kRows},
      {vars,
       "Out=[y] = slice(Input=[b], StartsTensor=[i]) {axes=ints[0], starts=ints[0], "
       "ends=ints[2147483647]}",
       kUnrelated},
      {vars, "Out=[u], XShape=[x] = reshape2(Shape=[j], X=[b]) {shape=ints[]}", kUnrelated},
      {vars, "Out=[y], XShape=[x] = reshape2(Shape=[h], X=[b]) {shape=ints[]}", kRows},
      {vars, "Out=[y], XShape=[x] = reshape2(ShapeTensor=[r, i], X=[b]) {shape=ints[-1, -1]}",
       kRows},
      {vars, "Out=[u], XShape=[x] = reshape2(ShapeTensor=[i, r], X=[b]) {shape=ints[-1, -1]}",
       kUnrelated},
      // Fixed, although declared unknown.
      {vars, "Out=[u], XShape=[x] = reshape2(X=[b]) {shape=ints[2, -1]}", kUnrelated},
  });
}

TEST(BatchRulesTest, ShareOfOneRowMayLoseItsDimension) {
  const std::string vars =
      "var b : fp32[-1, 1, 4]\nvar y : fp32[-1, 4]\nvar z : fp32[-1, 1, 4]\nvar x : fp32[0]";
  Check({
      {vars, "Out=[y], XShape=[x] = squeeze2(X=[b]) {axes=ints[1]}", kRows},
      {vars, "Out=[y], XShape=[x] = squeeze2(X=[b]) {axes=ints[]}", kUnrelated},
      {vars, "Out=[z], XShape=[x] = squeeze2(X=[b]) {axes=ints[0]}", kUnrelated},
  });
}

TEST(BatchRulesTest, ChoicesKeepOrLoseDimensions) {
  const std::string vars =
      "var t : fp32[4, -1]\nvar i : int64[2]\nvar j : int64[]\nvar y : fp32[2, -1]\n"
      "var z : fp32[-1]\nvar b : fp32[-1, 4]\nvar x : fp32[-1, 4]";
  const auto strided = [](int stride) {
    return absl::StrCat(
        "Out=[x] = strided_slice(Input=[b]) {axes=ints[0], starts=ints[0], "
        "ends=ints[2147483647], strides=ints[",
        stride, "]}");
  };
  Check({
      {vars, "Out=[y] = gather(X=[t], Index=[i]) {axis=0}", kColumns},
      {vars, "Out=[z] = gather(X=[t], Index=[j]) {axis=0}", kRows},
      {vars, strided(1), kRows},
      // Of an odd number of rows, a rank takes others.
      {vars, strided(2), kUnrelated},
  });
}

TEST(BatchRulesTest, OpsForEachSampleKeepShares) {
  const std::string vars =
      "var b : fp32[-1, 4]\nvar b2 : fp32[-1, 4]\nvar b1 : fp32[-1]\nvar w : fp32[4]\n"
      "var y : fp32[-1, 4]\nvar z : fp32[-1]\nvar m : fp32[-1, 1]\nvar s : fp32[1]\n"
      "var z2 : fp32[-1]\nvar t : fp32[4, -1]\nvar bi : int64[-1, 2]\nvar y2 : fp32[-1, 2]";
  Check({
      {vars, "Out=[y] = bce_loss(Label=[b], X=[b2])", kRows},
      {vars, "Out=[y], Residual=[y] = huber_loss(X=[b], Y=[b2]) {delta=1.0}", kRows},
      {vars, "Norm=[m], Out=[y] = norm(X=[b]) {axis=1}", kRows},
      {vars, "Norm=[m], Out=[y] = norm(X=[b]) {axis=0}", kUnrelated},
      {vars, "Out=[z] = p_norm(X=[b]) {axis=1, keepdim=false}", kRows},
      {vars, "Out=[s] = p_norm(X=[b]) {axis=1, keepdim=false, asvector=true}", kUnrelated},
      {vars, "Out=[z] = dot(X=[b], Y=[b2])", kRows},
      {vars, "Out=[s] = dot(X=[b1], Y=[b1])", kSum},
      {vars, "Out=[z] = mv(X=[b], Vec=[w])", kRows},
      {vars, "Out=[w] = mv(X=[t], Vec=[b1])", kSum},
      {vars, "Out=[z] = matmul_v2(X=[b], Y=[w]) {trans_x=false, trans_y=false}", kRows},
      {vars, "Out=[y] = tile(X=[b]) {repeat_times=ints[1, 2]}", kRows},
      {vars, "Out=[y] = tile(X=[b]) {repeat_times=ints[2, 1]}", kUnrelated},
      {vars, "Y=[z, z2] = unstack(X=[b]) {axis=1, num=2}", kRows},
      {vars, "Y=[z, z2] = unstack(X=[t]) {axis=0, num=2}", kRows},
      {vars, "Y=[z, z2] = unstack(X=[b]) {axis=0, num=2}", kUnrelated},
      {vars, "Out=[y2] = index_sample(X=[b], Index=[bi])", kRows},
      {vars, "Out=[y] = label_smooth(X=[b]) {epsilon=0.1}", kRows},
      // The number of classes is that of the rank.
      {vars, "Out=[t] = label_smooth(X=[t]) {epsilon=0.1}", kUnrelated},
  });
}

TEST(BatchRulesTest, NormalizationAndDrawsAreNamed) {
  const std::string vars =
      "var b : fp32[-1, 4]\nvar w : fp32[4]\nvar y : fp32[-1, 4]\nvar m : fp32[4]\n"
      "var k : uint8[-1, 4]";
  const auto batch_norm = [&](const std::string& attrs) {
    return Apply(vars,
                 absl::StrCat("MeanOut=[m], SavedMean=[m], SavedVariance=[m], VarianceOut=[m], "
                              "Y=[y] = batch_norm(Bias=[w], Mean=[m], Scale=[w], "
                              "Variance=[m], X=[b]) {",
                              attrs, "}"));
  };
  const BatchOutputs train = batch_norm("is_test=false, use_global_stats=false");
  EXPECT_EQ(train.effect, BatchEffect::kStatistics);
  EXPECT_EQ(train.relations[0], kUnrelated);
  EXPECT_EQ(train.relations[4], kRows);
  const BatchOutputs fixed = batch_norm("is_test=true, use_global_stats=false");
  EXPECT_EQ(fixed.effect, BatchEffect::kNone);
  EXPECT_EQ(fixed.relations[0], kReplicated);
  EXPECT_EQ(fixed.relations[4], kRows);
  const BatchOutputs dropout =
      Apply(vars, "Mask=[k], Out=[y] = dropout(X=[b]) {is_test=false, dropout_prob=0.5}");
  EXPECT_EQ(dropout.effect, BatchEffect::kDraws);
  EXPECT_EQ(dropout.relations[1], kRows);
  const BatchOutputs draw = Apply(vars, "Out=[m] = gaussian_random() {shape=ints[4]}");
  EXPECT_EQ(draw.effect, BatchEffect::kDraws);
}

// The mask of a part of a batch is no part of its mask.
TEST(BatchRulesTest, ASeedMakesEqualDrawsOfEqualShape) {
  const std::string vars =
      "var b : fp32[-1, 4]\nvar y : fp32[-1, 4]\nvar w : fp32[4]\nvar v : fp32[4]\n"
      "var k : int32[1]";
  const auto effect = [&](const char* op) { return Apply(vars, op).effect; };
  const std::string prob = "dropout_prob=0.5, is_test=false, ";
  const auto drops = [&](const std::string& args, const char* attrs) {
    return effect(absl::StrCat("Out=[y] = dropout(", args, ") {", prob, attrs, "}").c_str());
  };
  EXPECT_EQ(drops("X=[w]", "seed=7, fix_seed=true"), BatchEffect::kNone);
  EXPECT_EQ(drops("X=[w]", "seed=7, fix_seed=false"), BatchEffect::kDraws);
  EXPECT_EQ(drops("X=[w]", "seed=0, fix_seed=true"), BatchEffect::kDraws);
  EXPECT_EQ(drops("X=[b]", "seed=7, fix_seed=true"), BatchEffect::kDraws);
  EXPECT_EQ(drops("X=[w], Seed=[k]", "seed=7, fix_seed=true"), BatchEffect::kDraws);
  EXPECT_EQ(
      Apply(vars + "\nvar M : fp32[4]", "Out=[v] = dropout(X=[M]) {is_test=true, dropout_prob=0.5}")
          .relations[0],
      kUnrelated);
  EXPECT_EQ(effect("Out=[k] = seed() {seed=7}"), BatchEffect::kNone);
  EXPECT_EQ(effect("Out=[k] = seed() {seed=0}"), BatchEffect::kDraws);
  EXPECT_EQ(effect("Out=[k] = seed()"), BatchEffect::kDraws);
}

TEST(BatchRulesTest, MeansOfIntegersAreRounded) {
  const std::string vars =
      "var b : fp32[-1, 4]\nvar bi : int64[-1, 4]\nvar s : fp32[4]\nvar si : int64[4]\n"
      "var r : int64[1]\nvar y : fp32[]\nvar k : int64[]";
  Check({
      {vars, "Out=[y] = mean(X=[b])", kMean},
      {vars, "Out=[k] = mean(X=[bi])", kUnrelated},
      {vars, "Out=[y] = mean(X=[s])", kSum},
      {vars, "Out=[k] = mean(X=[si])", kUnrelated},
      {vars, "Out=[k] = reduce_mean(X=[si]) {dim=ints[0]}", kUnrelated},
      {vars, "Out=[k] = reduce_sum(X=[si]) {dim=ints[0]}", kSum},
      {vars, "Out=[k] = reduce_sum(X=[s]) {dim=ints[0], out_dtype=3}", kUnrelated},
      {vars, "Out=[k] = cast(X=[si]) {in_dtype=3, out_dtype=3}", kSum},
      {vars, "Out=[k] = mean(X=[r])", kUnrelated},
  });
  const CollectiveOp average = {"", CollectiveKind::kAllReduce, Reduction::kAvg, ""};
  EXPECT_EQ(AfterCollective(average, kSum, /*is_integer=*/true), kUnrelated);
  EXPECT_EQ(AfterCollective(average, kSize, /*is_integer=*/true), kSize);
  EXPECT_EQ(AfterCollective(average, kSum), kSize);
}

// No mean and no sum: only the matching all-reduce makes it what one device has.
TEST(BatchRulesTest, MaximaOverTheBatchAreOfAKindOfTheirOwn) {
  const std::string vars =
      "var b : fp32[-1, 4]\nvar y : fp32[]\nvar o : fp32[-1]\nvar M : fp32[]\nvar M2 : fp32[]\n"
      "var c : fp32[]";
  const std::string all = " {reduce_all=true, dim=ints[0], keep_dim=false}";
  Check({
      {vars, "Out=[y] = reduce_max(X=[b])" + all, BatchRelation::PartialMax()},
      {vars, "Out=[y] = reduce_amax(X=[b])" + all, BatchRelation::PartialMax()},
      {vars, "Out=[y] = reduce_min(X=[b])" + all, BatchRelation::PartialMin()},
      {vars, "Out=[y] = reduce_prod(X=[b])" + all, BatchRelation::PartialProd()},
      {vars, "Out=[o] = reduce_max(X=[b]) {reduce_all=false, dim=ints[1], keep_dim=false}", kRows},
      {vars, "Out=[y] = scale(X=[M]) {scale=-1.0}", kUnrelated},
      {vars, "Out=[y] = sum(X=[M, M2])", kUnrelated},
      {vars, "Out=[y] = elementwise_mul(X=[M], Y=[c]) {axis=-1}", kUnrelated},
      {vars, "Out=[y] = reduce_max(X=[M])" + all, kUnrelated},
      {vars, "Out=[y] = fill_any_like(X=[M]) {value=1.0}", kReplicated},
  });
  const auto reduced = [](Reduction reduction, BatchRelation in) {
    return AfterCollective({"", CollectiveKind::kAllReduce, reduction, ""}, in);
  };
  EXPECT_EQ(reduced(Reduction::kMax, BatchRelation::PartialMax()), kReplicated);
  EXPECT_EQ(reduced(Reduction::kMin, BatchRelation::PartialMin()), kReplicated);
  EXPECT_EQ(reduced(Reduction::kProd, BatchRelation::PartialProd()), kReplicated);
  for (Reduction reduction :
       {Reduction::kSum, Reduction::kAvg, Reduction::kMin, Reduction::kProd}) {
    EXPECT_EQ(reduced(reduction, BatchRelation::PartialMax()), kUnrelated);
  }
  EXPECT_EQ(reduced(Reduction::kMax, kMean), kUnrelated);
  // The gradient goes to one rank: no relation.
  EXPECT_EQ(GradientRelation(BatchRelation::PartialMax(), 0), kUnrelated);
  EXPECT_EQ(LossPower(BatchRelation::PartialMax(), kReplicated), absl::nullopt);
}

TEST(BatchRulesTest, SizesOfTheBatchGiveShares) {
  const std::string vars =
      "var b : fp32[-1, -1, 8]\nvar h : int32[4]\nvar r : int32[1]\nvar c : int32[1]\n"
      "var o : fp32[-1, -1, 2, 4]\nvar x : fp32[0]\nvar k : fp32[1, 1, 8]\n"
      "var e : fp32[-1, 1, 8]\nvar w : fp32[4, 8]\nvar z : fp32[-1, 4, 8]";
  Check({
      {vars,
       "Out=[o], XShape=[x] = reshape2(ShapeTensor=[r, c, c, c], X=[b]) {shape=ints[-1, -1, 2, 4]}",
       kRows},
      {vars, "Out=[o], XShape=[x] = reshape2(Shape=[h], X=[b]) {shape=ints[]}", kRows},
      // Another dimension has the size of the batch.
      {vars,
       "Out=[o], XShape=[x] = reshape2(ShapeTensor=[c, r, c, c], X=[b]) {shape=ints[-1, -1, 2, 4]}",
       kUnrelated},
      {vars, "Out=[e] = expand_v2(X=[k], expand_shapes_tensor=[r, c, c]) {shape=ints[-1, 1, 8]}",
       kRows},
      {vars, "Out=[z] = expand_v2(X=[w], expand_shapes_tensor=[r, c, c]) {shape=ints[-1, 4, 8]}",
       kRows},
      {vars, "Out=[z] = expand_v2(X=[z], expand_shapes_tensor=[r, c, c]) {shape=ints[-1, 4, 8]}",
       kUnrelated},
      {vars, "Out=[z] = expand_as_v2(X=[w], Y=[b])", kRows},
      {vars, "Out=[z] = expand_as_v2(X=[z], Y=[b])", kUnrelated},
  });
}

TEST(BatchRulesTest, ShapesOfTimeMajorDataMoveTheBatch) {
  const std::string vars =
      "var t : fp32[-1, -1]\nvar y : fp32[-1, -1, 1]\nvar z : fp32[1, -1, -1]\nvar x : fp32[0]\n"
      "var b : fp32[-1, 4, 1, 8]\nvar q : fp32[-1, 4, 8]\nvar f : fp32[-1, 32]\n"
      "var t3 : fp32[4, -1, 8]\nvar o : fp32[-1]\nvar t2 : fp32[8, 4]\nvar v : fp32[-1, 8]";
  Check({
      {vars, "Out=[y], XShape=[x] = unsqueeze2(X=[t]) {axes=ints[-1]}", kColumns},
      {vars, "Out=[z], XShape=[x] = unsqueeze2(X=[t]) {axes=ints[0]}", BatchRelation::Sharded(2)},
      {vars, "Out=[q], XShape=[x] = squeeze2(X=[b]) {axes=ints[2]}", kRows},
      {vars, "Out=[f], XShape=[x] = flatten_contiguous_range(X=[b]) {start_axis=1, stop_axis=3}",
       kRows},
      {vars, "Out=[o], XShape=[x] = flatten_contiguous_range(X=[t3]) {start_axis=0, stop_axis=2}",
       kUnrelated},
      {vars, "Y=[v, v, v, v] = unstack(X=[t3]) {axis=0, num=4}", kRows},
      {vars, "Y=[v, v, v, v] = unstack(X=[t3]) {axis=1, num=4}", kUnrelated},
      {vars, "Out=[f] = tile(X=[f]) {repeat_times=ints[2, 1]}", kReplicated},
      {vars, "Out=[q] = tile(X=[b]) {repeat_times=ints[1, 2, 1, 1]}", kRows},
      {vars, "Out=[q] = tile(X=[b]) {repeat_times=ints[2, 1, 1, 1]}", kUnrelated},
  });
}

TEST(BatchRulesTest, ProductsFollowTheLetterOfTheBatch) {
  const std::string vars =
      "var b : fp32[-1, 4]\nvar b2 : fp32[-1, 4]\nvar w : fp32[4, 8]\nvar y : fp32[-1, 8]\n"
      "var g : fp32[4, 4]\nvar z : fp32[-1, -1]\nvar o : fp32[-1]\nvar m : fp32[-1, 8]\n"
      "var v : fp32[8]";
  Check({
      {vars, "Out=[y] = einsum(Operands=[b, w]) {equation=\"bi,ij->bj\"}", kRows},
      {vars, "Out=[y] = einsum(Operands=[b, w]) {equation=\"bi,ij->jb\"}", kColumns},
      {vars, "Out=[g] = einsum(Operands=[b, b2]) {equation=\"bi,bj->ij\"}", kSum},
      {vars, "Out=[z] = einsum(Operands=[b, b2]) {equation=\"bi,ci->bc\"}", kUnrelated},
      {vars, "Out=[o] = dot(X=[b], Y=[b2])", kRows},
      {vars, "Out=[y] = addmm(Input=[v], X=[b], Y=[w])", kRows},
      {vars, "Out=[y] = addmm(Input=[m], X=[b], Y=[w])", kUnrelated},
  });
}

TEST(BatchRulesTest, OpsOfEachSampleKeepRows) {
  const std::string vars =
      "var b : fp32[-1, 4]\nvar b2 : fp32[-1, 4]\nvar y : fp32[-1, 4]\nvar o : fp32[-1]\n"
      "var i : int64[-1, 1]\nvar bi : int64[-1, 1]\nvar r : int32[1]\nvar k : int64[1]\n"
      "var l : int64[-1]\nvar bl : int64[-1]\nvar n2 : int64[1]\nvar p : fp32[1]";
  Check({
      {vars, "Out=[y] = bce_loss(Label=[b2], X=[b])", kRows},
      {vars, "Out=[y], Residual=[y] = huber_loss(X=[b], Y=[b2]) {delta=1.0}", kRows},
      {vars, "Out=[y] = label_smooth(X=[b]) {epsilon=0.1}", kRows},
      {vars, "Out=[y] = share_data(X=[b])", kRows},
      {vars, "Out=[p] = share_data(X=[p])", kMean},
      {vars, "Out=[o] = p_norm(X=[b]) {axis=1, keepdim=false}", kRows},
      {vars, "Out=[o] = p_norm(X=[b]) {axis=0, keepdim=false}", kUnrelated},
      {vars, "Out=[o] = p_norm(X=[b]) {asvector=true, axis=1}", kUnrelated},
      {vars, "Out=[y] = index_sample(X=[b], Index=[bi])", kRows},
      {vars, "Result=[y] = take_along_axis(Input=[b], Index=[bi]) {Axis=1}", kRows},
      {vars, "Result=[y] = take_along_axis(Input=[b], Index=[bi]) {Axis=0}", kUnrelated},
      {"var b : fp32[8, 4]\nvar bi : int64[4, 1]\nvar y : fp32[4, 1]",
       "Result=[y] = take_along_axis(Input=[b], Index=[bi]) {Axis=1}", kUnrelated},
      {vars, "Out=[y] = pad(X=[b]) {paddings=ints[0, 0, 1, 1]}", kRows},
      {vars, "Out=[y] = pad(X=[b]) {paddings=ints[1, 0, 0, 0]}", kUnrelated},
      {vars, "Out=[y] = crop_tensor(X=[b]) {offsets=ints[0, 1], shape=ints[-1, 2]}", kRows},
      {vars, "Out=[y] = crop_tensor(X=[b]) {offsets=ints[1, 1], shape=ints[-1, 2]}", kUnrelated},
      {vars, "Out=[y] = crop_tensor(X=[b]) {offsets=ints[0, 1], shape=ints[2, 2]}", kUnrelated},
      {vars, "Out=[y] = crop_tensor(X=[b], Shape=[k]) {offsets=ints[0, 0], shape=ints[-1, 2]}",
       kUnrelated},
      {vars, "Y=[y] = sequence_mask(X=[bl]) {maxlen=4}", kRows},
      // As wide as the longest of the rank's own.
      {vars, "Y=[y] = sequence_mask(X=[bl]) {maxlen=-1}", kUnrelated},
      {vars, "Y=[y] = sequence_mask(MaxLenTensor=[k], X=[bl]) {maxlen=4}", kUnrelated},
      {vars, "Out=[k] = cast(X=[r]) {in_dtype=2, out_dtype=3}", kSize},
      {vars, "Out=[y] = read_from_array(X=[b], I=[k], X_W=[b])", kRows},
      {vars, "Out=[y] = read_from_array(X=[b], I=[k], X_W=[p])", kUnrelated},
  });
  const BatchOutputs array =
      Apply("var b : fp32[-1, 4]\nvar y : fp32[-1, -1, 4]\nvar i : int32[-1]",
            "Out=[y], OutIndex=[i] = tensor_array_to_tensor(X=[b]) {axis=0, use_stack=true}");
  EXPECT_EQ(array.relations[0], kColumns);
  EXPECT_EQ(array.relations[1], kReplicated);
}

TEST(BatchRulesTest, IndicesAlongOtherDimensionsKeepShares) {
  const std::string vars =
      "var t : fp32[8, -1]\nvar b : fp32[-1, 4]\nvar b2 : fp32[-1, 4]\nvar b3 : fp32[-1, 2]\n"
      "var i : int64[3]\nvar k : int64[]\nvar c : int64[3, 1]\nvar d : int64[3, 2]\n"
      "var t3 : fp32[3, -1]\nvar b1 : fp32[-1]\nvar w3 : fp32[3, 1]\nvar w1 : fp32[]\n"
      "var w2 : fp32[3, 8]\nvar bi : int64[-1, 2]\nvar y : fp32[-1, 4]\nvar z : fp32[8, -1]\n"
      "var o : fp32[3, -1]\nvar e : fp32[3]";
  Check({
      {vars, "Out=[o] = gather_nd(Index=[c], X=[t])", kColumns},
      {vars, "Out=[e] = gather_nd(Index=[d], X=[t])", kUnrelated},
      {vars, "Out=[z] = scatter(Ids=[i], Updates=[t3], X=[t])", kColumns},
      {vars, "Out=[z] = scatter(Ids=[k], Updates=[b1], X=[t])", kColumns},
      {vars, "Out=[z] = scatter(Ids=[i], Updates=[w2], X=[t])", kUnrelated},
      {vars, "Out=[y] = scatter(Ids=[i], Updates=[b2], X=[b])", kUnrelated},
      {vars, "Out=[z] = scatter_nd_add(Index=[c], Updates=[t3], X=[t])", kColumns},
      {vars, "Out=[z] = scatter_nd_add(Index=[d], Updates=[e], X=[t])", kUnrelated},
      {vars, "Out=[y] = index_add(AddValue=[b3], Index=[i], X=[b]) {axis=1}", kRows},
      {vars, "Out=[y] = index_add(AddValue=[b3], Index=[i], X=[b]) {axis=0}", kUnrelated},
      {vars, "out=[z] = index_put(indices=[i], value=[t3], x=[t])", kColumns},
      {vars, "out=[z] = index_put(indices=[i], value=[w3], x=[t])", kColumns},
      {vars, "out=[z] = index_put(indices=[i], value=[w1], x=[t])", kColumns},
      {vars, "out=[z] = index_put(indices=[i], value=[w2], x=[t])", kUnrelated},
      {vars, "out=[y] = index_put(indices=[i], value=[w1], x=[b])", kUnrelated},
      {vars, "Result=[y] = put_along_axis(Index=[bi], Input=[b], Value=[b3]) {Axis=1}", kRows},
      {"var b : fp32[4, 4]\nvar bi : int64[4, 2]\nvar b3 : fp32[4, 2]\nvar y : fp32[4, 4]",
       "Result=[y] = put_along_axis(Index=[bi], Input=[b], Value=[b3]) {Axis=1}", kRows},
      {"var b : fp32[4, 4]\nvar bi : int64[4, 2]\nvar b3 : fp32[4, 2]\nvar y : fp32[4, 4]",
       "Result=[y] = put_along_axis(Index=[bi], Input=[b], Value=[b3]) {Axis=0}", kUnrelated},
  });
}

// Numbers of a share that become whole are no multiples of those of one device.
TEST(BatchRulesTest, SumsOfNumbersThatBecomeWholeAreUnrelated) {
  const std::string vars = "var b : fp32[-1, 4]\nvar bi : bool[-1, 4]\nvar i : int64[4]";
  const std::string rows = " {dim=ints[0], keep_dim=false, reduce_all=false";
  Check({
      {vars, "Out=[i] = reduce_sum(X=[b])" + rows + ", in_dtype=5, out_dtype=3}", kUnrelated},
      {vars, "Out=[i] = reduce_sum(X=[bi])" + rows + ", in_dtype=0, out_dtype=3}", kSum},
  });
}

TEST(BatchRulesTest, AssignedSlicesKeepShares) {
  const std::string vars =
      "var b : fp32[-1, 4, 8]\nvar y : fp32[-1, 4, 8]\nvar w : fp32[1, 8]\nvar w8 : fp32[8]\n"
      "var bv : fp32[-1, 8]\nvar v : fp32[6, 8]\nvar r : int64[1]";
  const std::string first = " {axes=longs[1], starts=longs[0], ends=longs[1], steps=longs[1]";
  const std::string rows = " {axes=longs[0], starts=longs[0], ends=longs[1], steps=longs[1]";
  const std::string drop = ", decrease_axes=longs[1]}";
  Check({
      {vars, "Out=[y] = set_value(Input=[b], ValueTensor=[w8])" + first + drop, kRows},
      {vars, "Out=[y] = set_value(Input=[b], ValueTensor=[w])" + first + drop, kRows},
      {vars, "Out=[y] = set_value(Input=[b], ValueTensor=[bv])" + first + drop, kRows},
      {vars,
       "Out=[y] = set_value(Input=[b])" + first +
           ", shape=longs[1], values=scalars[{type: FLOAT64, r: 0.5}]}",
       kRows},
      // The value has no dimension for the batch.
      {vars,
       "Out=[y] = set_value(Input=[b], ValueTensor=[bv])" + first + ", decrease_axes=longs[0]}",
       kUnrelated},
      // Another value for each sample of one device.
      {vars, "Out=[y] = set_value(Input=[b], ValueTensor=[v])" + first + drop, kUnrelated},
      // Without the dropped axis, the shares of the value are not along that of the slice.
      {vars, "Out=[y] = set_value(Input=[b], ValueTensor=[bv])" + first + "}", kUnrelated},
      {vars, "Out=[y] = set_value(Input=[b], ValueTensor=[w8])" + rows + "}", kUnrelated},
      {vars, "Out=[y] = set_value(Input=[b], StartsTensorList=[r], ValueTensor=[w8])" + rows + "}",
       kUnrelated},
  });
}

TEST(BatchRulesTest, MatricesOfSamplesKeepShares) {
  const std::string vars =
      "var b : fp32[-1, 3, 3]\nvar b2 : fp32[-1, 3, 3]\nvar y : fp32[-1, 3, 3]\n"
      "var o : fp32[-1, 3]\nvar p1 : fp32[-1]\nvar w : fp32[3, 3]\nvar t : fp32[3, -1, 3]\n"
      "var z : fp32[-1, 3, 3, 3]\nvar bm : fp32[-1, 3]\nvar k : fp32[-1, 9]\n"
      "var wk : fp32[2, 3]\nvar t2 : fp32[-1, -1]\nvar tc : fp32[3, -1]\n"
      "var w1 : fp32[1, 1, 3, 3]\nvar tb : fp32[2, -1, 3, 3]";
  Check({
      {vars, "Out=[o] = diagonal(Input=[b]) {axis1=1, axis2=2}", kRows},
      {vars, "Out=[o] = diagonal(Input=[t]) {axis1=0, axis2=2}", kRows},
      {vars, "Out=[o] = diagonal(Input=[b]) {axis1=0, axis2=1}", kUnrelated},
      {vars, "Out=[p1] = trace(Input=[b]) {axis1=-2, axis2=-1}", kRows},
      {vars, "Out=[y] = diag_embed(Input=[bm]) {dim1=-2, dim2=-1}", kRows},
      {vars, "Out=[y] = diag_embed(Input=[bm]) {dim1=0, dim2=2}", kColumns},
      {vars, "Out=[y] = diag_embed(Input=[t2]) {dim1=0, dim2=1}", kUnrelated},
      {vars, "Output=[y] = inverse(Input=[b])", kRows},
      {vars, "Out=[y] = cholesky(X=[b])", kRows},
      {vars, "Out=[p1] = determinant(Input=[b])", kRows},
      {vars, "Out=[y] = solve(X=[b], Y=[b2])", kRows},
      {vars, "Out=[y] = triangular_solve(X=[w], Y=[b])", kRows},
      {vars, "Out=[y] = solve(X=[b], Y=[w])", kUnrelated},
      {vars, "Out=[bm] = solve(X=[b], Y=[bm])", kRows},
      {vars, "Out=[bm] = solve(X=[w], Y=[bm])", kUnrelated},
      // Columns of right sides.
      {vars, "Out=[tc] = solve(X=[w], Y=[tc])", kColumns},
      {vars, "Out=[tc] = cholesky_solve(X=[tc], Y=[w])", kColumns},
      {vars, "Out=[z] = triangular_solve(X=[w1], Y=[tb])", kColumns},
      {vars, "Out=[y] = cholesky_solve(X=[b], Y=[b2])", kRows},
      {vars, "Out=[y] = cholesky_solve(X=[w], Y=[b])", kRows},
      {vars, "Out=[k] = kron(X=[bm], Y=[wk])", kRows},
      {vars, "Out=[k] = kron(X=[wk], Y=[bm])", kUnrelated},
      {vars, "Out=[o] = multi_dot(X=[bm, w, w])", kRows},
      {vars, "Out=[o] = multi_dot(X=[w, bm, w])", kUnrelated},
      {vars, "Out=[y] = cross(X=[b], Y=[b2]) {dim=1}", kRows},
      // A batch of three would be taken for the vectors.
      {vars, "Out=[y] = cross(X=[b], Y=[b2]) {dim=9}", kUnrelated},
      {vars, "Out=[y] = renorm(X=[b]) {axis=0, max_norm=1.0, p=2.0}", kRows},
      {vars, "Out=[y] = renorm(X=[b]) {axis=1, max_norm=1.0, p=2.0}", kUnrelated},
  });
}

TEST(BatchRulesTest, DrawsByValuesHaveTheirShares) {
  const std::string vars =
      "var b : fp32[-1, 4]\nvar y : fp32[-1, 4]\nvar w : fp32[4]\nvar z : fp32[4]\n"
      "var i : int64[-1, 2]\nvar s : fp32[4]";
  Check({
      {vars, "Out=[y] = bernoulli(X=[b])", kRows},
      {vars, "Out=[z] = bernoulli(X=[w])", kReplicated},
      {vars, "Out=[z] = bernoulli(X=[s])", kUnrelated},
      {vars, "Out=[y] = gumbel_softmax(X=[b]) {axis=-1}", kRows},
      {vars, "Out=[y] = gumbel_softmax(X=[b]) {axis=0}", kUnrelated},
      {vars, "Out=[i] = multinomial(X=[b]) {num_samples=2}", kRows},
  });
  EXPECT_EQ(Apply(vars, "Out=[y] = bernoulli(X=[b])").effect, BatchEffect::kDraws);
  EXPECT_EQ(Apply(vars, "Out=[z] = bernoulli(X=[w])").effect, BatchEffect::kDraws);
  EXPECT_EQ(Apply("var b : fp32[-1, 8]\nvar y : fp32[-1, 4, 3]",
                  "Out=[y] = frame(X=[b]) {axis=-1, frame_length=4, hop_length=2}")
                .relations[0],
            kRows);
  const std::string images =
      "var b : fp32[-1, 2, 8, 8]\nvar y : fp32[-1, 2, 3, 3]\n"
      "var i : int32[-1, 2, 3, 3]";
  const std::string pool =
      "mask=[i], out=[y] = fractional_max_pool2d(x=[b]) "
      "{output_size=ints[3, 3], random_u=";
  EXPECT_EQ(Apply(images, pool + "0.25}").effect, BatchEffect::kNone);
  EXPECT_EQ(Apply(images, pool + "0.25}").relations[1], kRows);
  EXPECT_EQ(Apply(images, pool + "0.0}").effect, BatchEffect::kDraws);
  const std::string rrelu = "Noise=[y], Out=[y] = rrelu(X=[b])";
  EXPECT_EQ(Apply(vars, rrelu + " {is_test=true}").effect, BatchEffect::kNone);
  EXPECT_EQ(Apply(vars, rrelu + " {is_test=true}").relations[0], kRows);
  EXPECT_EQ(Apply(vars, rrelu + " {is_test=false}").effect, BatchEffect::kDraws);
}

// Whatever inputs are, replicated inputs give replicated outputs, and an unknown op of others
// unrelated ones.
TEST(BatchRulesTest, UnregisteredOpsAreUnrelated) {
  const std::string vars = "var b : fp32[-1, 4]\nvar w : fp32[4]\nvar y : fp32[-1, 4]";
  Check({
      {vars, "Out=[y] = my_op(X=[b])", kUnrelated},
      {vars, "Out=[y] = my_op(X=[w])", kReplicated},
  });
  EXPECT_EQ(Apply(vars, "Out=[y] = my_op(X=[b])").effect, BatchEffect::kNone);
}

// Some types are known to draw; others may, if they have a seed.
TEST(BatchRulesTest, UnregisteredOpsMayDraw) {
  const std::string vars = "var b : fp32[-1, 4]\nvar w : fp32[4]\nvar y : fp32[-1, 4]";
  for (const char* op :
       {"Out=[y] = exponential(X=[w])", "Out=[y] = dirichlet(Alpha=[b])",
        "Out=[y] = my_op(X=[w]) {seed=0}", "Out=[y] = my_op(X=[w]) {startup_seed=7}",
        "Out=[y] = my_op(X=[w], Seed=[w])", "Out=[y], SeedOut=[w] = my_op(X=[w])"}) {
    const BatchOutputs out = Apply(vars, op);
    EXPECT_EQ(out.effect, BatchEffect::kDraws) << op;
    EXPECT_EQ(out.relations[0], kUnrelated) << op;
  }
  // Of the backward pass, which repeats the attributes of the forward op.
  EXPECT_EQ(Apply(vars, "X@GRAD=[y] = my_op_grad(Out@GRAD=[w]) {seed=0}").effect,
            BatchEffect::kNone);
  // It has no result.
  EXPECT_EQ(Apply("var k : bool[1]", "assert(Cond=[k])").effect, BatchEffect::kNone);
}

}  // namespace
}  // namespace weft
