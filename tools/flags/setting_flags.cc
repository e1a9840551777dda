#include "tools/flags/setting_flags.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/training/num_ranks.h"
#include "ops/analysis/values/layout_guess.h"
#include "proto/all_ops.h"
#include "tools/files/param_attrs_file.h"
#include "tools/files/setting_file.h"
#include "tools/files/step_times_file.h"
#include "tools/flags/assume_flag.h"
#include "tools/flags/command_line.h"
#include "transpiler/passes/updates/param_options.h"
#include "transpiler/pipeline/cluster.h"
#include "transpiler/pipeline/param_attrs.h"

namespace weft {
namespace {

constexpr char kOfFile[] = "setting of the file";

// A program with learning rates and decays of parameters is compared with one that has them.
absl::Status CheckUpdateOptions(const ParamAttrsByName& params, const Program& original) {
  std::set<std::string> written;  // parameters
  for (const Op& op : AllOps(original)) {
    if (!ParamOptions::HasOptions(op)) continue;
    for (Symbol param : op.Input("Param")) written.emplace(original.name(param));
  }
  for (const auto& [param, attrs] : params) {
    if (!attrs.HasUpdateOptions() || written.count(param) > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", param,
                     ", lr_ratio, weight_decay: expected as --original the program that pass "
                     "param-options wrote, found one without them"));
  }
  return absl::OkStatus();
}

std::string Text(const Setting& setting) {
  const std::string text = ToJson(setting);
  return text.empty() ? "{}" : text;
}

// Of one run: what concerns ranks one by one adds up, and the rest is the same. `setting` begins
// with that of the first rank which has one.
absl::Status Merge(const std::string& path, int rank, Setting of_rank, Setting* setting) {
  if (of_rank.rank.has_value() && of_rank.rank != rank) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected the program of rank ", rank,
                                                   ", found the program of rank ", *of_rank.rank,
                                                   " (", kOfFile, ")"));
  }
  of_rank.rank.reset();
  for (const auto& [param, ranks] : of_rank.groups) {
    const auto known = setting->groups.find(param);
    if (known == setting->groups.end() || known->second == ranks) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": group of ", param, ": expected ", GroupText(known->second),
                     ", as other ranks have, found ", GroupText(ranks)));
  }
  if (*setting != Setting()) {
    of_rank.groups.insert(setting->groups.begin(), setting->groups.end());
    of_rank.distributed_params.insert(setting->distributed_params.begin(),
                                      setting->distributed_params.end());
    setting->groups = of_rank.groups;
    setting->distributed_params = of_rank.distributed_params;
    if (of_rank == *setting) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected the setting ", Text(*setting),
                                                   ", as other ranks have, found ", Text(of_rank)));
  }
  *setting = std::move(of_rank);
  return absl::OkStatus();
}

// Without what `given` replaces. A file that has lost its setting says nothing.
absl::StatusOr<Setting> SettingOfFiles(absl::Span<const std::string> paths,
                                       absl::Span<const ConstProgramPair> ranks,
                                       const FeedLayouts& given) {
  if (ranks.size() == 1) return SettingOfFile(paths[0], *ranks[0].main);
  Setting setting;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    WEFT_ASSIGN_OR_RETURN(Setting of_rank, SettingOfFile(paths[rank], *ranks[rank].main));
    for (const auto& [name, layout] : given) of_rank.feeds.erase(name);
    if (of_rank == Setting()) continue;
    WEFT_RETURN_IF_ERROR(Merge(paths[rank], static_cast<int>(rank), std::move(of_rank), &setting));
  }
  return setting;
}

absl::Status SetNumRanks(const SettingFlags& flags, size_t num_programs, Setting* setting) {
  const int nranks = flags.nranks > 0 ? flags.nranks : static_cast<int>(num_programs);
  if (setting->nranks.has_value() && (flags.nranks > 0 || num_programs > 1) &&
      setting->nranks != nranks) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.nranks > 0 ? "--nranks" : "programs", ": expected ", *setting->nranks,
                     ", for which the program was rewritten (", kOfFile, "), found ", nranks));
  }
  if (flags.nranks > 0) setting->nranks = flags.nranks;
  return absl::OkStatus();
}

// Sets the parameters that are not replicated, and the groups of ranks.
absl::Status ReadParamAttrs(const std::string& path, absl::Span<const ConstProgramPair> ranks,
                            const Program* original, Setting* setting) {
  WEFT_ASSIGN_OR_RETURN(ParamAttrsByName params, ReadAs(path, ParseParamAttrs));
  ClusterSpec spec;
  spec.nranks = setting->nranks.has_value() ? setting->nranks
                                            : FindNumRanks(*ranks[0].main, ranks[0].startup);
  if (!spec.nranks.has_value() && ranks.size() > 1) spec.nranks = static_cast<int>(ranks.size());
  WEFT_ASSIGN_OR_RETURN(const Cluster cluster, Cluster::Create(spec, /*min_trainers=*/1));
  WEFT_RETURN_IF_ERROR(Annotate(path, ResolveGroups(cluster, &params)));
  WEFT_RETURN_IF_ERROR(Annotate(path, CheckParamAttrs(params, *ranks[0].main)));
  if (original != nullptr) {
    WEFT_RETURN_IF_ERROR(Annotate(path, CheckUpdateOptions(params, *original)));
  }
  setting->groups.clear();
  for (const auto& [param, attrs] : params) {
    if (!attrs.is_replicated()) setting->distributed_params.insert(param);
    if (attrs.group.has_value()) setting->groups[param] = attrs.group->ranks;
  }
  return absl::OkStatus();
}

// "each rank gets a part of x along axis 0 and the whole of y"; empty: there are no feeds.
std::string FeedsText(const FeedLayouts& feeds) {
  std::vector<std::string> split, whole;
  for (const auto& [name, layout] : feeds) {
    if (layout.axis.has_value()) {
      split.push_back(absl::StrCat(name, " along axis ", *layout.axis));
    } else {
      whole.push_back(name);
    }
  }
  std::vector<std::string> parts;
  if (!split.empty()) parts.push_back("a part of " + absl::StrJoin(split, ", "));
  if (!whole.empty()) parts.push_back("the whole of " + absl::StrJoin(whole, ", "));
  return parts.empty() ? "" : absl::StrCat("each rank gets ", absl::StrJoin(parts, " and "));
}

// "w among ranks 0, 1; v among ranks 2, 3"; of many, the first.
std::string GroupsText(const std::map<std::string, std::vector<int>>& groups) {
  constexpr size_t kShown = 4;
  std::vector<std::string> texts;
  for (const auto& [param, ranks] : groups) {
    if (texts.size() == kShown) break;
    texts.push_back(absl::StrCat(param, " among ", GroupText(ranks)));
  }
  const size_t more = groups.size() - texts.size();
  return absl::StrCat(absl::StrJoin(texts, "; "),
                      more == 0 ? "" : absl::StrCat("; and ", more, " more"));
}

std::vector<std::string> FeedAssumptions(const Setting& setting, const Setting& file,
                                         const FeedLayouts& given) {
  FeedLayouts of_file, others;
  for (const auto& [name, layout] : setting.feeds) {
    const bool is_of_file = file.feeds.count(name) > 0 && given.count(name) == 0;
    (is_of_file ? of_file : others).emplace(name, layout);
  }
  std::vector<std::string> lines;
  if (!of_file.empty()) lines.push_back(absl::StrCat(FeedsText(of_file), " (", kOfFile, ")"));
  if (!others.empty()) lines.push_back(absl::StrCat(FeedsText(others), " (--feed_layout)"));
  return lines;
}

std::string AveragingClaim(const AveragingSchedule& schedule, bool has_original) {
  if (!schedule.outer.HasState()) {
    return absl::StrCat("parameters are averaged ", ToString(schedule),
                        has_original ? "" : "; these steps are not checked without --original");
  }
  const bool is_whole = schedule.mix == 0;
  return absl::StrCat(
      "parameters are synchronized ", ToString(schedule),
      !is_whole                ? ": they differ between ranks, but"
      : schedule.fragments > 1 ? ": after its turn, a fragment is equal on all ranks, and"
                               : ": after these steps they are equal on all ranks, and",
      " the state of the outer optimizer is ", is_whole ? "so always" : "equal on all ranks always",
      schedule.sent == AveragingSchedule::Sent::kNative
          ? ""
          : "; what a rank sends and what it keeps are its outer gradient",
      has_original ? ""
                   : "; neither these steps nor the formulas of the outer optimizer are checked "
                     "without --original");
}

// What a setting takes for granted, or expects in the place of the reference values.
std::vector<std::string> ClaimsOf(const Setting& setting, const Setting& file,
                                  const SettingFlags& flags, bool has_original) {
  std::vector<std::string> lines;
  const auto add = [&lines](const std::string& what, bool is_of_file, const char* flag) {
    lines.push_back(absl::StrCat(what, " (", is_of_file ? kOfFile : flag, ")"));
  };
  if (file.rank.has_value()) {
    add(absl::StrCat("the program is rank ", *file.rank,
                     "'s: other ranks' programs are not checked"),
        true, "");
  }
  if (!setting.groups.empty()) {
    add(absl::StrCat("ranks share parameters in groups, ", GroupsText(setting.groups),
                     ": no rank is compared with one device as a whole"),
        flags.param_attrs.empty(), "--param_attrs");
  }
  if (!file.distributed_params.empty()) {
    add(absl::StrCat(
            absl::StrJoin(file.distributed_params, ", "),
            file.distributed_params.size() == 1 ? ": is not replicated" : ": are not replicated"),
        true, "");
  }
  if (!setting.common.empty()) {
    add(absl::StrCat(setting.common.size(),
                     setting.common.size() == 1 ? " variable stands" : " variables stand",
                     " for several equal ones of the original"),
        true, "");
  }
  if (!setting.shares.empty()) {
    add(absl::StrCat("on each rank, ", setting.shares.size(),
                     setting.shares.size() == 1 ? " variable holds" : " variables hold",
                     " a part of the parameters and states of the original"),
        true, "");
  }
  // What flags say, the user knows.
  if (!flags.summed_gradients.has_value() && setting.reduction != Setting::Reduction::kByLoss) {
    const bool is_sum = setting.reduction == Setting::Reduction::kSum;
    add(absl::StrCat("gradients are ", is_sum ? "summed" : "averaged",
                     " over the ranks, whatever losses are"),
        true, "");
  }
  const bool replaces_averaging =
      flags.in_turn || (flags.k_steps.has_value() && flags.begin_step.has_value() &&
                        flags.first_average.has_value() && !setting.averaging->outer.HasState());
  if (file.averaging.has_value() && !replaces_averaging &&
      (setting.averaging == file.averaging || !file.averaging->is_in_turn)) {
    add(AveragingClaim(*setting.averaging, has_original), true, "");
  }
  if (setting.low_rank.has_value()) {
    const size_t count = setting.low_rank->residuals.size();
    add(absl::StrCat("from step ", setting.low_rank->first_step, " on, ", count,
                     count == 1 ? " gradient travels" : " gradients travel",
                     " as thin matrices; what a rank sends and what it keeps are its gradient"),
        true, "");
  }
  if (flags.order == "events") {
    add("ops wait for those before them that have a variable in common", false, "--order");
  }
  if (setting.gradients_are_rounded && !flags.rounded_gradients.has_value()) {
    add("gradients may be rounded to half precision and back", true, "");
  }
  return lines;
}

// A flag that may be given as "=false"; none: it is not given.
void AddChoice(CLI::App* app, const char* flag, absl::optional<bool>* value, const char* help) {
  app->add_flag_function(
      flag, [value](int64_t count) { *value = count > 0; }, help);
}

}  // namespace

void AddOrderFlag(CLI::App* app, std::string* order) {
  AddOption(*app, "--order", "streams|events", *order,
            "What orders ops: their streams and the waits of the program, or also the variables "
            "that they name, as in Paddle since 2.5; default: as the file says, else streams")
      ->check(CLI::IsMember({"streams", "events"}));
}

void AddSettingFlags(CLI::App* app, SettingFlags* flags, CLI::Option* original) {
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  AddInteger(*app, "--nranks", flags->nranks, 1, kMaxInt,
             "Number of ranks; default: as the files or programs say, else any number");
  AddOption(*app, "--distributed_params", "A,B", flags->distributed_params,
            "Comma-separated parameters that are sharded over the ranks")
      ->delimiter(',')
      ->allow_extra_args(false);
  AddOption(*app, "--feed_layout", "x=axis:1,...", flags->feed_layout,
            "How feed variables are given to the ranks: split along an axis, or whole; default: as "
            "the file says, else as their declarations suggest");
  AddOption(*app, "--param_attrs", "F", flags->param_attrs,
            "JSON, as transpile reads it: groups of ranks, and parameters that are not replicated");
  AddAssumeFlag(app, &flags->assume);
  AddOrderFlag(app, &flags->order);
  AddChoice(app, "--rounded_gradients", &flags->rounded_gradients,
            "Gradients may be rounded to half precision and back (singa_half)");
  AddChoice(app, "--summed_gradients", &flags->summed_gradients,
            "Expect gradients summed over the ranks; =false: averaged (default: as the file says, "
            "else summed for losses that are sums over the batch)");
  if (original == nullptr) return;
  AddInteger(*app, "--k_steps", flags->k_steps, 1, kMaxInt,
             "Expected averaging period of LocalSGD, in steps; default: as the file says")
      ->needs(original);
  AddInteger(
      *app, "--begin_step", flags->begin_step, 1, kMaxInt,
      "Expected step before which LocalSGD averages in every step; default: as the file says")
      ->needs(original);
  AddInteger(*app, "--first_average", flags->first_average, 1, kMaxInt,
             "Expected step before which LocalSGD does not average; default: as the file says")
      ->needs(original);
  app->add_flag("--in_turn", flags->in_turn,
                "Expect parameters averaged in turn: one of K partitions in each step")
      ->needs(original)
      ->excludes("--k_steps")
      ->excludes("--begin_step")
      ->excludes("--first_average");
}

absl::StatusOr<GivenSetting> SettingFor(const SettingFlags& flags,
                                        absl::Span<const std::string> paths,
                                        absl::Span<const ConstProgramPair> ranks,
                                        const Program* original) {
  WEFT_ASSIGN_OR_RETURN(const FeedLayouts given_feeds, ParseFeedLayouts(flags.feed_layout));
  WEFT_ASSIGN_OR_RETURN(const Setting file, SettingOfFiles(paths, ranks, given_feeds));
  Setting setting = file;
  WEFT_RETURN_IF_ERROR(SetNumRanks(flags, ranks.size(), &setting));
  setting.distributed_params.insert(flags.distributed_params.begin(),
                                    flags.distributed_params.end());
  if (!flags.param_attrs.empty()) {
    WEFT_RETURN_IF_ERROR(ReadParamAttrs(flags.param_attrs, ranks, original, &setting));
  }
  WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat(paths[0], ": ", kOfFile), CheckRanksOf(setting)));
  std::vector<const Program*> mains;
  for (const ConstProgramPair& rank : ranks) {
    if (mains.empty() || rank.main != mains.back()) mains.push_back(rank.main);
  }
  absl::StatusOr<FeedLayouts> all_feeds = FeedLayoutsOf(mains, given_feeds, file.feeds);
  WEFT_RETURN_IF_ERROR(Annotate(paths[0], all_feeds.status()));
  setting.feeds = *std::move(all_feeds);
  if (flags.summed_gradients.has_value()) {
    setting.reduction =
        *flags.summed_gradients ? Setting::Reduction::kSum : Setting::Reduction::kMean;
  }
  if (!flags.order.empty()) setting.ordered_by_data = flags.order == "events";
  if (flags.rounded_gradients.has_value()) setting.gradients_are_rounded = *flags.rounded_gradients;
  if (flags.k_steps.has_value() || flags.begin_step.has_value() ||
      flags.first_average.has_value()) {
    const bool is_of_file = file.averaging.has_value() && !file.averaging->is_in_turn;
    const AveragingSchedule rest = is_of_file ? *file.averaging : AveragingSchedule();
    setting.averaging = AveragingSchedule{flags.k_steps.value_or(rest.period),
                                          flags.first_average.value_or(rest.first_step),
                                          flags.begin_step.value_or(rest.begin_step)};
    setting.averaging->group_size = rest.group_size;
    setting.averaging->rounds = rest.rounds;
    setting.averaging->outer = rest.outer;
    setting.averaging->fragments = rest.fragments;
    setting.averaging->delay = rest.delay;
    setting.averaging->mix = rest.mix;
    setting.averaging->sent = rest.sent;
    if ((rest.HasGroups() || rest.fragments > 1 || rest.delay > 0) &&
        !(*setting.averaging == rest)) {
      return absl::InvalidArgumentError(
          absl::StrCat(paths[0], ": ", kOfFile, ": parameters are synchronized ", ToString(rest),
                       "; expected no other --k_steps, --begin_step or --first_average"));
    }
  }
  if (flags.in_turn) setting.averaging = AveragingSchedule::InTurn();
  return GivenSetting{setting, FeedAssumptions(setting, file, given_feeds),
                      ClaimsOf(setting, file, flags, original != nullptr)};
}

}  // namespace weft
