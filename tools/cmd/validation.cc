#include "tools/cmd/validation.h"

#include <cmath>
#include <mutex>
#include <set>
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
#include "ops/analysis/training/losses.h"
#include "tools/flags/said.h"

namespace weft {

absl::StatusOr<BestMetric> BestMetric::Of(const std::string& choice,
                                          absl::Span<const Metric> metrics) {
  BestMetric made;
  absl::string_view name = choice;
  made.is_max_ = absl::ConsumePrefix(&name, "max:");
  auto found = absl::c_find_if(metrics, [&](const Metric& metric) { return metric.name == name; });
  if (found == metrics.end() && name == "loss") {
    found = absl::c_find_if(metrics, [](const Metric& metric) { return metric.is_loss; });
    if (found == metrics.end() && metrics.size() == 1) found = metrics.begin();
  }
  if (found == metrics.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "option:keep_best ", choice, ": expected ",
        name == "loss" ? "a metric that is known as a loss, or the name of one, of "
                       : "loss, or one of the metrics ",
        absl::StrJoin(metrics, ", ",
                      [](std::string* out, const Metric& metric) { *out += metric.name; })));
  }
  made.metric_ = found - metrics.begin();
  made.name_ = absl::StrCat(made.is_max_ ? "max:" : "", found->name);
  return made;
}

bool BestMetric::Restore(const std::string& text) {
  if (text.empty()) return true;
  const size_t end = text.rfind('=');
  double value = 0;
  const bool is_its = end != std::string::npos && text.substr(0, end) == name_ &&
                      absl::SimpleAtod(text.substr(end + 1), &value);
  if (is_its) best_ = value;
  return is_its;
}

bool BestMetric::Add(double value) {
  const bool is_best =
      !std::isnan(value) && (!best_.has_value() || (is_max_ ? value > *best_ : value < *best_));
  if (is_best) best_ = value;
  return is_best;
}

std::string BestMetric::text() const {
  return best_.has_value() ? absl::StrFormat("%s=%.17g", name_, *best_) : "";
}

std::vector<Metric> WithLossesOf(const Program& trains, std::vector<Metric> metrics) {
  std::set<absl::string_view> losses;
  for (Symbol loss : FindLosses(trains)) losses.insert(trains.name(loss));
  for (Metric& metric : metrics) metric.is_loss |= losses.count(metric.name) > 0;
  return metrics;
}

std::string BestBeginsAnew(const std::string& choice, const std::string& text) {
  return absl::StrCat("option:keep_best ", choice, ": the best so far was of another metric, ",
                      text, "; the choice begins anew");
}

absl::StatusOr<Validation> Validation::Create(TestFlags flags, const Program& trains,
                                              const std::string& keep_best,
                                              const std::string& best) {
  Validation made;
  const int ranks = std::exchange(flags.ranks, 1);
  WEFT_ASSIGN_OR_RETURN(made.test_, ReadTestProgram(flags, {}));
  if (made.test_.metrics.states.empty() && !Communicates(*made.test_.main)) flags.ranks = ranks;
  WEFT_RETURN_IF_ERROR(Annotate(flags.main, CheckTestParams(flags, made.test_, trains)));
  if (!keep_best.empty()) {
    WEFT_ASSIGN_OR_RETURN(made.best_,
                          BestMetric::Of(keep_best, WithLossesOf(trains, made.test_.metrics.all)));
    if (!made.best_->Restore(best)) {
      flags.say({Severity::kNote, BestBeginsAnew(keep_best, best)});
    }
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
