// The steps in which ranks average their parameters.
#ifndef WEFT_PROTO_AVERAGING_SCHEDULE_H_
#define WEFT_PROTO_AVERAGING_SCHEDULE_H_

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/outer_optimizer.h"

namespace weft {

// LocalSGD averages parameters in the steps that are multiples of `period`, and in every step
// before `begin_step`, but in none before `first_step`. Steps count from 1.
struct AveragingSchedule {
  // The element type in which the outer gradients of fp32 parameters travel.
  enum class Sent { kNative, kBf16, kFp16 };

  int period = 1;
  int first_step = 1;
  int begin_step = 1;
  // In groups of so many ranks, 0 to n - 1, n to 2 n - 1 and so on, ranks average parameters every
  // `period` steps, and all ranks do so, or move them by `outer`, every `rounds` times that. 0:
  // there are no groups, and rounds is 1.
  int group_size = 0;
  int rounds = 1;
  // Instead of these: each step averages one of K partitions of the parameters, in the order of the
  // program, so that each parameter is averaged once in K steps. The program says what K is.
  bool is_in_turn = false;
  // With several fragments of the parameters, these take turns: fragment i of N, from 1 on in the
  // order of the program, in the steps s where s % period is PhaseOf(i). N divides the period, and
  // first_step and begin_step are 1.
  int fragments = 1;
  // What happens in these steps to parameters, beyond their averages. Not for schedules in turn.
  OuterOptimizer outer = {};
  // With an outer optimizer that has a state: it moves parameters by the mean outer gradients of so
  // many steps before, less than period / fragments.
  int delay = 0;
  // And of what a synchronization gives, parameters become 1 - mix, and mix of what they were on
  // their rank. 0 <= mix <= 1; with 1, no rank sees what the others learn.
  double mix = 0;
  // Not kNative: with an outer optimizer that has a state. What rounding takes from an outer
  // gradient is added to the next one.
  Sent sent = Sent::kNative;

  static AveragingSchedule InTurn() {
    AveragingSchedule schedule;
    schedule.is_in_turn = true;
    return schedule;
  }

  int PhaseOf(int fragment) const { return fragment * (period / fragments) % period; }
  // Not for schedules in turn, and one fragment.
  bool IsDue(int step) const {
    return step >= first_step && (step < begin_step || step % PeriodOfAll() == 0);
  }
  bool IsDueInGroups(int step) const {
    return HasGroups() && step % period == 0 && step % PeriodOfAll() != 0;
  }
  bool HasGroups() const { return group_size > 0; }
  int PeriodOfAll() const { return period * rounds; }
  bool IsEveryStep() const { return !is_in_turn && period == 1 && first_step == 1; }
  // Parameters are averaged on several conditions.
  bool HasTurns() const { return is_in_turn || fragments > 1; }

  friend bool operator==(const AveragingSchedule& a, const AveragingSchedule& b) {
    return a.period == b.period && a.first_step == b.first_step && a.begin_step == b.begin_step &&
           a.group_size == b.group_size && a.rounds == b.rounds && a.is_in_turn == b.is_in_turn &&
           a.fragments == b.fragments && a.outer == b.outer && a.delay == b.delay &&
           a.mix == b.mix && a.sent == b.sent;
  }
};

inline constexpr std::pair<absl::string_view, AveragingSchedule::Sent> kSentTypes[] = {
    {"bf16", AveragingSchedule::Sent::kBf16}, {"fp16", AveragingSchedule::Sent::kFp16}};

inline absl::string_view ToString(AveragingSchedule::Sent sent) {
  for (const auto& [name, type] : kSentTypes) {
    if (type == sent) return name;
  }
  return "native";
}
// The inverse, but for "native".
inline absl::optional<AveragingSchedule::Sent> ParseSent(absl::string_view name) {
  for (const auto& [known, type] : kSentTypes) {
    if (known == name) return type;
  }
  return absl::nullopt;
}

// "every 4 steps from step 8 on", "every 4 steps, and in every step before step 9", "every 4 steps,
// by sgd{lr=0.7}", "in turn, one partition a step".
inline std::string ToString(const AveragingSchedule& schedule) {
  if (schedule.is_in_turn) return "in turn, one partition a step";
  return absl::StrCat(
      "every ", schedule.period, schedule.period == 1 ? " step" : " steps",
      schedule.HasGroups()
          ? absl::StrCat(" in groups of ", schedule.group_size, " ranks, and every ",
                         schedule.PeriodOfAll(), " steps over all ranks")
          : "",
      schedule.first_step > 1 ? absl::StrCat(" from step ", schedule.first_step, " on") : "",
      schedule.begin_step > 1
          ? absl::StrCat(", and in every step before step ", schedule.begin_step)
          : "",
      schedule.fragments > 1 ? absl::StrCat(", in ", schedule.fragments, " fragments in turn") : "",
      schedule.outer.HasState() ? absl::StrCat(", by ", ToString(schedule.outer)) : "",
      schedule.delay > 0 ? absl::StrCat(", by the outer gradients of ", schedule.delay,
                                        schedule.delay == 1 ? " step" : " steps", " before")
                         : "",
      schedule.mix > 0 ? absl::StrCat(", mixed with ", schedule.mix, " of the rank's own") : "",
      schedule.sent != AveragingSchedule::Sent::kNative
          ? absl::StrCat(", sent as ", ToString(schedule.sent))
          : "");
}

// What its fields were to be, such as "fragments: expected a divisor of k_steps 4, found 3"; empty
// if nothing is wrong. Takes each field but mix to be in its own range.
inline std::string ProblemOf(const AveragingSchedule& schedule) {
  if (!(schedule.mix >= 0 && schedule.mix <= 1)) {
    return absl::StrCat("mix: expected at least 0 and at most 1, found ", schedule.mix);
  }
  const bool begins_late = schedule.begin_step > 1 || schedule.first_step > 1;
  if (schedule.fragments > 1 && begins_late) {
    return "fragments: expected neither begin_step nor first_average with it";
  }
  if (schedule.period % schedule.fragments != 0) {
    return absl::StrCat("fragments: expected a divisor of k_steps ", schedule.period, ", found ",
                        schedule.fragments);
  }
  if (schedule.HasGroups() != (schedule.rounds > 1)) {
    return "group_size: expected rounds, more than 1, with it, and rounds with group_size only";
  }
  if (schedule.HasGroups() && schedule.group_size == 1) {
    return "group_size: expected at least 2, found 1";
  }
  if (schedule.HasGroups() && (begins_late || schedule.fragments > 1 || schedule.delay > 0)) {
    return "group_size: expected neither begin_step, first_average, fragments nor delay with it";
  }
  if (schedule.HasGroups() && schedule.rounds > std::numeric_limits<int>::max() / schedule.period) {
    return absl::StrCat("rounds: expected at most ",
                        std::numeric_limits<int>::max() / schedule.period, ", found ",
                        schedule.rounds);
  }
  const char* const of_outer = schedule.delay > 0                                  ? "delay"
                               : schedule.mix > 0                                  ? "mix"
                               : schedule.sent != AveragingSchedule::Sent::kNative ? "comm_dtype"
                                                                                   : nullptr;
  if (of_outer != nullptr && !schedule.outer.HasState()) {
    return absl::StrCat(of_outer, ": expected an outer optimizer with it, found ",
                        ToString(schedule.outer));
  }
  if (schedule.delay > 0 && begins_late) {
    return "delay: expected neither begin_step nor first_average with it";
  }
  const int turn = schedule.period / schedule.fragments;
  if (schedule.delay < turn) return "";
  return absl::StrCat("delay: expected less than the ", turn, turn == 1 ? " step" : " steps",
                      " between two turns, found ", schedule.delay);
}

}  // namespace weft

#endif  // WEFT_PROTO_AVERAGING_SCHEDULE_H_
