// The names by which files and messages call ops.
#ifndef WEFT_TOOLS_INSPECT_OP_NAME_H_
#define WEFT_TOOLS_INSPECT_OP_NAME_H_

#include "absl/strings/string_view.h"
#include "proto/program.h"

namespace weft {

// The op that a name begins with, as Op::DebugName writes it: "op 17 (mul)", "block 1, op 0
// (scale)". More may follow, as in the names of combined ops: "op 17 (mul) with op 18 (relu)".
// Invalid if the text is no such name, or if the program has another op there. O(length).
OpId FindNamedOp(const Program& program, absl::string_view name);

}  // namespace weft

#endif  // WEFT_TOOLS_INSPECT_OP_NAME_H_
