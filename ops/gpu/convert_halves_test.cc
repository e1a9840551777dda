// The conversions of half precision, compiled for the host.
#include "ops/gpu/convert_halves.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/testing/test.h"
#include "ops/kernel_util.h"
#include "ops/tensor.h"

namespace weft::testing {
namespace {

absl::Status Convert(const Tensor& from, Tensor* to) {
  return ConvertHalves(KernelContext(), from.dtype(), from.raw(), to->dtype(), to->raw(),
                       from.size());
}

// Every number of half precision; and numbers between two of them, which are rounded.
TEST(ConvertHalves, GivesTheBitsOfTheHost) {
  constexpr int64_t kCount = 1 << 16;
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    SCOPED_TRACE(DTypeName(half));
    Tensor halves, wide, rounded;
    halves.Resize(half, {kCount});
    wide.Resize(DType::kFloat32, {kCount});
    rounded.Resize(half, {kCount});
    for (int64_t i = 0; i < kCount; ++i) {
      static_cast<uint16_t*>(halves.raw())[i] = static_cast<uint16_t>(i);
    }
    Tensor expected_wide = wide, expected_rounded = rounded;
    WEFT_ASSERT_OK(ConvertFloats("", halves, "", &expected_wide));
    WEFT_ASSERT_OK(Convert(halves, &wide));
    EXPECT_EQ(std::memcmp(wide.raw(), expected_wide.raw(), wide.bytes()), 0);
    for (const uint32_t lower : {0x0000U, 0x0fffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U}) {
      for (int64_t i = 0; i < kCount; ++i) {
        const uint32_t bits = static_cast<uint32_t>(i) << 16 | lower;
        std::memcpy(wide.data<float>() + i, &bits, sizeof(bits));
      }
      WEFT_ASSERT_OK(ConvertFloats("", wide, "", &expected_rounded));
      WEFT_ASSERT_OK(Convert(wide, &rounded));
      EXPECT_EQ(std::memcmp(rounded.raw(), expected_rounded.raw(), rounded.bytes()), 0) << lower;
    }
  }
}

TEST(ConvertHalves, OtherTypesAreErrors) {
  Tensor x, y;
  x.Resize(DType::kFloat64, {1});
  y.Resize(DType::kFloat16, {1});
  EXPECT_THAT(Convert(x, &y), StatusIs(absl::StatusCode::kInvalidArgument,
                                       "expected half precision and fp32, found fp64 and fp16"));
}

}  // namespace
}  // namespace weft::testing
