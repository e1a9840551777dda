#include "transpiler/passes/gradients/dense_reducer.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "transpiler/buckets/bucket_policy.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

// "cast w@GRAD@FP16": type and first output of each op, from the first that the exchange inserts.
std::vector<std::string> Written(const std::string& text, const DenseReduction& reduction,
                                 const std::string& policy = "none") {
  Program program = CompactProgram(text);
  const auto analysis = AnalyzeGradients(program, std::set<std::string>());
  EXPECT_TRUE(analysis.ok()) << analysis.status();
  const size_t num_ops = program.block(0).ops().size();
  Rewriter rewriter(&program);
  DenseReducer exchange(program, *analysis, /*nrings=*/1, reduction);
  GradientWriter writer(program, *analysis, /*nrings=*/1, &exchange, &rewriter);
  const auto filled = FillBuckets(program, *analysis, *BucketPolicy::Parse(policy));
  EXPECT_TRUE(filled.ok()) << filled.status();
  writer.Write(filled->buckets);
  WEFT_EXPECT_OK(rewriter.Commit());
  std::vector<std::string> ops;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (op.type() == "mul_grad") continue;
    ops.push_back(absl::StrCat(op.type(), " ", program.name(op.output_args()[0])));
  }
  EXPECT_GT(program.block(0).ops().size(), num_ops);
  return ops;
}

constexpr char kOne[] =
    "Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[g]) role=backward vars=[w, w@GRAD]";
constexpr char kTwo[] = R"(
    Y@GRAD=[v@GRAD] = mul_grad(X=[x], Y=[v], Out@GRAD=[g]) role=backward vars=[v, v@GRAD]
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[g]) role=backward vars=[w, w@GRAD]
)";

TEST(DenseReducer, SumOrMeanIsOneOp) {
  EXPECT_THAT(Written(kOne, {}),
              ElementsAre("c_wait_compute w@GRAD", "c_allreduce_sum w@GRAD", "c_wait_comm w@GRAD"));
  DenseReduction mean;
  mean.averages = true;
  EXPECT_THAT(Written(kOne, mean),
              ElementsAre("c_wait_compute w@GRAD", "c_allreduce_avg w@GRAD", "c_wait_comm w@GRAD"));
}

DenseReduction AllSteps(DType comm_dtype) {
  DenseReduction reduction;
  reduction.clip = 1.0f;
  reduction.factor_before = 0.25f;
  reduction.factor_after = 0.5f;
  reduction.comm_dtype = comm_dtype;
  return reduction;
}

// Products are in the wider of both types.
TEST(DenseReducer, NarrowerTypeIsCastAfterTheFirstProductAndBeforeTheSecond) {
  EXPECT_THAT(Written(kOne, AllSteps(DType::kFloat16)),
              ElementsAre("clip w@GRAD", "scale w@GRAD", "cast w@GRAD@FP16",
                          "c_wait_compute w@GRAD@FP16", "c_allreduce_sum w@GRAD@FP16",
                          "c_wait_comm w@GRAD@FP16", "cast w@GRAD", "scale w@GRAD"));
}

TEST(DenseReducer, WiderTypeIsCastBeforeTheFirstProductAndAfterTheSecond) {
  EXPECT_THAT(Written(kOne, AllSteps(DType::kFloat64)),
              ElementsAre("clip w@GRAD", "cast w@GRAD@FP64", "scale w@GRAD@FP64",
                          "c_wait_compute w@GRAD@FP64", "c_allreduce_sum w@GRAD@FP64",
                          "c_wait_comm w@GRAD@FP64", "scale w@GRAD@FP64", "cast w@GRAD"));
}

TEST(DenseReducer, RowsAreWidened) {
  const std::string rows = absl::StrCat("var w@GRAD : selected_rows<fp16[2, 2]>\n", kOne);
  DenseReduction wide;
  wide.comm_dtype = DType::kFloat32;
  wide.factor_after = 0.5f;
  EXPECT_THAT(
      Written(rows, wide),
      ElementsAre("cast w@GRAD@FP32", "c_wait_compute w@GRAD@FP32", "c_allreduce_sum w@GRAD@FP32",
                  "c_wait_comm w@GRAD@FP32", "scale w@GRAD@FP32", "cast w@GRAD"));
}

TEST(DenseReducer, RowsAreNotNarrowed) {
  const std::string rows = absl::StrCat("var w@GRAD : selected_rows<fp32[2, 2]>\n", kOne);
  DenseReduction half;
  half.comm_dtype = DType::kFloat16;
  EXPECT_THAT(Written(rows, half),
              ElementsAre("c_wait_compute w@GRAD", "c_allreduce_sum w@GRAD", "c_wait_comm w@GRAD"));
}

TEST(DenseReducer, BucketThatIsCastHasASecondBuffer) {
  DenseReduction half;
  half.comm_dtype = DType::kFloat16;
  EXPECT_THAT(
      Written(kTwo, half, "count"),
      ElementsAre("coalesce_tensor fused_gradient_0", "coalesce_tensor fused_gradient_0@FP16",
                  "cast fused_gradient_0@FP16", "c_wait_compute fused_gradient_0@FP16",
                  "c_allreduce_sum fused_gradient_0@FP16", "c_wait_comm fused_gradient_0@FP16",
                  "cast fused_gradient_0"));
}

TEST(DenseReducer, GroupTravelsInOneOpWithoutABuffer) {
  DenseReduction groups;
  groups.launches_groups = true;
  EXPECT_THAT(
      Written(kTwo, groups, "count"),
      ElementsAre("c_wait_compute v@GRAD", "c_allreduce_xsum v@GRAD", "c_wait_comm v@GRAD"));
}

}  // namespace
}  // namespace weft::testing
