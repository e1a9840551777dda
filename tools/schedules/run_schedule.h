// What the command line of a run says about the values that the host sets before every step, and
// how a checkpoint keeps it.
#ifndef WEFT_TOOLS_SCHEDULES_RUN_SCHEDULE_H_
#define WEFT_TOOLS_SCHEDULES_RUN_SCHEDULE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "executor/files/checkpoint.h"
#include "executor/run/feed_sources.h"
#include "proto/program.h"
#include "tools/schedules/plateau_schedule.h"

namespace weft {

struct RunSchedule {
  std::string lr_schedule;        // see ParseLrSchedule; empty: none
  std::string lr_var;             // empty: the program's only learning rate
  std::vector<std::string> set;   // NAME=VALUE
  std::string state;              // of a rate that follows a metric, in the checkpoint; empty: none
  bool is_paddles_model = false;  // the program is a file that Paddle 2 saved
};

// A learning rate that follows a metric.
struct PlateauRate {
  std::string variable;
  PlateauSchedule schedule;
};

struct HostSettings {
  std::vector<HostValue> values;
  absl::optional<PlateauRate> plateau;  // among the values with the rate that it begins with
  // The schedules of the program among them, by variable.
  std::map<std::string, std::string> of_program;
};

// InvalidArgument for a text that is not NAME=VALUE, where VALUE is a finite number.
absl::StatusOr<std::vector<HostValue>> ParseHostValues(const std::vector<std::string>& texts);

// The variables that the host sets before every step of a run from `begin` to `end`: those of the
// schedule, and those that the program says Paddle's scheduler sets (FindHostSchedules), unless the
// schedule sets them or they are in `fed`. Calls `note` for the latter, and for a rate that
// Paddle's scheduler sets, or of Paddle's model may set, and that nothing sets here.
//
// InvalidArgument, naming the variable: a program without a single learning rate
// (FindLearningRate), a rate that ends before the run, and a second one that follows a metric.
absl::StatusOr<HostSettings> HostSettingsOf(const RunSchedule& schedule, const Program& main,
                                            absl::Span<const std::string> fed, int64_t begin,
                                            int64_t end,
                                            const std::function<void(const std::string&)>& note);

// The settings of a checkpoint that hold it. `plateau`: null, or that of the run.
std::map<std::string, std::string> SettingsOf(const RunSchedule& schedule,
                                              const PlateauSchedule* plateau);

// Takes from a checkpoint what the schedule leaves open: the learning rate, its state, and `set`.
// Calls `note` where the schedule has another one than the checkpoint. InvalidArgument if the
// checkpoint has one that is none.
absl::Status ContinueSchedule(const Checkpoint& checkpoint,
                              const std::function<void(const std::string&)>& note,
                              RunSchedule* schedule);

}  // namespace weft

#endif  // WEFT_TOOLS_SCHEDULES_RUN_SCHEDULE_H_
