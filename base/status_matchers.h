// GoogleTest matchers for absl::Status and absl::StatusOr.
//
//   EXPECT_THAT(DoIt(), IsOk());
//   EXPECT_THAT(Parse(""), IsInvalidArgument("no blocks"));
//   EXPECT_THAT(Count(), IsOkAndHolds(3));
//   WEFT_ASSERT_OK_AND_ASSIGN(Program program, Parse(bytes));
#ifndef WEFT_BASE_STATUS_MATCHERS_H_
#define WEFT_BASE_STATUS_MATCHERS_H_

#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

// One for each code. A text is a part of the message; a matcher sees the whole message.
template <typename Message>
auto HasCode(absl::StatusCode code, Message message) {
  if constexpr (std::is_convertible_v<Message, absl::string_view>) {
    return StatusIs(code, ::testing::HasSubstr(std::string(message)));
  } else {
    return StatusIs(code, message);
  }
}
template <typename Message>
auto IsAborted(Message message) {
  return HasCode(absl::StatusCode::kAborted, message);
}
template <typename Message>
auto IsDataLoss(Message message) {
  return HasCode(absl::StatusCode::kDataLoss, message);
}
template <typename Message>
auto IsDeadlineExceeded(Message message) {
  return HasCode(absl::StatusCode::kDeadlineExceeded, message);
}
template <typename Message>
auto IsFailedPrecondition(Message message) {
  return HasCode(absl::StatusCode::kFailedPrecondition, message);
}
template <typename Message>
auto IsInternal(Message message) {
  return HasCode(absl::StatusCode::kInternal, message);
}
template <typename Message>
auto IsInvalidArgument(Message message) {
  return HasCode(absl::StatusCode::kInvalidArgument, message);
}
template <typename Message>
auto IsNotFound(Message message) {
  return HasCode(absl::StatusCode::kNotFound, message);
}
template <typename Message>
auto IsOutOfRange(Message message) {
  return HasCode(absl::StatusCode::kOutOfRange, message);
}
template <typename Message>
auto IsResourceExhausted(Message message) {
  return HasCode(absl::StatusCode::kResourceExhausted, message);
}
template <typename Message>
auto IsUnavailable(Message message) {
  return HasCode(absl::StatusCode::kUnavailable, message);
}
template <typename Message>
auto IsUnimplemented(Message message) {
  return HasCode(absl::StatusCode::kUnimplemented, message);
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
