#include "ops/analysis/values/rank_values.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

using Placement = RankValue::Placement;

// One parameter, its gradient on each rank, and then the given ops.
class RankValuesTest : public ::testing::Test {
 protected:
  void Run(const std::string& ops, const std::string& blocks = "") {
    absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(
        "    var x : fp32[4, 1] need_check_feed\n"
        "    var w : fp32[1, 1] parameter persistable\n"
        "    var sum : fp32[1, 1] persistable\n"
        "    var old : fp32[1, 1] persistable\n"
        "    var due : bool[1] persistable\n"
        "    var scope : step_scopes\n"
        "    var y : fp32[4, 1]\n    var y@GRAD : fp32[4, 1]\n"
        "    var g : fp32[1, 1]\n    var out : fp32[1, 1] persistable\n"
        "    Out=[y] = mul(X=[x], Y=[w])\n"
        "    Out=[y@GRAD] = fill_constant() {shape=longs[4, 1], dtype=5, value=1.0}\n"
        "    Y@GRAD=[g] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD])\n" +
            ops,
        blocks));
    ASSERT_TRUE(program.ok()) << program.status();
    program_.emplace(*std::move(program));
    RankValuesOptions options;
    options.setting.nranks = 2;
    values_.emplace(RankValues::Of(*program_, options));
  }

  const RankValue& End(const std::string& name) {
    return values_->AtEnd(program_->block(0).FindVar(name));
  }
  RankValue Start(const std::string& name) {
    return values_->AtStart(program_->block(0).FindVar(name));
  }

  absl::optional<Program> program_;
  absl::optional<RankValues> values_;
};

TEST_F(RankValuesTest, DataAndResultsOfDataAreRankLocal) {
  Run("");
  EXPECT_EQ(End("x").placement, Placement::kLocal);
  EXPECT_EQ(End("y").placement, Placement::kLocal);
  EXPECT_FALSE(End("y").is_gradient);
  EXPECT_EQ(End("w").placement, Placement::kReplicated);
}

TEST_F(RankValuesTest, GradientsOfParametersAreSummedOverSamples) {
  Run("    X@GRAD=[y] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD])\n");
  EXPECT_TRUE(End("g").is_gradient);
  EXPECT_TRUE(End("g").is_summed);
  // Of the data: a row for each sample.
  EXPECT_TRUE(End("y").is_gradient);
  EXPECT_FALSE(End("y").is_summed);
}

TEST_F(RankValuesTest, SumsAndDivisionsAreCounted) {
  Run("    Out=[g] = c_allreduce_sum(X=[g]) {use_calc_stream=true}\n"
      "    Out=[out] = scale(X=[g]) {scale=0.5}\n");
  EXPECT_EQ(End("g").placement, Placement::kReplicated);
  EXPECT_EQ(End("g").unscaled_sums, 1);
  EXPECT_EQ(End("g").reductions, 1);
  EXPECT_EQ(End("out").unscaled_sums, 0);
}

// A choice is linear in what it chooses from, if no gradient says which.
TEST_F(RankValuesTest, GradientsThatAMaskOfTheDataChoosesAreGradients) {
  const std::string vars =
      "    var h : fp32[-1, 3]\n    var h@GRAD : fp32[-1, 3]\n    var a : fp32[-1, 3]\n"
      "    var mask : bool[-1, 3]\n    var all : fp32[1, 1]\n    var rows : fp32[-1, 1]\n"
      "    Out=[h] = mul(X=[x], Y=[w])\n"
      "    X@GRAD=[h@GRAD] = tanh_grad(Out=[h], Out@GRAD=[y@GRAD]) role=backward\n"
      "    Out=[a] = scale(X=[h@GRAD]) role=backward {scale=0.5}\n";
  const auto choose = [&](const std::string& by, const std::string& sum, const std::string& y) {
    Run(absl::StrCat(vars, "    Out=[mask] = greater_than(X=[", by, "], Y=[w]) role=backward\n",
                     "    Out=[a] = where(Condition=[mask], X=[h@GRAD], Y=[", y,
                     "]) role=backward\n    Out=[", sum,
                     "] = reduce_sum(X=[a]) role=backward {dim=ints[0, 1], keep_dim=true}\n",
                     "    Out=[rows] = reduce_sum(X=[a]) role=backward {dim=ints[1], "
                     "keep_dim=true}\n"));
  };
  choose("h", "all", "a");
  EXPECT_TRUE(End("a").is_gradient);
  EXPECT_FALSE(End("a").is_summed);
  EXPECT_TRUE(End("all").is_summed);
  EXPECT_TRUE(End("rows").is_gradient);
  EXPECT_FALSE(End("rows").is_summed);
  // Where the gradient itself is large.
  choose("h@GRAD", "all", "a");
  EXPECT_TRUE(End("all").first_nonlinear_op.valid());
  // What each rank has computed of its data is no gradient.
  choose("h", "all", "h");
  EXPECT_FALSE(End("a").is_gradient);
}

TEST_F(RankValuesTest, NonlinearFunctionsAreNotGradients) {
  Run("    Out=[out] = clip_by_norm(X=[g]) {max_norm=1.0}\n");
  EXPECT_FALSE(End("out").is_gradient);
  EXPECT_TRUE(End("out").first_nonlinear_op.valid());
}

// They have one signature: attributes of ops without a schema say which of them draw.
TEST_F(RankValuesTest, OpsOfOneTypeMayDrawOrNot) {
  Run("    out=[out] = memory_efficient_attention(q=[w]) {dropout_p=0.0}\n"
      "    out=[sum] = memory_efficient_attention(q=[w]) {dropout_p=0.5}\n"
      "    out=[old] = memory_efficient_attention(q=[w]) {dropout_p=0.0}\n");
  EXPECT_EQ(End("out").placement, Placement::kReplicated);
  EXPECT_EQ(End("sum").placement, Placement::kLocal);
  EXPECT_EQ(End("old").placement, Placement::kReplicated);
}

TEST_F(RankValuesTest, ABufferIsItsMembers) {
  Run("    Output=[g, out], FusedOutput=[y] = coalesce_tensor(Input=[g, w]) "
      "{copy_data=true, dtype=5}\n"
      "    Out=[y] = c_allreduce_avg(X=[y]) {use_calc_stream=true}\n");
  EXPECT_EQ(End("g").placement, Placement::kReplicated);
  EXPECT_EQ(End("g").reductions, 1);
  EXPECT_EQ(End("out").reductions, 1);
}

TEST_F(RankValuesTest, PartsOfAllRanksAddUpToASum) {
  Run("    Out=[y] = c_allgather(X=[g]) {nranks=2, use_calc_stream=true}\n"
      "    Out=[g, out] = split(X=[y]) {num=2, axis=0}\n"
      "    Out=[sum] = sum(X=[g, out])\n"
      "    Out=[old] = sum(X=[g, g])\n");
  EXPECT_EQ(End("g").placement, Placement::kRankSubset);
  EXPECT_EQ(End("g").rank, 0);
  EXPECT_EQ(End("sum").placement, Placement::kReplicated);
  EXPECT_EQ(End("sum").unscaled_sums, 1);
  EXPECT_EQ(End("old").placement, Placement::kRankSubset);
}

TEST_F(RankValuesTest, EqualPartsAddUpToASum) {
  Run("    Out=[y] = c_allgather(X=[w]) {nranks=2, use_calc_stream=true}\n"
      "    Out=[g, out] = split(X=[y]) {num=2, axis=0}\n"
      "    Out=[sum] = sum(X=[g, out])\n"
      "    Out=[old] = sum(X=[g, g])\n");
  EXPECT_EQ(End("y").placement, Placement::kGathered);
  EXPECT_EQ(End("g").placement, Placement::kReplicated);
  EXPECT_EQ(End("sum").unscaled_sums, 1);
  EXPECT_EQ(End("old").unscaled_sums, 0);
}

// What is sent of a gradient is one, and so is what a later step adds to it.
TEST_F(RankValuesTest, SparsifiedGradientsAreGradients) {
  const std::string sparsify =
      "    Out=[y], ResidualOut=[sum] = sparsify_topk(X=[g], Residual=[sum]) {k=long(1)}\n";
  Run(sparsify +
      "    Out=[y] = c_allreduce_sum(X=[y]) {use_calc_stream=true}\n"
      "    Out=[out] = densify(X=[y]) {concated_ranks=longs[2], "
      "concated_shapes=longs[1, 1]}\n");
  EXPECT_TRUE(Start("sum").is_gradient);
  EXPECT_TRUE(End("sum").is_gradient);
  EXPECT_EQ(End("out").placement, Placement::kReplicated);
  EXPECT_EQ(End("out").unscaled_sums, 1);
  EXPECT_FALSE(End("out").first_nonlinear_op.valid());
  // Divided gradients and undivided residuals.
  Run("    Out=[out] = scale(X=[g]) {scale=0.5, nranks=2}\n"
      "    Out=[y], ResidualOut=[sum] = sparsify_topk(X=[g, out], Residual=[sum, old]) "
      "{k=long(1)}\n");
  EXPECT_TRUE(End("y").is_mixed);
  // A state of the rank's own that is no gradient.
  Run("    Out=[sum] = square(X=[g])\n" + sparsify);
  EXPECT_FALSE(End("y").is_gradient);
  EXPECT_TRUE(End("y").first_nonlinear_op.valid());
}

// What one rank has is equal on all ranks, but no one device has it.
TEST_F(RankValuesTest, AValueOfOneRankStaysOne) {
  const std::string broadcast = "    Out=[g] = c_broadcast(X=[g]) {root=1, use_calc_stream=true}\n";
  Run(broadcast + "    Out=[out] = while(X=[g], Condition=[due]) {sub_block=block(1)}\n",
      "  block 1 parent=0 {\n    Out=[out] = scale(X=[g])\n  }\n");
  EXPECT_EQ(End("g").placement, Placement::kRankSubset);
  EXPECT_EQ(End("out").placement, Placement::kRankSubset);
  // In the next step, too.
  EXPECT_EQ(Start("out").placement, Placement::kRankSubset);
  EXPECT_EQ(Start("w").placement, Placement::kReplicated);
  // A sum or a selection of a mean and of what one rank has.
  Run("    Out=[out] = c_allreduce_avg(X=[g]) {use_calc_stream=true}\n" + broadcast +
          "    Out=[sum] = sum(X=[g, out])\n    Out=[old] = assign(X=[g])\n"
          "    Out=[old], Scope=[scope] = conditional_block(Cond=[due], Input=[out]) "
          "{sub_block=block(1), is_scalar_condition=true}\n",
      "  block 1 parent=0 {\n    Out=[old] = assign(X=[out])\n  }\n");
  EXPECT_TRUE(End("out").averaged_across_ranks);
  EXPECT_FALSE(End("sum").averaged_across_ranks);
  EXPECT_FALSE(End("old").averaged_across_ranks);
}

TEST_F(RankValuesTest, GradientsOfTheRowsOfOneRankAreNotSummed) {
  Run("    Out=[y] = c_broadcast(X=[y]) {root=0, use_calc_stream=true}\n"
      "    X@GRAD=[old] = mul_grad(X=[y], Y=[w], Out@GRAD=[y@GRAD])\n");
  EXPECT_TRUE(End("old").is_gradient);
  EXPECT_FALSE(End("old").is_summed);
}

// A mean that is added to what is own to a rank does not make that the same on all.
TEST_F(RankValuesTest, OnlyReplicatedValuesAreAveragedAcrossRanks) {
  Run("    Out=[out] = c_allreduce_avg(X=[g]) {use_calc_stream=true}\n"
      "    Out=[old] = sum(X=[w, out])\n"
      "    Out=[sum] = sum(X=[out, g])\n");
  EXPECT_TRUE(End("old").averaged_across_ranks);
  EXPECT_EQ(End("sum").placement, Placement::kLocal);
  EXPECT_FALSE(End("sum").averaged_across_ranks);
}

// Each walk follows the value by one state. Other states do not pay for that.
TEST_F(RankValuesTest, OnlyTheStatesOfALongChainBecomeRankLocal) {
  for (int length : {5, 20, 100}) {
    std::string vars, moves;
    for (int i = 0; i < length; ++i) {
      absl::StrAppend(&vars, "    var s", i, " : fp32[4, 1] persistable\n");
      // From the last to the first: a value waits for a step in each state.
      const int to = length - 1 - i;
      absl::StrAppend(&moves, "    Out=[s", to, "] = assign(X=[",
                      to == 0 ? "x" : absl::StrCat("s", to - 1), "])\n");
    }
    Run(absl::StrCat(vars, moves,
                     "    Out=[g] = c_allreduce_avg(X=[g]) {use_calc_stream=true}\n"
                     "    Out=[sum] = sum(X=[sum, g])\n"));
    EXPECT_EQ(Start("s0").placement, Placement::kLocal);
    EXPECT_EQ(Start(absl::StrCat("s", length - 1)).placement, Placement::kLocal);
    // Beyond all walks, whatever a step writes is rank-local.
    const bool is_followed = length < 64;
    EXPECT_EQ(Start("sum").placement, is_followed ? Placement::kReplicated : Placement::kLocal);
    EXPECT_EQ(Start("w").placement, Placement::kReplicated);
  }
}

// What a step leaves to the next: a sum of gradients is the ranks' own from the second step on.
TEST_F(RankValuesTest, AccumulatedGradientsAreCarriedOver) {
  Run("    Out=[sum] = sum(X=[sum, g])\n"
      "    Out=[old] = assign(X=[sum])\n");
  EXPECT_EQ(Start("sum").placement, Placement::kLocal);
  EXPECT_TRUE(Start("sum").is_gradient);
  EXPECT_EQ(Start("w").placement, Placement::kReplicated);
}

TEST_F(RankValuesTest, BranchesGiveBothValues) {
  const std::string branch =
      "    Out=[out], Scope=[scope] = conditional_block(Cond=[due], Input=[g]) "
      "{sub_block=block(1), is_scalar_condition=true}\n";
  Run(branch, "  block 1 parent=0 {\n    Out=[out] = assign(X=[g])\n  }\n");
  EXPECT_EQ(End("out").placement, Placement::kLocal);
  Run(branch,
      "  block 1 parent=0 {\n"
      "    Out=[out] = c_allreduce_avg(X=[g]) {use_calc_stream=true}\n  }\n");
  EXPECT_EQ(End("out").placement, Placement::kReplicated);
}

// A loop's gradient is linear in the gradients that it takes: a mean over the ranks may come after
// it. The other variables that it writes are no gradients.
class LoopGradientTest : public RankValuesTest {
 protected:
  // The block makes w@GRAD by these ops.
  void RunWithBlock(const std::string& ops) {
    Run("    var i : fp32[1]\n" + kDividedGradient + WhileGrad(1), BlockText(1, ops));
  }

  static std::string WhileGrad(int block) {
    return absl::StrCat(
        "    X@GRAD=[g] = while_grad(X=[w, x, i], Out@GRAD=[y@GRAD], StepScopes=[scope]) "
        "{original_output_grad=strings[\"y@GRAD\"], sub_block=block(",
        block, ")}\n");
  }
  static std::string BlockText(int block, const std::string& ops) {
    return absl::StrCat("  block ", block, " parent=0 {\n    var w@GRAD : fp32[1, 1]\n",
                        "    Out=[i] = increment(X=[i]) {step=-1.0}\n", ops, "  }\n");
  }

  const std::string kDividedGradient =
      "    Out=[y@GRAD] = scale(X=[y@GRAD]) {scale=0.5, nranks=2}\n"
      "    Out=[i] = fill_constant() {shape=longs[1], dtype=5, value=1.0}\n";
  const std::string kGradient = "    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD])\n";
};

TEST_F(LoopGradientTest, IsAGradient) {
  RunWithBlock(kGradient);
  EXPECT_EQ(End("g").placement, Placement::kLocal);
  EXPECT_TRUE(End("g").is_gradient);
  EXPECT_TRUE(End("g").is_summed);
  EXPECT_EQ(End("g").unscaled_sums, -1);
  EXPECT_FALSE(End("g").has_unknown_scale);
  EXPECT_EQ(End("i").placement, Placement::kLocal);
}

// A factor that an attribute cannot have is none.
TEST_F(RankValuesTest, GradientsMayBeginWithAnyNumber) {
  for (const char* number : {"1e-50", "1e300", "2.0"}) {
    Run(
        absl::StrCat("    var d : fp64[1]\n    Out=[d] = fill_constant() role=backward|loss "
                     "{shape=longs[1], dtype=6, str_value=\"",
                     number, "\"}\n"));
    EXPECT_EQ(End("d").factor, number == std::string("2.0") ? 2 : 1) << number;
    EXPECT_FALSE(End("d").is_zero) << number;
  }
}

// The only value that differs between ranks is the gradient g.
TEST_F(LoopGradientTest, TheCounterIsApartUnlessItDependsOnGradients) {
  const auto count = [&](const std::string& ops) {
    Run("    var i : fp32[1]\n    Out=[i] = fill_constant() {shape=longs[1], dtype=5, value=1.0}\n"
        "    X@GRAD=[out] = while_grad(X=[w, i], Out@GRAD=[g]) "
        "{original_output_grad=strings[\"g\"], sub_block=block(1)}\n",
        BlockText(1, "    Out=[w@GRAD] = scale(X=[g]) {scale=2.0}\n" + ops));
    return End("i").placement;
  };
  EXPECT_EQ(count(""), Placement::kReplicated);
  EXPECT_EQ(count("    Out=[i] = elementwise_add(X=[i], Y=[w@GRAD])\n"), Placement::kLocal);
  EXPECT_EQ(count("    Out=[i] = reduce_max(X=[w@GRAD])\n"), Placement::kLocal);
}

TEST_F(LoopGradientTest, IsNoGradientIfTheBlockClips) {
  RunWithBlock(kGradient + "    Out=[w@GRAD] = clip(X=[w@GRAD]) {min=-1.0, max=1.0}\n");
  EXPECT_EQ(End("g").placement, Placement::kLocal);
  EXPECT_FALSE(End("g").is_gradient);
  EXPECT_FALSE(End("g").is_summed);
}

// The walk enters a block once.
TEST_F(LoopGradientTest, IsNoGradientIfAnotherOpHasRunTheBlock) {
  Run("    var i : fp32[1]\n" + kDividedGradient + WhileGrad(1) + WhileGrad(1),
      BlockText(1, kGradient));
  EXPECT_FALSE(End("g").is_gradient);
}

// What data_norm counts of its rows adds up over ranks; its means are those of parameters.
class RowSumsTest : public RankValuesTest {
 protected:
  // After the op and its gradient, these ops.
  void RunWith(const std::string& ops, const std::string& attrs = "") {
    Run("    var means : fp32[1]\n    var scales : fp32[1]\n    var count : fp32[1]\n"
        "    Means=[means], Scales=[scales], Y=[y] = data_norm(X=[x], BatchSize=[old], "
        "BatchSum=[sum], BatchSquareSum=[w]) {" +
        attrs +
        "}\n"
        "    BatchSize@GRAD=[count], X@GRAD=[y] = data_norm_grad(X=[x], Means=[means], "
        "Scales=[scales], Y@GRAD=[y@GRAD]) {" +
        attrs + "}\n" + ops);
  }
};

TEST_F(RowSumsTest, AreParts) {
  RunWith("");
  EXPECT_EQ(End("means").placement, Placement::kReplicated);
  EXPECT_EQ(End("count").placement, Placement::kPartialSum);
  EXPECT_TRUE(End("y").is_gradient);
}

TEST_F(RowSumsTest, AddUpOverRanks) {
  RunWith("    Out=[count] = c_allreduce_sum(X=[count]) {use_calc_stream=true}\n");
  EXPECT_EQ(End("count").placement, Placement::kReplicated);
  EXPECT_EQ(End("count").unscaled_sums, 0);
  RunWith("    Out=[count] = c_allreduce_avg(X=[count]) {use_calc_stream=true}\n");
  EXPECT_EQ(End("count").unscaled_sums, -1);
}

TEST_F(RowSumsTest, ThatAreDividedByNumbersOfRowsAreNotFollowed) {
  RunWith("", "slot_dim=1");
  EXPECT_EQ(End("count").placement, Placement::kLocal);
  EXPECT_TRUE(End("count").first_nonlinear_op.valid());
}

// One element of the array is own to each rank; the one that is written then is not.
TEST_F(RankValuesTest, ArrayKeepsUnwrittenElements) {
  Run("    var array : lod_tensor_array<fp32[4, 1]>\n    var i : int64[1]\n"
      "    var same : lod_tensor_array<fp32[4, 1]>\n"
      "    Out=[i] = fill_constant() {shape=longs[1], dtype=3, value=0.0}\n"
      "    Out=[same] = write_to_array(X=[w], I=[i])\n"
      "    Out=[array] = write_to_array(X=[x], I=[i])\n"
      "    Out=[array] = write_to_array(X=[w], I=[i])\n");
  EXPECT_EQ(End("array").placement, Placement::kLocal);
  EXPECT_EQ(End("same").placement, Placement::kReplicated);
}

// What a block writes that another op has run before is not known.
TEST_F(RankValuesTest, BlockOfTwoOpsLeavesRankLocalValues) {
  const std::string branch =
      "    Out=[out], Scope=[scope] = conditional_block(Cond=[due], Input=[w]) "
      "{sub_block=block(1), is_scalar_condition=true}\n";
  const std::string block = "  block 1 parent=0 {\n    Out=[out] = assign(X=[w])\n  }\n";
  Run(branch, block);
  EXPECT_EQ(End("out").placement, Placement::kReplicated);
  Run(branch + "    Out=[out] = scale(X=[w]) {scale=2.0}\n" + branch, block);
  EXPECT_EQ(End("out").placement, Placement::kLocal);
}

// No op has written the variable before: who reads it has run both blocks.
TEST_F(RankValuesTest, WhatNestedBranchesMakeHasNoOtherValue) {
  const auto run = [](int block) {
    return absl::StrCat(
        "    Out=[made], Scope=[scope] = conditional_block(Cond=[due], Input=[w]) "
        "{sub_block=block(",
        block, "), is_scalar_condition=true}\n");
  };
  Run("    var made : fp32[1, 1]\n" + run(1),
      absl::StrCat("  block 1 parent=0 {\n", run(2), "  }\n",
                   "  block 2 parent=1 {\n    Out=[made] = assign(X=[w])\n  }\n"));
  EXPECT_EQ(End("made").placement, Placement::kReplicated);
}

}  // namespace
}  // namespace weft
