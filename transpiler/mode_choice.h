// Which mode to take: `transpile --mode auto`.
#ifndef WEFT_TRANSPILER_MODE_CHOICE_H_
#define WEFT_TRANSPILER_MODE_CHOICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/program_pair.h"
#include "transpiler/transpile_plan.h"

namespace weft {

struct ModeChoice {
  std::string mode;
  std::string why;  // one line
};

// The first of these that fits the program and the options:
//
//   none            collectives reduce gradients or average parameters already
//   grad_allreduce  ranks compute what one device computes; for every program
//   local_sgd       if a flag is given that only it reads, such as k_steps
//   single_process_multi_thread, multi_thread
//                   likewise, such as devices
//   any other       if it is the only one that reads all flags that are given, such as tables
//
// A mode that computes something else than one device is only taken for its flags. Reads
// options.dialect, mode_flags, cluster and distributed_params; the result is the same for equal
// programs and options. InvalidArgument if no mode reads all flags that are given, or if several of
// the others do. FailedPrecondition if no op updates parameters, or if only unregistered ops may
// exchange values. O(arguments).
absl::StatusOr<ModeChoice> ChooseMode(const ProgramPair& programs, const TranspileOptions& options);

}  // namespace weft

#endif  // WEFT_TRANSPILER_MODE_CHOICE_H_
