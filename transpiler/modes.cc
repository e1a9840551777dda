#include "transpiler/modes.h"

#include <set>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "base/similar_name.h"
#include "base/status_macros.h"

namespace weft {
namespace {

std::vector<Mode> MakeModes() {
  constexpr Dialect kWeft = Dialect::kWeft;
  constexpr Dialect kPaddle = Dialect::kPaddle;
  // How pipelines begin and end.
  const std::string replicas_prefix = "comm-init{$nrings},broadcast-params{$nrings},";
  const std::string exact_prefix =
      "sync-batch-norm{$sync_batch_norm=off},exact-loss{$exact_loss=off,$gather_negatives},"
      "reduce-statistics{$statistics=false},"
      "dense-gradients{$sparse},";
  const std::string weft_prefix = replicas_prefix + exact_prefix;
  const std::string scaled_prefix = weft_prefix + "scale-loss-grad{$scale},";
  const std::string sparsify_suffix =
      "$nrings,$spars,$corr,$threshold,$buffer_elements,$fallback},sync-elimination";
  const std::string in_buckets = "grad-all-reduce{$nrings,$scale,$buckets=bytes},sync-elimination";
  // As in Paddle's classes, gradients keep their rows unless a flag asks for dense ones.
  const std::string hosts_prefix =
      "paddle-comm-init{over=hosts},dense-gradients{$sparse=rows},"
      "paddle-single-process-scale{$loss_scale},";
  const std::string trainer_scaled_prefix =
      "dense-gradients{$sparse=rows},scale-loss-grad{scale=loss_grad},";
  const std::string trainers_prefix =
      "paddle-comm-init{over=trainers,$nrings}," + trainer_scaled_prefix;
  std::vector<Mode> modes = {
      {"none", "copies or converts the program, or places ops (option:place)", {}},

      {"grad_allreduce",
       "gradients are averaged over the ranks (of sum losses: summed)",
       {{kWeft, {}, scaled_prefix + in_buckets},
        // Paddle's class has two rings and always scales the loss's gradient.
        {kPaddle,
         {},
         "paddle-comm-init{$nrings=2},broadcast-params{$nrings=2}," + trainer_scaled_prefix +
             "paddle-grad-all-reduce{$nrings=2}"}}},

      // No sync-elimination: memory is used again after waits that order no accesses.
      {"zero",
       "each rank keeps and updates a part of the parameters (ZeRO)",
       {{kWeft,
         {},
         "comm-init{$nrings,$prefetch=1},broadcast-params{$nrings}," + exact_prefix +
             "scale-loss-grad{$scale},shard-updates{$stage,$prefetch=1,$nrings,$scale,"
             "$buckets=bytes}"}}},

      {"power_sgd",
       "ranks send low-rank approximations of gradients (PowerSGD)",
       {{kWeft,
         {},
         replicas_prefix +
             "dense-gradients{$sparse},power-sgd{$rank_approximation,$start_step,$nrings,"
             "$buckets=bytes},sync-elimination"}}},

      {"singa_sparse_topk",
       "SINGA: ranks send the largest elements of their gradients",
       {{kWeft, {}, replicas_prefix + "sparsify-gradients{mode=topk," + sparsify_suffix}},
       Mode::Group::kOtherSystems},

      {"singa_sparse_threshold",
       "SINGA: ranks send elements whose magnitude meets a threshold",
       {{kWeft, {}, replicas_prefix + "sparsify-gradients{mode=threshold," + sparsify_suffix}},
       Mode::Group::kOtherSystems},

      {"parameter_server",
       "servers hold and update what option:param_attrs gives them",
       {{kWeft,
         {},
         "param-options{$adam_epsilon}," + scaled_prefix +
             "parameter-server{$scale,$wait,$async,$staleness,$prefetch_rows,$out_of_range}," +
             in_buckets}},
       Mode::Group::kOffloadAndServers,
       Mode::RunsIn::kWeft},

      {"local_sgd",
       "ranks train separately and average parameters every k steps",
       {{kWeft,
         {},
         "comm-init{$nrings,$group_size},broadcast-params{$nrings},"
         "local-sgd{$nrings,$k_steps,$group_size,$rounds,$begin_step,$first_average,$statistics,"
         "$state,$outer,$fragments,$delay,$mix,$comm_dtype},sync-elimination"},
        {kPaddle,
         {},
         "paddle-comm-init{$nrings=2},broadcast-params{$nrings=2},"
         "paddle-local-sgd{$nrings=2}"}}},

      {"singa_partial",
       "SINGA: ranks train separately; each step averages a partition",
       {{kWeft, {}, replicas_prefix + "partial-averaging{$nrings,$threshold},sync-elimination"}},
       Mode::Group::kOtherSystems},

      {"single_process_multi_thread",
       "several devices per trainer, one fused all-reduce",
       {{kWeft,
         {{"fuse", "1"}, {"loss_scale", "true"}},
         weft_prefix + "scale-loss-grad,grad-all-reduce{$nrings,$buckets=bytes},sync-elimination"},
        {kWeft,
         {{"fuse", "0"}, {"loss_scale", "true"}},
         weft_prefix + "scale-loss-grad,grad-all-reduce{$nrings},sync-elimination"},
        {kWeft,
         {{"fuse", "1"}, {"loss_scale", "false"}},
         weft_prefix + "grad-all-reduce{scale=none,$nrings,$buckets=bytes},sync-elimination"},
        {kWeft,
         {{"fuse", "0"}, {"loss_scale", "false"}},
         weft_prefix + "grad-all-reduce{scale=none,$nrings},sync-elimination"},
        {kPaddle, {{"fuse", "1"}}, hosts_prefix + "paddle-single-process-fuse{by=buffer}"},
        {kPaddle,
         {{"fuse", "0"}},
         hosts_prefix + "paddle-grad-all-reduce{nrings=1,skip=no_gradient}"},
        {kPaddle, {{"fuse", "2"}}, hosts_prefix + "paddle-single-process-fuse{by=xsum}"}},
       Mode::Group::kCommon,
       Mode::RunsIn::kPaddleAndWeft,
       {},
       Mode::Trainers::kOneOrMoreWithDevices,
       {{"fuse",
         "how gradients are summed: 0 one by one, 1 in fused buffers, 2 by "
         "c_allreduce_xsum (paddle dialect)"}}},

      {"multi_thread",
       "several devices per trainer, in buckets or gathered",
       {{kWeft, {{"trans_mode", "fuse_all_reduce"}}, scaled_prefix + in_buckets},
        {kWeft,
         {{"trans_mode", "all_gather"}},
         scaled_prefix + "gather-gradients{$nrings,$scale},sync-elimination"},
        {kWeft,
         {{"trans_mode", "all_reduce"}},
         scaled_prefix + "grad-all-reduce{$nrings,$scale},sync-elimination"},
        {kWeft,
         {{"trans_mode", "all_reduce_xpu"}},
         scaled_prefix + "grad-all-reduce{$nrings,$scale},sync-elimination"},
        {kPaddle,
         {{"trans_mode", "fuse_all_reduce"}},
         trainers_prefix + "paddle-multi-thread-fuse{$fuse_grad_size_in_num}"},
        {kPaddle, {{"trans_mode", "all_gather"}}, trainers_prefix + "paddle-all-gather{$nrings}"},
        {kPaddle,
         {{"trans_mode", "all_reduce"}},
         trainers_prefix + "paddle-grad-all-reduce{$nrings=1}"},
        {kPaddle,
         {{"trans_mode", "all_reduce_xpu"}},
         "paddle-comm-init{over=trainers,list_devices=true,$nrings}," + trainer_scaled_prefix +
             "paddle-grad-all-reduce{$nrings=1,skip=one_device}"}},
       Mode::Group::kCommon,
       Mode::RunsIn::kPaddleAndWeft,
       {},
       Mode::Trainers::kOneOrMoreWithDevices,
       {{"trans_mode", "how gradients travel: in buckets, gathered, or one by one"}}},

      {"mindspore_reducer",
       "MindSpore: gradients are summed in fp32",
       {{kWeft,
         {},
         replicas_prefix + "dense-gradients{$sparse=supported},"
                           "grad-reduce{$nrings,$reduce_method=sum,$degree,$comm_dtype=fp32,"
                           "$accumulate_type,$buckets=mindspore,$lowering},"
                           "sync-elimination"}},
       Mode::Group::kOtherSystems,
       Mode::RunsIn::kPaddleAndWeft,
       {},
       Mode::Trainers::kTwoOrMore,
       {},
       /*leaves_served=*/true},

      {"singa_plain",
       "SINGA: gradients are summed in buffers, then divided",
       {{kWeft,
         {},
         replicas_prefix +
             "dense-gradients{$sparse},"
             "grad-reduce{reduce_method=mean,accumulate_type=native,$nrings,$buckets=singa,"
             "$lowering},sync-elimination"}},
       Mode::Group::kOtherSystems},

      {"singa_half",
       "SINGA: gradients travel in half precision",
       {{kWeft,
         {},
         replicas_prefix + "dense-gradients{$sparse},"
                           "grad-reduce{reduce_method=mean,$nrings,$comm_dtype=fp16,"
                           "$accumulate_type=native,$division,$clip,$buckets=singa,$lowering},"
                           "sync-elimination"}},
       Mode::Group::kOtherSystems},

      {"megengine",
       "MegEngine: gradients are summed or averaged, one by one",
       {{kWeft,
         {},
         "comm-init{$nrings},broadcast-params{$nrings,$bcast_period},dense-gradients{$sparse},"
         "grad-reduce{$reduce_method,division=quotient,accumulate_type=native,$nrings,"
         "$buckets=none},periodic-broadcast{$nrings,$bcast_period},sync-elimination"}},
       Mode::Group::kOtherSystems,
       Mode::RunsIn::kPaddleAndWeft,
       {{"reduce_method", "mean"}}},

      {"optimizer_offload",
       "the host runs the optimizers and holds their state",
       {{kWeft,
         {},
         "param-options{$no_decay,$adam_epsilon}," + scaled_prefix + in_buckets +
             ",optimizer-offload{$master_weights,$offload,$offload_params,"
             "$bias_correction,$gradient_copy},hetero-partition{place=op_device,$order,$staging="
             "double}"}},
       Mode::Group::kOffloadAndServers,
       Mode::RunsIn::kWeft},

      {"embedding_offload",
       "the host holds the embedding tables",
       {{kWeft,
         {},
         "param-options{$adam_epsilon}," + scaled_prefix + in_buckets +
             ",embedding-offload{$tables,$out_of_range,$use_nesterov},"
             "hetero-partition{place=op_device,$order}"}},
       Mode::Group::kOffloadAndServers,
       Mode::RunsIn::kWeft},
  };
  for (Mode& mode : modes) {
    if (mode.runs_in == Mode::RunsIn::kWeft) continue;
    for (ModePipeline& pipeline : mode.pipelines) pipeline.passes += ",lower-to-target";
  }
  return modes;
}

// Whether the user's text for a flag equals `value` of the table; booleans have several spellings.
bool Means(const std::string& given, const std::string& value) {
  bool flag = false;
  if (value != "true" && value != "false") return given == value;
  return absl::SimpleAtob(given, &flag) && flag == (value == "true");
}

bool ContainsMeaning(const std::vector<std::string>& values, const std::string& given) {
  return absl::c_any_of(values, [&](const std::string& value) { return Means(given, value); });
}

void AddOnce(const std::string& value, std::vector<std::string>* values) {
  if (!absl::c_linear_search(*values, value)) values->push_back(value);
}

// The choices in a dialect; none: in both.
FlagChoices ChoicesIn(absl::optional<Dialect> dialect, const Mode& mode) {
  FlagChoices choices;
  for (const ModePipeline& pipeline : mode.pipelines) {
    if (dialect.has_value() && pipeline.dialect != *dialect) continue;
    for (const auto& [name, value] : pipeline.choice) {
      const auto is_same = [flag = name](const auto& choice) { return choice.first == flag; };
      auto found = absl::c_find_if(choices, is_same);
      if (found == choices.end()) found = choices.insert(choices.end(), {name, {}});
      AddOnce(value, &found->second);
    }
  }
  return choices;
}

absl::string_view OtherThan(Dialect dialect) {
  return dialect == Dialect::kPaddle ? "weft" : "paddle";
}

// InvalidArgument for a value that selects no pipeline, in this dialect or in both.
absl::Status CheckChoices(const Mode& mode, Dialect dialect,
                          const std::map<std::string, std::string>& flags) {
  for (const absl::optional<Dialect> where : {absl::optional<Dialect>(), {dialect}}) {
    for (const auto& [flag, values] : ChoicesIn(where, mode)) {
      const auto given = flags.find(flag);
      if (given == flags.end() || ContainsMeaning(values, given->second)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "mode ", mode.name, ": option:", flag,
          where.has_value() ? absl::StrCat(" ", given->second, " is available in the ",
                                           OtherThan(dialect), " dialect only")
                            : absl::StrCat(" must be one of ", absl::StrJoin(values, ", "),
                                           ", found '", absl::CEscape(given->second), "'")));
    }
  }
  return absl::OkStatus();
}

// The pipeline that the flags and their defaults select; null if the mode has no passes.
const ModePipeline* Select(const Mode& mode, Dialect dialect,
                           const std::map<std::string, std::string>& flags) {
  std::map<std::string, std::string> chosen = flags;
  for (const auto& [flag, values] : ChoicesOf(mode)) chosen.emplace(flag, values.front());
  for (const ModePipeline& pipeline : mode.pipelines) {
    const bool is_selected = pipeline.dialect == dialect &&
                             absl::c_all_of(pipeline.choice, [&](const FlagValue& choice) {
                               return Means(chosen[choice.first], choice.second);
                             });
    if (is_selected) return &pipeline;
  }
  return nullptr;
}

// The passes with placeholders. They parse: modes_test reads all.
std::vector<Spec> Template(const ModePipeline& pipeline) { return *ParseSpecs(pipeline.passes); }

struct Placeholder {
  std::string pass, flag;
  std::string preset;  // the option's value without the flag; empty: the default of the pass
};

std::vector<Placeholder> PlaceholdersOf(const ModePipeline& pipeline) {
  std::vector<Placeholder> placeholders;
  for (const Spec& pass : Template(pipeline)) {
    for (const auto& [name, value] : pass.options) {
      absl::string_view flag = name;
      if (!absl::ConsumePrefix(&flag, "$")) continue;
      placeholders.push_back({pass.name, std::string(flag), value});
    }
  }
  return placeholders;
}

// Replaces each placeholder by the value of its flag, else by its preset, else by nothing.
std::vector<Spec> Fill(std::vector<Spec> passes, const std::map<std::string, std::string>& flags) {
  for (Spec& pass : passes) {
    std::vector<FlagValue> options;
    for (const auto& [name, value] : pass.options) {
      absl::string_view flag = name;
      const bool is_flag = absl::ConsumePrefix(&flag, "$");
      const auto given = is_flag ? flags.find(std::string(flag)) : flags.end();
      if (given != flags.end()) {
        options.push_back(*given);
      } else if (!is_flag || !value.empty()) {
        options.emplace_back(flag, value);
      }
    }
    pass.options = std::move(options);
  }
  return passes;
}

absl::Status DoesNotRead(const Mode& mode, Dialect dialect, const std::string& flag) {
  return absl::InvalidArgumentError(
      absl::StrCat("mode ", mode.name, " does not read option:", flag,
                   dialect == Dialect::kPaddle ? " in the paddle dialect" : ""));
}

}  // namespace

const std::vector<Mode>& Modes() {
  static const auto* modes = new std::vector<Mode>(MakeModes());
  return *modes;
}

absl::StatusOr<const Mode*> FindMode(absl::string_view name) {
  const auto found = absl::c_find_if(Modes(), [&](const Mode& mode) { return mode.name == name; });
  if (found != Modes().end()) return &*found;
  std::vector<absl::string_view> names;
  for (const Mode& mode : Modes()) names.push_back(mode.name);
  return absl::InvalidArgumentError(absl::StrCat("unknown mode ", name,
                                                 "; expected one of: ", absl::StrJoin(names, ", "),
                                                 DidYouMean(name, names)));
}

std::vector<Dialect> DialectsOf(const Mode& mode) {
  std::vector<Dialect> dialects;
  for (Dialect dialect : {Dialect::kWeft, Dialect::kPaddle}) {
    const auto is_of_dialect = [&](const ModePipeline& p) { return p.dialect == dialect; };
    if (mode.pipelines.empty() || absl::c_any_of(mode.pipelines, is_of_dialect)) {
      dialects.push_back(dialect);
    }
  }
  return dialects;
}

FlagChoices ChoicesOf(const Mode& mode) { return ChoicesIn(absl::nullopt, mode); }

std::vector<std::string> FlagsOf(const Mode& mode, const ModePipeline& pipeline) {
  std::set<std::string> flags;
  for (const FlagValue& choice : pipeline.choice) flags.insert(choice.first);
  for (const Placeholder& placeholder : PlaceholdersOf(pipeline)) flags.insert(placeholder.flag);
  if (mode.trainers == Mode::Trainers::kOneOrMoreWithDevices) flags.insert("devices");
  return {flags.begin(), flags.end()};
}

bool ReadsFlag(const Mode& mode, Dialect dialect, const std::map<std::string, std::string>& flags,
               const std::string& flag) {
  const ModePipeline* const pipeline = Select(mode, dialect, flags);
  return pipeline != nullptr && absl::c_linear_search(FlagsOf(mode, *pipeline), flag);
}

absl::StatusOr<std::vector<Spec>> ExpandMode(absl::string_view name, Dialect dialect,
                                             const std::map<std::string, std::string>& flags,
                                             const std::vector<std::string>& context_flags) {
  WEFT_ASSIGN_OR_RETURN(const Mode* const mode, FindMode(name));
  return ExpandMode(*mode, dialect, flags, context_flags);
}

absl::StatusOr<std::vector<Spec>> ExpandMode(const Mode& mode, Dialect dialect,
                                             const std::map<std::string, std::string>& flags,
                                             const std::vector<std::string>& context_flags) {
  WEFT_RETURN_IF_ERROR(CheckChoices(mode, dialect, flags));
  const ModePipeline* const pipeline = Select(mode, dialect, flags);
  if (pipeline == nullptr && !mode.pipelines.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("mode ", mode.name, " is available in the ",
                                                   OtherThan(dialect), " dialect only"));
  }
  std::vector<std::string> read;
  if (pipeline != nullptr) read = FlagsOf(mode, *pipeline);
  for (const std::string& flag : context_flags) {
    const bool is_of_paddle = flag == "device_kind" || flag == "paddle_version";
    const bool is_read = flag == "devices" ? absl::c_linear_search(read, flag)
                         : is_of_paddle    ? mode.runs_in == Mode::RunsIn::kPaddleAndWeft
                                           : true;
    if (pipeline == nullptr || !is_read) return DoesNotRead(mode, dialect, flag);
  }
  for (const auto& [flag, value] : flags) {
    if (!absl::c_linear_search(read, flag)) return DoesNotRead(mode, dialect, flag);
  }
  for (const auto& [flag, example] : mode.required) {
    if (flags.count(flag) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("mode ", mode.name, ": option:", flag,
                                                   " must be given, for example option:", flag, " ",
                                                   example));
  }
  return pipeline == nullptr ? std::vector<Spec>() : Fill(Template(*pipeline), flags);
}

namespace {

// Finds the flag of that name, or appends it, and adds the mode to it.
ModeFlag& FlagOf(const std::string& name, const Mode& mode, std::vector<ModeFlag>* flags) {
  auto found = absl::c_find_if(*flags, [&](const ModeFlag& flag) { return flag.name == name; });
  if (found == flags->end()) {
    found = flags->insert(flags->end(), ModeFlag());
    found->name = name;
  }
  AddOnce(mode.name, &found->modes);
  return *found;
}

// Null if there is no such pass or option.
const OptionBinder::Option* FindOption(const PassRegistry& registry, const std::string& pass,
                                       const std::string& name) {
  const auto entry = registry.entries().find(pass);
  if (entry == registry.entries().end()) return nullptr;
  const auto& options = entry->second.options;
  const auto found = absl::c_find_if(options, [&](const auto& o) { return o.name == name; });
  return found == options.end() ? nullptr : &*found;
}

absl::Status AddFlags(const Mode& mode, const PassRegistry& registry,
                      std::vector<ModeFlag>* flags) {
  for (const ModePipeline& pipeline : mode.pipelines) {
    for (const Placeholder& placeholder : PlaceholdersOf(pipeline)) {
      const auto* const option = FindOption(registry, placeholder.pass, placeholder.flag);
      if (option == nullptr) {
        return absl::InvalidArgumentError(absl::StrCat("mode ", mode.name, ": there is no pass ",
                                                       placeholder.pass, " with an option ",
                                                       placeholder.flag));
      }
      ModeFlag& flag = FlagOf(placeholder.flag, mode, flags);
      flag.help = option->help;
      flag.expected = option->expected;
      flag.old_name = option->old_name;
      AddOnce(placeholder.preset.empty() ? option->default_value : placeholder.preset,
              &flag.defaults);
    }
  }
  // Flags that select a pipeline of the mode.
  for (const auto& [name, values] : ChoicesOf(mode)) {
    ModeFlag& flag = FlagOf(name, mode, flags);
    const auto help = mode.help.find(name);
    if (help == mode.help.end()) continue;  // a pass of the other dialect has the option
    flag.help = help->second;
    flag.expected = absl::StrJoin(values, "|");
    AddOnce(values.front(), &flag.defaults);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ModeFlag>> ModeFlags(const PassRegistry& registry) {
  std::vector<ModeFlag> flags;
  for (const Mode& mode : Modes()) WEFT_RETURN_IF_ERROR(AddFlags(mode, registry, &flags));
  return flags;
}

absl::StatusOr<std::vector<ModeFlag>> ModeFlags(const Mode& mode, const PassRegistry& registry) {
  std::vector<ModeFlag> flags;
  WEFT_RETURN_IF_ERROR(AddFlags(mode, registry, &flags));
  return flags;
}

bool ReadsContext(const Mode& mode, const std::string& flag) {
  return absl::c_any_of(DialectsOf(mode), [&](Dialect dialect) {
    return ExpandMode(mode, dialect, mode.required, {flag}).ok();
  });
}

absl::string_view GroupTitle(Mode::Group group) {
  constexpr absl::string_view kTitles[] = {"common", "as other systems reduce",
                                           "offload and parameter servers"};
  return kTitles[static_cast<int>(group)];
}

}  // namespace weft
