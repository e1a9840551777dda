#include <string>

#include "absl/status/statusor.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/infer_testing.h"

namespace weft::testing {
namespace {

// Paddle 1 programs do not give it X.
TEST(MultiplexGradTest, WithoutXIdsHaveANumberForEachRowOfTheGradient) {
  const auto infer = [](const std::string& ids, const std::string& dout) {
    return InferenceCase("multiplex_grad")
        .Version(1008005)
        .In("Ids", {ids})
        .In("Out@GRAD", {dout})
        .Out("X@GRAD", 2)
        .Infer();
  };
  EXPECT_THAT(infer("int32[2, 1]", "fp32[2, 4]"), IsOkAndHolds("X@GRAD: fp32[2, 4] | fp32[2, 4]"));
  EXPECT_THAT(infer("int32[-1, 1]", "fp32[-1, 4]"),
              IsOkAndHolds("X@GRAD: fp32[-1, 4] | fp32[-1, 4]"));
  EXPECT_THAT(infer("int32[3, 1]", "fp32[2, 4]"), IsInvalidArgument("expected 2 elements"));
  EXPECT_THAT(infer("int32[1, 1]", "fp32[2, 4]"), IsInvalidArgument("expected 2 elements"));
  EXPECT_THAT(infer("int32[2, 1]", "fp32[2]"), IsInvalidArgument("at least two dimensions"));
}

}  // namespace
}  // namespace weft::testing
