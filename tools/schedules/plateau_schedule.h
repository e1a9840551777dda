// A learning rate that falls when a metric no longer improves: ReduceOnPlateau of
// paddle.optimizer.lr.
#ifndef WEFT_TOOLS_SCHEDULES_PLATEAU_SCHEDULE_H_
#define WEFT_TOOLS_SCHEDULES_PLATEAU_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "executor/run/result_queue.h"

namespace weft {

// The metric of a period of `every` steps is the mean of a fetched variable over its elements, the
// ranks and the steps; of one of which ranks have partial sums, the mean of the sums. It is better
// than the best one so far if it is
//
//                     mode=min                       mode=max
//   threshold_mode=rel  < best - best * threshold      > best + best * threshold
//   threshold_mode=abs  < best - threshold             > best + threshold
//
// After more than `patience` periods without a better one, the rate is multiplied by `factor`, but
// not below `min_lr`, nor if it would fall by no more than `epsilon`; then `cooldown` periods do
// not count. As in Paddle 2.6 (ReduceOnPlateau.step, once a period).
class PlateauSchedule {
 public:
  // Of "reduce_on_plateau{OPTION=VALUE,...}"; docs/running.md lists the options.
  static bool IsNamedIn(absl::string_view text);
  // InvalidArgument, naming the option, with what is expected.
  static absl::StatusOr<PlateauSchedule> Parse(absl::string_view text);

  // The fetched variable; empty: the first one.
  const std::string& metric() const { return metric_; }
  int64_t every() const { return every_; }
  double rate() const { return rate_; }
  // Where it stands: the best metric, periods since that, and periods that do not count.
  absl::optional<double> best() const { return best_; }
  int64_t num_bad() const { return num_bad_; }
  int64_t cooldown_left() const { return cooldown_left_; }

  // Ranks have partial sums of the metric.
  void AddUpRanks(int nranks);

  // Counts the result of a rank, by step and by rank within a step. InvalidArgument, naming the
  // variable, if it is not fetched or has no real elements.
  absl::Status Add(const StepResult& result);

  // The rate from this step on, a multiple of every() or the first step of the run: ends the period
  // before it, if results have been added since the last call.
  double RateAt(int64_t step);

  // What has become of it, for a checkpoint; a schedule of the same text goes on from there with
  // the same bits. InvalidArgument for a text that State() does not return.
  std::string State() const;
  absl::Status Restore(absl::string_view state);

 private:
  void EndPeriod(double metric);
  bool IsBetter(double metric) const;

  std::string metric_;
  int64_t every_ = 1;
  bool takes_max_ = false, is_absolute_ = false;
  double factor_ = 0, threshold_ = 0, min_rate_ = 0, epsilon_ = 0;
  int64_t patience_ = 0, cooldown_ = 0;
  int times_ = 1;  // the mean over the ranks
  // Restored from a run that did not add up: the metric was the mean over the ranks.
  bool is_of_means_ = false;

  double rate_ = 0;
  absl::optional<double> best_;
  int64_t num_bad_ = 0;        // periods since the best one
  int64_t cooldown_left_ = 0;  // periods
  // Of the period that has begun: over ranks and steps.
  double sum_ = 0;
  int64_t count_ = 0;
};

}  // namespace weft

#endif  // WEFT_TOOLS_SCHEDULES_PLATEAU_SCHEDULE_H_
