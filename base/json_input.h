// JSON from files that anybody may have written.
#ifndef WEFT_BASE_JSON_INPUT_H_
#define WEFT_BASE_JSON_INPUT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace weft {

// Parses a JSON object; keys are sorted. InvalidArgument for other text, for a key that an object
// has twice, and for values that are nested deeper than 100 levels: functions of the library
// recurse. O(n log n).
absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view text);

// "key 'bytes': expected an integer, found true".
absl::Status ExpectedInJson(absl::string_view key, absl::string_view what,
                            const nlohmann::json& found);

// The integer under `key`, of 64 bits. InvalidArgument for another value.
absl::StatusOr<int64_t> JsonInteger(absl::string_view key, const nlohmann::json& value);

}  // namespace weft

#endif  // WEFT_BASE_JSON_INPUT_H_
