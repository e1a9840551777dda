// The steps in which ranks average their parameters.
#ifndef WEFT_PROTO_AVERAGING_SCHEDULE_H_
#define WEFT_PROTO_AVERAGING_SCHEDULE_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/outer_optimizer.h"

namespace weft {

// LocalSGD averages parameters in the steps that are multiples of `period`, and in every step
// before `begin_step`, but in none before `first_step`. Steps count from 1.
struct AveragingSchedule {
  int period = 1;
  int first_step = 1;
  int begin_step = 1;
  // Instead of these: each step averages one of K partitions of the parameters, in the order of the
  // program, so that each parameter is averaged once in K steps. The program says what K is.
  bool is_in_turn = false;
  // With several fragments of the parameters, these take turns: fragment i of N, from 1 on in the
  // order of the program, in the steps s where s % period is PhaseOf(i). N divides the period, and
  // first_step and begin_step are 1.
  int fragments = 1;
  // What happens in these steps to parameters, beyond their averages. Not for schedules in turn.
  OuterOptimizer outer = {};

  static AveragingSchedule InTurn() {
    AveragingSchedule schedule;
    schedule.is_in_turn = true;
    return schedule;
  }

  int PhaseOf(int fragment) const { return fragment * (period / fragments) % period; }
  // Not for schedules in turn, and one fragment.
  bool IsDue(int step) const {
    return step >= first_step && (step < begin_step || step % period == 0);
  }
  bool IsEveryStep() const { return !is_in_turn && period == 1 && first_step == 1; }
  // Parameters are averaged on several conditions.
  bool HasTurns() const { return is_in_turn || fragments > 1; }

  friend bool operator==(const AveragingSchedule& a, const AveragingSchedule& b) {
    return a.period == b.period && a.first_step == b.first_step && a.begin_step == b.begin_step &&
           a.is_in_turn == b.is_in_turn && a.fragments == b.fragments && a.outer == b.outer;
  }
};

// "every 4 steps from step 8 on", "every 4 steps, and in every step before step 9", "every 4 steps,
// by sgd{lr=0.7}", "in turn, one partition a step".
inline std::string ToString(const AveragingSchedule& schedule) {
  if (schedule.is_in_turn) return "in turn, one partition a step";
  return absl::StrCat(
      "every ", schedule.period, schedule.period == 1 ? " step" : " steps",
      schedule.first_step > 1 ? absl::StrCat(" from step ", schedule.first_step, " on") : "",
      schedule.begin_step > 1
          ? absl::StrCat(", and in every step before step ", schedule.begin_step)
          : "",
      schedule.fragments > 1 ? absl::StrCat(", in ", schedule.fragments, " fragments in turn") : "",
      schedule.outer.HasState() ? absl::StrCat(", by ", ToString(schedule.outer)) : "");
}

}  // namespace weft

#endif  // WEFT_PROTO_AVERAGING_SCHEDULE_H_
