// Columns of some images at a time give what those of all images give.
#include "ops/gpu/conv_products.h"

#include <vector>

#include "base/testing/test.h"
#include "ops/cpu/testing.h"
#include "ops/gpu/image_cases.h"

namespace weft::testing {
namespace {

ConvShape Shape(bool channels_last) {
  ConvShape shape;
  shape.source = {5, 3, 6, 5};
  shape.filter = {4, 3, 3, 2};
  shape.destination = {5, 4, 3, 5};
  shape.channels_last = channels_last;
  shape.windows.resize(2);
  shape.windows[0].size = 3;
  shape.windows[0].stride = 2;
  shape.windows[0].pad_begin = 1;
  shape.windows[1].size = 2;
  shape.windows[1].pad_begin = 1;
  return shape;
}

TEST(ConvProducts, PartsOfTheImagesGiveTheSame) {
  for (const bool channels_last : {false, true}) {
    const ConvShape shape = Shape(channels_last);
    const Tensor source = NumbersWithoutPattern(shape.source, 1);
    const Tensor filter = NumbersWithoutPattern(shape.filter, 2);
    const Tensor destination = NumbersWithoutPattern(shape.destination, 3);
    const auto *s = source.data<float>(), *f = filter.data<float>(), *d = destination.data<float>();
    const KernelContext ctx;
    const auto run = [&](int64_t column_bytes) {
      conv::Products products(/*tf32=*/false, column_bytes);
      Tensor of_source, of_filter, of_destination;
      of_source.Resize(DType::kFloat32, shape.source);
      of_filter.Resize(DType::kFloat32, shape.filter);
      of_destination.Resize(DType::kFloat32, shape.destination);
      WEFT_EXPECT_OK(products.Destination(ctx, shape, s, f, &of_destination));
      WEFT_EXPECT_OK(products.Source(ctx, shape, f, d, &of_source));
      WEFT_EXPECT_OK(products.Filter(ctx, shape, s, d, &of_filter));
      std::vector<float> all = Values<float>(of_destination);
      for (const Tensor* tensor : {&of_source, &of_filter}) {
        for (float value : Values<float>(*tensor)) all.push_back(value);
      }
      return all;
    };
    const std::vector<float> whole = run(conv::kColumnBytes);
    constexpr int64_t kImage = 3 * 5 * 18 * 4;  // positions, elements under the window, bytes
    for (int64_t bytes : {int64_t{1}, 2 * kImage, 3 * kImage}) {
      EXPECT_THAT(run(bytes), Pointwise(FloatNear(1e-5F), whole)) << bytes << " bytes";
    }
  }
}

}  // namespace
}  // namespace weft::testing
