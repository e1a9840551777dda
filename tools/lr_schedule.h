// Learning rates that the host computes, step by step.
#ifndef WEFT_TOOLS_LR_SCHEDULE_H_
#define WEFT_TOOLS_LR_SCHEDULE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"

namespace weft {

// The learning rate of a step, counted from 0.
using LrSchedule = std::function<double(int64_t step)>;

// Makes a schedule from text: a name and its options. Names, options and formulas are those of the
// classes in paddle.optimizer.lr of Paddle 2.6. `t` is the step:
//
//   noam{d_model,warmup_steps,learning_rate=1}
//     learning_rate d_model^-0.5 min(t^-0.5, t warmup_steps^-1.5)
//   piecewise{boundaries,values}          values[number of boundaries <= t]
//   exponential{learning_rate,gamma}      learning_rate gamma^t
//   natural_exp{learning_rate,gamma}      learning_rate e^(-gamma t)
//   inverse_time{learning_rate,gamma}     learning_rate / (1 + gamma t)
//   polynomial{learning_rate,decay_steps,end_lr=0.0001,power=1,cycle=false}
//     (learning_rate - end_lr) (1 - min(t, decay_steps) / decay_steps)^power + end_lr; with
//     cycle, decay_steps is multiplied by ceil(t / decay_steps), at least 1
//   cosine{learning_rate,T_max,eta_min=0}
//     eta_min + (learning_rate - eta_min) (1 + cos(pi t / T_max)) / 2
//   step{learning_rate,step_size,gamma=0.1}          learning_rate gamma^floor(t / step_size)
//   multi_step{learning_rate,milestones,gamma=0.1}   learning_rate gamma^(milestones <= t)
//   linear_warmup{warmup_steps,start_lr,end_lr,learning_rate=end_lr}
//     start_lr + (end_lr - start_lr) t / warmup_steps, then learning_rate; or, if another
//     schedule follows after a comma, that schedule from its step 0 on
//
// Lists are numbers separated by colons, or by commas and in double quotes.
//
// InvalidArgument, naming the schedule and the option, with what is expected.
absl::StatusOr<LrSchedule> ParseLrSchedule(absl::string_view text);

// The variable from which the optimizers of the program take their learning rates, directly or
// scaled. InvalidArgument if there is none or more than one (the message lists them), or if the
// program computes it.
absl::StatusOr<std::string> FindLearningRate(const Program& main);

}  // namespace weft

#endif  // WEFT_TOOLS_LR_SCHEDULE_H_
