// A small program as a drawing.
#ifndef WEFT_TOOLS_INSPECT_PROGRAM_DOT_H_
#define WEFT_TOOLS_INSPECT_PROGRAM_DOT_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "proto/program.h"

namespace weft {

// Graphviz's dot takes 0.2 s for 47 ops of a program, 7 s for 129, and did not finish within 12 s
// for 213.
inline constexpr size_t kMaxDrawnOps = 200;

// Graphviz text. Every op is a box, coloured by its role; its tooltip says the role. Ops that do
// more than compute have shapes of their own, and the number of their ring: collectives are
// octagons, stream synchronizations are parallelograms, ring set-up is a house, and ops that fuse
// variables into a buffer are components. A legend has the colours and shapes that occur.
//
// An edge, named after the variable, leads from the last op that wrote a variable to each op that
// reads it. A variable that no op of the block wrote before (data, parameters) is an ellipse, one
// per block that reads it. Blocks are clusters; a dashed edge leads from an op to a block that it
// runs. Equal programs give equal text.
//
// InvalidArgument for more than kMaxDrawnOps ops. O(arguments).
//
//   weft show main.pb --format dot | dot -Tsvg > main.svg
absl::StatusOr<std::string> ProgramToDot(const Program& program);

}  // namespace weft

#endif  // WEFT_TOOLS_INSPECT_PROGRAM_DOT_H_
