// What the vectors of op_vectors_test leave out.
#include <cstdint>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Puts [5, 6] at place 1, one after the other, and gives Result, Input@GRAD, Value@GRAD.
std::vector<std::vector<float>> PutTwice(const std::string& reduce) {
  const SlotTensors inputs = {{"Index", {MakeTensor<int64_t>({2}, {1, 1})}},
                              {"Input", {Floats({3}, {1, 2, 3})}},
                              {"Value", {Floats({2}, {5, 6})}}};
  auto out = RunOp("put_along_axis", inputs, {{"Reduce", reduce}}, {{"Result", 1}});
  SlotTensors grad_inputs = inputs;
  grad_inputs.push_back({"Result", {(*out)["Result"][0]}});
  grad_inputs.push_back({"Result@GRAD", {Floats({3}, {10, 20, 30})}});
  auto grads = RunOp("put_along_axis_grad", grad_inputs, {{"Reduce", reduce}},
                     {{"Input@GRAD", 1}, {"Value@GRAD", 1}});
  return {Values<float>((*out)["Result"][0]), Values<float>((*grads)["Input@GRAD"][0]),
          Values<float>((*grads)["Value@GRAD"][0])};
}

TEST(PutAlongAxisTest, TheLastElementStaysAndHasTheGradient) {
  EXPECT_THAT(PutTwice("assign"),
              ElementsAre(ElementsAre(1, 6, 3), ElementsAre(10, 0, 30), ElementsAre(0, 20)));
}

TEST(PutAlongAxisTest, AddedElementsHaveTheGradientOfTheSum) {
  EXPECT_THAT(PutTwice("add"),
              ElementsAre(ElementsAre(1, 13, 3), ElementsAre(10, 20, 30), ElementsAre(20, 20)));
}

// x of three zeros, with `values` put at `numbers`.
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
  EXPECT_THAT(IndexPut({1}, {4, 5}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input value: expected")));
  EXPECT_THAT(IndexPut({3}, {4}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("3 at position 0")));
}

}  // namespace
}  // namespace weft::testing
