// What the verifier says of the programs of a run, before its first step.
#ifndef WEFT_TOOLS_CMD_WEFT_RUN_CHECKS_H_
#define WEFT_TOOLS_CMD_WEFT_RUN_CHECKS_H_

#include <set>
#include <string>

#include "absl/status/status.h"
#include "executor/jobs/job_link.h"
#include "tools/cmd/weft_run_files.h"

namespace weft {

// Verifies the programs of all ranks: if processes of the job have different ones, they send them
// to each other (`link`; null: there is one process). If `flags.reports`, prints what makes the run
// differ from one device (layer 7), as the user may want just that.
//
// If `flags.order`, or the setting of the file, says that ops are ordered by their variables, they
// are verified so, and collectives run on the compute stream, which is such an order. So they do,
// with a warning, where only races make the programs wrong that this order does not have.
// FailedPrecondition, with the path and the first finding, for other errors of layers 1 to 5.
// `flags.force` makes all errors warnings, and runs the programs as they are. O(ops + arguments).
absl::Status CheckRunPrograms(const RunFlags& flags, JobLink* link, RunFiles* inputs);

// The reported variables of which ranks have partial sums. O(ops + arguments) for a few walks.
std::set<std::string> FindPartialSums(const RunFlags& flags, const RunFiles& inputs);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_WEFT_RUN_CHECKS_H_
