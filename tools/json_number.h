// Floating-point numbers in JSON.
#ifndef WEFT_TOOLS_JSON_NUMBER_H_
#define WEFT_TOOLS_JSON_NUMBER_H_

#include "nlohmann/json.hpp"

namespace weft {

// A number that reads back as the same float or double, with no more digits than a float needs. NaN
// and infinities are the strings "nan", "inf" and "-inf", because JSON has no such numbers.
nlohmann::ordered_json NumberToJson(float value);
nlohmann::ordered_json NumberToJson(double value);

}  // namespace weft

#endif  // WEFT_TOOLS_JSON_NUMBER_H_
