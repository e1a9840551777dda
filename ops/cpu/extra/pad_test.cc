#include <cstdint>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int32_t>;

absl::StatusOr<std::vector<float>> PaddedRow(const std::vector<float>& row, const Ints& paddings,
                                             const std::string& mode) {
  auto out = RunOp("pad3d", {{"X", {Floats({1, 1, 1, 1, static_cast<int64_t>(row.size())}, row)}}},
                   {{"paddings", paddings}, {"mode", mode}}, {{"Out", 1}});
  WEFT_RETURN_IF_ERROR(out.status());
  return Values<float>((*out)["Out"][0]);
}

TEST(Pad3dTest, CircularPaddingStartsAgainAsOftenAsItTakes) {
  EXPECT_THAT(PaddedRow({1, 2}, {3, 1, 0, 0, 0, 0}, "circular"),
              IsOkAndHolds(ElementsAre(2, 1, 2, 1, 2, 1)));
}

TEST(Pad3dTest, NegativePaddingCutsOff) {
  EXPECT_THAT(PaddedRow({1, 2, 3}, {-1, 1, 0, 0, 0, 0}, "constant"),
              IsOkAndHolds(ElementsAre(2, 3, 0)));
}

TEST(Pad3dTest, ThereIsNothingToReflectBeyondTheImage) {
  EXPECT_THAT(PaddedRow({1, 2}, {2, 0, 0, 0, 0, 0}, "reflect"),
              IsInvalidArgument("attribute paddings"));
}

}  // namespace
}  // namespace weft::testing
