#include "transpiler/passes/updates/schedule_value.h"

#include <cmath>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

constexpr char kStaircase[] = "staircase";

// Ops compute in fp32: there, the number must be finite, and not zero unless it is.
bool IsNumber(absl::string_view text, double* value) {
  if (!absl::SimpleAtod(text, value)) return false;
  const auto rounded = static_cast<float>(*value);
  return std::isfinite(rounded) && (rounded != 0 || *value == 0);
}

bool IsDecay(absl::string_view text, ScheduleValue* value) {
  if (!absl::ConsumePrefix(&text, "exp(") || !absl::ConsumeSuffix(&text, ")")) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::ByAnyChar(":,"));
  ScheduleValue::Decay decay;
  decay.in_stairs = parts.size() == 4 && absl::StripAsciiWhitespace(parts[3]) == kStaircase;
  if (parts.size() != 3 && !decay.in_stairs) return false;
  if (!IsNumber(parts[0], &value->init) || !IsNumber(parts[1], &decay.steps) ||
      !IsNumber(parts[2], &decay.rate) || decay.steps <= 0 || decay.rate < 0) {
    return false;
  }
  value->decay = decay;
  return true;
}

bool IsInRange(const ScheduleValue& value, const ValueRange& range) {
  const double init = static_cast<float>(value.init);
  if (init < range.min || init > range.max || (init == range.max && !range.includes_max)) {
    return false;
  }
  const bool grows = value.decay.has_value() && value.decay->rate > 1 && !value.IsZero();
  return !grows || (init > 0 ? std::isinf(range.max) : std::isinf(range.min));
}

// The shortest decimal number that reads back as `value`.
std::string Shortest(double value) {
  for (int digits = 6; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    double read;
    if (absl::SimpleAtod(text, &read) && read == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

}  // namespace

std::string ExpectedScheduleValue(const ValueRange& range) {
  std::string text = "a number";
  if (std::isfinite(range.min)) absl::StrAppend(&text, " >= ", range.min);
  if (std::isfinite(range.max)) {
    absl::StrAppend(&text, " and ", range.includes_max ? "<= " : "< ", range.max);
  }
  absl::StrAppend(&text, ", or exp(INIT:STEPS:RATE[:", kStaircase, "])");
  if (std::isfinite(range.max)) absl::StrAppend(&text, " with RATE <= 1");
  return text;
}

absl::StatusOr<ScheduleValue> ParseScheduleValue(absl::string_view text, const ValueRange& range) {
  ScheduleValue value;
  if ((IsNumber(text, &value.init) || IsDecay(text, &value)) && IsInRange(value, range)) {
    return value;
  }
  return absl::InvalidArgumentError(absl::StrCat("expected ", ExpectedScheduleValue(range)));
}

std::string ToString(const ScheduleValue& value) {
  if (!value.decay.has_value()) return Shortest(value.init);
  return absl::StrCat("exp(", Shortest(value.init), ":", Shortest(value.decay->steps), ":",
                      Shortest(value.decay->rate), value.decay->in_stairs ? ":" : "",
                      value.decay->in_stairs ? kStaircase : "", ")");
}

}  // namespace weft
