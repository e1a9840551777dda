// Validates while weft run trains.
#ifndef WEFT_TOOLS_CMD_VALIDATION_H_
#define WEFT_TOOLS_CMD_VALIDATION_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "executor/files/checkpoint.h"
#include "proto/program.h"
#include "tools/cmd/evaluation.h"
#include "tools/cmd/test_program.h"

namespace weft {

// Which of several values of a metric is the best: that of a metric by its name, or of "max:" and
// the name of one. Smaller is better, but for max. Where no metric is called loss, "loss" is the
// first one that is_loss, or else the only one.
class BestMetric {
 public:
  // InvalidArgument for a metric that there is not.
  static absl::StatusOr<BestMetric> Of(const std::string& choice, absl::Span<const Metric> metrics);

  // Goes on from what text() returned; empty: from none. False: that is of another metric, and
  // this begins anew.
  bool Restore(const std::string& text);
  // Whether the value is better than all before it. NaN never is.
  bool Add(double value);
  bool has_value() const { return best_.has_value(); }
  size_t metric() const { return metric_; }  // index
  // Empty: no value was the best.
  std::string text() const;

 private:
  std::string name_;  // of the metric; with "max:"
  size_t metric_ = 0;
  bool is_max_ = false;
  absl::optional<double> best_;
};

// The metrics of a test program, of which those that are losses where the model trains are losses
// here, too: a copy that was made before minimize does not say what its losses are.
std::vector<Metric> WithLossesOf(const Program& trains, std::vector<Metric> metrics);

// What is said if BestMetric::Restore returns false.
std::string BestBeginsAnew(const std::string& choice, const std::string& text);

// One test program, evaluated again and again. It computes on as many threads as `flags.ranks`, but
// on one where the program communicates or leaves values from batch to batch.
class Validation {
 public:
  // Reads the test program and its batches: the errors of ReadTestProgram, CheckTestParams and
  // BestMetric. `keep_best`: the choice of BestMetric; empty: none. `best`: of an earlier part of
  // the run; says if it is of another metric. `trains`: the program whose values are evaluated.
  static absl::StatusOr<Validation> Create(TestFlags flags, const Program& trains,
                                           const std::string& keep_best, const std::string& best);

  // Evaluates with values of training; errors begin with the path of a file.
  absl::Status Run(std::map<std::string, Tensor> values);

  // Of the last Run.
  const std::vector<Evaluation::Total>& totals() const { return totals_; }
  bool is_best() const { return is_best_; }
  // For `best` of a run that goes on; empty: there is no choice.
  std::string best() const { return best_.has_value() ? best_->text() : ""; }

 private:
  TestFlags flags_;
  TestProgram test_;
  absl::optional<BestMetric> best_;
  std::vector<Evaluation::Total> totals_;
  bool is_best_ = false;
};

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_VALIDATION_H_
