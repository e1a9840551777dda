// What the command line of a run says about the values that the host sets before every step, and
// how a checkpoint keeps it.
#ifndef WEFT_TOOLS_RUN_SCHEDULE_H_
#define WEFT_TOOLS_RUN_SCHEDULE_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/checkpoint.h"
#include "executor/feed_sources.h"

namespace weft {

struct RunSchedule {
  std::string lr_schedule;       // see ParseLrSchedule; empty: none
  std::string lr_var;            // empty: the program's only learning rate
  std::vector<std::string> set;  // NAME=VALUE
};

// InvalidArgument for a text that is not NAME=VALUE, where VALUE is a finite number.
absl::StatusOr<std::vector<HostValue>> ParseHostValues(const std::vector<std::string>& texts);

// The settings of a checkpoint that hold it.
std::map<std::string, std::string> SettingsOf(const RunSchedule& schedule);

// Takes from a checkpoint what the schedule leaves open: the learning rate, and `set`. Calls `note`
// where the schedule has another one than the checkpoint. InvalidArgument if the checkpoint has one
// that is none.
absl::Status ContinueSchedule(const Checkpoint& checkpoint,
                              const std::function<void(const std::string&)>& note,
                              RunSchedule* schedule);

}  // namespace weft

#endif  // WEFT_TOOLS_RUN_SCHEDULE_H_
