// What a command says besides its result.
#ifndef WEFT_TOOLS_FLAGS_SAID_H_
#define WEFT_TOOLS_FLAGS_SAID_H_

#include <string>

#include "absl/strings/string_view.h"
#include "base/severity.h"

namespace weft {

// A note or a warning; the text may name flags as option:NAME.
struct Said {
  Severity severity = Severity::kNote;
  std::string text;
  // Whether the line begins with the name of the command: "weft run: warning: ...".
  bool names_command = false;
};

// To stderr, as one line.
void Print(absl::string_view command, const Said& said);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_SAID_H_
