#include "ops/half_arrays.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <typename Half>
void ExpectBitsOfAllHalves() {
  std::vector<Half> halves;
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    halves.push_back(Half::FromBits(static_cast<uint16_t>(bits)));
  }
  std::vector<float> floats(halves.size());
  ConvertArray(halves.data(), floats.data(), static_cast<int64_t>(halves.size()));
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(BitsOf(floats[i]), BitsOf(static_cast<float>(halves[i]))) << "bits " << i;
  }
}

// All upper halves of the bits, with lower ones around where roundings change.
template <typename Half>
void ExpectBitsOfRoundedFloats() {
  std::vector<float> floats;
  for (uint32_t upper = 0; upper <= 0xffff; ++upper) {
    for (uint32_t lower : {0x0u, 0x1u, 0xfffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x3001u, 0x7fffu,
                           0x8000u, 0x8001u, 0xffffu}) {
      floats.push_back(FloatOf(upper << 16 | lower));
    }
  }
  std::vector<Half> halves(floats.size());
  ConvertArray(floats.data(), halves.data(), static_cast<int64_t>(floats.size()));
  for (size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(halves[i].bits(), Half(floats[i]).bits()) << "bits " << BitsOf(floats[i]);
  }
}

TEST(HalfArrays, HaveTheBitsOfSingleConversions) {
  ExpectBitsOfAllHalves<Float16>();
  ExpectBitsOfAllHalves<BFloat16>();
  ExpectBitsOfRoundedFloats<Float16>();
  ExpectBitsOfRoundedFloats<BFloat16>();
}

TEST(HalfArrays, NothingIsWrittenBehindTheEnd) {
  const std::vector<float> floats(11, 1.5f);
  std::vector<Float16> halves(12, Float16(7.0f));
  ConvertArray(floats.data(), halves.data(), 11);
  EXPECT_EQ(static_cast<float>(halves[10]), 1.5f);
  EXPECT_EQ(static_cast<float>(halves[11]), 7.0f);
}

}  // namespace
}  // namespace weft
