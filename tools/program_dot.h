// A program as a drawing.
#ifndef WEFT_TOOLS_PROGRAM_DOT_H_
#define WEFT_TOOLS_PROGRAM_DOT_H_

#include <string>

#include "proto/program.h"

namespace weft {

// Graphviz text. Every op is a box, coloured by its role. An edge, named after the variable, leads
// from the last op that wrote a variable to each op that reads it. A variable that no op of the
// block wrote before (data, parameters) is an ellipse, one per block that reads it. Blocks are
// clusters; a dashed edge leads from an op to a block that it runs. Equal programs give equal text.
// O(arguments).
//
//   weft show main.pb --format dot | dot -Tsvg > main.svg
std::string ProgramToDot(const Program& program);

}  // namespace weft

#endif  // WEFT_TOOLS_PROGRAM_DOT_H_
