// Rewritten programs that came from PyTorch, as archives again. docs/pytorch.md has the rules.
#ifndef WEFT_PROTO_FORMATS_PT2_EXPORTER_H_
#define WEFT_PROTO_FORMATS_PT2_EXPORTER_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/program.h"

namespace weft::pt2 {

// The archive of an imported program (proto/formats/pt2/importer.h) after passes have inserted ops.
// Without edits, the bytes that were read. Else nodes keep their bytes, but for the names of values
// that inserted ops have replaced, and all other entries theirs:
//   - An op that writes a variable makes a new value, which later nodes read. A node that no op
//     stands for, such as a transposition, or the sum in an update, is there once more, of the new
//     values, if it stood before them.
//   - A collective is one of _c10d_functional and wait_tensor. A ring is the process group whose
//     name is the number of the ring.
//   - An op on a fused buffer is one on its parts, a collective one on a list.
//   - Ops that order streams are left out: nodes run in order.
//
// InvalidArgument: a program that is not from such an archive. Unimplemented, naming the op: ops
// that are edited, erased or moved, new ops without such a form, or on other variables than inputs,
// gradients, the loss and new ones. O(bytes + buffers × nodes).
absl::StatusOr<std::string> ExportProgram(const Program& program);

}  // namespace weft::pt2

#endif  // WEFT_PROTO_FORMATS_PT2_EXPORTER_H_
