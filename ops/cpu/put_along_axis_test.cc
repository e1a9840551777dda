// What the vectors of op_vectors_test leave out: values at one place, zeros in products, integers,
// errors.
#include <cstdint>
#include <string>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Lists = std::vector<std::vector<float>>;

SlotTensors Inputs(const std::vector<float>& input, const std::vector<float>& values) {
  return {{"Index", {MakeTensor<int64_t>({2}, {1, 1})}},
          {"Input", {Floats({3}, input)}},
          {"Value", {Floats({2}, values)}}};
}

// Puts two values at index 1 and returns Result, Input@GRAD and Value@GRAD.
Lists PutTwice(const std::string& reduce, bool include_self, const std::vector<float>& values,
               const std::vector<float>& input = {1, 2, 3}) {
  const AttrValues attrs = {{"Reduce", reduce}, {"Include_self", include_self}};
  SlotTensors inputs = Inputs(input, values);
  auto out = RunOp("put_along_axis", inputs, attrs, {{"Result", 1}});
  WEFT_EXPECT_OK(out.status());
  if (!out.ok()) return {};
  inputs.push_back({"Result", {(*out)["Result"][0]}});
  inputs.push_back({"Result@GRAD", {Floats({3}, {10, 20, 30})}});
  auto grads = RunOp("put_along_axis_grad", inputs, attrs, {{"Input@GRAD", 1}, {"Value@GRAD", 1}});
  WEFT_EXPECT_OK(grads.status());
  if (!grads.ok()) return {};
  return {Values<float>((*out)["Result"][0]), Values<float>((*grads)["Input@GRAD"][0]),
          Values<float>((*grads)["Value@GRAD"][0])};
}

TEST(PutAlongAxisTest, TheLastElementStaysAndHasTheGradient) {
  EXPECT_THAT(PutTwice("assign", true, {5, 6}),
              ElementsAre(ElementsAre(1, 6, 3), ElementsAre(10, 0, 30), ElementsAre(0, 20)));
}

TEST(PutAlongAxisTest, AddedElementsHaveTheGradientOfTheSum) {
  EXPECT_THAT(PutTwice("add", true, {5, 6}),
              ElementsAre(ElementsAre(1, 13, 3), ElementsAre(10, 20, 30), ElementsAre(20, 20)));
  EXPECT_THAT(PutTwice("add", false, {5, 6}),
              ElementsAre(ElementsAre(1, 11, 3), ElementsAre(10, 0, 30), ElementsAre(20, 20)));
}

TEST(PutAlongAxisTest, AMeanDividesByTheNumberOfItsValues) {
  EXPECT_THAT(PutTwice("mean", true, {5, 8}),
              ElementsAre(ElementsAre(1, 5, 3), ElementsAre(10, 20.0F / 3, 30),
                          ElementsAre(20.0F / 3, 20.0F / 3)));
  EXPECT_THAT(PutTwice("mean", false, {5, 8}),
              ElementsAre(ElementsAre(1, 6.5F, 3), ElementsAre(10, 0, 30), ElementsAre(10, 10)));
}

TEST(PutAlongAxisTest, TheGradientOfAFactorIsTheProductOfTheOthers) {
  EXPECT_THAT(PutTwice("mul", true, {5, 4}),
              ElementsAre(ElementsAre(1, 40, 3), ElementsAre(10, 400, 30), ElementsAre(160, 200)));
  EXPECT_THAT(PutTwice("multiply", false, {5, 0}),
              ElementsAre(ElementsAre(1, 0, 3), ElementsAre(10, 0, 30), ElementsAre(0, 100)));
  EXPECT_THAT(PutTwice("mul", true, {0, 0}),
              ElementsAre(ElementsAre(1, 0, 3), ElementsAre(10, 0, 30), ElementsAre(0, 0)));
}

TEST(PutAlongAxisTest, EqualExtremaShareTheGradient) {
  EXPECT_THAT(PutTwice("amax", true, {2, 1}),
              ElementsAre(ElementsAre(1, 2, 3), ElementsAre(10, 10, 30), ElementsAre(10, 0)));
  EXPECT_THAT(PutTwice("amin", true, {5, 2}),
              ElementsAre(ElementsAre(1, 2, 3), ElementsAre(10, 10, 30), ElementsAre(0, 10)));
  EXPECT_THAT(PutTwice("amin", false, {2, 4}),
              ElementsAre(ElementsAre(1, 2, 3), ElementsAre(10, 0, 30), ElementsAre(20, 0)));
}

TEST(PutAlongAxisTest, MeansOfIntegersAreTruncated) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                            RunOp("put_along_axis",
                                  {{"Index", {MakeTensor<int64_t>({2}, {1, 0})}},
                                   {"Input", {MakeTensor<int64_t>({3}, {1, -2, 3})}},
                                   {"Value", {MakeTensor<int64_t>({2}, {-5, 2})}}},
                                  {{"Reduce", "mean"}, {"Include_self", true}}, {{"Result", 1}}));
  EXPECT_THAT(Values<int64_t>(out["Result"][0]), ElementsAre(1, -3, 3));
}

TEST(PutAlongAxisTest, AnotherReductionIsAnError) {
  EXPECT_THAT(
      RunOp("put_along_axis", Inputs({1, 2, 3}, {5, 6}), {{"Reduce", "max"}}, {{"Result", 1}}),
      IsInvalidArgument("expected assign, add, mul, multiply, mean, amin or amax, found max"));
}

}  // namespace
}  // namespace weft::testing
