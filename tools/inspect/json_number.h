// Floating-point numbers and names in JSON.
#ifndef WEFT_TOOLS_INSPECT_JSON_NUMBER_H_
#define WEFT_TOOLS_INSPECT_JSON_NUMBER_H_

#include <string>

#include "nlohmann/json.hpp"

namespace weft {

// A number that reads back as the same float or double, with no more digits than a float needs. NaN
// and infinities are the strings "nan", "inf" and "-inf", because JSON has no such numbers.
nlohmann::ordered_json NumberToJson(float value);
nlohmann::ordered_json NumberToJson(double value);

// Text on one line, or indented. Bytes that are not UTF-8 become U+FFFD.
std::string JsonText(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace weft

#endif  // WEFT_TOOLS_INSPECT_JSON_NUMBER_H_
