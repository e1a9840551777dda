// The first layer of verification: is this a program at all?
#ifndef WEFT_TRANSPILER_VERIFY_STRUCTURE_H_
#define WEFT_TRANSPILER_VERIFY_STRUCTURE_H_

#include "absl/status/status.h"
#include "proto/program.h"

namespace weft {

// Checks what Program::Parse leaves open, which needs to know ops:
// - every variable that an op names is declared in its block or an ancestor;
// - for op types that have a schema: every input that it requires is there, no slot for one
//   variable holds several, every attribute that it requires is there and has its type.
// InvalidArgument for the first violation, naming op, slot or attribute, variable, expected and
// found. Attribute values are not decoded. O(arguments).
absl::Status VerifyStructure(const Program& program);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_STRUCTURE_H_
