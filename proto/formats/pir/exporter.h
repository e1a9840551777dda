// Rewritten programs that came from PIR, as PIR again. docs/pir.md has the rules.
#ifndef WEFT_PROTO_FORMATS_PIR_EXPORTER_H_
#define WEFT_PROTO_FORMATS_PIR_EXPORTER_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/program.h"

namespace weft::pir {

// The file of an imported program (proto/formats/pir/importer.h) after passes have inserted ops.
// Without edits, the bytes that were read. Ops that no pass edited keep their bytes, except for the
// ids of values that inserted ops have replaced: an op that writes a variable in place makes a new
// value, which later ops read. So the order of the program is one of data, the only one that
// Paddle's executor keeps:
//   - A fused buffer is a 1.concat of its parts, and a 1.split after the ops on it.
//   - New state is 1.data, or named in a startup program; a new conditional_block is a 1.if that
//     writes parameters and state in place.
//   - Ops that order streams are left out, and those that set up communicators, which the process
//     makes itself.
//
// InvalidArgument for a program that is not from PIR. Unimplemented, naming the op: an op that
// is edited in another way than to read or write other variables; a new op that has no form in PIR;
// a new block that makes other values. O(bytes). The pieces refer to the bytes of the file that the
// program was read from.
absl::StatusOr<SerializedProgram> ExportToPieces(const Program& program);
absl::StatusOr<std::string> ExportProgram(const Program& program);

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_EXPORTER_H_
