#include <cstdint>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

InferenceCase TopK(const std::string& x, const std::string& residual, int64_t k) {
  return InferenceCase("sparsify_topk")
      .In("X", {x, "fp32[4]"})
      .In("Residual", {residual, "fp32[4]"})
      .Out("Out")
      .Out("ResidualOut", 2)
      .Attr("k", k);
}

TEST(SparsifyTest, RowsAreOfAllElements) {
  EXPECT_THAT(TopK("fp32[2, 3]", "fp32[2, 3]", 10).Infer(),
              IsOkAndHolds("Out: rows fp32[10, 1], ResidualOut: fp32[2, 3] | fp32[4]"));
  EXPECT_THAT(Infer("sparsify_threshold(X: fp32[-1]) -> Out", {{"threshold", 0.5F}}),
              IsOkAndHolds("Out: rows fp32[-1, 1]"));
}

TEST(SparsifyTest, WrongTypesAreErrors) {
  const auto error = [](const std::string& text) { return IsInvalidArgument(text); };
  EXPECT_THAT(TopK("fp16[2, 3]", "fp16[2, 3]", 1).Infer(),
              error("input X (X_0): expected a dense fp32 tensor, found fp16[2, 3]"));
  EXPECT_THAT(TopK("rows fp32[2, 3]", "fp32[2, 3]", 1).Infer(), error("a dense fp32 tensor"));
  EXPECT_THAT(TopK("fp32[2, 3]", "fp32[3, 2]", 1).Infer(), error("expected fp32[2, 3] as X"));
  EXPECT_THAT(TopK("fp32[2, 3]", "fp32[2, 3]", 11).Infer(), error("attribute k"));
  EXPECT_THAT(Infer("sparsify_threshold(X: fp32[2]) -> Out", {{"threshold", -1.0F}}),
              error("attribute threshold"));
  EXPECT_THAT(Infer("sparsify_topk(X: fp32[2], Residual: fp32[2]) -> Out", {{"k", int64_t{1}}}),
              error("expected Residual and ResidualOut, or neither"));
}

InferenceCase Densify(const std::string& x, const std::vector<int64_t>& ranks,
                      const std::vector<int64_t>& shapes) {
  return InferenceCase("densify")
      .In("X", {x})
      .Out("Out", 2)
      .Attr("concated_ranks", ranks)
      .Attr("concated_shapes", shapes);
}

TEST(DensifyTest, ShapesAreThoseOfTheAttributes) {
  EXPECT_THAT(Densify("rows fp32[6, 1]", {2, 0}, {1, 5}).Infer(),
              IsOkAndHolds("Out: fp32[1, 5] | fp32[]"));
}

TEST(DensifyTest, ContradictionsAreErrors) {
  const auto error = [](const std::string& text) { return IsInvalidArgument(text); };
  EXPECT_THAT(Densify("rows fp32[7, 1]", {2, 0}, {1, 5}).Infer(), error("rows fp32[6, 1]"));
  EXPECT_THAT(Densify("fp32[6, 1]", {2, 0}, {1, 5}).Infer(), error("rows fp32[6, 1]"));
  EXPECT_THAT(Densify("rows fp32[6, 1]", {2}, {1, 6}).Infer(), error("concated_ranks"));
  EXPECT_THAT(Densify("rows fp32[6, 1]", {2, 1}, {1, 5}).Infer(), error("concated_ranks"));
  EXPECT_THAT(Densify("rows fp32[6, 1]", {2, -1}, {1, 5}).Infer(), error("concated_ranks"));
  EXPECT_THAT(Densify("rows fp32[6, 1]", {1, 0}, {1, 5}).Infer(), error("concated_ranks"));
  EXPECT_THAT(Densify("rows fp32[6, 1]", {2, 0}, {-1, 5}).Infer(), error("concated_shapes"));
}

}  // namespace
}  // namespace weft::testing
