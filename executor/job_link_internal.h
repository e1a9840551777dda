// For tests.
#ifndef WEFT_EXECUTOR_JOB_LINK_INTERNAL_H_
#define WEFT_EXECUTOR_JOB_LINK_INTERNAL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "executor/job_link.h"
#include "executor/process_state.h"

namespace weft {

// NewJobLink as another process would call it: one of another host, say.
absl::StatusOr<std::unique_ptr<JobLink>> NewJobLinkAs(const JobLinkOptions& options,
                                                      const ProcessIdentity& self);

}  // namespace weft

#endif  // WEFT_EXECUTOR_JOB_LINK_INTERNAL_H_
