// What transpile says of a result.
#ifndef WEFT_TOOLS_CMD_TRANSPILE_NOTES_H_
#define WEFT_TOOLS_CMD_TRANSPILE_NOTES_H_

#include <vector>

#include "proto/program.h"
#include "tools/cmd/transpile_flags.h"
#include "tools/flags/said.h"
#include "transpiler/transpile.h"

namespace weft {

// The messages of the passes, and what the verdict on the programs rests on: those of the trainers,
// of which each has one of the results. What is said of several trainers is said once.
std::vector<Said> SaidOf(const TranspileFlags& flags, const std::vector<TranspileResult>& results,
                         const std::vector<const Program*>& mains);

// Prints them; on a terminal, after a line for each pass.
void ShowResults(const TranspileFlags& flags, const std::vector<TranspileResult>& results,
                 const std::vector<const Program*>& mains);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_TRANSPILE_NOTES_H_
