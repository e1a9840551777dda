// What the vectors of op_vectors_test leave out.
#include <cstdint>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

// x of three zeros, with `values` put at the indices `numbers`.
absl::StatusOr<Tensor> IndexPut(const std::vector<int64_t>& numbers,
                                const std::vector<float>& values) {
  const int64_t n = static_cast<int64_t>(numbers.size());
  auto out = RunOp("index_put",
                   {{"indices", {MakeTensor<int64_t>({n}, numbers)}},
                    {"value", {Floats({static_cast<int64_t>(values.size())}, values)}},
                    {"x", {Floats({3}, {0, 0, 0})}}},
                   {}, {{"out", 1}});
  if (!out.ok()) return out.status();
  return (*out)["out"][0];
}

TEST(IndexPutTest, LastValueOfAPlaceCounts) {
  WEFT_ASSERT_OK_AND_ASSIGN(Tensor out, IndexPut({1, -1, 1}, {4, 5, 6}));
  EXPECT_THAT(Values<float>(out), ElementsAre(0, 6, 5));
}

TEST(IndexPutTest, GradientOfAReplacedValueIsZero) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto grads, RunOp("index_put_grad",
                                              {{"indices", {MakeTensor<int64_t>({3}, {1, 2, 1})}},
                                               {"out@GRAD", {Floats({3}, {7, 8, 9})}},
                                               {"value", {Floats({3}, {0, 0, 0})}},
                                               {"x", {Floats({3}, {0, 0, 0})}}},
                                              {}, {{"value@GRAD", 1}, {"x@GRAD", 1}}));
  EXPECT_THAT(Values<float>(grads["value@GRAD"][0]), ElementsAre(0, 9, 8));
  EXPECT_THAT(Values<float>(grads["x@GRAD"][0]), ElementsAre(7, 0, 0));
}

TEST(IndexPutTest, MoreValuesThanPlacesAndPlacesOutsideAreErrors) {
  EXPECT_THAT(IndexPut({1}, {4, 5}), IsInvalidArgument("input value: expected"));
  EXPECT_THAT(IndexPut({3}, {4}), IsInvalidArgument("3 at position 0"));
}

}  // namespace
}  // namespace weft::testing
