// Programs that protobuf can read, but whose blocks, names or variables contradict each other. What
// shows or copies programs reads them; what rewrites or runs them refuses them (program_file.h).
#ifndef WEFT_PROTO_FORMATS_MALFORMED_PROGRAM_H_
#define WEFT_PROTO_FORMATS_MALFORMED_PROGRAM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "proto/formats/program_file.h"
#include "proto/program.h"

namespace weft {

struct ReadableProgram {
  Program program;
  // What is wrong in the file, and what stands in `program` instead, a line each. Empty: `program`
  // is what the file says.
  std::vector<std::string> malformed;
  FileBytes file;
  ProgramFormat format;  // of the file
};

// As ReadProgram, but for a malformed program in protobuf's formats, returns a well-formed one
// without the references that lead nowhere. Errors are those of ReadProgram. O(file).
absl::StatusOr<ReadableProgram> ReadMalformedProgram(const std::string& path);

}  // namespace weft

#endif  // WEFT_PROTO_FORMATS_MALFORMED_PROGRAM_H_
