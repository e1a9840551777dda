// Conversions of arrays between half precision and fp32, several elements at a time, with the bits
// of Float16 and BFloat16. Long arrays are divided among the threads of the rank.
#ifndef WEFT_OPS_HALF_ARRAYS_H_
#define WEFT_OPS_HALF_ARRAYS_H_

#include <cstdint>
#include <type_traits>

#include "ops/float16.h"

namespace weft {

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// Whether there is a ConvertArray.
template <typename From, typename To>
constexpr bool kConvertsArrays = (std::is_same_v<From, float> && kIsHalf<To>) ||
                                 (kIsHalf<From> && std::is_same_v<To, float>);

void ConvertArray(const Float16* from, float* to, int64_t n);
void ConvertArray(const BFloat16* from, float* to, int64_t n);
void ConvertArray(const float* from, Float16* to, int64_t n);
void ConvertArray(const float* from, BFloat16* to, int64_t n);

}  // namespace weft

#endif  // WEFT_OPS_HALF_ARRAYS_H_
