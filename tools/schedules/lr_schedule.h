// Learning rates that the host computes, step by step.
#ifndef WEFT_TOOLS_SCHEDULES_LR_SCHEDULE_H_
#define WEFT_TOOLS_SCHEDULES_LR_SCHEDULE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"

namespace weft {

// The learning rate of a step, counted from 0.
using LrSchedule = std::function<double(int64_t step)>;

// Makes a schedule from text: a name and its options, such as
// "step{learning_rate=0.1,step_size=9}". docs/running.md lists names, options, defaults and
// formulas; they are those of the classes in paddle.optimizer.lr of Paddle 2.6. Another schedule
// may follow linear_warmup after a comma; it starts at its step 0. After start_at{step=N}, it
// starts at its step N. A table has no rate, NaN, after its last number. Lists are numbers
// separated by colons, or by commas and in double quotes.
//
// InvalidArgument, naming the schedule and the option, with what is expected.
absl::StatusOr<LrSchedule> ParseLrSchedule(absl::string_view text);

// InvalidArgument for a text that neither ParseLrSchedule nor PlateauSchedule::Parse takes.
absl::Status CheckLrSchedule(absl::string_view text);

// The variable from which the optimizers of the program take their learning rates, directly or
// scaled. InvalidArgument if there is none or more than one (the message lists them), or if the
// program computes it.
absl::StatusOr<std::string> FindLearningRate(const Program& main);

}  // namespace weft

#endif  // WEFT_TOOLS_SCHEDULES_LR_SCHEDULE_H_
