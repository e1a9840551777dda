// Programs in the bytes of a file that is not there.
#ifndef WEFT_PROTO_FORMATS_PROGRAM_BYTES_H_
#define WEFT_PROTO_FORMATS_PROGRAM_BYTES_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/formats/program_file.h"
#include "proto/program.h"

namespace weft {

// The bytes that WriteProgram writes to a file of that format. Errors do not name a path; those of
// a format that cannot hold the program, and OutOfRange for more bytes than can be read again.
absl::StatusOr<std::string> ProgramBytes(const Program& program, ProgramFormat format);

// As ReadProgram, for a program that may outlive its file: reads the bytes instead of mapping them.
absl::StatusOr<Program> ReadProgramCopy(const std::string& path);

}  // namespace weft

#endif  // WEFT_PROTO_FORMATS_PROGRAM_BYTES_H_
