#include "ops/formulas/philox.h"

#include "base/testing/test.h"

namespace weft::formulas {
namespace {

using ::testing::ElementsAre;

// The vectors that the authors of the generator publish (Random123, kat_vectors).
TEST(PhiloxTest, GivesThePublishedNumbers) {
  EXPECT_THAT(Philox(0, 0, 0).words, ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  constexpr uint64_t kOnes = ~uint64_t{0};
  EXPECT_THAT(Philox(kOnes, kOnes, kOnes).words,
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(Philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88).words,
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

}  // namespace
}  // namespace weft::formulas
