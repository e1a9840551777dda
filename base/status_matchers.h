// GoogleTest matchers for absl::Status and absl::StatusOr.
//
//   EXPECT_THAT(DoIt(), IsOk());
//   EXPECT_THAT(Parse(""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no blocks")));
//   EXPECT_THAT(Count(), IsOkAndHolds(3));
//   WEFT_ASSERT_OK_AND_ASSIGN(Program program, Parse(bytes));
#ifndef WEFT_BASE_STATUS_MATCHERS_H_
#define WEFT_BASE_STATUS_MATCHERS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {

inline const absl::Status& GetStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  *result_listener << GetStatus(arg);
  return GetStatus(arg).ok();
}

MATCHER_P2(StatusIs, code, message_matcher,
           "has code " + absl::StatusCodeToString(code) + " and message " +
               ::testing::DescribeMatcher<std::string>(message_matcher, negation)) {
  *result_listener << GetStatus(arg);
  return GetStatus(arg).code() == code &&
         ::testing::Matches(message_matcher)(std::string(GetStatus(arg).message()));
}

MATCHER_P(IsOkAndHolds, matcher, "is OK and holds a value that matches") {
  if (!arg.ok()) {
    *result_listener << arg.status();
    return false;
  }
  return ::testing::ExplainMatchResult(matcher, *arg, result_listener);
}

}  // namespace weft::testing

#define WEFT_ASSERT_OK(expr) ASSERT_THAT(expr, ::weft::testing::IsOk())
#define WEFT_EXPECT_OK(expr) EXPECT_THAT(expr, ::weft::testing::IsOk())

#define WEFT_ASSERT_OK_AND_ASSIGN(lhs, expr) \
  WEFT_ASSERT_OK_AND_ASSIGN_IMPL_(WEFT_TEST_CONCAT_(weft_result_, __LINE__), lhs, expr)
#define WEFT_ASSERT_OK_AND_ASSIGN_IMPL_(var, lhs, expr) \
  auto var = (expr);                                    \
  ASSERT_TRUE(var.ok()) << var.status();                \
  lhs = *std::move(var)
#define WEFT_TEST_CONCAT_(a, b) WEFT_TEST_CONCAT_IMPL_(a, b)
#define WEFT_TEST_CONCAT_IMPL_(a, b) a##b

#endif  // WEFT_BASE_STATUS_MATCHERS_H_
