// The parameters of a startup program.
#ifndef WEFT_TRANSPILER_PASSES_STARTUP_PARAMETERS_H_
#define WEFT_TRANSPILER_PASSES_STARTUP_PARAMETERS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Parameters, in the order of the ops that initialize them; those that no op writes come last, by
// name. They are the variables of either program that say so (is_parameter: BatchNorm statistics
// are among them); where none does, as in files older than Paddle 2.2, the persistable variables
// that the main program trains.
//
// The startup program must be there. InvalidArgument where the main program has a parameter that it
// does not declare: the two do not belong together. O(ops).
absl::StatusOr<std::vector<std::string>> StartupParameters(const ProgramPair& programs);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_STARTUP_PARAMETERS_H_
