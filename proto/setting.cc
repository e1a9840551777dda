#include "proto/setting.h"

#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/json_input.h"
#include "base/status_macros.h"

namespace weft {
namespace {

using Json = nlohmann::json;

auto Fields(const Setting& setting) {
  return std::tie(setting.nranks, setting.rank, setting.groups, setting.distributed_params,
                  setting.shares, setting.common, setting.feeds, setting.reduction,
                  setting.averaging, setting.low_rank, setting.gradients_are_rounded,
                  setting.ordered_by_data, setting.assumptions);
}

absl::StatusOr<int> Integer(absl::string_view key, const Json& value, int min) {
  WEFT_ASSIGN_OR_RETURN(const int64_t number, JsonInteger(key, value));
  if (number >= min && number <= std::numeric_limits<int>::max()) return static_cast<int>(number);
  return ExpectedInJson(key, absl::StrCat("an integer >= ", min), value);
}

absl::StatusOr<bool> Boolean(absl::string_view key, const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  return ExpectedInJson(key, "true or false", value);
}

absl::StatusOr<std::string> String(absl::string_view key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return ExpectedInJson(key, "a string", value);
}

absl::StatusOr<Setting::Reduction> ReductionOf(absl::string_view key, const Json& value) {
  WEFT_ASSIGN_OR_RETURN(const std::string name, String(key, value));
  for (const auto reduction :
       {Setting::Reduction::kByLoss, Setting::Reduction::kMean, Setting::Reduction::kSum}) {
    if (name == ToString(reduction)) return reduction;
  }
  return ExpectedInJson(key, "by_loss, mean or sum", value);
}

absl::StatusOr<AveragingSchedule> AveragingOf(absl::string_view key, const Json& value) {
  if (value == "in_turn") return AveragingSchedule::InTurn();
  const auto has = [&value](const char* field) {
    return value.is_object() && value.count(field) > 0;
  };
  size_t expected = 2;
  for (const char* field :
       {"begin_step", "group_size", "rounds", "fragments", "outer", "delay", "mix", "sent"}) {
    expected += has(field) ? 1 : 0;
  }
  if (!has("period") || !has("first_step") || value.size() != expected) {
    return ExpectedInJson(key,
                          "\"in_turn\" or {\"period\": K, \"first_step\": N, \"begin_step\": B, "
                          "\"group_size\": G, \"rounds\": M, \"fragments\": N, \"outer\": O, "
                          "\"delay\": D, \"mix\": A, \"sent\": T}",
                          value);
  }
  AveragingSchedule schedule;
  WEFT_ASSIGN_OR_RETURN(schedule.period, Integer("period", value["period"], 1));
  WEFT_ASSIGN_OR_RETURN(schedule.first_step, Integer("first_step", value["first_step"], 1));
  if (has("begin_step")) {
    WEFT_ASSIGN_OR_RETURN(schedule.begin_step, Integer("begin_step", value["begin_step"], 1));
  }
  if (has("group_size")) {
    WEFT_ASSIGN_OR_RETURN(schedule.group_size, Integer("group_size", value["group_size"], 1));
  }
  if (has("rounds")) {
    WEFT_ASSIGN_OR_RETURN(schedule.rounds, Integer("rounds", value["rounds"], 1));
  }
  if (has("fragments")) {
    WEFT_ASSIGN_OR_RETURN(schedule.fragments, Integer("fragments", value["fragments"], 1));
  }
  if (has("outer")) {
    WEFT_ASSIGN_OR_RETURN(const std::string outer, String("outer", value["outer"]));
    WEFT_ASSIGN_OR_RETURN(schedule.outer, ParseOuterOptimizer(outer));
  }
  if (has("delay")) {
    WEFT_ASSIGN_OR_RETURN(schedule.delay, Integer("delay", value["delay"], 0));
  }
  if (has("mix")) {
    const Json& mix = value["mix"];
    if (mix.is_number()) schedule.mix = mix.get<double>();
    if (!mix.is_number()) return ExpectedInJson("mix", "a number", mix);
  }
  if (has("sent")) {
    WEFT_ASSIGN_OR_RETURN(const std::string sent, String("sent", value["sent"]));
    const absl::optional<AveragingSchedule::Sent> type = ParseSent(sent);
    if (!type.has_value()) return ExpectedInJson("sent", "bf16 or fp16", value["sent"]);
    schedule.sent = *type;
  }
  const std::string problem = ProblemOf(schedule);
  if (problem.empty()) return schedule;
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", problem));
}

absl::StatusOr<std::vector<int>> RanksOf(absl::string_view key, const Json& value) {
  std::vector<int> ranks;
  for (const Json& rank : value) {
    WEFT_ASSIGN_OR_RETURN(const int number, Integer(key, rank, 0));
    if (!ranks.empty() && number <= ranks.back()) {
      return ExpectedInJson(key, "ascending ranks", value);
    }
    ranks.push_back(number);
  }
  if (!value.is_array() || ranks.empty()) return ExpectedInJson(key, "a list of ranks", value);
  return ranks;
}

absl::StatusOr<std::vector<std::string>> Strings(absl::string_view key, const Json& value) {
  if (!value.is_array() || value.empty()) return ExpectedInJson(key, "a list of names", value);
  std::vector<std::string> names;
  for (const Json& name : value) {
    WEFT_ASSIGN_OR_RETURN(names.emplace_back(), String(key, name));
  }
  return names;
}

// [["fc_0.w_0", [784, 10]], ["fc_0.b_0", [10]]]
absl::StatusOr<std::vector<SharedTensor>> SharedTensorsOf(absl::string_view key,
                                                          const Json& value) {
  if (!value.is_array() || value.empty()) return ExpectedInJson(key, "a list of tensors", value);
  std::vector<SharedTensor> tensors;
  for (const Json& pair : value) {
    if (!pair.is_array() || pair.size() != 2 || !pair[1].is_array()) {
      return ExpectedInJson(key, "a name and a list of dimensions", pair);
    }
    SharedTensor& tensor = tensors.emplace_back();
    WEFT_ASSIGN_OR_RETURN(tensor.name, String(key, pair[0]));
    for (const Json& dim : pair[1]) {
      WEFT_ASSIGN_OR_RETURN(tensor.dims.emplace_back(), Integer(key, dim, 0));
    }
  }
  return tensors;
}

absl::StatusOr<LowRankGradients> LowRankOf(absl::string_view key, const Json& value) {
  if (!value.is_object() || value.size() != 2 || value.count("first_step") == 0 ||
      value.count("residuals") == 0) {
    return ExpectedInJson(key, "{\"first_step\": N, \"residuals\": [NAMES]}", value);
  }
  LowRankGradients gradients;
  WEFT_ASSIGN_OR_RETURN(gradients.first_step, Integer("first_step", value["first_step"], 1));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        Strings("residuals", value["residuals"]));
  gradients.residuals.insert(names.begin(), names.end());
  return gradients;
}

absl::Status ReadField(const std::string& key, const Json& value, Setting* setting) {
  if (key == "nranks") {
    WEFT_ASSIGN_OR_RETURN(setting->nranks, Integer(key, value, 1));
  } else if (key == "rank") {
    WEFT_ASSIGN_OR_RETURN(setting->rank, Integer(key, value, 0));
  } else if (key == "groups" || key == "feeds") {
    if (!value.is_object()) return ExpectedInJson(key, "an object", value);
    for (const auto& [name, of] : value.items()) {
      if (key == "groups") {
        WEFT_ASSIGN_OR_RETURN(setting->groups[name], RanksOf(name, of));
      } else {
        WEFT_ASSIGN_OR_RETURN(const std::string layout, String(name, of));
        WEFT_ASSIGN_OR_RETURN(setting->feeds[name], ParseFeedLayout(layout));
      }
    }
  } else if (key == "distributed_params") {
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> params, Strings(key, value));
    setting->distributed_params.insert(params.begin(), params.end());
  } else if (key == "shares" || key == "common") {
    if (!value.is_object()) return ExpectedInJson(key, "an object", value);
    for (const auto& [name, of] : value.items()) {
      if (key == "shares") {
        WEFT_ASSIGN_OR_RETURN(setting->shares[name],
                              SharedTensorsOf(absl::StrCat("shares.", name), of));
      } else {
        WEFT_ASSIGN_OR_RETURN(setting->common[name], Strings(absl::StrCat("common.", name), of));
      }
    }
  } else if (key == "reduction") {
    WEFT_ASSIGN_OR_RETURN(setting->reduction, ReductionOf(key, value));
  } else if (key == "averaging") {
    WEFT_ASSIGN_OR_RETURN(setting->averaging, AveragingOf(key, value));
  } else if (key == "low_rank") {
    WEFT_ASSIGN_OR_RETURN(setting->low_rank, LowRankOf(key, value));
  } else if (key == "rounded_gradients") {
    WEFT_ASSIGN_OR_RETURN(setting->gradients_are_rounded, Boolean(key, value));
  } else if (key == "ordered_by_data") {
    WEFT_ASSIGN_OR_RETURN(setting->ordered_by_data, Boolean(key, value));
  } else if (key == "assumptions") {
    if (!value.is_object()) return ExpectedInJson(key, "an object", value);
    for (const auto& [type, of] : value.items()) {
      WEFT_ASSIGN_OR_RETURN(const std::string words, String(type, of));
      absl::StatusOr<OpAssumption> assumption = ParseOpAssumption(words);
      WEFT_RETURN_IF_ERROR(Annotate(type, assumption.status()));
      setting->assumptions.emplace(type, *assumption);
    }
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("key '", key, "' is unknown to this version of Weft"));
  }
  return absl::OkStatus();
}

}  // namespace

bool operator==(const Setting& a, const Setting& b) { return Fields(a) == Fields(b); }

absl::string_view ToString(Setting::Reduction reduction) {
  switch (reduction) {
    case Setting::Reduction::kByLoss:
      return "by_loss";
    case Setting::Reduction::kMean:
      return "mean";
    case Setting::Reduction::kSum:
      break;
  }
  return "sum";
}

std::string ToJson(const Setting& setting) {
  if (setting == Setting()) return "";
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson json = OrderedJson::object();
  if (setting.nranks.has_value()) json["nranks"] = *setting.nranks;
  if (setting.rank.has_value()) json["rank"] = *setting.rank;
  if (!setting.groups.empty()) json["groups"] = setting.groups;
  if (!setting.distributed_params.empty()) {
    json["distributed_params"] = setting.distributed_params;
  }
  for (const auto& [name, tensors] : setting.shares) {
    OrderedJson& of = json["shares"][name] = OrderedJson::array();
    for (const SharedTensor& tensor : tensors) {
      of.push_back(OrderedJson::array({tensor.name, tensor.dims}));
    }
  }
  if (!setting.common.empty()) json["common"] = setting.common;
  for (const auto& [name, layout] : setting.feeds) json["feeds"][name] = ToString(layout);
  if (setting.reduction != Setting::Reduction::kByLoss) {
    json["reduction"] = std::string(ToString(setting.reduction));
  }
  if (setting.averaging.has_value()) {
    const AveragingSchedule& schedule = *setting.averaging;
    json["averaging"] =
        schedule.is_in_turn
            ? OrderedJson("in_turn")
            : OrderedJson({{"period", schedule.period}, {"first_step", schedule.first_step}});
    // The default is left out, as the other defaults are.
    if (schedule.begin_step > 1) json["averaging"]["begin_step"] = schedule.begin_step;
    if (schedule.HasGroups()) {
      json["averaging"]["group_size"] = schedule.group_size;
      json["averaging"]["rounds"] = schedule.rounds;
    }
    if (schedule.fragments > 1) json["averaging"]["fragments"] = schedule.fragments;
    if (schedule.outer.HasState()) json["averaging"]["outer"] = ToString(schedule.outer);
    if (schedule.delay > 0) json["averaging"]["delay"] = schedule.delay;
    if (schedule.mix > 0) json["averaging"]["mix"] = schedule.mix;
    if (schedule.sent != AveragingSchedule::Sent::kNative) {
      json["averaging"]["sent"] = std::string(ToString(schedule.sent));
    }
  }
  if (setting.low_rank.has_value()) {
    json["low_rank"] = {{"first_step", setting.low_rank->first_step},
                        {"residuals", setting.low_rank->residuals}};
  }
  if (setting.gradients_are_rounded) json["rounded_gradients"] = true;
  if (setting.ordered_by_data) json["ordered_by_data"] = true;
  for (const auto& [type, assumption] : setting.assumptions) {
    json["assumptions"][type] = ToString(assumption);
  }
  // Names in files are UTF-8; others are replaced instead of an exception.
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

absl::Status CheckRanksOf(const Setting& setting) {
  const auto is_missing = [&setting](int rank) {
    return setting.nranks.has_value() && rank >= *setting.nranks;
  };
  for (const auto& [param, ranks] : setting.groups) {
    if (!is_missing(ranks.back())) continue;
    return absl::InvalidArgumentError(absl::StrCat("group of ", param, ": expected ranks below ",
                                                   *setting.nranks, ", found ", ranks.back()));
  }
  if (setting.rank.has_value() && is_missing(*setting.rank)) {
    return absl::InvalidArgumentError(absl::StrCat("rank: expected less than nranks, ",
                                                   *setting.nranks, ", found ", *setting.rank));
  }
  return absl::OkStatus();
}

namespace {

// More than fits into memory, and small enough that sums of a few cannot overflow.
constexpr int64_t kMaxElements = int64_t{1} << 48;

absl::StatusOr<int64_t> NumElements(const std::string& variable, const SharedTensor& tensor) {
  int64_t elements = 1;
  for (int64_t dim : tensor.dims) {
    if (dim > 0 && elements > kMaxElements / dim) {
      return absl::InvalidArgumentError(absl::StrCat("share ", variable, ": tensor ", tensor.name,
                                                     ": expected at most 2^48 elements"));
    }
    elements *= dim;
  }
  return elements;
}

// Ranks have equally many elements of a share, and a tensor has one place.
absl::Status CheckShares(const Setting& setting) {
  std::set<std::string> known;
  for (const auto& [variable, tensors] : setting.shares) {
    int64_t total = 0;
    for (const SharedTensor& tensor : tensors) {
      WEFT_ASSIGN_OR_RETURN(const int64_t elements, NumElements(variable, tensor));
      total += elements;
      if (total > kMaxElements) {
        return absl::InvalidArgumentError(
            absl::StrCat("share ", variable, ": expected at most 2^48 elements"));
      }
      if (tensor.name.empty() || known.insert(tensor.name).second) continue;
      return absl::InvalidArgumentError(absl::StrCat("share ", variable, ": tensor ", tensor.name,
                                                     ": expected one share, found another one, "
                                                     "too"));
    }
    if (!setting.nranks.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("share ", variable, ": expected nranks beside shares, found none"));
    }
    if (total % *setting.nranks == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("share ", variable, ": expected a multiple of ",
                                                   *setting.nranks, ", found ", total,
                                                   " elements"));
  }
  for (const auto& [variable, names] : setting.common) {
    for (const std::string& name : names) {
      if (known.insert(name).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("variable ", variable, ": expected to stand for ", name,
                       " alone, found another variable that holds it, too"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Setting> ParseSetting(absl::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text));
  Setting setting;
  for (const auto& [key, value] : json.items()) {
    WEFT_RETURN_IF_ERROR(ReadField(key, value, &setting));
  }
  WEFT_RETURN_IF_ERROR(CheckRanksOf(setting));
  WEFT_RETURN_IF_ERROR(CheckShares(setting));
  return setting;
}

absl::StatusOr<Setting> SettingOf(const Program& program) {
  Setting setting;
  const std::string text = program.setting();
  if (!text.empty()) {
    absl::StatusOr<Setting> read = ParseSetting(text);
    WEFT_RETURN_IF_ERROR(Annotate("setting of the file", read.status()));
    setting = *std::move(read);
  }
  if (program.origin() == nullptr) return setting;
  setting.ordered_by_data = program.origin()->OrdersByData();
  const std::vector<std::string>& params = program.origin()->distributed_params();
  setting.distributed_params.insert(params.begin(), params.end());
  return setting;
}

OpAssumptions AssumptionsOf(const Program& program) {
  const std::string text = program.setting();
  if (text.empty()) return {};
  absl::StatusOr<Setting> setting = ParseSetting(text);
  return setting.ok() ? std::move(setting->assumptions) : OpAssumptions();
}

}  // namespace weft
