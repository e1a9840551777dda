#include "tools/flags/shown_program.h"

#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "tools/flags/command_line.h"

namespace weft {

absl::StatusOr<ReadableProgram> ReadProgramToShow(absl::string_view command,
                                                  const std::string& path) {
  absl::StatusOr<ReadableProgram> read = ReadMalformedProgram(path);
  WEFT_RETURN_IF_ERROR(Annotate(path, read.status()));
  for (const std::string& line : read->malformed) {
    PrintWarning(command, absl::StrCat(path, ": ", line));
  }
  return read;
}

}  // namespace weft
