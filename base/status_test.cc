#include "absl/status/status.h"

#include <memory>

#include "absl/status/statusor.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::Not;

absl::Status Fail() { return absl::NotFoundError("no such op"); }

absl::Status ReturnsEarly(bool fail, bool* reached) {
  if (fail) WEFT_RETURN_IF_ERROR(Fail());
  *reached = true;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<int>> Box(int value) {
  if (value < 0) return absl::OutOfRangeError("negative");
  return std::make_unique<int>(value);
}

absl::StatusOr<int> AddOne(int value) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<int> box, Box(value));
  return *box + 1;
}

TEST(StatusMacros, ErrorEndsTheFunction) {
  bool reached = false;
  EXPECT_THAT(ReturnsEarly(true, &reached), IsNotFound("no such op"));
  EXPECT_FALSE(reached);
}

TEST(StatusMacros, OkContinues) {
  bool reached = false;
  EXPECT_THAT(ReturnsEarly(false, &reached), IsOk());
  EXPECT_TRUE(reached);
}

TEST(StatusMacros, AssignMovesTheValueOut) {
  EXPECT_THAT(AddOne(1), IsOkAndHolds(2));
  EXPECT_THAT(AddOne(-1), Not(IsOk()));
}

TEST(Annotate, PutsTheSubjectBeforeTheMessageAndKeepsTheCode) {
  const absl::Status status = Annotate("in.pb", absl::NotFoundError("no such file"));
  EXPECT_EQ(status, absl::NotFoundError("in.pb: no such file"));
  EXPECT_EQ(Annotate("in.pb", absl::OkStatus()), absl::OkStatus());
}

}  // namespace
}  // namespace weft::testing
