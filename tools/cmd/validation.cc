#include "tools/cmd/validation.h"

#include <cmath>
#include <mutex>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "ops/analysis/core/communication.h"

namespace weft {

absl::StatusOr<BestMetric> BestMetric::Of(const std::string& choice, const Metrics& metrics,
                                          const std::string& best) {
  BestMetric made;
  absl::string_view name = choice;
  made.is_max_ = absl::ConsumePrefix(&name, "max:");
  if (name != "loss" || made.is_max_) {
    const auto found =
        absl::c_find_if(metrics.all, [&](const Metric& metric) { return metric.name == name; });
    if (found == metrics.all.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "option:keep_best ", choice, ": expected loss, or one of the metrics ",
          absl::StrJoin(metrics.all, ", ",
                        [](std::string* out, const Metric& metric) { *out += metric.name; })));
    }
    made.metric_ = found - metrics.all.begin();
  }
  double value = 0;
  if (absl::SimpleAtod(best, &value)) made.best_ = value;
  return made;
}

bool BestMetric::Add(double value) {
  const bool is_best =
      !std::isnan(value) && (!best_.has_value() || (is_max_ ? value > *best_ : value < *best_));
  if (is_best) best_ = value;
  return is_best;
}

std::string BestMetric::text() const {
  return best_.has_value() ? absl::StrFormat("%.17g", *best_) : "";
}

absl::StatusOr<Validation> Validation::Create(TestFlags flags, const std::string& keep_best,
                                              const std::string& best) {
  Validation made;
  const int ranks = std::exchange(flags.ranks, 1);
  WEFT_ASSIGN_OR_RETURN(made.test_, ReadTestProgram(flags, {}));
  if (made.test_.metrics.states.empty() && !Communicates(*made.test_.main)) flags.ranks = ranks;
  if (!keep_best.empty()) {
    WEFT_ASSIGN_OR_RETURN(made.best_, BestMetric::Of(keep_best, made.test_.metrics, best));
  }
  made.flags_ = std::move(flags);
  return made;
}

absl::Status Validation::Run(std::map<std::string, Tensor> values) {
  const absl::StatusOr<ParamsInput> params = TestParams(flags_, test_, std::move(values));
  WEFT_RETURN_IF_ERROR(Annotate(flags_.main, params.status()));
  std::mutex mutex;
  Evaluation evaluation(test_.metrics);
  const absl::Status status = RunTestProgram(
      flags_, test_, params->params,
      [&](const StepResult& result) {
        std::lock_guard<std::mutex> lock(mutex);
        evaluation.Add(result);
        return absl::OkStatus();
      },
      [&](const auto& variables) {
        std::lock_guard<std::mutex> lock(mutex);
        evaluation.AddCounts(variables);
      });
  if (!status.ok()) {
    const bool names_feeds = absl::StartsWith(status.message(), flags_.feeds);
    return names_feeds ? status : Annotate(flags_.main, status);
  }
  totals_ = evaluation.Totals();
  is_best_ = best_.has_value() && best_->Add(totals_[best_->metric()].value);
  return absl::OkStatus();
}

}  // namespace weft
