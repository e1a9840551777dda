// The parameters of a startup program.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_STARTUP_PARAMETERS_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_STARTUP_PARAMETERS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// The parameters, in the order of the ops that initialize them; those that no op writes come last,
// by name. They are the variables of either program that are marked (is_parameter), which includes
// BatchNorm statistics. If none is marked, as in files before Paddle 2.2, they are the persistable
// variables that the main program trains.
//
// A parameter that the main program only reads, such as one of the teacher in a distillation, need
// not be there: a file of parameters gives it to all ranks.
//
// Requires a startup program. InvalidArgument if it does not declare another parameter of the main
// program: the two do not belong together. O(ops), and O(arguments) for each that is not there.
absl::StatusOr<std::vector<std::string>> StartupParameters(const ProgramPair& programs);

// The persistable variables of both programs that ops of the main program use and that each rank
// initializes by a draw of its own, marked as parameters or not; in the order of their
// declarations. Requires a startup program. O(arguments).
std::vector<std::string> StatesThatRanksDraw(const ProgramPair& programs);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_STARTUP_PARAMETERS_H_
