#include "tools/inspect/json_number.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace weft {

nlohmann::ordered_json NumberToJson(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

nlohmann::ordered_json NumberToJson(float value) {
  if (!std::isfinite(value)) return NumberToJson(static_cast<double>(value));
  // The double next to the shortest decimal of the float, not next to the float itself: it prints
  // as that decimal.
  char text[32];
  for (int digits = 6; digits <= 9; ++digits) {
    std::snprintf(text, sizeof(text), "%.*g", digits, static_cast<double>(value));
    if (std::strtof(text, nullptr) == value) break;
  }
  return std::strtod(text, nullptr);
}

std::string JsonText(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace weft
