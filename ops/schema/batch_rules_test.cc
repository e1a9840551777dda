#include "ops/schema/batch_rules.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

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

// Variables of a program: "x y: fp32[-1, 4]; i: int64[2]".
struct Variables {
  std::string text;

  // Applies an op. Relations of its outputs, in their order.
  BatchOutputs Apply(const std::string& op_text) const { return Apply(op_text, absl::nullopt); }
  // An unregistered op, as the user says.
  BatchOutputs Apply(const std::string& op_text, absl::optional<OpAssumption> assumed) const {
    std::string block;
    for (absl::string_view group : absl::StrSplit(text, "; ")) {
      const std::pair<absl::string_view, absl::string_view> names_and_type =
          absl::StrSplit(group, absl::MaxSplits(": ", 1));
      for (absl::string_view name : absl::StrSplit(names_and_type.first, ' ')) {
        absl::StrAppend(&block, "var ", name, " : ", names_and_type.second, "\n");
      }
    }
    const absl::StatusOr<Program> program = ParseProgramText(
        absl::StrCat("program {\nblock 0 parent=-1 {\n", block, op_text, "\n}\n}\n"));
    EXPECT_TRUE(program.ok()) << program.status() << "\n" << op_text;
    const Op op = program->op(program->block(0).ops()[0]);
    std::vector<BatchRelation> inputs;
    for (Symbol name : op.input_args()) inputs.push_back(InitialRelation(program->name(name)));
    const TypeLookup types = [&](Symbol name) {
      return DeclaredType(program->var(program->block(0).FindVar(name)));
    };
    if (assumed.has_value()) return ApplyAssumedRule(op, *assumed, types, inputs);
    return ApplyBatchRule(op, FindOpSchema(op.type()), types, inputs);
  }

  // Checks ops and the relations of their first outputs.
  void Check(const std::vector<std::pair<std::string, BatchRelation>>& cases) const {
    for (const auto& [op, expected] : cases) {
      EXPECT_EQ(ToString(Apply(op).relations[0]), ToString(expected)) << op << "\n" << text;
    }
  }
};

TEST(BatchRulesTest, ElementwiseOpsKeepShares) {
  const Variables vars = {
      "b b2 y c: fp32[-1, 4]; w: fp32[4]; b1: fp32[-1]; z: fp32[-1, -1]; bc: fp32[-1, 1]"};
  vars.Check({
      {"Out=[y] = relu(X=[b])", kRows},
      {"Out=[y] = elementwise_add(X=[b], Y=[b2]) {axis=-1}", kRows},
      {"Out=[y] = elementwise_add(X=[b], Y=[w]) {axis=-1}", kRows},
      {"Out=[y] = elementwise_add(X=[b], Y=[w]) {axis=1}", kRows},
      {"Out=[y] = elementwise_mul(X=[b], Y=[b1]) {axis=0}", kRows},
      // Each sample with each other one.
      {"Out=[z] = elementwise_sub(X=[bc], Y=[b1]) {axis=-1}", kUnrelated},
      // A constant as long as the batch of one device.
      {"Out=[y] = elementwise_add(X=[b], Y=[c]) {axis=-1}", kUnrelated},
      {"Out=[y] = elementwise_add(X=[b], Y=[n]) {axis=-1}", kUnrelated},
  });
}

TEST(BatchRulesTest, PartialMeansAndSumsAreLinear) {
  const Variables vars = {"p q s u c y: fp32[1]; b z: fp32[-1]; i: int64[1]"};
  vars.Check({
      {"Out=[y] = elementwise_add(X=[p], Y=[q]) {axis=-1}", kMean},
      {"Out=[y] = elementwise_add(X=[p], Y=[c]) {axis=-1}", kMean},
      {"Out=[y] = elementwise_sub(X=[s], Y=[u]) {axis=-1}", kSum},
      // The constant would be added once for each rank.
      {"Out=[y] = elementwise_add(X=[s], Y=[c]) {axis=-1}", kUnrelated},
      {"Out=[y] = elementwise_add(X=[s], Y=[p]) {axis=-1}", kUnrelated},
      {"Out=[y] = elementwise_mul(X=[p], Y=[c]) {axis=-1}", kMean},
      {"Out=[y] = elementwise_mul(X=[p], Y=[q]) {axis=-1}", kUnrelated},
      {"Out=[y] = elementwise_div(X=[s], Y=[c]) {axis=-1}", kSum},
      {"Out=[y] = elementwise_div(X=[c], Y=[s]) {axis=-1}", kUnrelated},
      // A weighted mean.
      {"Out=[y] = elementwise_div(X=[s], Y=[u]) {axis=-1}", kUnrelated},
      {"Out=[y] = scale(X=[p]) {scale=2.0, bias=1.0, bias_after_scale=true}", kMean},
      {"Out=[y] = scale(X=[s]) {scale=2.0, bias=0.0, bias_after_scale=true}", kSum},
      {"Out=[y] = scale(X=[s]) {scale=2.0, bias=1.0, bias_after_scale=true}", kUnrelated},
      {"Out=[y] = sqrt(X=[p])", kUnrelated},
      {"Out=[y] = sum(X=[p, q])", kMean},
      {"Out=[i] = cast(X=[p]) {in_dtype=5, out_dtype=3}", kUnrelated},
      // A sample less the mean of its share.
      {"Out=[z] = elementwise_sub(X=[b], Y=[p]) {axis=-1}", kUnrelated},
      {"Out=[y] = fill_any_like(X=[p]) {dtype=-1, value=1.0}", kReplicated},
  });
}

// Of gradients, too, which are multiples of what one device has.
TEST(BatchRulesTest, ChoicesAreLinearInWhatTheyChooseFrom) {
  const Variables vars = {"b b2: fp32[-1]; bm m: bool[-1]; p q s u y r r2: fp32[-1]; w: fp32[4]"};
  const auto where = [](const char* mask, const char* x, const char* y) {
    return absl::StrCat("Out=[y] = where(Condition=[", mask, "], X=[", x, "], Y=[", y, "])");
  };
  vars.Check({
      {where("bm", "b", "b2"), kRows},
      {where("m", "p", "q"), kMean},
      {where("m", "s", "u"), kSum},
      {where("m", "s", "p"), kUnrelated},
      {where("m", "r", "r2"), kSize},
      {where("m", "s", "w"), kUnrelated},
      // Each rank chooses other elements of a sum.
      {where("bm", "s", "u"), kUnrelated},
  });
}

// Of a shape that Paddle joins from those of two tensors, for broadcasting.
TEST(BatchRulesTest, SizesJoinToAShape) {
  const Variables vars = {
      "h o: int64[2]; r i: int64[1]; o3: int64[3]; r2 i2: fp32[1]; o2: fp32[2]; r3 k: int64[-1]"};
  vars.Check({
      {"Out=[o] = concat(X=[r, i]) {axis=0}", BatchRelation::Shape(0)},
      {"Out=[o] = concat(X=[i, r]) {axis=0}", BatchRelation::Shape(1)},
      {"Out=[o3] = concat(X=[i, h]) {axis=0}", BatchRelation::Shape(1)},
      {"Out=[o3] = concat(X=[h, r]) {axis=0}", kUnrelated},
      {"Out=[o3] = concat(X=[h, r, i]) {axis=0}", kUnrelated},
      {"Out=[o] = concat(X=[r, r]) {axis=0}", kSize},
      // Where the size stands is unknown, or the numbers are no sizes.
      {"Out=[o] = concat(X=[k, r]) {axis=0}", kUnrelated},
      {"Out=[o2] = concat(X=[r2, i2]) {axis=0}", kUnrelated},
  });
}

TEST(BatchRulesTest, PowersFollowSizesOfTheBatch) {
  const Variables vars = {
      "b z: fp32[-1, 4]; h: int32[2]; r i: int32[1]; r2 s u p y c: fp32[1]; q: bool[2]"};
  vars.Check({
      {"Out=[h] = shape(Input=[b])", BatchRelation::Shape(0)},
      {"Out=[i] = slice(Input=[h]) {axes=ints[0], starts=ints[0], ends=ints[1]}", kSize},
      {"Out=[i] = slice(Input=[h]) {axes=ints[0], starts=ints[1], ends=ints[2]}", kReplicated},
      {"Out=[i] = size(Input=[b])", kSize},
      {"Out=[y] = cast(X=[r]) {in_dtype=2, out_dtype=5}", kSize},
      {"Out=[q] = cast(X=[h]) {in_dtype=2, out_dtype=0}", kUnrelated},
      // The sum of the losses by the number of samples.
      {"Out=[y] = elementwise_div(X=[s], Y=[r2]) {axis=-1}", kMean},
      {"Out=[y] = elementwise_mul(X=[p], Y=[r2]) {axis=-1}", kSum},
      {"Out=[y] = elementwise_add(X=[s], Y=[r2]) {axis=-1}", kSum},
      {"Out=[y] = elementwise_add(X=[r2], Y=[c]) {axis=-1}", kUnrelated},
      {"Out=[y] = sqrt(X=[r2])", kUnrelated},
      {"Out=[y] = abs(X=[r2])", kSize},
      {"Out=[y] = sign(X=[r2])", kReplicated},
      {"Out=[y] = abs(X=[p])", kUnrelated},
      {"Out=[y] = sign(X=[p])", kUnrelated},
      {"Out=[i] = elementwise_floordiv(X=[r], Y=[c]) {axis=-1}", kUnrelated},
      {"Out=[z] = fill_constant(ShapeTensorList=[r, c]) {dtype=5, value=1.0, shape=ints[-1, "
       "4]}",
       kRows},
      {"Out=[z] = elementwise_mul(X=[b], Y=[r2]) {axis=-1}", BatchRelation::Sharded(0, -1)},
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
  const Variables vars = {"b: fp32[-1, 4, 8]; t: fp32[4, -1, 8]; y: fp32[1]; z: fp32[-1, 8]"};
  vars.Check({
      {"Out=[y] = mean(X=[b])", kMean},
      {"Out=[y] = reduce_mean(X=[b]) {reduce_all=true, dim=ints[0], keep_dim=false}", kMean},
      {"Out=[y] = reduce_sum(X=[b]) {reduce_all=false, dim=ints[0, 1, 2], keep_dim=false}", kSum},
      {"Out=[y] = reduce_max(X=[b]) {reduce_all=true, dim=ints[0], keep_dim=false}",
       BatchRelation::PartialMax()},
      {"Out=[y] = frobenius_norm(X=[b]) {reduce_all=true, dim=ints[0], keep_dim=false}",
       kUnrelated},
      {"Out=[z] = reduce_sum(X=[b]) {reduce_all=false, dim=ints[1], keep_dim=false}", kRows},
      {"Out=[z] = reduce_max(X=[t]) {reduce_all=false, dim=ints[0], keep_dim=false}", kRows},
      {"Out=[z] = reduce_max(X=[t]) {reduce_all=false, dim=ints[0], keep_dim=true}", kColumns},
      {"Out=[y] = squared_l2_norm(X=[b])", kSum},
  });
}

TEST(BatchRulesTest, RanksSearchTheirPartsForElementsThatAreNotFinite) {
  const Variables vars = {
      "b g: fp32[-1]; x y: fp32[4]; p: fp32[4]; v l: fp32[1]; i: int32[1]; Mf flag: bool[1]"};
  const auto relations = [&](const std::string& op) { return vars.Apply(op).relations; };
  using ::testing::ElementsAre;
  EXPECT_THAT(relations("Out=[g, y], FoundInfinite=[flag] = check_finite_and_unscale(X=[b, x], "
                        "Scale=[l])"),
              ElementsAre(kRows, kReplicated, BatchRelation::PartialMax()));
  EXPECT_THAT(relations("Out=[y], FoundInfinite=[flag] = check_finite_and_unscale(X=[p], "
                        "Scale=[l])"),
              ElementsAre(kUnrelated, kUnrelated));
  const std::string attrs =
      " {incr_every_n_steps=4, decr_every_n_nan_or_inf=1, incr_ratio=2.0, decr_ratio=0.5}";
  EXPECT_THAT(relations("Out=[g, y], LossScaling=[v] = update_loss_scaling(X=[b, x], "
                        "FoundInfinite=[flag], PrevLossScaling=[l])" +
                        attrs),
              ElementsAre(kRows, kReplicated, kReplicated));
  EXPECT_THAT(relations("Out=[g], LossScaling=[v] = update_loss_scaling(X=[b], "
                        "FoundInfinite=[Mf], PrevLossScaling=[l])" +
                        attrs),
              ElementsAre(kUnrelated, kUnrelated));
  EXPECT_THAT(relations("Out=[i] = cast(X=[Mf]) {in_dtype=0, out_dtype=2}"),
              ElementsAre(BatchRelation::PartialMax()));
}

TEST(BatchRulesTest, ProductsOfSharesAreSharesOrPartialSums) {
  const Variables vars = {
      "b b2: fp32[-1, 4]; w: fp32[4, 8]; y: fp32[-1, 8]; z: fp32[-1, -1]; g: fp32[4, 4]; b3: "
      "fp32[-1, 4, 8]; b4: fp32[-1, 8, 2]; x: fp32[-1, 4, 2]"};
  vars.Check({
      {"Out=[y] = matmul_v2(X=[b], Y=[w]) {trans_x=false, trans_y=false}", kRows},
      {"Out=[y] = mul(X=[b], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}", kRows},
      // Each sample with each other one, as in-batch contrastive losses have it.
      {"Out=[z] = matmul_v2(X=[b], Y=[b2]) {trans_x=false, trans_y=true}", kUnrelated},
      {"Out=[g] = matmul_v2(X=[b], Y=[b2]) {trans_x=true, trans_y=false}", kSum},
      {"Out=[x] = matmul_v2(X=[b3], Y=[b4]) {trans_x=false, trans_y=false}", kRows},
  });
}

TEST(BatchRulesTest, ShapesMoveTheBatch) {
  const Variables vars = {
      "b: fp32[-1, 4, 8]; t: fp32[6, -1, 8]; y: fp32[-1, 32]; z: fp32[-1, 8]; x: fp32[0]; v: "
      "fp32[32, -1]; k: fp32[4, -1, 8]; c: fp32[-1, 8, 8]; o: fp32[1, -1, 4, 8]; t2: fp32[6, -1, "
      "2, 4]; t3: fp32[1, 6, -1, 1, 8]; t4: fp32[3, 2, -1, 8]"};
  vars.Check({
      {"Out=[y], XShape=[x] = reshape2(X=[b]) {shape=ints[-1, 32]}", kRows},
      {"Out=[z], XShape=[x] = reshape2(X=[b]) {shape=ints[-1, 8]}", kRows},
      {"Out=[v], XShape=[x] = reshape2(X=[b]) {shape=ints[32, -1]}", kUnrelated},
      {"Out=[z], XShape=[x] = reshape2(X=[t]) {shape=ints[-1, 8]}", kUnrelated},
      {"Out=[t2], XShape=[x] = reshape2(X=[t]) {shape=ints[6, -1, 2, 4]}", kColumns},
      {"Out=[t3], XShape=[x] = reshape2(X=[t]) {shape=ints[1, 6, -1, 1, 8]}",
       BatchRelation::Sharded(2)},
      {"Out=[t4], XShape=[x] = reshape2(X=[t]) {shape=ints[3, 2, -1, 8]}", kUnrelated},
      {"Out=[o], XShape=[x] = unsqueeze2(X=[b]) {axes=ints[0]}", kColumns},
      {"Out=[k], XShape=[x] = transpose2(X=[b]) {axis=ints[1, 0, 2]}", kColumns},
      {"Out=[c] = concat(X=[b, b]) {axis=1}", kRows},
      {"Out=[c] = concat(X=[b, b]) {axis=0}", kUnrelated},
      {"Out=[z] = slice(Input=[b]) {axes=ints[1], starts=ints[0], ends=ints[1], "
       "decrease_axis=ints[1]}",
       kRows},
      {"Out=[z] = slice(Input=[t]) {axes=ints[0], starts=ints[0], ends=ints[1], "
       "decrease_axis=ints[0]}",
       kRows},
      {"Out=[z] = slice(Input=[b]) {axes=ints[0], starts=ints[0], ends=ints[1], "
       "decrease_axis=ints[0]}",
       kUnrelated},
  });
}

// Zeros depend on the places in the last two dimensions.
TEST(BatchRulesTest, TrianglesAreOfEachMatrixOfABatch) {
  const Variables vars = {
      "b y: fp32[-1, 4, 8]; b2 z: fp32[-1, 8]; t k: fp32[6, -1, 8]; p s g: fp32[4, 4]; t4 k4: "
      "fp32[6, -1, 8, 8]"};
  vars.Check({
      {"Out=[y] = tril_triu(X=[b]) {diagonal=0, lower=true}", kRows},
      {"Out=[k4] = tril_triu(X=[t4]) {diagonal=1, lower=false}", kColumns},
      {"Out=[g] = tril_triu(X=[p]) {diagonal=0, lower=true}", kMean},
      {"Out=[g] = tril_triu(X=[s]) {diagonal=0, lower=true}", kSum},
      // The rows of the second rank are others of one device's matrix.
      {"Out=[z] = tril_triu(X=[b2]) {diagonal=0, lower=true}", kUnrelated},
      {"Out=[k] = tril_triu(X=[t]) {diagonal=0, lower=true}", kUnrelated},
  });
}

TEST(BatchRulesTest, LayersAndLossesKeepRows) {
  const Variables vars = {
      "b y: fp32[-1, 4]; bl: int64[-1, 1]; w: fp32[4]; z: fp32[-1, 1]; m v: fp32[-1]; e: fp32[9, "
      "4]; k: fp32[-1, 1, 4]; acc: fp32[1]; c d: int32[1]"};
  vars.Check({
      {"Out=[y] = softmax(X=[b]) {axis=-1}", kRows},
      {"Out=[y] = softmax(X=[b]) {axis=0}", kUnrelated},
      {"Loss=[z], Softmax=[y] = softmax_with_cross_entropy(Logits=[b], Label=[bl]) {axis=-1}",
       kRows},
      {"Loss=[z], Softmax=[y] = softmax_with_cross_entropy(Logits=[b], Label=[w]) {axis=-1}",
       kUnrelated},
      {"Mean=[m], Variance=[v], Y=[y] = layer_norm(Bias=[w], Scale=[w], X=[b]) "
       "{begin_norm_axis=1}",
       kRows},
      {"Out=[k] = lookup_table_v2(Ids=[bl], W=[e])", kRows},
      {"Accuracy=[acc], Correct=[c], Total=[d] = accuracy(Indices=[bl], Label=[bl], Out=[bl])",
       kMean},
      {"Out=[acc] = nll_loss(Label=[bl], Weight=[w], X=[b]) {reduction=\"mean\"}", kUnrelated},
  });
}

// A mean of integers is rounded, and an integer picks a row of a table.
TEST(BatchRulesTest, FunctionsOfIntegersAreNotLinear) {
  const Variables vars = {"bl: int64[-1, 1]; i s r: int64[1]; p e: fp32[9, 4]; y: fp32[1, 4]"};
  vars.Check({
      {"Out=[i] = reduce_mean(X=[bl]) {reduce_all=true, dim=ints[0]}", kUnrelated},
      {"Out=[i] = reduce_sum(X=[bl]) {reduce_all=true, dim=ints[0]}", kSum},
      {"Out=[y] = lookup_table_v2(Ids=[s], W=[e])", kUnrelated},
      {"Out=[y] = lookup_table_v2(Ids=[r], W=[e])", kUnrelated},
      {"Out=[y] = lookup_table_v2(Ids=[i], W=[p])", kMean},
  });
}

// A list of sizes is no share of a batch.
TEST(BatchRulesTest, SizesAreNoShares) {
  const Variables vars = {
      "h j: int32[2]; i: int32[1]; n: fp32[4]; y: fp32[-1]; r: int64[1]; z: fp32[-1, 4]; l: "
      "int64[2]"};
  vars.Check({
      {"Out=[i] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}", kUnrelated},
      {"Out=[j] = fill_any_like(X=[h]) {dtype=-1, value=1.0}", kReplicated},
      {"Out=[i] = size(Input=[n])", kUnrelated},
      {"Out=[y] = fill_constant(ShapeTensor=[r]) {dtype=5, value=1.0}", kUnrelated},
      {"Out=[z] = fill_constant(ShapeTensor=[h]) {dtype=5, value=1.0}", kRows},
      {"Out=[l] = cast(X=[h]) {in_dtype=2, out_dtype=3}", BatchRelation::Shape(0)},
      {"Out=[j] = scale(X=[h]) {scale=2.0}", kUnrelated},
  });
}

TEST(BatchRulesTest, AttributesThatInputsGiveAreUnknown) {
  const Variables vars = {
      "b y: fp32[-1, 8]; z z2: fp32[-1, 4]; i r: int32[1]; j h: int32[2]; x: fp32[0]; u: fp32[-1, "
      "-1]"};
  vars.Check({
      {"Out=[y] = concat(AxisTensor=[i], X=[b, b]) {axis=1}", kUnrelated},
      {"Out=[z, z2] = split(AxisTensor=[i], X=[b]) {axis=1, num=2}", kUnrelated},
      {"Out=[z, z2] = split(X=[b]) {axis=1, num=2}", kRows},
      {"Out=[y] = slice(Input=[b], StartsTensor=[i]) {axes=ints[0], starts=ints[0], "
       "ends=ints[2147483647]}",
       kUnrelated},
      {"Out=[u], XShape=[x] = reshape2(Shape=[j], X=[b]) {shape=ints[]}", kUnrelated},
      {"Out=[y], XShape=[x] = reshape2(Shape=[h], X=[b]) {shape=ints[]}", kRows},
      {"Out=[y], XShape=[x] = reshape2(ShapeTensor=[r, i], X=[b]) {shape=ints[-1, -1]}", kRows},
      {"Out=[u], XShape=[x] = reshape2(ShapeTensor=[i, r], X=[b]) {shape=ints[-1, -1]}",
       kUnrelated},
      // Fixed, although declared unknown.
      {"Out=[u], XShape=[x] = reshape2(X=[b]) {shape=ints[2, -1]}", kUnrelated},
  });
}

TEST(BatchRulesTest, ShareOfOneRowMayLoseItsDimension) {
  const Variables vars = {"b z: fp32[-1, 1, 4]; y: fp32[-1, 4]; x: fp32[0]"};
  vars.Check({
      {"Out=[y], XShape=[x] = squeeze2(X=[b]) {axes=ints[1]}", kRows},
      {"Out=[y], XShape=[x] = squeeze2(X=[b]) {axes=ints[]}", kUnrelated},
      {"Out=[z], XShape=[x] = squeeze2(X=[b]) {axes=ints[0]}", kUnrelated},
  });
}

TEST(BatchRulesTest, ChoicesKeepOrLoseDimensions) {
  const Variables vars = {
      "t: fp32[4, -1]; i: int64[2]; j: int64[]; y: fp32[2, -1]; z: fp32[-1]; b x: fp32[-1, 4]"};
  const auto strided = [](int stride) {
    return absl::StrCat(
        "Out=[x] = strided_slice(Input=[b]) {axes=ints[0], starts=ints[0], "
        "ends=ints[2147483647], strides=ints[",
        stride, "]}");
  };
  vars.Check({
      {"Out=[y] = gather(X=[t], Index=[i]) {axis=0}", kColumns},
      {"Out=[z] = gather(X=[t], Index=[j]) {axis=0}", kRows},
      {strided(1), kRows},
      // Of an odd number of rows, a rank takes others.
      {strided(2), kUnrelated},
  });
}

TEST(BatchRulesTest, OpsForEachSampleKeepShares) {
  const Variables vars = {
      "b b2 y: fp32[-1, 4]; b1 z z2: fp32[-1]; w: fp32[4]; m: fp32[-1, 1]; s: fp32[1]; t: fp32[4, "
      "-1]; bi: int64[-1, 2]; y2: fp32[-1, 2]"};
  vars.Check({
      {"Out=[y] = bce_loss(Label=[b], X=[b2])", kRows},
      {"Out=[y], Residual=[y] = huber_loss(X=[b], Y=[b2]) {delta=1.0}", kRows},
      {"Norm=[m], Out=[y] = norm(X=[b]) {axis=1}", kRows},
      {"Norm=[m], Out=[y] = norm(X=[b]) {axis=0}", kUnrelated},
      {"Out=[z] = p_norm(X=[b]) {axis=1, keepdim=false}", kRows},
      {"Out=[s] = p_norm(X=[b]) {axis=1, keepdim=false, asvector=true}", kUnrelated},
      {"Out=[z] = dot(X=[b], Y=[b2])", kRows},
      {"Out=[s] = dot(X=[b1], Y=[b1])", kSum},
      {"Out=[z] = mv(X=[b], Vec=[w])", kRows},
      {"Out=[w] = mv(X=[t], Vec=[b1])", kSum},
      {"Out=[z] = matmul_v2(X=[b], Y=[w]) {trans_x=false, trans_y=false}", kRows},
      {"Out=[y] = tile(X=[b]) {repeat_times=ints[1, 2]}", kRows},
      {"Out=[y] = tile(X=[b]) {repeat_times=ints[2, 1]}", kUnrelated},
      {"Y=[z, z2] = unstack(X=[b]) {axis=1, num=2}", kRows},
      {"Y=[z, z2] = unstack(X=[t]) {axis=0, num=2}", kRows},
      {"Y=[z, z2] = unstack(X=[b]) {axis=0, num=2}", kUnrelated},
      {"Out=[y2] = index_sample(X=[b], Index=[bi])", kRows},
      {"Out=[y] = label_smooth(X=[b]) {epsilon=0.1}", kRows},
      // The number of classes is that of the rank.
      {"Out=[t] = label_smooth(X=[t]) {epsilon=0.1}", kUnrelated},
  });
}

TEST(BatchRulesTest, NormalizationAndDrawsAreNamed) {
  const Variables vars = {"b y: fp32[-1, 4]; w m: fp32[4]; k: uint8[-1, 4]"};
  const auto batch_norm = [&](const std::string& attrs) {
    return vars.Apply(
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
      vars.Apply("Mask=[k], Out=[y] = dropout(X=[b]) {is_test=false, dropout_prob=0.5}");
  EXPECT_EQ(dropout.effect, BatchEffect::kDraws);
  EXPECT_EQ(dropout.relations[1], kRows);
  const BatchOutputs draw = vars.Apply("Out=[m] = gaussian_random() {shape=ints[4]}");
  EXPECT_EQ(draw.effect, BatchEffect::kDraws);
}

// The mask of a part of a batch is no part of its mask.
TEST(BatchRulesTest, ASeedMakesEqualDrawsOfEqualShape) {
  const Variables vars = {"b y: fp32[-1, 4]; w v: fp32[4]; k: int32[1]"};
  const auto effect = [&](const char* op) { return vars.Apply(op).effect; };
  const std::string prob = "dropout_prob=0.5, is_test=false, ";
  const auto drops = [&](const std::string& args, const char* attrs) {
    return effect(absl::StrCat("Out=[y] = dropout(", args, ") {", prob, attrs, "}").c_str());
  };
  EXPECT_EQ(drops("X=[w]", "seed=7, fix_seed=true"), BatchEffect::kNone);
  EXPECT_EQ(drops("X=[w]", "seed=7, fix_seed=false"), BatchEffect::kDraws);
  EXPECT_EQ(drops("X=[w]", "seed=0, fix_seed=true"), BatchEffect::kDraws);
  EXPECT_EQ(drops("X=[b]", "seed=7, fix_seed=true"), BatchEffect::kDraws);
  EXPECT_EQ(drops("X=[w], Seed=[k]", "seed=7, fix_seed=true"), BatchEffect::kDraws);
  EXPECT_EQ(Variables{vars.text + "; M: fp32[4]"}
                .Apply("Out=[v] = dropout(X=[M]) {is_test=true, dropout_prob=0.5}")
                .relations[0],
            kUnrelated);
  EXPECT_EQ(effect("Out=[k] = seed() {seed=7}"), BatchEffect::kNone);
  EXPECT_EQ(effect("Out=[k] = seed() {seed=0}"), BatchEffect::kDraws);
  EXPECT_EQ(effect("Out=[k] = seed()"), BatchEffect::kDraws);
}

TEST(BatchRulesTest, MeansOfIntegersAreRounded) {
  const Variables vars = {
      "b: fp32[-1, 4]; bi: int64[-1, 4]; s: fp32[4]; si: int64[4]; r: int64[1]; y: fp32[]; k: "
      "int64[]"};
  vars.Check({
      {"Out=[y] = mean(X=[b])", kMean},
      {"Out=[k] = mean(X=[bi])", kUnrelated},
      {"Out=[y] = mean(X=[s])", kSum},
      {"Out=[k] = mean(X=[si])", kUnrelated},
      {"Out=[k] = reduce_mean(X=[si]) {dim=ints[0]}", kUnrelated},
      {"Out=[k] = reduce_sum(X=[si]) {dim=ints[0]}", kSum},
      {"Out=[k] = reduce_sum(X=[s]) {dim=ints[0], out_dtype=3}", kUnrelated},
      {"Out=[k] = cast(X=[si]) {in_dtype=3, out_dtype=3}", kSum},
      {"Out=[k] = mean(X=[r])", kUnrelated},
  });
  const CollectiveOp average = {"", CollectiveKind::kAllReduce, Reduction::kAvg, ""};
  EXPECT_EQ(AfterCollective(average, kSum, /*is_integer=*/true), kUnrelated);
  EXPECT_EQ(AfterCollective(average, kSize, /*is_integer=*/true), kSize);
  EXPECT_EQ(AfterCollective(average, kSum), kSize);
}

// No mean and no sum: only the matching all-reduce makes it what one device has.
TEST(BatchRulesTest, MaximaOverTheBatchAreOfAKindOfTheirOwn) {
  const Variables vars = {"b: fp32[-1, 4]; y M M2 c: fp32[]; o: fp32[-1]"};
  const std::string all = " {reduce_all=true, dim=ints[0], keep_dim=false}";
  vars.Check({
      {"Out=[y] = reduce_max(X=[b])" + all, BatchRelation::PartialMax()},
      {"Out=[y] = reduce_amax(X=[b])" + all, BatchRelation::PartialMax()},
      {"Out=[y] = reduce_min(X=[b])" + all, BatchRelation::PartialMin()},
      {"Out=[y] = reduce_prod(X=[b])" + all, BatchRelation::PartialProd()},
      {"Out=[o] = reduce_max(X=[b]) {reduce_all=false, dim=ints[1], keep_dim=false}", kRows},
      {"Out=[y] = scale(X=[M]) {scale=-1.0}", kUnrelated},
      {"Out=[y] = sum(X=[M, M2])", kUnrelated},
      {"Out=[y] = elementwise_mul(X=[M], Y=[c]) {axis=-1}", kUnrelated},
      {"Out=[y] = reduce_max(X=[M])" + all, kUnrelated},
      {"Out=[y] = fill_any_like(X=[M]) {value=1.0}", kReplicated},
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
  const Variables vars = {
      "b: fp32[-1, -1, 8]; h: int32[4]; r c: int32[1]; o: fp32[-1, -1, 2, 4]; x: fp32[0]; k: "
      "fp32[1, 1, 8]; e: fp32[-1, 1, 8]; w: fp32[4, 8]; z: fp32[-1, 4, 8]"};
  vars.Check({
      {"Out=[o], XShape=[x] = reshape2(ShapeTensor=[r, c, c, c], X=[b]) {shape=ints[-1, -1, "
       "2, 4]}",
       kRows},
      {"Out=[o], XShape=[x] = reshape2(Shape=[h], X=[b]) {shape=ints[]}", kRows},
      // Another dimension has the size of the batch.
      {"Out=[o], XShape=[x] = reshape2(ShapeTensor=[c, r, c, c], X=[b]) {shape=ints[-1, -1, "
       "2, 4]}",
       kUnrelated},
      {"Out=[e] = expand_v2(X=[k], expand_shapes_tensor=[r, c, c]) {shape=ints[-1, 1, 8]}", kRows},
      {"Out=[z] = expand_v2(X=[w], expand_shapes_tensor=[r, c, c]) {shape=ints[-1, 4, 8]}", kRows},
      {"Out=[z] = expand_v2(X=[z], expand_shapes_tensor=[r, c, c]) {shape=ints[-1, 4, 8]}",
       kUnrelated},
      {"Out=[z] = expand_as_v2(X=[w], Y=[b])", kRows},
      {"Out=[z] = expand_as_v2(X=[z], Y=[b])", kUnrelated},
  });
}

TEST(BatchRulesTest, ShapesOfTimeMajorDataMoveTheBatch) {
  const Variables vars = {
      "t: fp32[-1, -1]; y: fp32[-1, -1, 1]; z: fp32[1, -1, -1]; x: fp32[0]; b: fp32[-1, 4, 1, 8]; "
      "q: fp32[-1, 4, 8]; f: fp32[-1, 32]; t3: fp32[4, -1, 8]; o: fp32[-1]; t2: fp32[8, 4]; v: "
      "fp32[-1, 8]"};
  vars.Check({
      {"Out=[y], XShape=[x] = unsqueeze2(X=[t]) {axes=ints[-1]}", kColumns},
      {"Out=[z], XShape=[x] = unsqueeze2(X=[t]) {axes=ints[0]}", BatchRelation::Sharded(2)},
      {"Out=[q], XShape=[x] = squeeze2(X=[b]) {axes=ints[2]}", kRows},
      {"Out=[f], XShape=[x] = flatten_contiguous_range(X=[b]) {start_axis=1, stop_axis=3}", kRows},
      {"Out=[o], XShape=[x] = flatten_contiguous_range(X=[t3]) {start_axis=0, stop_axis=2}",
       kUnrelated},
      {"Y=[v, v, v, v] = unstack(X=[t3]) {axis=0, num=4}", kRows},
      {"Y=[v, v, v, v] = unstack(X=[t3]) {axis=1, num=4}", kUnrelated},
      {"Out=[f] = tile(X=[f]) {repeat_times=ints[2, 1]}", kReplicated},
      {"Out=[q] = tile(X=[b]) {repeat_times=ints[1, 2, 1, 1]}", kRows},
      {"Out=[q] = tile(X=[b]) {repeat_times=ints[2, 1, 1, 1]}", kUnrelated},
  });
}

TEST(BatchRulesTest, ProductsFollowTheLetterOfTheBatch) {
  const Variables vars = {
      "b b2: fp32[-1, 4]; w: fp32[4, 8]; y m: fp32[-1, 8]; g: fp32[4, 4]; z: fp32[-1, -1]; o: "
      "fp32[-1]; v: fp32[8]"};
  vars.Check({
      {"Out=[y] = einsum(Operands=[b, w]) {equation=\"bi,ij->bj\"}", kRows},
      {"Out=[y] = einsum(Operands=[b, w]) {equation=\"bi,ij->jb\"}", kColumns},
      {"Out=[g] = einsum(Operands=[b, b2]) {equation=\"bi,bj->ij\"}", kSum},
      {"Out=[z] = einsum(Operands=[b, b2]) {equation=\"bi,ci->bc\"}", kUnrelated},
      {"Out=[o] = dot(X=[b], Y=[b2])", kRows},
      {"Out=[y] = addmm(Input=[v], X=[b], Y=[w])", kRows},
      {"Out=[y] = addmm(Input=[m], X=[b], Y=[w])", kUnrelated},
  });
}

TEST(BatchRulesTest, OpsOfEachSampleKeepRows) {
  const Variables vars = {
      "b b2 y: fp32[-1, 4]; o: fp32[-1]; i bi: int64[-1, 1]; r: int32[1]; k n2: int64[1]; l bl: "
      "int64[-1]; p: fp32[1]"};
  vars.Check({
      {"Out=[y] = bce_loss(Label=[b2], X=[b])", kRows},
      {"Out=[y], Residual=[y] = huber_loss(X=[b], Y=[b2]) {delta=1.0}", kRows},
      {"Out=[y] = label_smooth(X=[b]) {epsilon=0.1}", kRows},
      {"Out=[y] = share_data(X=[b])", kRows},
      {"Out=[p] = share_data(X=[p])", kMean},
      {"Out=[o] = p_norm(X=[b]) {axis=1, keepdim=false}", kRows},
      {"Out=[o] = p_norm(X=[b]) {axis=0, keepdim=false}", kUnrelated},
      {"Out=[o] = p_norm(X=[b]) {asvector=true, axis=1}", kUnrelated},
      {"Out=[y] = index_sample(X=[b], Index=[bi])", kRows},
      {"Result=[y] = take_along_axis(Input=[b], Index=[bi]) {Axis=1}", kRows},
      {"Result=[y] = take_along_axis(Input=[b], Index=[bi]) {Axis=0}", kUnrelated},
      {"Out=[y] = pad(X=[b]) {paddings=ints[0, 0, 1, 1]}", kRows},
      {"Out=[y] = pad(X=[b]) {paddings=ints[1, 0, 0, 0]}", kUnrelated},
      {"Out=[y] = crop_tensor(X=[b]) {offsets=ints[0, 1], shape=ints[-1, 2]}", kRows},
      {"Out=[y] = crop_tensor(X=[b]) {offsets=ints[1, 1], shape=ints[-1, 2]}", kUnrelated},
      {"Out=[y] = crop_tensor(X=[b]) {offsets=ints[0, 1], shape=ints[2, 2]}", kUnrelated},
      {"Out=[y] = crop_tensor(X=[b], Shape=[k]) {offsets=ints[0, 0], shape=ints[-1, 2]}",
       kUnrelated},
      {"Y=[y] = sequence_mask(X=[bl]) {maxlen=4}", kRows},
      // As wide as the longest of the rank's own.
      {"Y=[y] = sequence_mask(X=[bl]) {maxlen=-1}", kUnrelated},
      {"Y=[y] = sequence_mask(MaxLenTensor=[k], X=[bl]) {maxlen=4}", kUnrelated},
      {"Out=[k] = cast(X=[r]) {in_dtype=2, out_dtype=3}", kSize},
      {"Out=[y] = read_from_array(X=[b], I=[k], X_W=[b])", kRows},
      {"Out=[y] = read_from_array(X=[b], I=[k], X_W=[p])", kUnrelated},
  });
  Variables{"b: fp32[8, 4]; bi: int64[4, 1]; y: fp32[4, 1]"}.Check(
      {{"Result=[y] = take_along_axis(Input=[b], Index=[bi]) {Axis=1}", kUnrelated}});
  const BatchOutputs array = Variables{"b: fp32[-1, 4]; y: fp32[-1, -1, 4]; i: int32[-1]"}.Apply(
      "Out=[y], OutIndex=[i] = tensor_array_to_tensor(X=[b]) {axis=0, use_stack=true}");
  EXPECT_EQ(array.relations[0], kColumns);
  EXPECT_EQ(array.relations[1], kReplicated);
  // Gradients of an array that two ops read.
  const Variables arrays = {
      "b b2 y: lod_tensor_array<fp32[-1, 4]>; p: lod_tensor_array<fp32[2, 4]>"};
  arrays.Check({{"Out=[y] = sum(X=[b, b2])", kRows}, {"Out=[y] = sum(X=[b, p])", kUnrelated}});
}

TEST(BatchRulesTest, IndicesAlongOtherDimensionsKeepShares) {
  const Variables vars = {
      "t z: fp32[8, -1]; b b2 y: fp32[-1, 4]; b3: fp32[-1, 2]; i: int64[3]; k: int64[]; c: "
      "int64[3, 1]; d: int64[3, 2]; t3 o: fp32[3, -1]; b1: fp32[-1]; w3: fp32[3, 1]; w1: fp32[]; "
      "w2: fp32[3, 8]; bi: int64[-1, 2]; e: fp32[3]"};
  vars.Check({
      {"Out=[o] = gather_nd(Index=[c], X=[t])", kColumns},
      {"Out=[e] = gather_nd(Index=[d], X=[t])", kUnrelated},
      {"Out=[z] = scatter(Ids=[i], Updates=[t3], X=[t])", kColumns},
      {"Out=[z] = scatter(Ids=[k], Updates=[b1], X=[t])", kColumns},
      {"Out=[z] = scatter(Ids=[i], Updates=[w2], X=[t])", kUnrelated},
      {"Out=[y] = scatter(Ids=[i], Updates=[b2], X=[b])", kUnrelated},
      {"Out=[z] = scatter_nd_add(Index=[c], Updates=[t3], X=[t])", kColumns},
      {"Out=[z] = scatter_nd_add(Index=[d], Updates=[e], X=[t])", kUnrelated},
      {"Out=[y] = index_add(AddValue=[b3], Index=[i], X=[b]) {axis=1}", kRows},
      {"Out=[y] = index_add(AddValue=[b3], Index=[i], X=[b]) {axis=0}", kUnrelated},
      {"out=[z] = index_put(indices=[i], value=[t3], x=[t])", kColumns},
      {"out=[z] = index_put(indices=[i], value=[w3], x=[t])", kColumns},
      {"out=[z] = index_put(indices=[i], value=[w1], x=[t])", kColumns},
      {"out=[z] = index_put(indices=[i], value=[w2], x=[t])", kUnrelated},
      {"out=[y] = index_put(indices=[i], value=[w1], x=[b])", kUnrelated},
      {"Result=[y] = put_along_axis(Index=[bi], Input=[b], Value=[b3]) {Axis=1}", kRows},
  });
  Variables{"b y: fp32[4, 4]; bi: int64[4, 2]; b3: fp32[4, 2]"}.Check(
      {{"Result=[y] = put_along_axis(Index=[bi], Input=[b], Value=[b3]) {Axis=1}", kRows},
       {"Result=[y] = put_along_axis(Index=[bi], Input=[b], Value=[b3]) {Axis=0}", kUnrelated}});
}

// Numbers of a share that become whole are no multiples of those of one device.
TEST(BatchRulesTest, SumsOfNumbersThatBecomeWholeAreUnrelated) {
  const Variables vars = {"b: fp32[-1, 4]; bi: bool[-1, 4]; i: int64[4]"};
  const std::string rows = " {dim=ints[0], keep_dim=false, reduce_all=false";
  vars.Check({
      {"Out=[i] = reduce_sum(X=[b])" + rows + ", in_dtype=5, out_dtype=3}", kUnrelated},
      {"Out=[i] = reduce_sum(X=[bi])" + rows + ", in_dtype=0, out_dtype=3}", kSum},
  });
}

TEST(BatchRulesTest, AssignedSlicesKeepShares) {
  const Variables vars = {
      "b y: fp32[-1, 4, 8]; w: fp32[1, 8]; w8: fp32[8]; bv: fp32[-1, 8]; v: fp32[6, 8]; r: "
      "int64[1]"};
  const std::string first = " {axes=longs[1], starts=longs[0], ends=longs[1], steps=longs[1]";
  const std::string rows = " {axes=longs[0], starts=longs[0], ends=longs[1], steps=longs[1]";
  const std::string drop = ", decrease_axes=longs[1]}";
  vars.Check({
      {"Out=[y] = set_value(Input=[b], ValueTensor=[w8])" + first + drop, kRows},
      {"Out=[y] = set_value(Input=[b], ValueTensor=[w])" + first + drop, kRows},
      {"Out=[y] = set_value(Input=[b], ValueTensor=[bv])" + first + drop, kRows},
      {"Out=[y] = set_value(Input=[b])" + first +
           ", shape=longs[1], values=scalars[{type: FLOAT64, r: 0.5}]}",
       kRows},
      // The value has no dimension for the batch.
      {"Out=[y] = set_value(Input=[b], ValueTensor=[bv])" + first + ", decrease_axes=longs[0]}",
       kUnrelated},
      // Another value for each sample of one device.
      {"Out=[y] = set_value(Input=[b], ValueTensor=[v])" + first + drop, kUnrelated},
      // Without the dropped axis, the shares of the value are not along that of the slice.
      {"Out=[y] = set_value(Input=[b], ValueTensor=[bv])" + first + "}", kUnrelated},
      {"Out=[y] = set_value(Input=[b], ValueTensor=[w8])" + rows + "}", kUnrelated},
      {"Out=[y] = set_value(Input=[b], StartsTensorList=[r], ValueTensor=[w8])" + rows + "}",
       kUnrelated},
  });
}

TEST(BatchRulesTest, MatricesOfSamplesKeepShares) {
  const Variables vars = {
      "b b2 y: fp32[-1, 3, 3]; o bm: fp32[-1, 3]; p1: fp32[-1]; w: fp32[3, 3]; t: fp32[3, -1, 3]; "
      "z: fp32[-1, 3, 3, 3]; k: fp32[-1, 9]; wk: fp32[2, 3]; t2: fp32[-1, -1]; tc: fp32[3, -1]; "
      "w1: fp32[1, 1, 3, 3]; tb: fp32[2, -1, 3, 3]"};
  vars.Check({
      {"Out=[o] = diagonal(Input=[b]) {axis1=1, axis2=2}", kRows},
      {"Out=[o] = diagonal(Input=[t]) {axis1=0, axis2=2}", kRows},
      {"Out=[o] = diagonal(Input=[b]) {axis1=0, axis2=1}", kUnrelated},
      {"Out=[p1] = trace(Input=[b]) {axis1=-2, axis2=-1}", kRows},
      {"Out=[y] = diag_embed(Input=[bm]) {dim1=-2, dim2=-1}", kRows},
      {"Out=[y] = diag_embed(Input=[bm]) {dim1=0, dim2=2}", kColumns},
      {"Out=[y] = diag_embed(Input=[t2]) {dim1=0, dim2=1}", kUnrelated},
      {"Output=[y] = inverse(Input=[b])", kRows},
      {"Out=[y] = cholesky(X=[b])", kRows},
      {"Out=[p1] = determinant(Input=[b])", kRows},
      {"Out=[y] = solve(X=[b], Y=[b2])", kRows},
      {"Out=[y] = triangular_solve(X=[w], Y=[b])", kRows},
      {"Out=[y] = solve(X=[b], Y=[w])", kUnrelated},
      {"Out=[bm] = solve(X=[b], Y=[bm])", kRows},
      {"Out=[bm] = solve(X=[w], Y=[bm])", kUnrelated},
      // Columns of right sides.
      {"Out=[tc] = solve(X=[w], Y=[tc])", kColumns},
      {"Out=[tc] = cholesky_solve(X=[tc], Y=[w])", kColumns},
      {"Out=[z] = triangular_solve(X=[w1], Y=[tb])", kColumns},
      {"Out=[y] = cholesky_solve(X=[b], Y=[b2])", kRows},
      {"Out=[y] = cholesky_solve(X=[w], Y=[b])", kRows},
      {"Out=[k] = kron(X=[bm], Y=[wk])", kRows},
      {"Out=[k] = kron(X=[wk], Y=[bm])", kUnrelated},
      {"Out=[o] = multi_dot(X=[bm, w, w])", kRows},
      {"Out=[o] = multi_dot(X=[w, bm, w])", kUnrelated},
      {"Out=[y] = cross(X=[b], Y=[b2]) {dim=1}", kRows},
      // A batch of three would be taken for the vectors.
      {"Out=[y] = cross(X=[b], Y=[b2]) {dim=9}", kUnrelated},
      {"Out=[y] = renorm(X=[b]) {axis=0, max_norm=1.0, p=2.0}", kRows},
      {"Out=[y] = renorm(X=[b]) {axis=1, max_norm=1.0, p=2.0}", kUnrelated},
  });
}

TEST(BatchRulesTest, DrawsByValuesHaveTheirShares) {
  const Variables vars = {"b y: fp32[-1, 4]; w z s: fp32[4]; i: int64[-1, 2]"};
  vars.Check({
      {"Out=[y] = bernoulli(X=[b])", kRows},
      {"Out=[z] = bernoulli(X=[w])", kReplicated},
      {"Out=[z] = bernoulli(X=[s])", kUnrelated},
      {"Out=[y] = gumbel_softmax(X=[b]) {axis=-1}", kRows},
      {"Out=[y] = gumbel_softmax(X=[b]) {axis=0}", kUnrelated},
      {"Out=[i] = multinomial(X=[b]) {num_samples=2}", kRows},
  });
  EXPECT_EQ(vars.Apply("Out=[y] = bernoulli(X=[b])").effect, BatchEffect::kDraws);
  EXPECT_EQ(vars.Apply("Out=[z] = bernoulli(X=[w])").effect, BatchEffect::kDraws);
  EXPECT_EQ(Variables{"b: fp32[-1, 8]; y: fp32[-1, 4, 3]"}
                .Apply("Out=[y] = frame(X=[b]) {axis=-1, frame_length=4, hop_length=2}")
                .relations[0],
            kRows);
  const Variables images = {"b: fp32[-1, 2, 8, 8]; y: fp32[-1, 2, 3, 3]; i: int32[-1, 2, 3, 3]"};
  const std::string pool =
      "mask=[i], out=[y] = fractional_max_pool2d(x=[b]) "
      "{output_size=ints[3, 3], random_u=";
  EXPECT_EQ(images.Apply(pool + "0.25}").effect, BatchEffect::kNone);
  EXPECT_EQ(images.Apply(pool + "0.25}").relations[1], kRows);
  EXPECT_EQ(images.Apply(pool + "0.0}").effect, BatchEffect::kDraws);
  const std::string rrelu = "Noise=[y], Out=[y] = rrelu(X=[b])";
  EXPECT_EQ(vars.Apply(rrelu + " {is_test=true}").effect, BatchEffect::kNone);
  EXPECT_EQ(vars.Apply(rrelu + " {is_test=true}").relations[0], kRows);
  EXPECT_EQ(vars.Apply(rrelu + " {is_test=false}").effect, BatchEffect::kDraws);
}

// Whatever inputs are, replicated inputs give replicated outputs, and an unknown op of others
// unrelated ones.
TEST(BatchRulesTest, UnregisteredOpsAreUnrelated) {
  const Variables vars = {"b y: fp32[-1, 4]; w: fp32[4]"};
  vars.Check({
      {"Out=[y] = my_op(X=[b])", kUnrelated},
      {"Out=[y] = my_op(X=[w])", kReplicated},
  });
  EXPECT_EQ(vars.Apply("Out=[y] = my_op(X=[b])").effect, BatchEffect::kNone);
}

TEST(BatchRulesTest, UnregisteredOpsAreWhatTheUserSays) {
  const Variables vars = {
      "b b2 y: fp32[-1, 4]; t: fp32[3, -1]; w: fp32[4]; c: fp32[8, 4]; p q s: fp32[4]; z: "
      "fp32[4]; r: fp32[]"};
  const auto first = [&](const std::string& op, const char* words) {
    return vars.Apply(op, *ParseOpAssumption(words)).relations[0];
  };
  EXPECT_EQ(first("Out=[y] = my_op(X=[b], Y=[w])", "elementwise"), kRows);
  EXPECT_EQ(first("Out=[y] = my_op(X=[b], Y=[c])", "elementwise"), kUnrelated);
  EXPECT_EQ(first("Out=[t] = my_op(X=[t])", "elementwise"), kColumns);
  EXPECT_EQ(first("Out=[y] = my_op(X=[b]) {seed=0}", "elementwise"), kRows);
  EXPECT_EQ(first("Out=[y] = my_op(X=[b], W=[c])", "per_sample"), kRows);
  EXPECT_EQ(first("Out=[t] = my_op(X=[t])", "per_sample"), kUnrelated);
  EXPECT_EQ(first("Out=[z] = my_op(X=[w])", "per_sample"), kReplicated);
  EXPECT_EQ(first("Out=[z] = my_op(X=[p], Y=[q])", "linear"), kMean);
  EXPECT_EQ(first("Out=[z] = my_op(X=[s])", "linear"), kSum);
  // Of the mean of one and the sum of the other.
  EXPECT_EQ(first("Out=[z] = my_op(X=[p], Y=[s])", "linear"), kUnrelated);
  EXPECT_EQ(first("Out=[z] = my_op(X=[p])", "elementwise"), kUnrelated);
  EXPECT_EQ(first("Out=[y] = my_op(X=[b], Y=[r])", "elementwise"), kUnrelated);
  EXPECT_EQ(first("Out=[y] = my_op(X=[b])", "linear"), kUnrelated);
}

// Some types are known to draw; others may, if they have a seed.
TEST(BatchRulesTest, UnregisteredOpsMayDraw) {
  const Variables vars = {"b y: fp32[-1, 4]; w: fp32[4]"};
  for (const char* op :
       {"Out=[y] = exponential(X=[w])", "Out=[y] = dirichlet(Alpha=[b])",
        "Out=[y] = my_op(X=[w]) {seed=0}", "Out=[y] = my_op(X=[w]) {startup_seed=7}",
        "Out=[y] = my_op(X=[w], Seed=[w])", "Out=[y], SeedOut=[w] = my_op(X=[w])"}) {
    const BatchOutputs out = vars.Apply(op);
    EXPECT_EQ(out.effect, BatchEffect::kDraws) << op;
    EXPECT_EQ(out.relations[0], kUnrelated) << op;
  }
  // Of the backward pass, which repeats the attributes of the forward op.
  EXPECT_EQ(vars.Apply("X@GRAD=[y] = my_op_grad(Out@GRAD=[w]) {seed=0}").effect,
            BatchEffect::kNone);
  // It has no result.
  EXPECT_EQ(Variables{"k: bool[1]"}.Apply("assert(Cond=[k])").effect, BatchEffect::kNone);
}

}  // namespace
}  // namespace weft
