// Flags in messages of libraries, which do not know the command line.
#ifndef WEFT_TOOLS_FLAGS_FLAG_NAMES_H_
#define WEFT_TOOLS_FLAGS_FLAG_NAMES_H_

#include <string>

#include "absl/strings/string_view.h"

namespace weft {

// A message as the tools print it: libraries write option:exact_loss, users --exact_loss.
std::string WithFlags(absl::string_view message);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_FLAG_NAMES_H_
