// Conversions of half precision on the device: for .cu files only.
#ifndef WEFT_OPS_GPU_CONVERT_HALVES_H_
#define WEFT_OPS_GPU_CONVERT_HALVES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/float16.h"
#include "ops/gpu/launch.h"
#include "ops/schema/tensor_type.h"

namespace weft {

template <typename From, typename To>
struct ConvertElement {
  const From* from;
  To* to;
  WEFT_DEVICE void operator()(int64_t i) const { to[i] = static_cast<To>(from[i]); }
};

// As Memory::ConvertHalves.
inline absl::Status ConvertHalves(const KernelContext& ctx, DType from_type, const void* from,
                                  DType to_type, void* to, int64_t count) {
  const auto convert = [&](auto from_zero, auto to_zero) {
    using From = decltype(from_zero);
    using To = decltype(to_zero);
    return ForEach(ctx, count,
                   ConvertElement<From, To>{static_cast<const From*>(from), static_cast<To*>(to)});
  };
  const auto is = [&](DType one, DType other) { return from_type == one && to_type == other; };
  if (is(DType::kFloat16, DType::kFloat32)) return convert(Float16(), float());
  if (is(DType::kBFloat16, DType::kFloat32)) return convert(BFloat16(), float());
  if (is(DType::kFloat32, DType::kFloat16)) return convert(float(), Float16());
  if (is(DType::kFloat32, DType::kBFloat16)) return convert(float(), BFloat16());
  return absl::InvalidArgumentError(absl::StrCat("expected half precision and fp32, found ",
                                                 DTypeName(from_type), " and ",
                                                 DTypeName(to_type)));
}

}  // namespace weft

#endif  // WEFT_OPS_GPU_CONVERT_HALVES_H_
