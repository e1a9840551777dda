#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

struct SampleLogitsTest : public ::testing::Test {
  Tensor logits = Floats({2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  Tensor labels = Int64s({2, 1}, {4, 1});
  Tensor samples, probabilities, out, places;
  RandomState random = RandomState::Seeded(1, 0);

  absl::Status Run(AttrValues attrs) {
    return RunOpOn("sample_logits", {{"Labels", {&labels}}, {"Logits", {&logits}}}, attrs,
                   {{"Probabilities", {&probabilities}},
                    {"SampledLabels", {&places}},
                    {"SampledLogits", {&out}},
                    {"Samples", {&samples}}},
                   &random);
  }
};

TEST_F(SampleLogitsTest, DrawsDifferentClassesForAllRows) {
  WEFT_ASSERT_OK(Run({{"num_samples", 3}, {"remove_accidental_hits", false}}));
  const std::vector<int64_t> chosen = Values<int64_t>(samples);
  EXPECT_EQ(chosen[0], 4);
  EXPECT_EQ(chosen[4], 1);
  EXPECT_EQ(std::vector<int64_t>(chosen.begin() + 1, chosen.begin() + 4),
            std::vector<int64_t>(chosen.begin() + 5, chosen.end()));
  EXPECT_EQ(std::set<int64_t>(chosen.begin() + 1, chosen.begin() + 4).size(), 3);
  EXPECT_THAT(Values<int64_t>(places), ElementsAre(0, 0));
  for (int i = 0; i < 8; ++i) {
    const float p = probabilities.data<float>()[i];
    EXPECT_GT(p, 0);
    const float logit = logits.data<float>()[i / 4 * 5 + chosen[i]];
    EXPECT_NEAR(out.data<float>()[i], logit - std::log(p), 1e-5);
  }
}

TEST_F(SampleLogitsTest, SampleThatIsALabelIsFarBelow) {
  WEFT_ASSERT_OK(Run({{"num_samples", 4}}));  // all but the last class, which is never drawn
  for (int i = 6; i < 10; ++i) {
    const bool is_hit = samples.data<int64_t>()[i] == 1;
    EXPECT_EQ(out.data<float>()[i] < -1e19, is_hit);
  }
}

TEST_F(SampleLogitsTest, ASeedGivesTheSameDraws) {
  WEFT_ASSERT_OK(Run({{"num_samples", 2}, {"seed", 5}}));
  const std::vector<int64_t> first = Values<int64_t>(samples);
  WEFT_ASSERT_OK(Run({{"num_samples", 2}, {"seed", 5}}));
  EXPECT_EQ(Values<int64_t>(samples), first);
}

TEST_F(SampleLogitsTest, ClassesMustSuffice) {
  EXPECT_THAT(Run({{"num_samples", 5}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("num_samples: expected fewer than 5 classes, found 5")));
}

}  // namespace
}  // namespace weft::testing
