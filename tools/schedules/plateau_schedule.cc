#include "tools/schedules/plateau_schedule.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/spec_text.h"
#include "base/status_macros.h"
#include "ops/kernel_util.h"
#include "tools/schedules/schedule_options.h"

namespace weft {
namespace {

constexpr char kName[] = "reduce_on_plateau", kState[] = "state";

absl::StatusOr<Spec> ParseOne(absl::string_view text, absl::string_view name) {
  absl::StatusOr<std::vector<Spec>> specs = ParseSpecs(text);
  if (!specs.ok() || specs->empty() || specs->front().name != name) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", name, "{OPTION=VALUE,...}, found ", text));
  }
  if (specs->size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected nothing after it, found ", (*specs)[1].name));
  }
  return std::move(specs->front());
}

int64_t Count(ScheduleOptions& options, absl::string_view name, double default_value) {
  const double value = options.Number(name, default_value);
  options.Expect(name, ScheduleOptions::IsInteger(value) && value >= 0, "a number of periods",
                 value);
  return static_cast<int64_t>(value);
}

absl::StatusOr<double> MeanOf(const Tensor& tensor) {
  double sum = 0;
  const auto add = [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto to_double = [](T x) {
      if constexpr (std::is_arithmetic_v<T>) return static_cast<double>(x);
      return static_cast<double>(static_cast<float>(x));  // of 16 bits
    };
    for (int64_t i = 0; i < tensor.size(); ++i) sum += to_double(tensor.data<T>()[i]);
    return absl::OkStatus();
  };
  const absl::Status status =
      ForElementType<float, double, int32_t, int64_t, Float16, BFloat16>("", tensor, add);
  if (!status.ok() || tensor.size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("expected numbers, found ", tensor.size(),
                                                   " elements of ", DTypeName(tensor.dtype())));
  }
  return sum / static_cast<double>(tensor.size());
}

}  // namespace

bool PlateauSchedule::IsNamedIn(absl::string_view text) {
  const absl::StatusOr<std::vector<Spec>> specs = ParseSpecs(text);
  return specs.ok() && absl::c_any_of(*specs, [](const Spec& spec) { return spec.name == kName; });
}

absl::StatusOr<PlateauSchedule> PlateauSchedule::Parse(absl::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const Spec spec, ParseOne(text, kName));
  ScheduleOptions options(spec);
  PlateauSchedule schedule;
  schedule.rate_ = options.Number("learning_rate");
  schedule.every_ = static_cast<int64_t>(options.Steps("every"));
  schedule.metric_ = options.Word("metric", "");
  const std::string mode = options.Word("mode", "min");
  options.ExpectWord("mode", mode, {"min", "max"});
  schedule.takes_max_ = mode == "max";
  schedule.factor_ = options.Number("factor", 0.1);
  options.Expect("factor", schedule.factor_ > 0 && schedule.factor_ < 1, "a number between 0 and 1",
                 schedule.factor_);
  schedule.patience_ = Count(options, "patience", 10);
  schedule.threshold_ = options.Number("threshold", 1e-4);
  const std::string threshold_mode = options.Word("threshold_mode", "rel");
  options.ExpectWord("threshold_mode", threshold_mode, {"rel", "abs"});
  schedule.is_absolute_ = threshold_mode == "abs";
  schedule.cooldown_ = Count(options, "cooldown", 0);
  schedule.min_rate_ = options.Number("min_lr", 0.0);
  schedule.epsilon_ = options.Number("epsilon", 1e-8);
  // Where a scheduler stands that has done some periods.
  if (options.IsGiven("best")) schedule.best_ = options.Number("best");
  schedule.num_bad_ = Count(options, "num_bad", 0);
  schedule.cooldown_left_ = Count(options, "cooldown_left", 0);
  WEFT_RETURN_IF_ERROR(Annotate(kName, options.status()));
  return schedule;
}

absl::Status PlateauSchedule::Add(const StepResult& result) {
  const std::vector<std::string>& names = *result.names;
  const auto found = metric_.empty() ? names.begin() : absl::c_find(names, metric_);
  if (found == names.end()) {
    return absl::InvalidArgumentError(absl::StrCat(kName, ": metric ", metric_,
                                                   ": expected a fetched variable, one of ",
                                                   absl::StrJoin(names, ", "), " (--fetch)"));
  }
  const absl::StatusOr<double> mean = MeanOf(result.values[found - names.begin()]);
  if (!mean.ok()) return Annotate(absl::StrCat(kName, ": metric ", *found), mean.status());
  sum_ += times_ * *mean;
  ++count_;
  return absl::OkStatus();
}

void PlateauSchedule::AddUpRanks(int nranks) {
  times_ = nranks;
  if (!std::exchange(is_of_means_, false)) return;
  if (best_.has_value()) *best_ *= nranks;
  sum_ *= nranks;
}

double PlateauSchedule::RateAt(int64_t step) {
  const bool ends_period = step % every_ == 0 && count_ > 0;
  if (ends_period) EndPeriod(sum_ / static_cast<double>(count_));
  return rate_;
}

void PlateauSchedule::EndPeriod(double metric) {
  sum_ = 0;
  count_ = 0;
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    return;
  }
  if (IsBetter(metric)) {
    best_ = metric;
    num_bad_ = 0;
  } else {
    ++num_bad_;
  }
  if (num_bad_ <= patience_) return;
  cooldown_left_ = cooldown_;
  num_bad_ = 0;
  const double lower = std::max(rate_ * factor_, min_rate_);
  if (rate_ - lower > epsilon_) rate_ = lower;
}

bool PlateauSchedule::IsBetter(double metric) const {
  if (!best_.has_value()) return true;
  const double margin = is_absolute_ ? threshold_ : *best_ * threshold_;
  return takes_max_ ? metric > *best_ + margin : metric < *best_ - margin;
}

std::string PlateauSchedule::State() const {
  const std::string best = best_.has_value() ? absl::StrFormat("best=%.17g,", *best_) : "";
  return absl::StrFormat(
      "%s{rate=%.17g,%snum_bad=%d,cooldown_left=%d,sum=%.17g,count=%d,adds_up=1}", kState, rate_,
      best, num_bad_, cooldown_left_, sum_, count_);
}

absl::Status PlateauSchedule::Restore(absl::string_view state) {
  WEFT_ASSIGN_OR_RETURN(const Spec spec, ParseOne(state, kState));
  ScheduleOptions options(spec);
  PlateauSchedule restored = *this;
  restored.rate_ = options.Number("rate");
  restored.best_.reset();
  if (options.IsGiven("best")) restored.best_ = options.Number("best");
  restored.num_bad_ = Count(options, "num_bad", 0);
  restored.cooldown_left_ = Count(options, "cooldown_left", 0);
  restored.sum_ = options.Number("sum");
  restored.count_ = Count(options, "count", 0);
  restored.is_of_means_ = !options.IsGiven("adds_up");
  if (!restored.is_of_means_) Count(options, "adds_up", 1);
  WEFT_RETURN_IF_ERROR(Annotate(kState, options.status()));
  *this = std::move(restored);
  return absl::OkStatus();
}

}  // namespace weft
