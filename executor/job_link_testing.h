// Links for tests.
#ifndef WEFT_EXECUTOR_JOB_LINK_TESTING_H_
#define WEFT_EXECUTOR_JOB_LINK_TESTING_H_

#include <memory>
#include <string>
#include <vector>

#include "executor/job_link.h"

namespace weft::testing {

// An address at which nobody else of this host listens.
std::string NewTestAddress();

// Links between `n` processes that are threads of this one, by process. The address and the numbers
// of processes in `options` do not matter. Dies if the links cannot be made.
std::vector<std::unique_ptr<JobLink>> MakeLinks(int n, JobLinkOptions options = {});

}  // namespace weft::testing

#endif  // WEFT_EXECUTOR_JOB_LINK_TESTING_H_
