// The 16-bit floating-point types of tensors. They convert implicitly to and from single precision,
// which does the arithmetic.
#ifndef WEFT_OPS_FLOAT16_H_
#define WEFT_OPS_FLOAT16_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/host_device.h"

namespace weft {

// IEEE half precision. Rounds to nearest, ties to even; numbers from 65520 on become infinite.
class Float16 {
 public:
  Float16() = default;
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  WEFT_HOST_DEVICE Float16(T value) : bits_(Round(value)) {}  // NOLINT: implicit

  static Float16 FromBits(uint16_t bits) {
    Float16 result;
    result.bits_ = bits;
    return result;
  }
  uint16_t bits() const { return bits_; }

  WEFT_HOST_DEVICE operator float() const {  // NOLINT: implicit
    const uint32_t sign = (bits_ & 0x8000u) << 16;
    const uint32_t exponent = bits_ >> 10 & 0x1f, digits = bits_ & 0x3ff;
    if (exponent == 0) {  // zero, and numbers below 2^-14 in units of 2^-24
      const float magnitude = static_cast<float>(digits) * 0x1p-24f;
      return sign != 0 ? -magnitude : magnitude;
    }
    const uint32_t wide = exponent == 0x1f ? 0x7f800000u : (exponent + 112) << 23;
    const uint32_t bits = sign | wide | digits << 13;
    float result;
    std::memcpy(&result, &bits, sizeof(result));
    return result;
  }

 private:
  WEFT_HOST_DEVICE static uint16_t Round(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    const uint16_t sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00;   // not a number
    if (bits >= 0x477ff000) return sign | 0x7c00;  // 65520 and more
    if (bits < 0x38800000) {                       // below 2^-14: in units of 2^-24
      float magnitude;
      std::memcpy(&magnitude, &bits, sizeof(magnitude));
      return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
    }
    // A carry out of the digits increments the exponent.
    bits += 0xfff + (bits >> 13 & 1);
    return sign | static_cast<uint16_t>((bits - 0x38000000) >> 13);
  }
  WEFT_HOST_DEVICE static uint16_t Round(double value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return sign | 0x7e00;
    const double magnitude = std::fabs(value);
    if (magnitude >= 65520) return sign | 0x7c00;
    // The value in units of its last place; from 2^-14 down that place is 2^-24.
    const int exponent = magnitude == 0 ? -24 : std::ilogb(magnitude);
    const int unit = exponent < -14 ? -24 : exponent - 10;
    const auto digits = static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
    return sign | static_cast<uint16_t>((static_cast<uint16_t>(unit + 24) << 10) + digits);
  }
  template <typename T>
  WEFT_HOST_DEVICE static uint16_t Round(T value) {
    return Round(static_cast<double>(value));
  }

  uint16_t bits_;
};

// The upper half of a single-precision number, rounded to nearest, ties to even.
class BFloat16 {
 public:
  BFloat16() = default;
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  WEFT_HOST_DEVICE BFloat16(T value)
      : bits_(Round(static_cast<float>(value))) {}  // NOLINT: implicit

  static BFloat16 FromBits(uint16_t bits) {
    BFloat16 result;
    result.bits_ = bits;
    return result;
  }
  uint16_t bits() const { return bits_; }

  WEFT_HOST_DEVICE operator float() const {  // NOLINT: implicit
    const uint32_t bits = uint32_t{bits_} << 16;
    float result;
    std::memcpy(&result, &bits, sizeof(result));
    return result;
  }

 private:
  WEFT_HOST_DEVICE static uint16_t Round(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }

  uint16_t bits_;
};

}  // namespace weft

#endif  // WEFT_OPS_FLOAT16_H_
