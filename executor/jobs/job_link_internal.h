// For tests.
#ifndef WEFT_EXECUTOR_JOBS_JOB_LINK_INTERNAL_H_
#define WEFT_EXECUTOR_JOBS_JOB_LINK_INTERNAL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "executor/jobs/job_link.h"
#include "executor/jobs/process_state.h"

namespace weft {

// NewJobLink as another process would call it: one of another host, say.
absl::StatusOr<std::unique_ptr<JobLink>> NewJobLinkAs(const JobLinkOptions& options,
                                                      const ProcessIdentity& self);

}  // namespace weft

#endif  // WEFT_EXECUTOR_JOBS_JOB_LINK_INTERNAL_H_
