#include <algorithm>
#include <string>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"
#include "ops/formulas/philox.h"

namespace weft::testing {
namespace {

const AttrValues kUpscale = {{"dropout_prob", 0.4f},
                             {"dropout_implementation", std::string("upscale_in_train")}};

AttrValues WithSeed(AttrValues attrs, int seed) {
  attrs.push_back({"fix_seed", true});
  attrs.push_back({"seed", seed});
  return attrs;
}

std::vector<uint8_t> Mask(const AttrValues& attrs, RandomState* random, int64_t size = 24) {
  auto out = RunOp("dropout", {{"X", {Floats({size}, std::vector<float>(size, 1))}}}, attrs,
                   {{"Out", 1}, {"Mask", 1}}, random);
  EXPECT_THAT(out, IsOk());
  const std::vector<uint8_t> mask = Values<uint8_t>((*out)["Mask"][0]);
  const std::vector<float> values = Values<float>((*out)["Out"][0]);
  for (size_t i = 0; i < mask.size(); ++i) EXPECT_EQ(values[i] != 0, mask[i] == 1);
  return mask;
}

// What Paddle 2.6.2 draws on a CPU.
TEST(DropoutTest, AFixedSeedGivesPaddlesMaskInEveryStep) {
  const AttrValues attrs = WithSeed(kUpscale, 7);
  for (int step = 0; step < 2; ++step) {
    EXPECT_THAT(Mask(attrs, nullptr), ElementsAreArray({1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 1,
                                                        0, 0, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0}));
  }
}

TEST(DropoutTest, RanksDrawFromSeparateGenerators) {
  RandomState rank0 = RandomState::Seeded(3, 0), again = RandomState::Seeded(3, 0);
  RandomState rank1 = RandomState::Seeded(3, 1);
  const std::vector<uint8_t> first = Mask(kUpscale, &rank0);
  EXPECT_EQ(Mask(kUpscale, &again), first);
  EXPECT_NE(Mask(kUpscale, &rank0), first);  // the next step
  EXPECT_NE(Mask(kUpscale, &rank1), first);
}

// Every op takes a sequence; an element's number is its place in that.
TEST(DropoutTest, PhiloxDrawsElementsByTheirPlace) {
  RandomState random = RandomState::Seeded(3, 0);
  for (const uint64_t sequence : {0, 1}) {
    const std::vector<uint8_t> mask = Mask(kUpscale, &random, 11);  // not whole blocks
    for (uint64_t i = 0; i < mask.size(); ++i) {
      const double number = formulas::Philox(random.dropout.key, sequence, i / 4).words[i % 4];
      EXPECT_EQ(mask[i], number / 4294967296.0 >= 0.4) << i;
    }
  }
}

TEST(DropoutTest, AboutThatPartIsDropped) {
  RandomState random = RandomState::Seeded(3, 0);
  const std::vector<uint8_t> mask = Mask(kUpscale, &random, 10000);
  EXPECT_NEAR(std::count(mask.begin(), mask.end(), 0), 4000, 200);
}

TEST(DropoutTest, ATestScalesWhereTrainingDoesNot) {
  const Tensor x = Floats({2}, {1, 2});
  for (const bool downgrades : {false, true}) {
    const std::string implementation = downgrades ? "downgrade_in_infer" : "upscale_in_train";
    const std::vector<float> expected = {downgrades ? 0.5f : 1.0f, downgrades ? 1.0f : 2.0f};
    const AttrValues attrs = {
        {"dropout_prob", 0.5f}, {"is_test", true}, {"dropout_implementation", implementation}};
    WEFT_ASSERT_OK_AND_ASSIGN(auto out,
                              RunOp("dropout", {{"X", {x}}}, attrs, {{"Out", 1}, {"Mask", 1}}));
    EXPECT_EQ(Values<float>(out["Out"][0]), expected);
    EXPECT_THAT(Values<uint8_t>(out["Mask"][0]), Each(1));
    WEFT_ASSERT_OK_AND_ASSIGN(auto gradient,
                              RunOp("dropout_grad", {{"Out@GRAD", {x}}}, attrs, {{"X@GRAD", 1}}));
    EXPECT_EQ(Values<float>(gradient["X@GRAD"][0]), expected);
  }
}

TEST(DropoutTest, SeedMayBeATensor) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("dropout", {{"X", {Floats({3}, {1, 1, 1})}}, {"Seed", {MakeTensor<int32_t>({1}, {7})}}},
            kUpscale, {{"Out", 1}, {"Mask", 1}}));
  EXPECT_THAT(Values<uint8_t>(out["Mask"][0]), ElementsAre(1, 1, 0));
}

TEST(DropoutTest, BadAttributesAreErrors) {
  const SlotTensors inputs = {{"X", {Floats({1}, {1})}}};
  EXPECT_THAT(RunOp("dropout", inputs, {{"dropout_prob", 1.5f}}, {{"Out", 1}}),
              IsInvalidArgument("attribute dropout_prob: expected 0 to 1, found 1.5"));
  EXPECT_THAT(
      RunOp("dropout", inputs, {{"dropout_implementation", std::string("none")}}, {{"Out", 1}}),
      IsInvalidArgument("attribute dropout_implementation"));
}

}  // namespace
}  // namespace weft::testing
