#include "executor/run/run_job.h"

#include <utility>

#include "base/status_macros.h"
#include "executor/run/run_messages.h"

namespace weft {

absl::Status RunJob::Post(StepResult result) {
  if (world.process() == 0) return results->Post(std::move(result));
  WEFT_ASSIGN_OR_RETURN(std::string message, ResultMessage(result));
  options.link->Send(0, JobLink::Topic::kResult, std::move(message));
  return result.status;
}

}  // namespace weft
