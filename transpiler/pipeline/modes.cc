#include "transpiler/pipeline/modes.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace weft {

const std::vector<Mode>& Modes() {
  static const auto* modes = new std::vector<Mode>{
      {"none", "reads, verifies and writes: a copy, or a change of format", {}, {}},
      {"grad_allreduce",
       "data parallel: every gradient is summed over the ranks before it is used",
       {{"comm-init", {}, {"nrings"}},
        {"broadcast-params", {}, {"nrings"}},
        {"dense-gradients", {}, {"sparse"}},
        {"scale-loss-grad", {}, {"scale"}},
        {"grad-all-reduce", {}, {"nrings", "scale", "buckets"}},
        {"sync-elimination", {}, {}}},
       // Paddle's class has two rings and always scales the loss's gradient.
       {{"paddle-comm-init", {{"nrings", "2"}}, {"nrings", "device_kind"}},
        {"broadcast-params", {{"nrings", "2"}}, {"nrings"}},
        {"scale-loss-grad", {{"scale", "loss_grad"}}, {}},
        {"paddle-grad-all-reduce", {{"nrings", "2"}}, {"nrings"}}}},
      {"local_sgd",
       "ranks train on their own; every k steps, parameters are averaged over the ranks",
       {{"comm-init", {}, {"nrings"}},
        {"broadcast-params", {}, {"nrings"}},
        {"local-sgd", {}, {"nrings", "k_steps", "begin_step", "statistics", "state"}},
        {"sync-elimination", {}, {}}},
       {{"paddle-comm-init", {{"nrings", "2"}}, {"nrings", "device_kind"}},
        {"broadcast-params", {{"nrings", "2"}}, {"nrings"}},
        {"paddle-local-sgd", {{"nrings", "2"}}, {"nrings"}}}},
      {"single_process_multi_thread",
       "data parallel, several devices a trainer: gradients are summed, as a rule all at once",
       {{"comm-init", {}, {"nrings"}},
        {"broadcast-params", {}, {"nrings"}},
        {"dense-gradients", {}, {"sparse"}},
        {"scale-loss-grad", {}, {}, {{"loss_scale", {"true", "1"}}}},
        {"grad-all-reduce",
         {{"buckets", "bytes"}},
         {"nrings", "buckets"},
         {{"loss_scale", {"true", "1"}}, {"fuse", {"1"}}}},
        {"grad-all-reduce", {}, {"nrings"}, {{"loss_scale", {"true", "1"}}, {"fuse", {"0"}}}},
        {"grad-all-reduce",
         {{"scale", "none"}, {"buckets", "bytes"}},
         {"nrings", "buckets"},
         {{"loss_scale", {"false", "0"}}, {"fuse", {"1"}}}},
        {"grad-all-reduce",
         {{"scale", "none"}},
         {"nrings"},
         {{"loss_scale", {"false", "0"}}, {"fuse", {"0"}}}},
        {"sync-elimination", {}, {}}},
       {{"paddle-comm-init", {{"over", "hosts"}}, {"device_kind"}},
        {"paddle-single-process-scale", {}, {"loss_scale"}},
        {"paddle-single-process-fuse", {}, {"fuse"}, {{"fuse", {"1", "2"}}}},
        {"paddle-grad-all-reduce",
         {{"nrings", "1"}, {"skip", "no_gradient"}},
         {},
         {{"fuse", {"0"}}}}},
       {{"fuse", {"1", "0", "2"}}, {"loss_scale", {"true", "false", "1", "0"}}},
       Mode::Trainers::kOneOrMoreWithDevices},
      {"multi_thread",
       "data parallel, several devices a trainer: gradients are summed in buckets, or gathered",
       {{"comm-init", {}, {"nrings"}},
        {"broadcast-params", {}, {"nrings"}},
        {"dense-gradients", {}, {"sparse"}},
        {"scale-loss-grad", {}, {"scale"}},
        {"grad-all-reduce",
         {{"buckets", "bytes"}},
         {"nrings", "scale", "buckets"},
         {{"trans_mode", {"fuse_all_reduce"}}}},
        {"gather-gradients", {}, {"nrings", "scale"}, {{"trans_mode", {"all_gather"}}}},
        {"grad-all-reduce",
         {},
         {"nrings", "scale"},
         {{"trans_mode", {"all_reduce", "all_reduce_xpu"}}}},
        {"sync-elimination", {}, {}}},
       {{"paddle-comm-init",
         {{"over", "trainers"}},
         {"nrings", "device_kind"},
         {{"trans_mode", {"fuse_all_reduce", "all_gather", "all_reduce"}}}},
        {"paddle-comm-init",
         {{"over", "trainers"}, {"list_devices", "true"}},
         {"nrings", "device_kind"},
         {{"trans_mode", {"all_reduce_xpu"}}}},
        {"scale-loss-grad", {{"scale", "loss_grad"}}, {}},
        {"paddle-multi-thread-fuse", {}, {}, {{"trans_mode", {"fuse_all_reduce"}}}},
        {"paddle-all-gather", {}, {"nrings"}, {{"trans_mode", {"all_gather"}}}},
        {"paddle-grad-all-reduce", {{"nrings", "1"}}, {"nrings"}, {{"trans_mode", {"all_reduce"}}}},
        {"paddle-grad-all-reduce",
         {{"nrings", "1"}, {"skip", "one_device"}},
         {"nrings"},
         {{"trans_mode", {"all_reduce_xpu"}}}}},
       {{"trans_mode", {"fuse_all_reduce", "all_gather", "all_reduce", "all_reduce_xpu"}}},
       Mode::Trainers::kOneOrMoreWithDevices},
  };
  return *modes;
}

namespace {

// Flags that passes read in their context.
constexpr absl::string_view kContextFlags[] = {"nranks", "endpoints", "rank", "current_endpoint",
                                               "distributed_params"};

std::string ValueOf(const FlagValues& choice, const std::map<std::string, std::string>& flags) {
  const auto given = flags.find(choice.flag);
  return given != flags.end() ? given->second : choice.values.front();
}

bool Contains(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Whether the values that the flags choose let the pass run.
bool Runs(const ModePass& pass, const Mode& mode, const std::map<std::string, std::string>& flags) {
  for (const FlagValues& condition : pass.when) {
    for (const FlagValues& choice : mode.choices) {
      if (choice.flag != condition.flag) continue;
      if (!Contains(condition.values, ValueOf(choice, flags))) return false;
    }
  }
  return true;
}

// Whether one of the passes runs for this value of the flag, or none of them asks for it.
bool IsMeant(const std::string& flag, const std::string& value,
             const std::vector<ModePass>& passes) {
  bool asked = false;
  for (const ModePass& pass : passes) {
    for (const FlagValues& condition : pass.when) {
      if (condition.flag != flag) continue;
      if (Contains(condition.values, value)) return true;
      asked = true;
    }
  }
  return !asked;
}

Spec Expand(const ModePass& pass, const std::map<std::string, std::string>& flags) {
  Spec spec{pass.pass, pass.options};
  for (const std::string& flag : pass.flags) {
    const auto given = flags.find(flag);
    if (given == flags.end()) continue;
    const auto preset = std::find_if(spec.options.begin(), spec.options.end(),
                                     [&](const auto& option) { return option.first == flag; });
    if (preset != spec.options.end()) {
      preset->second = given->second;
    } else {
      spec.options.push_back(*given);
    }
  }
  return spec;
}

}  // namespace

absl::StatusOr<const Mode*> FindMode(absl::string_view name) {
  const auto found =
      std::find_if(Modes().begin(), Modes().end(), [&](const Mode& m) { return m.name == name; });
  if (found != Modes().end()) return &*found;
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown mode ", name, "; there are: ",
      absl::StrJoin(Modes(), ", ", [](std::string* out, const Mode& m) { out->append(m.name); })));
}

absl::StatusOr<std::vector<Spec>> ExpandMode(absl::string_view name, Dialect dialect,
                                             const std::map<std::string, std::string>& flags) {
  WEFT_ASSIGN_OR_RETURN(const Mode* const mode, FindMode(name));
  const bool paddle = dialect == Dialect::kPaddle;
  const std::vector<ModePass>& passes = paddle ? mode->paddle : mode->weft;
  for (const FlagValues& choice : mode->choices) {
    const std::string value = ValueOf(choice, flags);
    if (Contains(choice.values, value)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("mode ", name, ": --", choice.flag, " must be one of ",
                     absl::StrJoin(choice.values, ", "), ", found '", absl::CEscape(value), "'"));
  }
  for (const FlagValues& choice : mode->choices) {
    const std::string value = ValueOf(choice, flags);
    if (!IsMeant(choice.flag, value, passes)) {
      return absl::InvalidArgumentError(absl::StrCat("mode ", name, ": --", choice.flag, " ", value,
                                                     " is available in the ",
                                                     paddle ? "weft" : "paddle", " dialect only"));
    }
  }
  std::set<std::string> taken;
  if (mode->trainers == Mode::Trainers::kOneOrMoreWithDevices) taken.insert("devices");
  std::vector<Spec> pipeline;
  for (const ModePass& pass : passes) {
    for (const FlagValues& condition : pass.when) taken.insert(condition.flag);
    if (!Runs(pass, *mode, flags)) continue;
    taken.insert(pass.flags.begin(), pass.flags.end());
    pipeline.push_back(Expand(pass, flags));
  }
  if (!pipeline.empty()) taken.insert(std::begin(kContextFlags), std::end(kContextFlags));
  for (const auto& [flag, value] : flags) {
    if (taken.count(flag) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("mode ", name, " does not read --", flag,
                                                   paddle ? " in the paddle dialect" : ""));
  }
  return pipeline;
}

}  // namespace weft
