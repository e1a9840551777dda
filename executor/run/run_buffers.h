// The buffers of the startup program in a run.
#ifndef WEFT_EXECUTOR_RUN_RUN_BUFFERS_H_
#define WEFT_EXECUTOR_RUN_RUN_BUFFERS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "executor/plan/run_checks.h"
#include "executor/run/run_job.h"
#include "ops/tensor.h"

namespace weft {

// Finds the buffers that the startup program makes, for a job with the plan of the main program.
// FailedPrecondition if they and their parts would have to share memory and cannot.
absl::Status PrepareBuffers(RunJob* job);

// Whether buffers or parts of them are among RunJob::fetch_names.
bool FetchesBuffers(const RunJob& job);

// Sets RunJob::params_of_buffers, and adds their names to `holds_value`. Else servers and master
// weights would not get what a file gives a buffer alone. The errors of PartsOfGivenBuffers and
// CheckParam.
absl::Status FindParamsOfBuffers(RunJob* job, NameSet* holds_value);

// Gives buffers of workers, by name, what servers hold of them.
absl::Status FillServedBuffers(const RunJob& job, std::map<std::string, Tensor>* values);

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_RUN_BUFFERS_H_
