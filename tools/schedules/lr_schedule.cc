#include "tools/schedules/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/spec_text.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/server_ops.h"
#include "proto/all_ops.h"
#include "tools/schedules/plateau_schedule.h"
#include "tools/schedules/schedule_options.h"

namespace weft {
namespace {

// The number of sorted numbers that are at most t.
size_t CountReached(const std::vector<double>& sorted, double t) {
  return std::upper_bound(sorted.begin(), sorted.end(), t) - sorted.begin();
}

LrSchedule Noam(ScheduleOptions& options) {
  const double d_model = options.PositiveNumber("d_model");
  const double warmup_steps = options.Steps("warmup_steps");
  const double base = options.Number("learning_rate", 1.0);
  return [=](int64_t step) {
    const auto t = static_cast<double>(step);
    const double decay = step == 0 ? 1 : std::pow(t, -0.5);
    return base * std::pow(d_model, -0.5) * std::min(decay, std::pow(warmup_steps, -1.5) * t);
  };
}

LrSchedule Piecewise(ScheduleOptions& options) {
  const std::vector<double> boundaries = options.RisingSteps("boundaries");
  const std::vector<double> values = options.Numbers("values");
  options.Expect("values", values.size() == boundaries.size() + 1,
                 absl::StrCat(boundaries.size() + 1, " numbers, one more than boundaries"),
                 static_cast<double>(values.size()));
  return [=](int64_t step) { return values[CountReached(boundaries, static_cast<double>(step))]; };
}

LrSchedule Exponential(ScheduleOptions& options) {
  const double base = options.Number("learning_rate");
  const double gamma = options.Number("gamma");
  options.Expect("gamma", gamma > 0 && gamma < 1, "a number between 0 and 1", gamma);
  return [=](int64_t step) { return base * std::pow(gamma, step); };
}

LrSchedule NaturalExp(ScheduleOptions& options) {
  const double base = options.Number("learning_rate");
  const double gamma = options.PositiveNumber("gamma");
  return [=](int64_t step) { return base * std::exp(-gamma * static_cast<double>(step)); };
}

LrSchedule InverseTime(ScheduleOptions& options) {
  const double base = options.Number("learning_rate");
  const double gamma = options.Number("gamma");
  options.Expect("gamma", gamma >= 0, "0 or more", gamma);
  return [=](int64_t step) { return base / (1 + gamma * static_cast<double>(step)); };
}

LrSchedule Polynomial(ScheduleOptions& options) {
  const double base = options.Number("learning_rate");
  const double decay_steps = options.Steps("decay_steps");
  const double end = options.Number("end_lr", 0.0001);
  const double power = options.PositiveNumber("power", 1.0);
  const bool cycle = options.Bool("cycle", false);
  return [=](int64_t step) {
    const auto t = static_cast<double>(step);
    const double cycles = cycle ? std::max(1.0, std::ceil(t / decay_steps)) : 1;
    const double total = decay_steps * cycles;
    return (base - end) * std::pow(1 - std::min(t, total) / total, power) + end;
  };
}

LrSchedule Cosine(ScheduleOptions& options) {
  const double base = options.Number("learning_rate");
  const double half_period = options.Steps("T_max");
  const double least = options.Number("eta_min", 0.0);
  return [=](int64_t step) {
    const double angle = M_PI * static_cast<double>(step) / half_period;
    return least + (base - least) * (1 + std::cos(angle)) / 2;
  };
}

LrSchedule StepDecay(ScheduleOptions& options) {
  const double base = options.Number("learning_rate");
  const auto step_size = static_cast<int64_t>(options.Steps("step_size"));
  const double gamma = options.Number("gamma", 0.1);
  options.Expect("gamma", gamma < 1, "a number below 1", gamma);
  return [=](int64_t step) { return base * std::pow(gamma, step / step_size); };
}

LrSchedule MultiStep(ScheduleOptions& options) {
  const double base = options.Number("learning_rate");
  const std::vector<double> milestones = options.RisingSteps("milestones");
  const double gamma = options.Number("gamma", 0.1);
  options.Expect("gamma", gamma < 1, "a number below 1", gamma);
  return [=](int64_t step) {
    return base * std::pow(gamma, CountReached(milestones, static_cast<double>(step)));
  };
}

LrSchedule Linear(ScheduleOptions& options) {
  const double base = options.Number("learning_rate");
  const double total_steps = options.Steps("total_steps");
  const double start = options.PositiveNumber("start_factor", 1.0 / 3);
  const double end = options.Number("end_factor", 1.0);
  options.Expect("end_factor", end >= 0, "0 or more", end);
  return [=](int64_t step) {
    const double t = std::min(static_cast<double>(step), total_steps);
    return base * (start + (end - start) * t / total_steps);
  };
}

LrSchedule Cyclic(ScheduleOptions& options) {
  const double base = options.Number("base_learning_rate");
  const double max = options.Number("max_learning_rate");
  const double up = options.Steps("step_size_up");
  const double down = options.Steps("step_size_down", up);
  const std::string mode = options.Word("mode", "triangular");
  const double gamma = options.Number("exp_gamma", 1.0);
  options.ExpectWord("mode", mode, {"triangular", "triangular2", "exp_range"});
  return [=](int64_t step) {
    const auto t = static_cast<double>(step);
    const double cycle = std::floor(t / (up + down));
    const double in_cycle = t - cycle * (up + down);
    const double height = in_cycle <= up ? in_cycle / up : (up + down - in_cycle) / down;
    const double scale = mode == "triangular2" ? std::pow(2.0, -cycle)
                         : mode == "exp_range" ? std::pow(gamma, t)
                                               : 1;
    return base + (max - base) * height * scale;
  };
}

LrSchedule CosineWarmRestarts(ScheduleOptions& options) {
  const double base = options.Number("learning_rate");
  const double first_period = options.Steps("T_0");
  const double factor = options.Steps("T_mult", 1.0);
  const double least = options.Number("eta_min", 0.0);
  return [=](int64_t step) {
    auto t = static_cast<double>(step);
    double period = first_period;
    if (factor == 1) {
      t = std::fmod(t, period);
    } else {
      for (; t >= period; period *= factor) t -= period;
    }
    return least + (base - least) * (1 + std::cos(M_PI * t / period)) / 2;
  };
}

// One number per step. Beyond them, NaN: no rate.
LrSchedule Table(ScheduleOptions& options) {
  std::vector<double> values =
      options.IsGiven("file") ? options.NumbersOfFile("file") : options.Numbers("values");
  return [values = std::move(values)](int64_t step) {
    const auto i = static_cast<size_t>(step);
    return i < values.size() ? values[i] : std::numeric_limits<double>::quiet_NaN();
  };
}

LrSchedule Named(absl::string_view name, ScheduleOptions& options) {
  if (name == "noam") return Noam(options);
  if (name == "piecewise") return Piecewise(options);
  if (name == "exponential") return Exponential(options);
  if (name == "natural_exp") return NaturalExp(options);
  if (name == "inverse_time") return InverseTime(options);
  if (name == "polynomial") return Polynomial(options);
  if (name == "cosine") return Cosine(options);
  if (name == "step") return StepDecay(options);
  if (name == "multi_step") return MultiStep(options);
  if (name == "linear") return Linear(options);
  if (name == "cyclic") return Cyclic(options);
  if (name == "cosine_warm_restarts") return CosineWarmRestarts(options);
  if (name == "table") return Table(options);
  return nullptr;
}

// `after`: the schedule that follows; null for none.
LrSchedule LinearWarmup(ScheduleOptions& options, LrSchedule after) {
  const double warmup_steps = options.Steps("warmup_steps");
  const double start = options.Number("start_lr");
  const double end = options.Number("end_lr");
  options.Expect("end_lr", end > start, absl::StrCat("more than start_lr, ", start), end);
  if (after == nullptr) {
    const double rate = options.Number("learning_rate", end);
    after = [rate](int64_t) { return rate; };
  }
  return [=](int64_t step) {
    const auto t = static_cast<double>(step);
    if (t >= warmup_steps) return after(step - static_cast<int64_t>(warmup_steps));
    return (end - start) * t / warmup_steps + start;
  };
}

// The schedule `after`, from its step on.
LrSchedule StartAt(ScheduleOptions& options, LrSchedule after) {
  const double first = options.Number("step");
  options.Expect("step", ScheduleOptions::IsInteger(first) && first >= 0, "a number of steps",
                 first);
  if (after == nullptr) {
    options.Fail("expected a schedule after it");
    return [](int64_t) { return 0.0; };
  }
  return [first = static_cast<int64_t>(first), after = std::move(after)](int64_t step) {
    return after(step + first);
  };
}

constexpr char kNames[] =
    "noam, piecewise, exponential, natural_exp, inverse_time, polynomial, cosine, step, "
    "multi_step, linear, cyclic, cosine_warm_restarts, table, linear_warmup, start_at, "
    "reduce_on_plateau";

}  // namespace

absl::StatusOr<LrSchedule> ParseLrSchedule(absl::string_view text) {
  const absl::StatusOr<std::vector<Spec>> parsed = ParseSpecs(text);
  if (!parsed.ok()) {
    // bash makes two words of cosine{a=1,b=2}.
    const bool lacks_braces = absl::StrContains(text, '=') && !absl::StrContains(text, '{');
    return absl::InvalidArgumentError(
        absl::StrCat("expected NAME{OPTION=VALUE,...}, found ", text.empty() ? "nothing" : text,
                     lacks_braces ? "; quote it, as shells expand braces" : ""));
  }
  const std::vector<Spec>& specs = *parsed;
  LrSchedule schedule;
  // In reverse order: a warm-up takes the schedule after it.
  for (size_t i = specs.size(); i-- > 0;) {
    const Spec& spec = specs[i];
    ScheduleOptions options(spec);
    if (spec.name == "linear_warmup") {
      schedule = LinearWarmup(options, std::move(schedule));
    } else if (spec.name == "start_at") {
      schedule = StartAt(options, std::move(schedule));
    } else if (schedule != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          spec.name, ": only linear_warmup and start_at may precede another schedule"));
    } else {
      schedule = Named(spec.name, options);
    }
    if (schedule == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(spec.name, ": unknown schedule; expected one of ", kNames));
    }
    WEFT_RETURN_IF_ERROR(Annotate(spec.name, options.status()));
  }
  return schedule;
}

absl::Status CheckLrSchedule(absl::string_view text) {
  if (PlateauSchedule::IsNamedIn(text)) return PlateauSchedule::Parse(text).status();
  return ParseLrSchedule(text).status();
}

absl::StatusOr<std::string> FindLearningRate(const Program& main) {
  OpTraits traits(main);
  absl::flat_hash_map<Symbol, OpId> writers;  // the last of each
  std::set<std::string> found;
  for (const Op& op : AllOps(main)) {
    for (Symbol out : op.output_args()) writers[out] = op.id();
    const bool pushes = FindServerOp(op.type()) == ServerOp::kPush;
    if (!traits.Has(op, Trait::kOptimizer) && !pushes) continue;
    for (Symbol rate : op.Input("LearningRate")) {
      // A parameter with a separate rate takes a multiple of the common one.
      constexpr int kMaxOpsBetween = 8;
      int ops_between = 0;
      for (auto it = writers.find(rate); it != writers.end(); it = writers.find(rate)) {
        const Op writer = main.op(it->second);
        if (writer.input_args().size() != 1 || ++ops_between > kMaxOpsBetween) {
          return absl::InvalidArgumentError(
              absl::StrCat("the program computes its own learning rate: ", writer.DebugName(),
                           " writes ", main.name(rate)));
        }
        rate = writer.input_args()[0];
      }
      found.insert(std::string(main.name(rate)));
    }
  }
  if (found.size() == 1) return *found.begin();
  if (found.empty()) return absl::InvalidArgumentError("no optimizer has a learning rate");
  return absl::InvalidArgumentError(absl::StrCat("the program has ", found.size(),
                                                 " learning rates: ", absl::StrJoin(found, ", "),
                                                 "; name one with --lr_var"));
}

}  // namespace weft
