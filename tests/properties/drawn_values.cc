#include "tests/properties/drawn_values.h"

namespace weft::testing {

bool IsIn(const DrawnValue& value, ArgumentClass of) {
  const DType dtype = value.types[0].dtype;
  const bool is_own =
      value.kind == DrawnValue::Kind::kStatistic || value.kind == DrawnValue::Kind::kCount;
  switch (of) {
    case ArgumentClass::kFloat:
      return dtype == kDrawnFloat && !is_own;
    case ArgumentClass::kScalar:
      return dtype == kDrawnFloat && !is_own && NumElements(value.types[kWhole].dims) == 1 &&
             NumElements(value.types[kPart].dims) == 1;
    case ArgumentClass::kSize:
      return value.is_size;
    case ArgumentClass::kInt:
      return (dtype == DType::kInt64 || dtype == DType::kInt32) && !is_own;
    case ArgumentClass::kBool:
      return dtype == DType::kBool;
    case ArgumentClass::kParam:
      return value.kind == DrawnValue::Kind::kParam;
    case ArgumentClass::kStatistic:
      return value.kind == DrawnValue::Kind::kStatistic;
    case ArgumentClass::kCount:
      return value.kind == DrawnValue::Kind::kCount;
  }
  return false;
}

std::vector<int> SlotOf(const ValueSlots& slots, absl::string_view name) {
  for (const auto& [slot, values] : slots) {
    if (slot == name) return values;
  }
  return {};
}

absl::Span<const DrawnFeed> DrawnFeeds() {
  static const auto* const feeds = new std::vector<DrawnFeed>{
      {"x", kDrawnFloat, {-1, 4}, 0},
      {"y", kDrawnFloat, {-1, 4}, 0},
      {"each", kDrawnFloat, {-1}, 0},
      {"one", kDrawnFloat, {-1, 1}, 0, 1},
      {"two", kDrawnFloat, {-1, 2}, 0, 1},
      {"cube", kDrawnFloat, {-1, 2, 4}, 0},
      {"rows", kDrawnFloat, {-1, 4, 2}, 0},
      {"image", kDrawnFloat, {-1, 1, 2, 2}, 0},
      {"columns", kDrawnFloat, {3, -1}, 1},
      {"steps", kDrawnFloat, {2, -1, 4}, 1},
      {"vector", kDrawnFloat, {4}, absl::nullopt},
      {"rate", kDrawnFloat, {1}, absl::nullopt},
      {"matrix", kDrawnFloat, {3, 4}, absl::nullopt},
      {"table", kDrawnFloat, {-1, 4}, absl::nullopt},
      {"label", DType::kInt64, {-1, 1}, 0, 2},
      {"ids", DType::kInt64, {-1}, 0, 2},
      {"pick", DType::kInt64, {2}, absl::nullopt, 2},
  };
  return *feeds;
}

absl::Span<const DrawnState> DrawnStates() {
  using Kind = DrawnValue::Kind;
  static const auto* const states = new std::vector<DrawnState>{
      {"weight", kDrawnFloat, {4, 4}, Kind::kParam},
      {"bias", kDrawnFloat, {4}, Kind::kParam},
      {"column", kDrawnFloat, {4, 1}, Kind::kParam},
      {"alpha", kDrawnFloat, {1}, Kind::kParam},
      {"filter", kDrawnFloat, {2, 1, 2, 2}, Kind::kParam},
      {"scalar", kDrawnFloat, {1}, Kind::kState, 0},
      {"total", kDrawnFloat, {4}, Kind::kState, 0},
      {"half", kDrawnFloat, {1}, Kind::kState, 0.5},
      {"first", kDrawnFloat, {1}, Kind::kState, 0},
      {"second", kDrawnFloat, {1}, Kind::kState, 0},
      {"third", kDrawnFloat, {1}, Kind::kState, 0},
      {"inner", kDrawnFloat, {1}, Kind::kInner, 0},
      {"kept", kDrawnFloat, {1}, Kind::kInner, 1},
      {"counter", DType::kInt64, {1}, Kind::kState, 0},
      {"mean", kDrawnFloat, {4}, Kind::kStatistic, 0},
      {"variance", kDrawnFloat, {4}, Kind::kStatistic, 1},
      {"positive", DType::kInt64, {1, 8}, Kind::kCount, 0},
      {"negative", DType::kInt64, {1, 8}, Kind::kCount, 0},
  };
  return *states;
}

}  // namespace weft::testing
