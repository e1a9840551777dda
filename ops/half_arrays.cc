#include "ops/half_arrays.h"

#include <cstring>

#include "ops/threads.h"
#include "ops/vectorize.h"

#if WEFT_HAS_AVX2_LOOPS
#include <immintrin.h>
#endif

namespace weft {
namespace {

// The formulas of Float16, with choices between values instead of branches, which have no vectors.
// Signed, as comparisons of vectors are.

int32_t BitsOf(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
float FloatOf(int32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

float FromHalf(uint16_t half) {
  const int32_t magnitude = half & 0x7fff, exponent = magnitude >> 10;
  // Those of infinity and not-a-numbers become 255.
  const int32_t offset = exponent == 0x1f ? 224 << 23 : 112 << 23;
  const int32_t normal = (magnitude << 13) + offset;
  const int32_t small = BitsOf(static_cast<float>(magnitude) * 0x1p-24f);
  const auto sign = static_cast<int32_t>(static_cast<uint32_t>(half & 0x8000) << 16);
  return FloatOf(sign | (exponent == 0 ? small : normal));
}

uint16_t ToHalf(float value) {
  const int32_t bits = BitsOf(value), magnitude = bits & 0x7fffffff;
  // The last place of numbers from 0.5 on is 2^-24, as of halves below 2^-14.
  const int32_t small = BitsOf(FloatOf(magnitude) + 0.5f) - 0x3f000000;
  const auto rounded = static_cast<uint32_t>(magnitude) + 0xfff + (magnitude >> 13 & 1);
  const auto normal = static_cast<int32_t>((rounded - 0x38000000) >> 13);
  int32_t half = magnitude < 0x38800000 ? small : normal;
  half = magnitude >= 0x477ff000 ? 0x7c00 : half;
  half = magnitude > 0x7f800000 ? 0x7e00 : half;
  return static_cast<uint16_t>(half | (bits >> 16 & 0x8000));
}

uint16_t ToBFloat16(float value) {
  const int32_t bits = BitsOf(value), upper = bits >> 16;
  const auto rounded = static_cast<uint32_t>(bits) + 0x7fff + (upper & 1);
  const int32_t number = static_cast<int32_t>(rounded >> 16);
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? upper | 0x40 : number);
}

void ConvertPart(const Float16* from, float* to, int64_t n) {
  ForEach<float>(n, [=](int64_t i) { to[i] = FromHalf(from[i].bits()); });
}
void ConvertPart(const float* from, Float16* to, int64_t n) {
  ForEach<float>(n, [=](int64_t i) { to[i] = Float16::FromBits(ToHalf(from[i])); });
}

#if WEFT_HAS_AVX2_LOOPS
// The instructions for halves change the digits of not-a-numbers: eight elements with one are
// converted by the formulas.
constexpr int64_t kLanes = 8;

[[gnu::target("avx2,f16c")]] void ConvertWithF16c(const Float16* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    const __m256 floats = _mm256_cvtph_ps(halves);
    _mm256_storeu_ps(to + i, floats);
    const int nans = _mm256_movemask_ps(_mm256_cmp_ps(floats, floats, _CMP_UNORD_Q));
    if (nans == 0) continue;
    for (int64_t k = i; k < i + kLanes; ++k) to[k] = FromHalf(from[k].bits());
  }
  for (; i < n; ++i) to[i] = FromHalf(from[i].bits());
}

[[gnu::target("avx2,f16c")]] void ConvertWithF16c(const float* from, Float16* to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256 floats = _mm256_loadu_ps(from + i);
    const __m128i halves = _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
    const int nans = _mm256_movemask_ps(_mm256_cmp_ps(floats, floats, _CMP_UNORD_Q));
    if (nans == 0) continue;
    for (int64_t k = i; k < i + kLanes; ++k) to[k] = Float16::FromBits(ToHalf(from[k]));
  }
  for (; i < n; ++i) to[i] = Float16::FromBits(ToHalf(from[i]));
}
#endif

template <typename From, typename To>
void ConvertHalves(const From* from, To* to, int64_t n) {
#if WEFT_HAS_AVX2_LOOPS
  if (RunsAvx2Loops() && __builtin_cpu_supports("f16c")) {
    return ForEachPartIfLong(n, n, 64, [=](int64_t begin, int64_t end) {
      ConvertWithF16c(from + begin, to + begin, end - begin);
    });
  }
#endif
  ConvertPart(from, to, n);
}

}  // namespace

void ConvertArray(const Float16* from, float* to, int64_t n) { ConvertHalves(from, to, n); }
void ConvertArray(const float* from, Float16* to, int64_t n) { ConvertHalves(from, to, n); }
void ConvertArray(const BFloat16* from, float* to, int64_t n) {
  ForEach<float>(n, [=](int64_t i) { to[i] = from[i]; });
}
void ConvertArray(const float* from, BFloat16* to, int64_t n) {
  ForEach<float>(n, [=](int64_t i) { to[i] = BFloat16::FromBits(ToBFloat16(from[i])); });
}

}  // namespace weft
