// Programs in files.
#ifndef WEFT_PROTO_PROGRAM_FILE_H_
#define WEFT_PROTO_PROGRAM_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/program.h"

namespace weft {

enum class ProgramFormat {
  kBinary,       // a serialized ProgramDesc
  kProtoText,    // protobuf's text format
  kProgramText,  // docs/program_text.md
};

// By the file's name: .pb, .pdmodel, __model__ and "-" (standard input or output) are binary,
// .pbtxt protobuf text, .prog program text. InvalidArgument, listing these, for any other name.
absl::StatusOr<ProgramFormat> ProgramFormatOf(const std::string& path);

// Errors carry no path: the caller knows it. A binary file is mapped and stays mapped while the
// program lives; memory is bounded by a constant times the file's size.
absl::StatusOr<Program> ReadProgram(const std::string& path);

struct ProgramOutput {
  const Program* program;
  std::string path;
};

// Writes all programs, or none: each is written beside its target and made durable before the
// first takes its place. The error names the path.
absl::Status WritePrograms(absl::Span<const ProgramOutput> outputs);
absl::Status WriteProgram(const Program& program, const std::string& path);

}  // namespace weft

#endif  // WEFT_PROTO_PROGRAM_FILE_H_
