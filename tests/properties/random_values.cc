#include "tests/properties/random_values.h"

namespace weft::testing {

bool IsIn(const RandomValue& value, ArgumentClass of) {
  const DType dtype = value.types[0].dtype;
  const bool is_own =
      value.kind == RandomValue::Kind::kStatistic || value.kind == RandomValue::Kind::kCount;
  switch (of) {
    case ArgumentClass::kFloat:
      return dtype == kRandomFloat && !is_own;
    case ArgumentClass::kScalar:
      return dtype == kRandomFloat && !is_own && NumElements(value.types[kWhole].dims) == 1 &&
             NumElements(value.types[kPart].dims) == 1;
    case ArgumentClass::kSize:
      return value.is_size;
    case ArgumentClass::kInt:
      return (dtype == DType::kInt64 || dtype == DType::kInt32) && !is_own;
    case ArgumentClass::kBool:
      return dtype == DType::kBool;
    case ArgumentClass::kParam:
      return value.kind == RandomValue::Kind::kParam;
    case ArgumentClass::kStatistic:
      return value.kind == RandomValue::Kind::kStatistic;
    case ArgumentClass::kCount:
      return value.kind == RandomValue::Kind::kCount;
  }
  return false;
}

std::vector<int> SlotOf(const ValueSlots& slots, absl::string_view name) {
  for (const auto& [slot, values] : slots) {
    if (slot == name) return values;
  }
  return {};
}

absl::Span<const RandomFeed> RandomFeeds() {
  static const auto* const feeds = new std::vector<RandomFeed>{
      {"x", kRandomFloat, {-1, 4}, 0},
      {"y", kRandomFloat, {-1, 4}, 0},
      {"each", kRandomFloat, {-1}, 0},
      {"one", kRandomFloat, {-1, 1}, 0, 1},
      {"two", kRandomFloat, {-1, 2}, 0, 1},
      {"cube", kRandomFloat, {-1, 2, 4}, 0},
      {"rows", kRandomFloat, {-1, 4, 2}, 0},
      {"image", kRandomFloat, {-1, 1, 2, 2}, 0},
      {"columns", kRandomFloat, {3, -1}, 1},
      {"steps", kRandomFloat, {2, -1, 4}, 1},
      {"vector", kRandomFloat, {4}, absl::nullopt},
      {"rate", kRandomFloat, {1}, absl::nullopt},
      {"matrix", kRandomFloat, {3, 4}, absl::nullopt},
      {"table", kRandomFloat, {-1, 4}, absl::nullopt},
      {"label", DType::kInt64, {-1, 1}, 0, 2},
      {"ids", DType::kInt64, {-1}, 0, 2},
      {"pick", DType::kInt64, {2}, absl::nullopt, 2},
  };
  return *feeds;
}

absl::Span<const RandomState> RandomStates() {
  using Kind = RandomValue::Kind;
  static const auto* const states = new std::vector<RandomState>{
      {"weight", kRandomFloat, {4, 4}, Kind::kParam},
      {"bias", kRandomFloat, {4}, Kind::kParam},
      {"column", kRandomFloat, {4, 1}, Kind::kParam},
      {"alpha", kRandomFloat, {1}, Kind::kParam},
      {"filter", kRandomFloat, {2, 1, 2, 2}, Kind::kParam},
      {"scalar", kRandomFloat, {1}, Kind::kState, 0},
      {"total", kRandomFloat, {4}, Kind::kState, 0},
      {"half", kRandomFloat, {1}, Kind::kState, 0.5},
      {"first", kRandomFloat, {1}, Kind::kState, 0},
      {"second", kRandomFloat, {1}, Kind::kState, 0},
      {"third", kRandomFloat, {1}, Kind::kState, 0},
      {"inner", kRandomFloat, {1}, Kind::kInner, 0},
      {"kept", kRandomFloat, {1}, Kind::kInner, 1},
      {"counter", DType::kInt64, {1}, Kind::kState, 0},
      {"mean", kRandomFloat, {4}, Kind::kStatistic, 0},
      {"variance", kRandomFloat, {4}, Kind::kStatistic, 1},
      {"positive", DType::kInt64, {1, 8}, Kind::kCount, 0},
      {"negative", DType::kInt64, {1, 8}, Kind::kCount, 0},
  };
  return *states;
}

}  // namespace weft::testing
