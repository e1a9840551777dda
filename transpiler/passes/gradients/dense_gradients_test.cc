#include "transpiler/passes/gradients/dense_gradients.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/substitute.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DenseGradients, GradientAndSummandsChangeTheirTypeAndOpsTheirAttribute) {
  ExpectRewrite("dense-gradients{sparse=dense}", R"(
    var w : fp32[100, 2] parameter persistable
    var ids : int64[5] need_check_feed
  - var w@GRAD, w@GRAD@RENAME@0, w@GRAD@RENAME@1 : selected_rows<fp32[100, 2]>
  + var w@GRAD, w@GRAD@RENAME@0, w@GRAD@RENAME@1 : fp32[100, 2]
    Out=[y] = lookup_table_v2(Ids=[ids], W=[w])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[5, 2], dtype=5, value=1.0}
  - W@GRAD=[w@GRAD@RENAME@0] = lookup_table_v2_grad(Ids=[ids], W=[w], Out@GRAD=[y@GRAD]) role=backward {is_sparse=true}
  - W@GRAD=[w@GRAD@RENAME@1] = lookup_table_v2_grad(Ids=[ids], W=[w], Out@GRAD=[y@GRAD]) role=backward {is_sparse=true}
  + W@GRAD=[w@GRAD@RENAME@0] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[y@GRAD], W=[w]) role=backward
  + W@GRAD=[w@GRAD@RENAME@1] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[y@GRAD], W=[w]) role=backward
    Out=[w@GRAD] = sum(X=[w@GRAD@RENAME@0, w@GRAD@RENAME@1]) role=backward vars=[w, w@GRAD]
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )",
                OnRanks(2));
}

// Two lookups of $0 ids each in a table of 100 rows of two floats (800 bytes).
constexpr char kEmbedding[] = R"(
    var w : fp32[100, 2] parameter persistable
    var ids : int64[$0] need_check_feed
    var y@GRAD : fp32[$0, 2] need_check_feed
    var w@GRAD, w@GRAD@RENAME@0, w@GRAD@RENAME@1 : selected_rows<fp32[100, 2]>
    var m1, m2 : fp32[100, 2] persistable
    W@GRAD=[w@GRAD@RENAME@0] = lookup_table_v2_grad(Ids=[ids], W=[w], Out@GRAD=[y@GRAD]) role=backward {is_sparse=true}
    W@GRAD=[w@GRAD@RENAME@1] = lookup_table_v2_grad(Ids=[ids], W=[w], Out@GRAD=[y@GRAD]) role=backward {is_sparse=true}
    Out=[w@GRAD] = sum(X=[w@GRAD@RENAME@0, w@GRAD@RENAME@1]) role=backward vars=[w, w@GRAD]
    ParamOut=[w], Moment1Out=[m1], Moment2Out=[m2], Beta1PowOut=[p1], Beta2PowOut=[p2] = adam(Param=[w], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Beta1Pow=[p1], Beta2Pow=[p2]) role=optimize {lazy_mode=$1}
  )";

std::string Embedding(int ids, bool lazy = false) {
  return absl::Substitute(kEmbedding, ids, lazy);
}

constexpr char kMadeDense[] = R"(
  - var w@GRAD, w@GRAD@RENAME@0, w@GRAD@RENAME@1 : selected_rows<fp32[100, 2]>
  + var w@GRAD, w@GRAD@RENAME@0, w@GRAD@RENAME@1 : fp32[100, 2]
  - W@GRAD=[w@GRAD@RENAME@0] = lookup_table_v2_grad(Ids=[ids], W=[w], Out@GRAD=[y@GRAD]) role=backward {is_sparse=true}
  - W@GRAD=[w@GRAD@RENAME@1] = lookup_table_v2_grad(Ids=[ids], W=[w], Out@GRAD=[y@GRAD]) role=backward {is_sparse=true}
  + W@GRAD=[w@GRAD@RENAME@0] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[y@GRAD], W=[w]) role=backward
  + W@GRAD=[w@GRAD@RENAME@1] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[y@GRAD], W=[w]) role=backward
  )";

TEST(DenseGradients, ManyIdsMakeTheDenseGradientSmaller) {
  EXPECT_THAT(
      RemarkTexts(ExpectRewrite("dense-gradients", Embedding(/*ids=*/50), kMadeDense, OnRanks(2))),
      ElementsAre("w@GRAD made dense: a rank would receive 1200 bytes of rows, or 800 of a dense "
                  "gradient parameter=w"));
  EXPECT_THAT(
      RemarkTexts(ExpectNoRewrite("dense-gradients", Embedding(/*ids=*/5), OnRanks(2))),
      ElementsAre("w@GRAD left as rows: a rank would receive 120 bytes of rows, or 800 of a dense "
                  "gradient parameter=w"));
}

TEST(DenseGradients, UnknownNumberOfIdsKeepsRows) {
  EXPECT_THAT(
      RemarkTexts(ExpectNoRewrite("dense-gradients", Embedding(-1), OnRanks(2))),
      ElementsAre("w@GRAD left as rows: the number of ids in a step is unknown parameter=w"));
}

TEST(DenseGradients, ForCpusRowsBecomeDenseWhateverTheSize) {
  RewriteOptions options = OnRanks(2);
  options.device_kind = TargetDevice::kCpu;
  EXPECT_THAT(RewriteStatus("dense-gradients", Embedding(1, /*lazy=*/true), options),
              IsFailedPrecondition("cannot be made dense"));
  ExpectNoRewrite("dense-gradients{sparse=rows}", Embedding(1), options);
  EXPECT_THAT(RemarkTexts(ExpectRewrite("dense-gradients{sparse=supported}", Embedding(1),
                                        kMadeDense, options)),
              ElementsAre(HasSubstr("made dense")));
  ExpectNoRewrite("dense-gradients{sparse=supported}", Embedding(50), OnRanks(2));
}

TEST(DenseGradients, RowsAreLeftAlone) {
  ExpectNoRewrite("dense-gradients{sparse=rows}", Embedding(50), OnRanks(2));
}

TEST(DenseGradients, LazyOptimizersNeedRows) {
  const std::string lazy = Embedding(50, /*lazy=*/true);
  EXPECT_THAT(RemarkTexts(ExpectNoRewrite("dense-gradients", lazy, OnRanks(2))),
              ElementsAre("w@GRAD left as rows: op 3 (adam) updates only the rows that have a "
                          "gradient (lazy_mode) parameter=w"));
  EXPECT_THAT(RewriteStatus("dense-gradients{sparse=dense}", lazy, OnRanks(2)),
              IsFailedPrecondition("gradient w@GRAD cannot be made dense: op 3 (adam)"));
}

// After kEmbedding, whose sum op 2 makes and adam reads: clipping, where $0 reads the rows of it.
std::string Clipped(absl::string_view norm) {
  return Embedding(50) + absl::Substitute(R"(
    var merged : selected_rows<fp32[100, 2]>
    var rows : fp32[100, 2]
    var norm : fp32[1]
    Out=[merged] = merge_selected_rows(X=[w@GRAD]) role=optimize
    Out=[rows] = get_tensor_from_selected_rows(X=[merged]) role=optimize
    Out=[norm] = $0(X=[rows]) role=optimize
    Out=[w@GRAD] = elementwise_mul(X=[w@GRAD], Y=[norm]) role=optimize
  )",
                                          norm);
}

TEST(DenseGradients, ClippingByAGlobalNormBecomesDense) {
  ExpectRewrite("dense-gradients", Clipped("squared_l2_norm"), R"(
    var merged, w@GRAD, w@GRAD@RENAME@0, w@GRAD@RENAME@1 : fp32[100, 2]
    W@GRAD=[w@GRAD@RENAME@0] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[y@GRAD], W=[w]) role=backward
    W@GRAD=[w@GRAD@RENAME@1] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[y@GRAD], W=[w]) role=backward
    Out=[w@GRAD] = sum(X=[w@GRAD@RENAME@0, w@GRAD@RENAME@1]) role=backward vars=[w, w@GRAD]
    Beta1PowOut=[p1], Beta2PowOut=[p2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Beta1Pow=[p1], Beta2Pow=[p2], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Param=[w]) role=optimize
    Out=[merged] = assign(X=[w@GRAD]) role=optimize
    Out=[rows] = assign(X=[merged]) role=optimize
    Out=[norm] = squared_l2_norm(X=[rows]) role=optimize
    Out=[w@GRAD] = elementwise_mul(X=[w@GRAD], Y=[norm]) role=optimize
  )",
                OnRanks(2));
}

TEST(DenseGradients, OpsThatCountTheRowsNeedThem) {
  EXPECT_THAT(RemarkTexts(ExpectNoRewrite("dense-gradients", Clipped("mean"), OnRanks(2))),
              ElementsAre("w@GRAD left as rows: op 6 (mean) uses its rows, whose number a dense "
                          "tensor does not have parameter=w"));
}

TEST(DenseGradients, ClippingThatMovesZerosNeedsRows) {
  const auto clipped = [](absl::string_view min) {
    return Embedding(50) + absl::Substitute(R"(
    var cut : selected_rows<fp32[100, 2]>
    Out=[cut] = clip(X=[w@GRAD]) role=optimize {min=$0, max=1.0}
  )",
                                            min);
  };
  EXPECT_THAT(RemarkTexts(ExpectNoRewrite("dense-gradients", clipped("0.5"), OnRanks(2))),
              ElementsAre("w@GRAD left as rows: op 4 (clip) uses its rows alone, without the zeros "
                          "between them parameter=w"));
  EXPECT_THAT(RewriteStatus("dense-gradients{sparse=dense}", clipped("-0.5"), OnRanks(2)),
              ::weft::testing::IsOk());
}

TEST(DenseGradients, UpdatesThatGradientsOfZerosChangeNeedRows) {
  const std::string ftrl =
      Embedding(50) +
      "var v : fp32[100, 2] parameter persistable\n"
      "var q : fp32[100, 2] persistable\n"
      "var l : fp32[100, 2] persistable\n"
      "ParamOut=[v], SquaredAccumOut=[q], LinearAccumOut=[l] = ftrl(Param=[v], "
      "SquaredAccumulator=[q], LinearAccumulator=[l], Grad=[w@GRAD], "
      "LearningRate=[lr]) role=optimize";
  EXPECT_THAT(RemarkTexts(ExpectNoRewrite("dense-gradients", ftrl, OnRanks(2))),
              ElementsAre("w@GRAD left as rows: op 4 (ftrl) updates only the rows that have a "
                          "gradient parameter=w"));
}

TEST(DenseGradients, OpsThatAreNotKnownNeedRows) {
  EXPECT_THAT(
      RemarkTexts(ExpectNoRewrite("dense-gradients",
                                  Embedding(50) + "Out=[m] = my_metric(X=[w@GRAD])", OnRanks(2))),
      ElementsAre("w@GRAD left as rows: op 4 (my_metric) uses it, an unregistered op parameter=w"));
}

TEST(DenseGradients, ProgramWithoutSparseGradientsIsLeftAlone) {
  ExpectNoRewrite("dense-gradients", R"(
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  )",
                  OnRanks(2));
}

}  // namespace
}  // namespace weft::testing
