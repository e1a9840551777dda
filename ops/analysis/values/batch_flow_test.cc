#include "ops/analysis/values/batch_flow.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/values/layout_guess.h"
#include "proto/testing/block_text.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr BatchRelation kSame = BatchRelation::Replicated();
constexpr BatchRelation kRows = BatchRelation::Sharded(0);
constexpr BatchRelation kMean = BatchRelation::Partial();
constexpr BatchRelation kSum = BatchRelation::PartialSum();
constexpr BatchRelation kUnrelated = BatchRelation::Unrelated();

// A layer with parameter w, its mean loss, and then the given ops.
class BatchFlowTest : public ::testing::Test {
 protected:
  void Run(const std::string& ops, const std::string& blocks = "") {
    const std::string data =
        "    var x : fp32[-1, 4]" + mark_ + "\n    var rate : fp32[1]" + mark_ + "\n";
    constexpr char kLayer[] =
        "    var w : fp32[4, 1] parameter persistable\n"
        "    var state : fp32[1] persistable\n    var due : bool[1] persistable\n"
        "    var h : fp32[-1, 1]\n    var h@GRAD : fp32[-1, 1]\n    var loss : fp32[1]\n"
        "    var loss@GRAD : fp32[1]\n    var w@GRAD : fp32[4, 1]\n    var a : fp32[1]\n"
        "    var b : fp32[1]\n    var c : fp32[1]\n    var t : fp32[4, 1]\n    var k : bool[1]\n"
        "    var hb : bool[-1, 1]\n    var scopes : step_scopes\n    var scope : step_scopes\n"
        "    Out=[h] = mul(X=[x], Y=[w])\n"
        "    Out=[loss] = mean(X=[h])\n"
        "    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[1], dtype=5, "
        "value=1.0}\n"
        "    X@GRAD=[h@GRAD] = mean_grad(X=[h], Out@GRAD=[loss@GRAD])\n"
        "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD])\n";
    absl::StatusOr<Program> program =
        ParseProgramText(testing::BlockText(data + kLayer + ops, blocks));
    ASSERT_TRUE(program.ok()) << program.status();
    program_.emplace(*std::move(program));
    const absl::StatusOr<FeedLayouts> feeds = FeedLayoutsOf(*program_);
    ASSERT_TRUE(feeds.ok()) << feeds.status();
    BatchFlowOptions options;
    options.setting.feeds = *feeds;
    options.setting.nranks = 2;
    options.zeros = zeros_;
    options.follow_effects = follow_effects_;
    options.original = original_.has_value() ? &*original_ : nullptr;
    flow_.emplace(BatchFlow::Of(*program_, options));
  }

  const BatchValue& End(const std::string& name) {
    return flow_->AtEnd(program_->block(0).FindVar(name));
  }
  BatchRelation Of(const std::string& name) { return End(name).relation; }
  // The op that made the variable unrelated.
  std::string Cause(const std::string& name) {
    EXPECT_EQ(Of(name), kUnrelated) << name << ": " << ToString(Of(name));
    return End(name).cause.valid() ? std::string(program_->op(End(name).cause).type()) : "";
  }

  std::string mark_ = " need_check_feed";  // of data
  std::set<std::string> zeros_;
  bool follow_effects_ = false;
  absl::optional<Program> original_;
  absl::optional<Program> program_;
  absl::optional<BatchFlow> flow_;
};

TEST_F(BatchFlowTest, FollowsForwardAndBackward) {
  Run("");
  EXPECT_EQ(Of("x"), kRows);
  EXPECT_EQ(Of("rate"), kSame);
  EXPECT_EQ(Of("h"), kRows);
  EXPECT_EQ(Of("loss"), kMean);
  // Each rank divides by the size of its own batch.
  EXPECT_EQ(Of("h@GRAD"), BatchRelation::Sharded(0, 1));
  EXPECT_EQ(Of("w@GRAD"), kMean);
}

TEST_F(BatchFlowTest, GradientsOfASumAreSums) {
  Run("    Out=[loss] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}\n"
      "    X@GRAD=[h@GRAD] = reduce_sum_grad(X=[h], Out@GRAD=[loss@GRAD]) {reduce_all=true}\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD])\n");
  EXPECT_EQ(Of("loss"), kSum);
  EXPECT_EQ(Of("h@GRAD"), kRows);
  EXPECT_EQ(Of("w@GRAD"), kSum);
}

// Zeros have the power of the gradient that a mask chooses instead of them.
TEST_F(BatchFlowTest, AMaskChoosesBetweenAGradientAndZeros) {
  const auto choose = [](const std::string& x, const std::string& y) {
    return absl::StrCat(
        "    var z : fp32[-1, 1]\n    var g : fp32[-1, 1]\n"
        "    Out=[hb] = greater_than(X=[h], Y=[a])\n"
        "    Out=[z] = fill_any_like(X=[h@GRAD]) role=backward {value=0.0}\n"
        "    Out=[g] = where(Condition=[hb], X=[",
        x, "], Y=[", y, "]) role=backward\n");
  };
  Run(choose("h@GRAD", "z"));
  EXPECT_EQ(Of("g"), BatchRelation::Sharded(0, 1));
  Run(choose("z", "h@GRAD"));
  EXPECT_EQ(Of("g"), BatchRelation::Sharded(0, 1));
  Run(choose("z", "z"));
  EXPECT_EQ(Of("g"), kRows);
  Run(absl::StrReplaceAll(choose("h@GRAD", "z"), {{"value=0.0", "value=1.0"}}));
  EXPECT_EQ(Cause("g"), "where");
}

// No op of the program multiplies by h: the gradient of one that would is the rank's own rows.
TEST_F(BatchFlowTest, AGradientTimesValuesOfTheRankIsOfItsRows) {
  const auto product = [](const std::string& x, const std::string& y) {
    return absl::StrCat("    var g : fp32[-1, 1]\n    X@GRAD=[g] = elementwise_mul_grad(X=[", x,
                        "], Y=[", y, "], Out@GRAD=[h@GRAD]) {axis=-1}\n");
  };
  const BatchRelation of_rows = BatchRelation::Sharded(0, 1);
  Run(product("h", "h"));
  EXPECT_EQ(Of("g"), of_rows);
  EXPECT_TRUE(End("g").is_gradient);
  Run(product("h", "rate"));
  EXPECT_EQ(Of("g"), of_rows);
  Run("    Out=[hb] = greater_than(X=[h], Y=[a])\n    var g : fp32[-1, 1]\n"
      "    x@GRAD=[g] = masked_fill_grad(mask=[hb], value=[a], x=[h], out@GRAD=[h@GRAD])\n");
  EXPECT_EQ(Of("g"), of_rows);
  // A mean over the rank's own batch is not that of all.
  Run(product("h", "loss"));
  EXPECT_EQ(Cause("g"), "elementwise_mul_grad");
  // An operand that repeats gets a sum.
  Run("    X@GRAD=[t] = elementwise_mul_grad(X=[w], Y=[h], Out@GRAD=[h@GRAD]) {axis=-1}\n");
  EXPECT_EQ(Cause("t"), "elementwise_mul_grad");
  // Whatever it is declared as.
  Run("    var r : fp32[-1, 1]\n    Out=[r] = reshape2(X=[rate]) {shape=ints[-1, 1]}\n" +
      product("r", "h"));
  EXPECT_EQ(Of("g"), kUnrelated);
}

// A divisor that holds the mean of the rank's own batch: the gradient of neither operand is of
// rows.
TEST_F(BatchFlowTest, GradientsOfAQuotientReadTheDivisor) {
  const auto quotient = [](const char* slot) {
    return absl::StrCat(
        "    var g : fp32[-1, 1]\n    var d : fp32[-1, 1]\n"
        "    Out=[d] = elementwise_sub(X=[h], Y=[loss])\n    ",
        slot, "=[g] = elementwise_div_grad(X=[h], Y=[d], Out=[h], Out@GRAD=[h@GRAD]) {axis=-1}\n");
  };
  Run(quotient("Y@GRAD"));
  EXPECT_EQ(Of("g"), kUnrelated);
  Run(quotient("X@GRAD"));
  EXPECT_EQ(Of("g"), kUnrelated);
}

// An average of integers is rounded, and so is a sum that is divided.
TEST_F(BatchFlowTest, AveragesOfIntegersAreNoMeans) {
  constexpr char kCount[] =
      "    var i : int64[-1, 1]\n    var count : int64[1]\n"
      "    Out=[i] = cast(X=[hb]) {in_dtype=0, out_dtype=3}\n"
      "    Out=[count] = reduce_sum(X=[i]) {reduce_all=true, dim=ints[0]}\n";
  constexpr char kSums[] =
      "    Out=[count] = c_allreduce_sum(X=[count]) {ring_id=0, use_calc_stream=true}\n";
  Run(std::string("    Out=[hb] = greater_than(X=[h], Y=[a])\n") + kCount);
  EXPECT_EQ(Of("count"), kSum);
  Run(std::string("    Out=[hb] = greater_than(X=[h], Y=[a])\n") + kCount + kSums);
  EXPECT_EQ(Of("count"), kSame);
  Run(std::string("    Out=[hb] = greater_than(X=[h], Y=[a])\n") + kCount +
      "    Out=[count] = c_allreduce_avg(X=[count]) {ring_id=0, use_calc_stream=true}\n");
  EXPECT_EQ(Cause("count"), "c_allreduce_avg");
  Run(std::string("    Out=[hb] = greater_than(X=[h], Y=[a])\n") + kCount + kSums +
      "    Out=[count] = scale(X=[count]) {scale=0.5, bias=0.0, nranks=2}\n");
  EXPECT_EQ(Cause("count"), "scale");
  // In the buffer of several.
  Run(std::string("    Out=[hb] = greater_than(X=[h], Y=[a])\n") + kCount +
      "    var buffer : int64[-1]\n"
      "    FusedOutput=[buffer], Output=[count] = coalesce_tensor(Input=[count]) "
      "{copy_data=true, dtype=3}\n"
      "    Out=[buffer] = c_allreduce_avg(X=[buffer]) {ring_id=0, use_calc_stream=true}\n");
  EXPECT_EQ(Cause("count"), "c_allreduce_avg");
}

// A mask is as wide as the longest of the rank's own where the length is negative.
TEST_F(BatchFlowTest, LengthsOfMasksMustNotBeNegative) {
  constexpr char kVars[] =
      "    var len : int64[-1] need_check_feed\n    var mask : fp32[-1, -1]\n"
      "    var most : int32[1]\n    var dims : int32[2]\n    var given : int32[1] persistable\n";
  constexpr char kMask[] =
      "    Y=[mask] = sequence_mask(MaxLenTensor=[most], X=[len]) {maxlen=-1, out_dtype=5}\n";
  const auto run = [&](const std::string& ops) { Run(absl::StrCat(kVars, ops, kMask)); };
  const std::string fill = "    Out=[most] = fill_constant() {shape=longs[1], dtype=2, value=";
  run(fill + "3.0}\n");
  EXPECT_EQ(Of("mask"), kRows);
  run(fill + "-1.0}\n");
  EXPECT_EQ(Cause("mask"), "sequence_mask");
  run("    Out=[dims] = shape(Input=[x])\n"
      "    Out=[most] = slice(Input=[dims]) {axes=ints[0], starts=ints[1], ends=ints[2]}\n");
  EXPECT_EQ(Of("mask"), kRows);
  // Overwritten since.
  run("    Out=[most] = fill_constant() {shape=longs[1], dtype=2, value=-1.0}\n"
      "    Out=[given] = cast(X=[most]) {in_dtype=2, out_dtype=2}\n" +
      fill + "3.0}\n    Out=[most] = assign(X=[given])\n");
  EXPECT_EQ(Cause("mask"), "sequence_mask");
  run("    Out=[most] = assign(X=[given])\n");
  EXPECT_EQ(Cause("mask"), "sequence_mask");
}

// Two columns of products, and a loss that depends on the first.
constexpr char kTwoColumns[] =
    "    var v : fp32[4, 2] parameter persistable\n    var v@GRAD : fp32[4, 2]\n"
    "    var u : fp32[-1, 2]\n    var u@GRAD : fp32[-1, 2]\n    var u1 : fp32[-1, 1]\n"
    "    var u2 : fp32[-1, 1]\n    var u1@GRAD : fp32[-1, 1]\n    var u2@GRAD : fp32[-1, 1]\n"
    "    var s : fp32[-1, 2]\n    var s@GRAD : fp32[-1, 2]\n"
    "    Out=[u] = mul(X=[x], Y=[v])\n";

// The gradient of what no loss depends on is zero: any multiple of that of one device.
TEST_F(BatchFlowTest, ZerosJoinGradients) {
  const std::string split =
      absl::StrCat(kTwoColumns,
                   "    Out=[u1, u2] = split(X=[u]) {axis=1, num=2, sections=ints[]}\n"
                   "    Out=[loss] = mean(X=[u1])\n"
                   "    X@GRAD=[u1@GRAD] = mean_grad(X=[u1], Out@GRAD=[loss@GRAD])\n");
  constexpr char kConcat[] = "    Out=[u@GRAD] = concat(X=[u1@GRAD, u2@GRAD]) {axis=1}\n";
  constexpr char kOfProduct[] = "    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[u@GRAD])\n";
  Run(absl::StrCat(split, "    Out=[u2@GRAD] = fill_any_like(X=[u2]) {value=0.0}\n", kConcat,
                   kOfProduct));
  EXPECT_EQ(Of("u@GRAD"), BatchRelation::Sharded(0, 1));
  EXPECT_EQ(Of("v@GRAD"), kMean);
  Run(absl::StrCat(split, "    Out=[u2@GRAD] = fill_any_like(X=[u2]) {value=1.0}\n", kConcat,
                   kOfProduct));
  EXPECT_EQ(Cause("v@GRAD"), "concat");
}

TEST_F(BatchFlowTest, AssignedSlicesHaveGradients) {
  constexpr char kSlice[] =
      "axes=longs[1], starts=longs[0], ends=longs[1], steps=longs[1], decrease_axes=longs[], "
      "none_axes=longs[], dtype=5, shape=longs[]";
  Run(absl::StrCat(kTwoColumns, "    Out=[s] = set_value(Input=[u], ValueTensor=[h]) {", kSlice,
                   "}\n    Out=[loss] = mean(X=[s])\n"
                   "    X@GRAD=[s@GRAD] = mean_grad(X=[s], Out@GRAD=[loss@GRAD])\n"
                   "    Input@GRAD=[u@GRAD], ValueTensor@GRAD=[h@GRAD] = "
                   "set_value_grad(Out@GRAD=[s@GRAD], ValueTensor=[h]) {",
                   kSlice, "}\n    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[u@GRAD])\n",
                   "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD])\n"));
  EXPECT_EQ(Of("v@GRAD"), kMean);
  EXPECT_EQ(Of("w@GRAD"), kMean);
}

// Rows of another kind of value: the gradient op computes with them what it computes on one device.
TEST_F(BatchFlowTest, GradientOpsReadWhatIsThereNow) {
  Run("    Out=[x] = scale(X=[x]) {scale=2.0, bias=0.0}\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD])\n");
  EXPECT_EQ(Of("w@GRAD"), kMean);
  Run("    Out=[a] = mean(X=[x])\n    Out=[x] = elementwise_div(X=[x], Y=[a]) {axis=-1}\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD])\n");
  EXPECT_EQ(Cause("w@GRAD"), "elementwise_div");
  // As large as x on one device only.
  Run("    var u : fp32[-1, 4]\n"
      "    Out=[u] = fill_constant() {shape=longs[8, 4], dtype=5, value=1.0}\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[u], Y=[w], Out@GRAD=[h@GRAD])\n");
  EXPECT_EQ(Cause("w@GRAD"), "mul_grad");
}

TEST_F(BatchFlowTest, ParametersMayChangeBeforeTheirGradients) {
  Run("    var lr : fp32[1] persistable\n"
      "    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD])\n"
      "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr])\n"
      "    var x@GRAD : fp32[-1, 4]\n"
      "    X@GRAD=[x@GRAD], Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD])\n");
  EXPECT_EQ(Of("x@GRAD"), BatchRelation::Sharded(0, 1));
  EXPECT_EQ(Of("w@GRAD"), kMean);
}

// The gradient op differentiates what its type and attributes say, whatever made its inputs.
TEST_F(BatchFlowTest, GradientOpsNeedAnOpThatTheyDifferentiate) {
  Run("    X@GRAD=[h@GRAD] = reduce_sum_grad(X=[h], Out@GRAD=[loss@GRAD]) {reduce_all=true}\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD])\n");
  EXPECT_EQ(Cause("w@GRAD"), "reduce_sum_grad");
  Run("    var s : fp32[-1]\n    var s@GRAD : fp32[-1]\n"
      "    Out=[s] = reduce_sum(X=[h]) {dim=ints[1]}\n    Out=[loss] = mean(X=[s])\n"
      "    X@GRAD=[s@GRAD] = mean_grad(X=[s], Out@GRAD=[loss@GRAD])\n"
      "    X@GRAD=[h@GRAD] = reduce_sum_grad(X=[h], Out@GRAD=[s@GRAD]) {dim=ints[0]}\n");
  EXPECT_EQ(Cause("h@GRAD"), "reduce_sum_grad");
}

// a is the product now, which differs between ranks; its gradient by b is a multiple of a.
TEST_F(BatchFlowTest, GradientOpsReadInputsThatTheirOpHasOverwritten) {
  Run("    var a@GRAD : fp32[1]\n    var b@GRAD : fp32[1]\n"
      "    Out=[a] = fill_constant() {shape=longs[1], dtype=5, value=3.0}\n"
      "    Out=[b] = mean(X=[h])\n    Out=[a] = elementwise_mul(X=[a], Y=[b]) {axis=-1}\n"
      "    Out=[a@GRAD] = fill_constant() {shape=longs[1], dtype=5, value=1.0}\n"
      "    Y@GRAD=[b@GRAD] = elementwise_mul_grad(X=[a], Y=[b], Out@GRAD=[a@GRAD]) {axis=-1}\n");
  EXPECT_EQ(Cause("b@GRAD"), "elementwise_mul_grad");
}

// DDX is no zero, although the gradient op has no output X@GRAD.
TEST_F(BatchFlowTest, GradientsOfWhatTheOpDoesNotHaveCount) {
  const auto run = [&](const std::string& ddx) {
    Run("    var a@GRAD : fp32[1]\n    var b@GRAD : fp32[1]\n    var b@GRAD@GRAD : fp32[1]\n"
        "    Out=[a] = fill_constant() {shape=longs[1], dtype=5, value=3.0}\n"
        "    Out=[b] = fill_constant() {shape=longs[1], dtype=5, value=2.0}\n"
        "    Out=[c] = elementwise_mul(X=[a], Y=[b]) {axis=-1}\n"
        "    Y@GRAD=[b@GRAD] = elementwise_mul_grad(X=[a], Y=[b], Out@GRAD=[b]) {axis=-1}\n"
        "    Out=[b@GRAD@GRAD] = mean(X=[h])\n"
        "    Y@GRAD=[state] = elementwise_mul_grad_grad(X=[a], Y=[b], DOut=[b]" +
        ddx + ", DDY=[b@GRAD@GRAD]) {axis=-1}\n");
  };
  run(", DDX=[rate]");
  EXPECT_EQ(Of("state"), kUnrelated);
  run(", DDX=[@EMPTY@]");
  EXPECT_NE(Of("state"), kUnrelated);
}

// t has another type than a, and all ranks have it, as they have what is not there.
TEST_F(BatchFlowTest, AnInputThatIsNotThereIsLikeNoOther) {
  Run("    var a@GRAD : fp32[1]\n    var b@GRAD : fp32[1]\n    var c@GRAD : fp32[1]\n"
      "    Out=[c] = elementwise_mul(X=[a], Y=[b]) {axis=-1}\n    Out=[c@GRAD] = mean(X=[h])\n"
      "    Y@GRAD=[b@GRAD] = elementwise_mul_grad(X=[@EMPTY@], Y=[b], Out@GRAD=[c@GRAD]) "
      "{axis=-1}\n"
      "    Y@GRAD=[a@GRAD] = elementwise_mul_grad(X=[t], Y=[b], Out@GRAD=[c@GRAD]) {axis=-1}\n");
  EXPECT_EQ(Of("b@GRAD"), kMean);
  EXPECT_EQ(Cause("a@GRAD"), "elementwise_mul_grad");
}

TEST_F(BatchFlowTest, AnOpWithoutGradientsIsNoZero) {
  Run("    DX=[state] = strange_grad(X=[h], DOut=[h])\n");
  EXPECT_EQ(Cause("state"), "strange_grad");
}

// Of a branch that there is not, and of a loop.
TEST_F(BatchFlowTest, BlocksOfGradientsMayWriteStates) {
  Run("    var s@GRAD : fp32[-1, 1]\n    var s : fp32[-1, 1]\n"
      "    Input@GRAD=[h@GRAD] = conditional_block_grad(Cond=[due], Input=[h], Out=[s], "
      "Out@GRAD=[s@GRAD], Scope=[scope]) {is_scalar_condition=true, sub_block=block(1)}\n",
      "  block 1 parent=0 {\n    Out=[state] = mean(X=[h])\n  }\n");
  EXPECT_EQ(Cause("state"), "conditional_block_grad");
  Run("    X@GRAD=[h@GRAD] = while_grad(X=[h], Out=[h], Out@GRAD=[h@GRAD], StepScopes=[scopes]) "
      "{original_output_grad=strings[\"h@GRAD\"], sub_block=block(1)}\n",
      "  block 1 parent=0 {\n    Out=[state] = mean(X=[x])\n  }\n");
  EXPECT_EQ(Of("state"), kMean);
  EXPECT_EQ(Of("h@GRAD"), BatchRelation::Sharded(0, 1));
}

// The last run reads another value, and is not followed.
TEST_F(BatchFlowTest, ABlockThatRunsOftenWritesWhatItsBlocksWrite) {
  const auto run = [](int block) {
    return absl::StrCat("    Scope=[scope] = conditional_block(Cond=[due]) ",
                        "{is_scalar_condition=true, sub_block=block(", block, ")}\n");
  };
  std::string ops = "    Out=[a] = assign(X=[state])\n    Out=[b] = assign(X=[state])\n";
  for (int i = 0; i < 64; ++i) ops += run(1);
  const std::string blocks = "  block 1 parent=0 {\n" + run(2) +
                             "  }\n  block 2 parent=1 {\n    Out=[b] = assign(X=[a])\n  }\n";
  Run(ops, blocks);
  EXPECT_EQ(Of("b"), kSame);
  Run(ops + "    Out=[a] = assign(X=[loss])\n" + run(1), blocks);
  EXPECT_EQ(Of("b"), kUnrelated);
}

TEST_F(BatchFlowTest, AStateMayStopBeingZero) {
  zeros_ = {"state"};
  Run("    Out=[a] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}\n"
      "    Out=[b] = elementwise_add(X=[a], Y=[state]) {axis=-1}\n"
      "    Out=[state] = elementwise_add(X=[state], Y=[rate]) {axis=-1}\n");
  EXPECT_EQ(Cause("b"), "elementwise_add");
}

// The last writer of h is no op that mul_grad differentiates.
TEST_F(BatchFlowTest, FindsWhatIsDifferentiatedBeforeChangesInPlace) {
  Run("    Out=[h] = mul(X=[x], Y=[w])\n    Out=[h] = relu(X=[h])\n"
      "    Out=[loss] = mean(X=[h])\n"
      "    X@GRAD=[h@GRAD] = mean_grad(X=[h], Out@GRAD=[loss@GRAD])\n"
      "    X@GRAD=[h@GRAD] = relu_grad(Out=[h], Out@GRAD=[h@GRAD])\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD])\n");
  EXPECT_EQ(Of("h@GRAD"), BatchRelation::Sharded(0, 1));
  EXPECT_EQ(Of("w@GRAD"), kMean);
}

// A penalty on the gradient by x: the mean over the rows of the sum of squares.
TEST_F(BatchFlowTest, FollowsGradientsOfGradients) {
  Run("    var x@GRAD : fp32[-1, 4]\n    var x@GRAD@GRAD : fp32[-1, 4]\n"
      "    var q : fp32[-1, 4]\n    var q@GRAD : fp32[-1, 4]\n    var w@GRAD@1 : fp32[4, 1]\n"
      "    var ones : fp32[-1, 1]\n    var ones@GRAD : fp32[-1, 1]\n"
      "    Out=[ones] = fill_any_like(X=[h]) {value=1.0}\n"
      "    X@GRAD=[x@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[ones])\n"
      "    Out=[q] = square(X=[x@GRAD])\n    Out=[loss] = mean(X=[q])\n"
      "    X@GRAD=[q@GRAD] = mean_grad(X=[q], Out@GRAD=[loss@GRAD])\n"
      "    X@GRAD=[x@GRAD@GRAD] = square_grad(X=[x@GRAD], Out@GRAD=[q@GRAD])\n"
      "    DY=[w@GRAD@1], DDOut=[ones@GRAD] = "
      "mul_grad_grad(X=[x], Y=[w], DOut=[ones], DDX=[x@GRAD@GRAD])\n");
  EXPECT_EQ(Of("x@GRAD"), kRows);
  EXPECT_EQ(Of("x@GRAD@GRAD"), BatchRelation::Sharded(0, 1));
  EXPECT_EQ(Of("w@GRAD@1"), kMean);
  EXPECT_EQ(Of("ones@GRAD"), BatchRelation::Sharded(0, 1));
}

// The block of the gradient is followed like any other.
TEST_F(BatchFlowTest, FollowsGradientsOfBranches) {
  const char* root =
      "    var s@GRAD : fp32[-1, 1]\n    var s : fp32[-1, 1]\n"
      "    Out=[s] = assign(X=[h])\n"
      "    Out=[s], Scope=[scope] = conditional_block(Cond=[due], Input=[h, s]) "
      "{is_scalar_condition=true, sub_block=block(1)}\n"
      "    Out=[loss] = mean(X=[s])\n"
      "    X@GRAD=[s@GRAD] = mean_grad(X=[s], Out@GRAD=[loss@GRAD])\n"
      "    Input@GRAD=[h@GRAD] = conditional_block_grad(Cond=[due], Input=[h], Out=[s], "
      "Out@GRAD=[s@GRAD], Scope=[scope]) {is_scalar_condition=true, sub_block=block(2)}\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD])\n";
  const std::string forward = "  block 1 parent=0 {\n    Out=[s] = tanh(X=[h])\n  }\n";
  Run(root, forward +
                "  block 2 parent=0 forward=1 {\n    var h@GRAD : fp32[-1, 1]\n"
                "    X@GRAD=[h@GRAD] = tanh_grad(Out=[s], Out@GRAD=[s@GRAD])\n  }\n");
  EXPECT_EQ(Of("h@GRAD"), BatchRelation::Sharded(0, 1));
  EXPECT_EQ(Of("w@GRAD"), kMean);
  EXPECT_THAT(flow_->loop_gradients(), IsEmpty());
  Run(root, forward +
                "  block 2 parent=0 forward=1 {\n    var h@GRAD : fp32[-1, 1]\n"
                "    X@GRAD=[h@GRAD] = softmax_grad(Out=[s], Out@GRAD=[s@GRAD]) {axis=0}\n  }\n");
  EXPECT_EQ(Cause("w@GRAD"), "softmax_grad");
}

// On two ranks, a factor of 0.5 in the original is no division by their number.
TEST_F(BatchFlowTest, FactorsOfTheModelAreNoDivisionByRanks) {
  Run("    var s : fp32[-1, 1]\n    var s@GRAD : fp32[-1, 1]\n    var u@GRAD : fp32[-1, 1]\n"
      "    Out=[s] = scale(X=[h]) {scale=0.5, bias=0.0}\n"
      "    Out=[loss] = mean(X=[s])\n"
      "    X@GRAD=[s@GRAD] = mean_grad(X=[s], Out@GRAD=[loss@GRAD])\n"
      "    Out=[h@GRAD] = scale(X=[s@GRAD]) role=backward {scale=0.5, bias=0.0}\n"
      "    Out=[u@GRAD] = sum(X=[h@GRAD, h@GRAD])\n"
      "    Out=[h@GRAD] = scale(X=[u@GRAD]) role=backward {scale=0.5, bias=0.0}\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD])\n");
  EXPECT_EQ(Of("h@GRAD"), BatchRelation::Sharded(0, 1));
  EXPECT_EQ(Of("w@GRAD"), kMean);
  // The gradient of a sum that the size of the batch divides.
  Run("    var n : int64[]\n    var f : fp32[]\n    var a@GRAD : fp32[1]\n"
      "    var b@GRAD : fp32[1]\n"
      "    Out=[n] = size(Input=[h])\n    Out=[f] = cast(X=[n]) {in_dtype=3, out_dtype=5}\n"
      "    Out=[a] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}\n"
      "    Out=[b] = scale(X=[a]) {scale=0.5, bias=0.0}\n"
      "    Out=[loss] = elementwise_div(X=[b], Y=[f]) {axis=-1}\n"
      "    X@GRAD=[b@GRAD] = elementwise_div_grad(X=[b], Y=[f], Out=[loss], "
      "Out@GRAD=[loss@GRAD]) role=backward {axis=-1}\n"
      "    Out=[a@GRAD] = scale(X=[b@GRAD]) role=backward {scale=0.5, bias=0.0}\n"
      "    X@GRAD=[h@GRAD] = reduce_sum_grad(X=[h], Out@GRAD=[a@GRAD]) {reduce_all=true}\n");
  EXPECT_EQ(Of("loss"), kMean);
  EXPECT_EQ(Of("a@GRAD"), BatchRelation::Replicated(1));
  EXPECT_EQ(Of("h@GRAD"), BatchRelation::Sharded(0, 1));
}

TEST_F(BatchFlowTest, CollectivesGiveWhatOneDeviceHas) {
  Run("    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {scale=0.5, bias=0.0}\n"
      "    X@GRAD=[h@GRAD] = mean_grad(X=[h], Out@GRAD=[loss@GRAD])\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD])\n");
  EXPECT_EQ(Of("w@GRAD"), kSum);
  Run("    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0}\n");
  EXPECT_EQ(Of("w@GRAD"), kSame);
  Run("    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0}\n");
  EXPECT_EQ(Of("w@GRAD"), BatchRelation::Replicated(1));
  Run("    Out=[w@GRAD] = c_broadcast(X=[w@GRAD]) {ring_id=0, root=0}\n");
  EXPECT_EQ(Cause("w@GRAD"), "c_broadcast");
}

TEST_F(BatchFlowTest, CollectivesReachTheMembersOfBuffers) {
  Run("    var f : fp32[4]\n"
      "    FusedOutput=[f], Output=[w@GRAD] = coalesce_tensor(Input=[w@GRAD]) {copy_data=true}\n"
      "    Out=[f] = c_allreduce_avg(X=[f]) {ring_id=0}\n");
  EXPECT_EQ(Of("w@GRAD"), kSame);
}

TEST_F(BatchFlowTest, NonlinearFunctionsOfMeansAreNamed) {
  Run("    Out=[a] = sqrt(X=[loss])\n    Out=[b] = scale(X=[a]) {scale=2.0, bias=0.0}\n");
  EXPECT_EQ(Cause("b"), "sqrt");
  // A weighted mean.
  Run("    Out=[a] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}\n"
      "    Out=[b] = elementwise_div(X=[a], Y=[a]) {axis=-1}\n");
  EXPECT_EQ(Cause("b"), "elementwise_div");
  // Regularization counts once, not once for each rank.
  Run("    Out=[a] = squared_l2_norm(X=[w])\n    Out=[b] = sum(X=[loss, a])\n"
      "    Out=[c] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}\n"
      "    Out=[c] = sum(X=[c, a])\n");
  EXPECT_EQ(Of("b"), kMean);
  EXPECT_EQ(Cause("c"), "sum");
}

TEST_F(BatchFlowTest, StatesCarryOver) {
  // A weight that is updated by hand, from a gradient that is not reduced.
  const std::string update =
      "    Out=[t] = elementwise_mul(X=[w@GRAD], Y=[rate]) {axis=-1}\n"
      "    Out=[w] = elementwise_sub(X=[w], Y=[t]) {axis=-1}\n";
  Run(update);
  EXPECT_EQ(Cause("loss"), "mul");
  ASSERT_EQ(flow_->states().size(), 1);
  EXPECT_EQ(program_->var(flow_->states()[0].variable).name(), "w");
  EXPECT_EQ(program_->op(flow_->states()[0].writer).type(), "elementwise_sub");
  EXPECT_EQ(flow_->states()[0].value.relation, kMean);
  Run("    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0}\n" + update);
  EXPECT_EQ(Of("w"), kSame);
  EXPECT_EQ(Of("loss"), kMean);
  EXPECT_THAT(flow_->states(), IsEmpty());
  // A moving average of a mean is one of what one device has.
  Run("    Out=[state] = sum(X=[state, loss])\n");
  EXPECT_EQ(Of("state"), kMean);
  Run("    Out=[a] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}\n"
      "    Out=[state] = sum(X=[state, a])\n    Out=[b] = assign(X=[state])\n");
  EXPECT_EQ(Cause("state"), "sum");
  EXPECT_EQ(Cause("b"), "sum");
}

TEST_F(BatchFlowTest, ZerosAreAnySum) {
  // As gradient merge accumulates.
  const std::string accumulates =
      "    Out=[a] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}\n"
      "    Out=[state] = sum(X=[state, a])\n    Out=[b] = assign(X=[state])\n";
  const std::string resets =
      "    Out=[state] = fill_constant() {shape=longs[1], dtype=5, value=0.0}\n";
  zeros_ = {"state"};
  Run(accumulates);
  EXPECT_EQ(Of("b"), kSum);
  zeros_ = {};
  Run(accumulates + resets);
  EXPECT_EQ(Cause("b"), "sum");
  Run(resets + accumulates);
  EXPECT_EQ(Of("b"), kSum);
  // An output that nothing reads has a gradient of zeros.
  Run("    Out=[h@GRAD] = fill_zeros_like(X=[h])\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD])\n");
  EXPECT_EQ(Of("h@GRAD"), kRows);
}

// As the gradient of a variable that a branch does not write.
TEST_F(BatchFlowTest, SumsOfZerosOverRanksAreZeros) {
  const std::string update =
      "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[rate])\n";
  for (const char* value : {"0.0", "1.0"}) {
    SCOPED_TRACE(value);
    Run(absl::StrCat("    Out=[w@GRAD] = fill_any_like(X=[w]) {value=", value, "}\n",
                     "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0}\n", update));
    const bool is_zero = absl::string_view(value) == "0.0";
    EXPECT_EQ(Of("w@GRAD"), is_zero ? kSame : BatchRelation::Replicated(1));
    EXPECT_EQ(flow_->updates().size(), is_zero ? 0 : 1);
  }
}

// As placement moves what gradient merge accumulates.
TEST_F(BatchFlowTest, CopiesOfZerosAreZeros) {
  const auto accumulate = [&](const std::string& there, const std::string& back) {
    Run("    Out=[a] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}\n    Out=[b] = " + there +
        "\n    Out=[b] = elementwise_add(X=[a], Y=[b]) {axis=-1}\n    Out=[state] = " + back +
        "\n    Out=[c] = assign(X=[state])\n" +
        "    Out=[state] = fill_constant() {shape=longs[1], dtype=5, value=0.0}\n");
  };
  zeros_ = {"state"};
  for (const char* there : {"memcpy_h2d(X=[state])", "memcpy_d2h(X=[state])", "assign(X=[state])",
                            "cast(X=[state]) {in_dtype=5, out_dtype=5}"}) {
    SCOPED_TRACE(there);
    accumulate(there, "memcpy_d2h(X=[b])");
    EXPECT_EQ(Of("c"), kSum);
    EXPECT_EQ(Of("state"), kSame);
  }
  accumulate("memcpy_h2d(X=[rate])", "memcpy_d2h(X=[b])");
  EXPECT_EQ(Cause("c"), "elementwise_add");
  zeros_ = {};
  accumulate("memcpy_h2d(X=[state])", "memcpy_d2h(X=[b])");
  EXPECT_EQ(Cause("c"), "elementwise_add");
}

// Of the shape of their value, whose gradient takes them in.
TEST_F(BatchFlowTest, GradientsOfZerosAreZerosOfTheirShape) {
  Run("    var r : fp32[-1, 1]\n    var r@GRAD : fp32[-1, 1]\n    var z : fp32[-1, 1]\n"
      "    var all : fp32[-1, 1]\n"
      "    Out=[r] = square(X=[h])\n"
      "    Out=[r@GRAD] = fill_any_like(X=[r]) {value=0.0}\n"
      "    X@GRAD=[z] = square_grad(X=[h], Out@GRAD=[r@GRAD])\n"
      "    Out=[all] = sum(X=[h@GRAD, z])\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[all])\n");
  EXPECT_EQ(Of("z"), kRows);
  EXPECT_EQ(Of("all"), Of("h@GRAD"));
  EXPECT_EQ(Of("w@GRAD"), kMean);
}

// As Paddle 1 declares what it computes a second time.
TEST_F(BatchFlowTest, GradientsReadCopiesOfOtherElementTypes) {
  const auto run = [&](const std::string& type) {
    Run("    var copy : " + type + "\n    Out=[copy] = cast(X=[x]) {in_dtype=5, out_dtype=4}\n" +
        "    Y@GRAD=[t] = mul_grad(X=[copy], Y=[w], Out@GRAD=[h@GRAD])\n");
  };
  for (const char* type : {"fp16[-1, 4]", "bool[-1, 4]"}) {
    SCOPED_TRACE(type);
    run(type);
    EXPECT_EQ(Of("t"), kMean);
  }
  run("fp16[-1, 2, 2]");
  EXPECT_EQ(Cause("t"), "mul_grad");
}

TEST_F(BatchFlowTest, UpdatesByMultiplesAreListed) {
  const std::string update =
      "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[rate])\n";
  Run("    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0}\n" + update);
  EXPECT_THAT(flow_->updates(), IsEmpty());
  Run("    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0}\n" + update);
  ASSERT_EQ(flow_->updates().size(), 1);
  EXPECT_EQ(flow_->updates()[0].value.relation, BatchRelation::Replicated(1));
  EXPECT_EQ(program_->name(flow_->updates()[0].input), "w@GRAD");
}

TEST_F(BatchFlowTest, OptimizersAreForOthersToProve) {
  Run("    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[rate])\n"
      "    Out=[t] = assign(X=[w])\n");
  EXPECT_EQ(Of("w"), kSame);
  EXPECT_EQ(Of("t"), kSame);
}

// LocalSGD.
TEST_F(BatchFlowTest, UpdatesOfAveragedParametersAreTheRanksOwn) {
  const std::string update =
      "    var v : fp32[4, 1] persistable\n    var mean : fp32[4, 1] persistable\n"
      "    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[v], "
      "LearningRate=[rate]) {mu=0.9}\n"
      "    Out=[mean] = sum(X=[mean, w])\n";
  const std::string average = "    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0}\n";
  const auto states = [&] {
    std::vector<std::string> names;
    for (const BatchState& state : flow_->states()) {
      names.emplace_back(program_->var(state.variable).name());
    }
    return names;
  };
  Run(update + average);
  EXPECT_THAT(flow_->own_updates(), IsEmpty()) << "linear";
  EXPECT_EQ(Of("w"), kSame);
  EXPECT_EQ(Of("loss"), kMean);
  EXPECT_THAT(states(), UnorderedElementsAre("v", "mean"));
  // In some steps only.
  Run(update +
          "    Out=[w], Scope=[scope] = conditional_block(Cond=[due], Input=[w]) "
          "{is_scalar_condition=true, sub_block=block(1)}\n",
      "  block 1 parent=0 {\n" + average + "  }\n");
  EXPECT_THAT(states(), UnorderedElementsAre("v", "mean", "w"));
  EXPECT_EQ(flow_->own_updates().size(), 1);
  EXPECT_EQ(Of("loss"), kMean);
  Run("    Out=[w@GRAD] = clip(X=[w@GRAD]) {min=-1.0, max=1.0}\n" + update + average);
  EXPECT_THAT(states(), UnorderedElementsAre("v", "mean"));
  EXPECT_EQ(flow_->own_updates().size(), 1);
  Run("    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0}\n" + update);
  EXPECT_THAT(flow_->own_updates(), IsEmpty());
  EXPECT_THAT(states(), IsEmpty());
}

TEST_F(BatchFlowTest, GatheredPartsOfAllRanksAddUp) {
  const std::string gather =
      "    var g : fp32[8, 1]\n    var p0 : fp32[4, 1]\n    var p1 : fp32[4, 1]\n"
      "    Out=[g] = c_allgather(X=[w@GRAD]) {ring_id=0, nranks=2}\n"
      "    Out=[p0, p1] = split(X=[g]) {axis=0, num=2}\n";
  Run(gather + "    Out=[t] = sum(X=[p0, p1])\n");
  EXPECT_EQ(Of("t"), BatchRelation::Replicated(1));
  Run(gather + "    Out=[t] = sum(X=[p0, p0])\n");
  EXPECT_EQ(Cause("t"), "c_allgather");
}

// Gradient merge divides by its number of steps, which may be that of the ranks.
TEST_F(BatchFlowTest, ScalesInPlaceDivideLossGradientsOnly) {
  Run("    Out=[h@GRAD] = scale(X=[h@GRAD]) role=backward {scale=0.5, bias=0.0}\n");
  EXPECT_EQ(Of("h@GRAD"), BatchRelation::Sharded(0, 1));
  Run("    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) {ring_id=0}\n"
      "    Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward {scale=0.5, bias=0.0}\n");
  EXPECT_EQ(Of("w@GRAD"), kSame);
  Run("    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0}\n"
      "    Out=[w@GRAD] = scale(X=[w@GRAD]) role=backward {scale=0.5, bias=0.0}\n");
  EXPECT_EQ(Of("w@GRAD"), kSame);
}

// What the number of rows makes n times as large is no sum over ranks.
TEST_F(BatchFlowTest, FactorsOfTheProgramAreNoDivisions) {
  Run("    Out=[a] = size(Input=[h])\n"
      "    Out=[t] = fill_constant() {shape=longs[4, 1], dtype=5, value=1.0}\n"
      "    Out=[b] = elementwise_div(X=[t], Y=[a]) {axis=-1}\n"
      "    Out=[c] = scale(X=[b]) {scale=0.5, bias=0.0}\n");
  EXPECT_EQ(Of("b"), BatchRelation::Replicated(1));
  EXPECT_EQ(Of("c"), BatchRelation::Replicated(1));
  Run("    Out=[a] = c_allreduce_sum(X=[loss]) {ring_id=0}\n"
      "    Out=[b] = elementwise_add(X=[a], Y=[a]) {axis=-1}\n"
      "    Out=[c] = scale(X=[b]) {scale=0.5, bias=0.0}\n");
  EXPECT_EQ(Of("b"), BatchRelation::Replicated(1));
  EXPECT_EQ(Of("c"), kSame);
}

TEST_F(BatchFlowTest, FactorsOfTheOriginalAreNoDivisions) {
  const std::string half =
      "    Out=[loss@GRAD] = scale(X=[loss@GRAD]) role=backward {scale=0.5, bias=0.0}\n";
  Run(half);
  original_ = program_;
  EXPECT_EQ(Of("loss@GRAD"), BatchRelation::Replicated(-1));
  EXPECT_TRUE(End("loss@GRAD").is_guessed);
  Run(half);
  EXPECT_EQ(Of("loss@GRAD"), kSame);
  EXPECT_FALSE(End("loss@GRAD").is_guessed);
  Run(half + half);
  EXPECT_EQ(Of("loss@GRAD"), BatchRelation::Replicated(-1));
  const std::string sum = "    Out=[a] = c_allreduce_sum(X=[loss]) {ring_id=0}\n";
  const std::string half_sum = "    Out=[c] = scale(X=[a]) {scale=0.5, bias=0.0}\n";
  Run(sum + half_sum);
  EXPECT_EQ(Of("c"), kSame);
  original_ = program_;
  Run(sum + half_sum);
  EXPECT_EQ(Of("c"), BatchRelation::Replicated(1));
}

TEST_F(BatchFlowTest, StatesOfInnerBlocksOutliveTheStep) {
  Run("    Out=[a], Scope=[scope] = conditional_block(Cond=[due], Input=[loss]) "
      "{is_scalar_condition=true, sub_block=block(1)}\n",
      "  block 1 parent=0 {\n    var inner : fp32[1] persistable\n"
      "    Out=[a] = assign(X=[inner])\n    Out=[inner] = sqrt(X=[loss])\n  }\n");
  EXPECT_EQ(Cause("a"), "sqrt");
  ASSERT_EQ(flow_->states().size(), 1);
  EXPECT_EQ(program_->var(flow_->states()[0].variable).name(), "inner");
}

TEST_F(BatchFlowTest, StatesOfInnerBlocksDependOnTheCondition) {
  Run("    Out=[k] = greater_than(X=[loss], Y=[rate]) {axis=-1}\n"
      "    Out=[a], Scope=[scope] = conditional_block(Cond=[k], Input=[rate]) "
      "{is_scalar_condition=true, sub_block=block(1)}\n",
      "  block 1 parent=0 {\n    var inner : fp32[1] persistable\n"
      "    Out=[inner] = scale(X=[inner]) {scale=0.5, bias=0.0}\n"
      "    Out=[a] = assign(X=[rate])\n  }\n");
  const BatchValue& inner = flow_->AtEnd(program_->block(1).FindVar("inner"));
  EXPECT_EQ(inner.relation, kUnrelated);
  EXPECT_EQ(program_->op(inner.cause).type(), "conditional_block");
}

TEST_F(BatchFlowTest, BranchThatDoesNotRunLeavesWhatEarlierStepsHaveMade) {
  const std::string branch =
      "    var v : fp32[-1, 1]\n    var u : fp32[-1, 1]\n"
      "    Out=[v], Scope=[scope] = conditional_block(Cond=[due], Input=[h]) "
      "{is_scalar_condition=true, sub_block=block(1)}\n";
  const std::string read = "    Out=[u] = assign(X=[v])\n";
  const std::string block = "  block 1 parent=0 {\n    Out=[v] = assign(X=[h])\n  }\n";
  Run(branch + read, block);
  EXPECT_EQ(Of("u"), kUnrelated);
  Run(branch +
          "    Out=[u], Scope=[scope] = conditional_block(Cond=[due], Input=[v]) "
          "{is_scalar_condition=true, sub_block=block(2)}\n",
      block + "  block 2 parent=0 {\n" + read + "  }\n");
  EXPECT_EQ(Of("u"), kRows);
}

TEST_F(BatchFlowTest, DataWithoutMarksHasAValueBeforeABlock) {
  const std::string branch =
      "    var u : fp32[-1, 4]\n"
      "    Out=[u] = fill_constant() {shape=longs[8, 4], dtype=5, value=1.0}\n"
      "    Out=[x], Scope=[scope] = conditional_block(Cond=[due], Input=[u]) "
      "{is_scalar_condition=true, sub_block=block(1)}\n";
  const std::string block = "  block 1 parent=0 {\n    Out=[x] = assign(X=[u])\n  }\n";
  Run(branch, block);
  EXPECT_EQ(Cause("x"), "conditional_block");
  mark_ = "";
  Run(branch, block);
  EXPECT_EQ(Cause("x"), "conditional_block");
}

TEST_F(BatchFlowTest, EffectsAreFollowedToStates) {
  follow_effects_ = true;
  const std::string rest =
      "    var other : fp32[1] persistable\n    Out=[other] = sum(X=[other, rate])\n"
      "    X@GRAD=[h@GRAD] = mean_grad(X=[h], Out@GRAD=[loss@GRAD])\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD])\n"
      "    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {ring_id=0}\n"
      "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[rate])\n"
      "    Out=[state] = sum(X=[state, loss])\n";
  Run("    var m : uint8[-1, 1]\n"
      "    Mask=[m], Out=[h] = dropout(X=[h]) {is_test=false, dropout_prob=0.5}\n" +
      rest);
  EXPECT_EQ(Of("w"), kSame);
  EXPECT_FALSE(End("w").IsOfOneDevice());
  EXPECT_TRUE(End("other").IsOfOneDevice());
  Run(rest);
  EXPECT_TRUE(End("w").IsOfOneDevice());
  EXPECT_FALSE(End("state").IsOfOneDevice());
}

TEST_F(BatchFlowTest, EffectsAreListedOnce) {
  Run("    var m : fp32[4] persistable\n    var v : fp32[4] persistable\n"
      "    var s : fp32[4]\n    var y : fp32[-1, 4]\n    var y2 : fp32[-1, 4]\n"
      "    var mask : uint8[-1, 4]\n"
      "    MeanOut=[m], SavedMean=[s], SavedVariance=[s], VarianceOut=[v], Y=[y] = "
      "batch_norm(Bias=[s], Mean=[m], Scale=[s], Variance=[v], X=[x]) {is_test=false}\n"
      "    Mask=[mask], Out=[y2] = dropout(X=[y]) {is_test=false, dropout_prob=0.5}\n");
  ASSERT_EQ(flow_->effects().size(), 2);
  EXPECT_EQ(flow_->effects()[0].effect, BatchEffect::kStatistics);
  EXPECT_EQ(flow_->effects()[1].effect, BatchEffect::kDraws);
  EXPECT_EQ(Of("y2"), kRows);
  EXPECT_EQ(Cause("m"), "batch_norm");
}

TEST_F(BatchFlowTest, BranchesJoinBothWays) {
  const std::string block =
      "  block 1 parent=0 {\n    Out=[a] = scale(X=[loss]) {scale=2.0, bias=0.0}\n  }\n";
  const std::string branch =
      "    Out=[a] = assign(X=[rate])\n"
      "    Out=[a], Scope=[scope] = conditional_block(Cond=[COND], Input=[loss]) "
      "{is_scalar_condition=true, sub_block=block(1)}\n";
  const auto with = [&](const std::string& condition) {
    std::string text = branch;
    return text.replace(text.find("COND"), 4, condition);
  };
  Run(with("due"), block);
  EXPECT_EQ(Of("a"), kMean);
  EXPECT_THAT(flow_->conditions(), IsEmpty());
  Run("    Out=[k] = greater_than(X=[loss], Y=[rate]) {axis=-1}\n" + with("k"), block);
  EXPECT_EQ(Cause("a"), "conditional_block");
  EXPECT_EQ(flow_->conditions().size(), 1);
}

// Nobody knows when it runs its block, and what of this it hands out.
TEST_F(BatchFlowTest, UnknownOpsWithBlocksMakeUnrelatedValues) {
  Run("    Out=[a] = an_unknown_op(X=[loss]) {sub_block=block(1)}\n",
      "  block 1 parent=0 {\n    var b : fp32[1]\n    Out=[b] = scale(X=[loss]) {scale=2.0}\n  "
      "}\n");
  EXPECT_EQ(Cause("a"), "an_unknown_op");
}

// Zeros are a mean and a sum of zeros, but as many as one device has are no part of the batch.
TEST_F(BatchFlowTest, BranchesJoinZerosOfTheirShape) {
  const auto join = [&](const std::string& zeros, const std::string& value) {
    Run("    var v : fp32[-1, 1]\n    Out=[v] = " + zeros +
            "\n    Out=[v], Scope=[scope] = conditional_block(Cond=[due], Input=[h, loss]) "
            "{is_scalar_condition=true, sub_block=block(1)}\n",
        "  block 1 parent=0 {\n    Out=[v] = " + value + "\n  }\n");
  };
  const std::string fixed = "fill_constant() {shape=longs[4, 1], dtype=5, value=0.0}";
  join(fixed, "assign(X=[loss])");
  EXPECT_EQ(Of("v"), kMean);
  join(fixed, "assign(X=[h])");
  EXPECT_EQ(Cause("v"), "conditional_block");
  join("fill_zeros_like(X=[h])", "assign(X=[h])");
  EXPECT_EQ(Of("v"), kRows);
  join("assign(X=[h])", fixed);
  EXPECT_EQ(Cause("v"), "conditional_block");
}

TEST_F(BatchFlowTest, LoopsAreFollowedToTheirFixpoint) {
  const std::string loop =
      "    Out=[a] = assign(X=[rate])\n    Out=[b] = assign(X=[rate])\n"
      "    Out=[a, b], StepScopes=[scopes] = while(X=[a, loss], Condition=[due]) "
      "{sub_block=block(1)}\n";
  Run(loop,
      "  block 1 parent=0 {\n    Out=[b] = assign(X=[a])\n    Out=[a] = sum(X=[a, loss])\n  }\n");
  EXPECT_EQ(Of("a"), kMean);
  EXPECT_EQ(Of("b"), kMean);
  Run(loop,
      "  block 1 parent=0 {\n    Out=[b] = sqrt(X=[a])\n    Out=[a] = sum(X=[a, loss])\n  }\n");
  EXPECT_EQ(Cause("b"), "sqrt");
  // The loop runs as long as its own result says.
  Run(loop,
      "  block 1 parent=0 {\n    Out=[a] = sum(X=[a, loss])\n"
      "    Out=[due] = greater_than(X=[a], Y=[rate]) {axis=-1}\n  }\n");
  EXPECT_EQ(Cause("a"), "while");
  EXPECT_EQ(flow_->conditions().size(), 1);
}

TEST_F(BatchFlowTest, CollectivesOfTheForwardPassAreLifts) {
  Run("    Out=[a] = c_allreduce_avg(X=[loss]) {ring_id=0}\n"
      "    Out=[b] = c_allreduce_sum(X=[loss]) {ring_id=0}\n"
      "    Out=[c] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}\n"
      "    Out=[c] = c_allreduce_sum(X=[c]) {ring_id=0}\n"
      "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward {ring_id=0}\n");
  EXPECT_EQ(Of("c"), kSame);
  ASSERT_EQ(flow_->forward_reductions().size(), 3);
  EXPECT_EQ(flow_->forward_reductions()[0].power, 0);
  EXPECT_EQ(flow_->forward_reductions()[1].power, 1);
  EXPECT_EQ(flow_->forward_reductions()[2].power, 0);
}

// Once: a second sum is a mistake that the counts of sums show.
TEST_F(BatchFlowTest, GradientsOfSummedValuesAreSummed) {
  const std::string sums =
      "    var a@GRAD : fp32[1]\n    var c@GRAD : fp32[1]\n"
      "    Out=[c] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}\n"
      "    Out=[c] = c_allreduce_sum(X=[c]) {ring_id=0}\n"
      "    Out=[a] = scale(X=[c]) role=forward|loss {bias=1.0}\n"
      "    Out=[a@GRAD] = fill_constant() role=backward|loss {shape=longs[1], dtype=5, value=1.0}\n"
      "    Out=[c@GRAD] = scale(X=[a@GRAD]) role=backward\n";
  const std::string of_gradient =
      "    Out=[c@GRAD] = c_allreduce_sum(X=[c@GRAD]) role=backward {ring_id=0}\n";
  Run(sums + of_gradient);
  EXPECT_EQ(flow_->forward_reductions().size(), 2);
  Run(sums + of_gradient + of_gradient);
  EXPECT_EQ(flow_->forward_reductions().size(), 2);
  Run(absl::StrReplaceAll(sums + of_gradient, {{"c_allreduce_sum(X=[c])", "assign(X=[c])"}}));
  EXPECT_EQ(flow_->forward_reductions().size(), 0);
  Run(absl::StrReplaceAll(sums + of_gradient,
                          {{"reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}", "mean(X=[h])"},
                           {"c_allreduce_sum(X=[c])", "c_allreduce_avg(X=[c])"}}));
  EXPECT_EQ(flow_->forward_reductions().size(), 1) << "of a mean";
}

// Parts of a gradient, each of them once.
TEST_F(BatchFlowTest, PartsOfGradientsOfSummedValuesAreSummed) {
  std::string ops =
      "    var c@GRAD@0 : fp32[1]\n    var c@GRAD@1 : fp32[1]\n"
      "    Out=[c] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}\n"
      "    Out=[c] = c_allreduce_sum(X=[c]) {ring_id=0}\n";
  for (const char* part : {"0", "1", "0"}) {
    absl::StrAppend(&ops, "    Out=[c@GRAD@", part, "] = c_allreduce_sum(X=[c@GRAD@", part,
                    "]) role=backward {ring_id=0}\n");
  }
  Run(ops);
  EXPECT_EQ(flow_->forward_reductions().size(), 3);
}

// A mean in two ops, as on CPUs. The sum of means counts as a sum: its division is another thing.
TEST_F(BatchFlowTest, DivisionsOfSummedNumbersAreLifts) {
  const std::string number = "    Out=[c] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}\n";
  const std::string sum = "    Out=[c] = c_allreduce_sum(X=[c]) {ring_id=0}\n";
  for (const char* to : {"c", "a"}) {
    Run(absl::StrCat(number, sum, "    Out=[", to, "] = scale(X=[c]) {scale=0.5, nranks=2}\n"));
    ASSERT_EQ(flow_->forward_reductions().size(), 2) << to;
    EXPECT_EQ(flow_->forward_reductions()[1].power, 0) << to;
  }
  Run(absl::StrCat(number, sum, "    Out=[c] = scale(X=[c]) {scale=0.5}\n"));
  EXPECT_EQ(flow_->forward_reductions().size(), 1) << "says nothing of ranks";
  Run(absl::StrCat("    Out=[c] = mean(X=[h])\n", sum,
                   "    Out=[c] = scale(X=[c]) {scale=0.5, nranks=2}\n"));
  EXPECT_EQ(flow_->forward_reductions().size(), 1) << "of a mean";
}

// The gradient of a value that is reduced in place: all ranks must have the same.
TEST_F(BatchFlowTest, GradientsPassACollectiveIfAllRanksHaveTheSame) {
  const std::string reduced =
      "    Out=[loss] = mean(X=[h])\n"
      "    Out=[loss] = c_allreduce_avg(X=[loss]) {ring_id=0}\n";
  const std::string backward =
      "    X@GRAD=[h@GRAD] = mean_grad(X=[h], Out@GRAD=[loss@GRAD]) role=backward\n"
      "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward\n";
  Run(reduced + backward);
  EXPECT_EQ(Of("w@GRAD"), kMean);
  Run(reduced + "    Out=[a] = mean(X=[h])\n    Out=[loss@GRAD] = assign(X=[a])\n" + backward);
  EXPECT_EQ(Cause("w@GRAD"), "mean_grad");
}

// A mean over the batch, and a function of a mean that is reduced, as a penalty of the load of
// experts. The gradient of a sum of both reads no values: that of the penalty is the same on all
// ranks.
TEST_F(BatchFlowTest, GradientsOfAPartThatAllRanksHaveAreTheirs) {
  const auto run = [&](const std::string& op, const std::string& grad_inputs) {
    Run("    var a@GRAD : fp32[1]\n    var b@GRAD : fp32[1]\n    var c@GRAD : fp32[1]\n"
        "    var h1 : fp32[-1, 1]\n    var h2 : fp32[-1, 1]\n"
        "    Out=[a] = mean(X=[h])\n"
        "    Out=[a] = c_allreduce_avg(X=[a]) {ring_id=0}\n"
        "    Out=[b] = square(X=[a])\n"
        "    Out=[c] = mean(X=[h])\n"
        "    Out=[loss] = " +
        op + "(X=[c], Y=[b]) {axis=-1}\n    X@GRAD=[c@GRAD], Y@GRAD=[b@GRAD] = " + op + "_grad(" +
        grad_inputs +
        ", Out@GRAD=[loss@GRAD]) role=backward {axis=-1}\n"
        "    X@GRAD=[a@GRAD] = square_grad(X=[a], Out@GRAD=[b@GRAD]) role=backward\n"
        "    X@GRAD=[h1] = mean_grad(X=[h], Out@GRAD=[a@GRAD]) role=backward\n"
        "    X@GRAD=[h2] = mean_grad(X=[h], Out@GRAD=[c@GRAD]) role=backward\n"
        "    Out=[h@GRAD] = sum(X=[h1, h2]) role=backward\n"
        "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward\n");
  };
  for (const char* op : {"elementwise_add", "elementwise_sub"}) {
    run(op, "X=[c], Y=[b]");
    EXPECT_EQ(Of("b@GRAD"), kSame) << op;
    EXPECT_EQ(Of("h1"), BatchRelation::Sharded(0, 1)) << op;
    EXPECT_EQ(Of("w@GRAD"), kMean) << op;
  }
  // That of a product reads the rank's own mean.
  run("elementwise_mul", "X=[c], Y=[b]");
  EXPECT_EQ(Of("b@GRAD"), kMean);
  EXPECT_EQ(Cause("w@GRAD"), "mean_grad");
}

// Longer than the number of walks: nobody has followed what the last state reaches.
TEST_F(BatchFlowTest, LongChainsOfStatesEndUnrelated) {
  constexpr int kStates = 12;
  std::string vars, ops = "    Out=[a] = mean(X=[h])\n";
  for (int i = 0; i < kStates; ++i) {
    absl::StrAppend(&vars, "    var s", i, " : fp32[1] persistable\n");
  }
  for (int i = kStates - 1; i > 0; --i) {
    absl::StrAppend(&ops, "    Out=[s", i, "] = assign(X=[s", i - 1, "])\n");
  }
  absl::StrAppend(&ops, "    Out=[s0] = assign(X=[a])\n    Out=[state] = exp(X=[s", kStates - 1,
                  "])\n");
  Run(vars + ops);
  EXPECT_EQ(Of("state"), kUnrelated);
  EXPECT_EQ(Of("s0"), kMean);
  EXPECT_EQ(Of("s11"), kUnrelated);
  EXPECT_EQ(Of("w@GRAD"), kMean);
}

TEST_F(BatchFlowTest, LongChainsLeaveOtherStatesAsTheyAre) {
  std::string vars, ops = "    Out=[a] = mean(X=[h])\n    Out=[s0] = assign(X=[a])\n";
  for (int i = 0; i < 12; ++i) absl::StrAppend(&vars, "    var s", i, " : fp32[1] persistable\n");
  for (int i = 11; i > 0; --i)
    absl::StrAppend(&ops, "    Out=[s", i, "] = assign(X=[s", i - 1, "])\n");
  absl::StrAppend(&ops, "    Out=[state] = scale(X=[rate]) {scale=2.0}\n");
  Run(vars + ops);
  EXPECT_EQ(Of("s11"), kUnrelated);
  EXPECT_EQ(Of("state"), kSame);
}

TEST_F(BatchFlowTest, AnInputOfAFillIsNoZero) {
  Run("    Out=[a] = fill_constant(ValueTensor=[rate]) {shape=longs[1], dtype=5, value=0.0}\n"
      "    Out=[b] = reduce_sum(X=[h]) {reduce_all=true, dim=ints[0]}\n"
      "    Out=[c] = elementwise_add(X=[a], Y=[b])\n");
  EXPECT_EQ(Cause("c"), "elementwise_add");
}

// A schedule may put the loss after its gradient op, which does not read it.
TEST_F(BatchFlowTest, FollowsTheGradientOfAnOpThatFollows) {
  Run("    var q : fp32[-1, 1]\n    var q@GRAD : fp32[-1, 1]\n    var late : fp32[1]\n"
      "    var late@GRAD : fp32[1]\n    var v@GRAD : fp32[4, 1]\n"
      "    Out=[q] = square(X=[h])\n"
      "    Out=[late@GRAD] = fill_constant() role=backward|loss {shape=longs[1], dtype=5, "
      "value=1.0}\n"
      "    X@GRAD=[q@GRAD] = mean_grad(X=[q], Out@GRAD=[late@GRAD])\n"
      "    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[q@GRAD])\n"
      "    Out=[late] = mean(X=[q])\n");
  EXPECT_EQ(Of("q@GRAD"), BatchRelation::Sharded(0, 1));
  EXPECT_EQ(Of("v@GRAD"), kMean);
  EXPECT_EQ(Of("late"), kMean);
}

// What the op that follows reads is not there yet.
TEST_F(BatchFlowTest, DoesNotGuessTheGradientOfAnOpWhoseInputsFollow) {
  Run("    var q : fp32[-1, 1]\n    var q@GRAD : fp32[-1, 1]\n    var late : fp32[1]\n"
      "    X@GRAD=[q@GRAD] = mean_grad(X=[q], Out@GRAD=[h])\n"
      "    Out=[q] = square(X=[h])\n"
      "    Out=[late] = mean(X=[q])\n");
  EXPECT_EQ(Of("q@GRAD"), kUnrelated);
}

}  // namespace
}  // namespace weft
