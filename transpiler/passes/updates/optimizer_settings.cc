#include "transpiler/passes/updates/optimizer_settings.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace weft {
namespace {

constexpr ValueRange kAnyNumber;
constexpr ValueRange kNotNegative{0};
constexpr ValueRange kUpToOne{0, 1};
constexpr ValueRange kBelowOne{0, 1, /*includes_max=*/false};

// A hyperparameter: its name, its places in options and settings, the types that read it.
struct Hyperparameter {
  const char* name;
  absl::optional<ScheduleValue> OptimizerOptions::*option;
  ScheduleValue OptimizerSettings::*setting;
  ValueRange range;
  const char* help;
  std::vector<OptimizerType> types;
};

const std::vector<Hyperparameter>& Hyperparameters() {
  using Options = OptimizerOptions;
  using Settings = OptimizerSettings;
  using Type = OptimizerType;
  const std::vector<Type> sgd = {Type::kSgd}, rms_prop = {Type::kRmsProp},
                          adam = {Type::kAdam, Type::kAdamW},
                          any = {Type::kSgd, Type::kRmsProp, Type::kAdaGrad, Type::kAdam,
                                 Type::kAdamW},
                          rooted = {Type::kRmsProp, Type::kAdaGrad, Type::kAdam, Type::kAdamW};
  static const auto* const all = new std::vector<Hyperparameter>{
      {"lr", &Options::lr, &Settings::lr, kNotNegative, "learning rate", any},
      {"weight_decay", &Options::weight_decay, &Settings::weight_decay, kNotNegative,
       "factor of the parameter that is added to its gradient; adamw: the parameter loses rate "
       "times this times itself (default 0.01)",
       any},
      {"momentum", &Options::momentum, &Settings::momentum, kNotNegative,
       "sgd: what is kept of the velocity", sgd},
      {"dampening", &Options::dampening, &Settings::dampening, kAnyNumber,
       "sgd with momentum: the velocity takes (1 - dampening) of the gradient", sgd},
      {"rho", &Options::rho, &Settings::rho, kUpToOne, "rmsprop: what is kept of the mean square",
       rms_prop},
      {"epsilon", &Options::epsilon, &Settings::epsilon, kNotNegative,
       "added under the root, by adam to the root", rooted},
      {"beta_1", &Options::beta_1, &Settings::beta_1, kBelowOne, "adam: what is kept of the mean",
       adam},
      {"beta_2", &Options::beta_2, &Settings::beta_2, kBelowOne,
       "adam: what is kept of the mean square", adam},
  };
  return *all;
}

std::vector<std::pair<std::string, OptimizerType>> Types() {
  return {{"sgd", OptimizerType::kSgd},
          {"rmsprop", OptimizerType::kRmsProp},
          {"adagrad", OptimizerType::kAdaGrad},
          {"adam", OptimizerType::kAdam},
          {"adamw", OptimizerType::kAdamW}};
}

std::string NameOf(OptimizerType type) {
  for (const auto& [name, value] : Types()) {
    if (value == type) return name;
  }
  return std::string();
}

absl::Status NotRead(const char* option, OptimizerType type) {
  std::vector<std::string> read;
  for (const Hyperparameter& known : Hyperparameters()) {
    if (absl::c_linear_search(known.types, type)) read.push_back(known.name);
  }
  if (type == OptimizerType::kSgd) read.push_back("nesterov");
  return absl::InvalidArgumentError(absl::StrCat("option ", option, ": type ", NameOf(type),
                                                 " does not read it; it reads ",
                                                 absl::StrJoin(read, ", ")));
}

absl::Status CheckNesterov(const OptimizerSettings& settings) {
  if (!settings.nesterov) return absl::OkStatus();
  if (settings.momentum.IsZero()) {
    return absl::InvalidArgumentError(
        "option nesterov: expected momentum > 0 with it, found momentum 0");
  }
  if (settings.dampening.IsZero()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("option nesterov: expected dampening 0 with it, found dampening ",
                   ToString(settings.dampening)));
}

}  // namespace

std::string ToString(const OptimizerSettings& settings) {
  std::string text = absl::StrCat("{type=", NameOf(settings.type));
  for (const Hyperparameter& known : Hyperparameters()) {
    if (!absl::c_linear_search(known.types, settings.type)) continue;
    absl::StrAppend(&text, ",", known.name, "=", ToString(settings.*known.setting));
  }
  if (settings.nesterov) absl::StrAppend(&text, ",nesterov=true");
  return text + "}";
}

void OptimizerOptions::Bind(OptionBinder& bind) {
  const OptimizerSettings defaults;
  bind.Choice("type", &type, "the optimizer, by the formulas of Apache SINGA", Types());
  for (const Hyperparameter& known : Hyperparameters()) {
    const auto parse = [range = known.range](absl::string_view text) {
      return ParseScheduleValue(text, range);
    };
    bind.Parsed(known.name, &(this->*known.option), ToString(defaults.*known.setting), known.help,
                ExpectedScheduleValue(known.range), parse);
  }
  const auto parse_bool = [](absl::string_view text) -> absl::StatusOr<bool> {
    bool value;
    if (!absl::SimpleAtob(text, &value)) return absl::InvalidArgumentError("no boolean");
    return value;
  };
  bind.Parsed("nesterov", &nesterov, "false", "sgd with momentum: update by the velocity to come",
              "true or false", parse_bool);
}

absl::StatusOr<OptimizerSettings> OptimizerOptions::Resolve() const {
  OptimizerSettings settings;
  settings.type = type;
  const bool is_adamw = type == OptimizerType::kAdamW;
  if (is_adamw) settings.weight_decay = ScheduleValue{0.01};
  for (const Hyperparameter& known : Hyperparameters()) {
    const absl::optional<ScheduleValue>& value = this->*known.option;
    if (!value.has_value()) continue;
    if (!absl::c_linear_search(known.types, type)) return NotRead(known.name, type);
    settings.*known.setting = *value;
  }
  if (is_adamw && settings.weight_decay.decay.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("option weight_decay: type adamw takes a constant, found ",
                     ToString(settings.weight_decay)));
  }
  if (nesterov.has_value() && type != OptimizerType::kSgd) return NotRead("nesterov", type);
  settings.nesterov = nesterov.value_or(false);
  if (const absl::Status status = CheckNesterov(settings); !status.ok()) return status;
  return settings;
}

}  // namespace weft
