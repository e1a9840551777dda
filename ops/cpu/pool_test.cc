// Pooling where Paddle's CPU kernels are not a reference.
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ints = std::vector<int32_t>;

// Out and X@GRAD, the latter by a gradient of ones, of an image fp32[1, 1, 2, 3] or fp32[1, 2, 3,
// 1].
struct Pooled {
  std::vector<float> out, gradient;
};
absl::StatusOr<Pooled> Pool(AttrValues attrs, bool quirks = false) {
  Tensor x = Floats({1, 1, 2, 3}, {1, 5, 2, 5, 3, 7}), out, dout, dx;
  for (const auto& attr : attrs) {
    if (attr.first == "data_format") x = Floats({1, 2, 3, 1}, {1, 5, 2, 5, 3, 7});
  }
  auto forward = OpRunner::Make("pool2d", {{"X", {&x}}}, attrs, {{"Out", {&out}}}, quirks);
  if (!forward.ok()) return forward.status();
  absl::Status status = forward->Run();
  if (!status.ok()) return status;
  dout = Floats(out.dims(), std::vector<float>(out.size(), 1));
  auto backward =
      OpRunner::Make("pool2d_grad", {{"X", {&x}}, {"Out", {&out}}, {"Out@GRAD", {&dout}}}, attrs,
                     {{"X@GRAD", {&dx}}}, quirks);
  if (!backward.ok()) return backward.status();
  status = backward->Run();
  if (!status.ok()) return status;
  return Pooled{Values<float>(out), Values<float>(dx)};
}

TEST(PoolTest, AdaptiveMaximaAreOfWindowsThatCoverTheImage) {
  const AttrValues attrs = {
      {"adaptive", true}, {"ksize", Ints{1, 2}}, {"pooling_type", std::string("max")}};
  WEFT_ASSERT_OK_AND_ASSIGN(const Pooled pooled, Pool(attrs));
  EXPECT_THAT(pooled.out, ElementsAre(5, 7));  // columns 0 and 1, 1 and 2
  EXPECT_THAT(pooled.gradient, ElementsAre(0, 1, 0, 0, 0, 1));
  // Paddle uses `ksize` as the size of a window.
  WEFT_ASSERT_OK_AND_ASSIGN(const Pooled paddles, Pool(attrs, /*quirks=*/true));
  EXPECT_THAT(paddles.out, ElementsAre(5, 5));
}

TEST(PoolTest, ChannelsMayComeLast) {
  const AttrValues attrs = {{"data_format", std::string("NHWC")},
                            {"ksize", Ints{2, 2}},
                            {"pooling_type", std::string("avg")}};
  WEFT_ASSERT_OK_AND_ASSIGN(const Pooled pooled, Pool(attrs));
  EXPECT_THAT(pooled.out, ElementsAre(3.5, 4.25));
  EXPECT_THAT(pooled.gradient, ElementsAre(0.25, 0.5, 0.25, 0.25, 0.5, 0.25));
}

TEST(PoolTest, UnknownTypeIsAnError) {
  EXPECT_THAT(Pool({{"ksize", Ints{1, 1}}, {"pooling_type", std::string("min")}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("attribute pooling_type: expected max or avg, found min")));
}

}  // namespace
}  // namespace weft::testing
