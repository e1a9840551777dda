// Reads a whole serialized program. Used by Program only.
#ifndef WEFT_PROTO_INDEX_PROGRAM_H_
#define WEFT_PROTO_INDEX_PROGRAM_H_

#include "absl/status/status.h"
#include "proto/program.h"

namespace weft {

// Indexes program->bytes_ into an empty program, and checks it: see Program::Parse.
absl::Status IndexProgram(const ParseOptions& options, Program* program);

}  // namespace weft

#endif  // WEFT_PROTO_INDEX_PROGRAM_H_
