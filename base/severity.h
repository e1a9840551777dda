// How much a message matters to who reads it.
#ifndef WEFT_BASE_SEVERITY_H_
#define WEFT_BASE_SEVERITY_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace weft {

enum class Severity : uint8_t {
  kError,    // the program is wrong, or cannot be proved right
  kWarning,  // the program may be right, but deviates from what it should be
  kNote,     // the program is right, but could be faster or rests on an assumption
};

inline absl::string_view SeverityName(Severity severity) {  // "error"
  constexpr const char* kNames[] = {"error", "warning", "note"};
  return kNames[static_cast<int>(severity)];
}

}  // namespace weft

#endif  // WEFT_BASE_SEVERITY_H_
