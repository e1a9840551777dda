// Programs for commands that only show them.
#ifndef WEFT_TOOLS_FLAGS_SHOWN_PROGRAM_H_
#define WEFT_TOOLS_FLAGS_SHOWN_PROGRAM_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/formats/malformed_program.h"

namespace weft {

// Also a malformed program, with a warning under the name of the command for each thing that is
// shown in another way than the file says. Errors begin with the path.
absl::StatusOr<ReadableProgram> ReadProgramToShow(absl::string_view command,
                                                  const std::string& path);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_SHOWN_PROGRAM_H_
