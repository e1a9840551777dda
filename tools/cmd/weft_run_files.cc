#include "tools/cmd/weft_run_files.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/build_id.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "executor/communicators/self_test.h"
#include "executor/files/npy.h"
#include "executor/files/params_file.h"
#include "executor/files/pickle.h"
#include "executor/run/feed_sources.h"
#include "executor/run/run_state.h"
#include "executor/run/shared_states.h"
#include "executor/servers/server_part.h"
#include "executor/streams/cuda_stream.h"
#include "ops/analysis/core/group_variables.h"
#include "ops/analysis/core/updates.h"
#include "ops/analysis/training/losses.h"
#include "ops/analysis/training/mark_gradients.h"
#include "ops/analysis/values/layout_guess.h"
#include "ops/cpu/quirks.h"
#include "ops/kernel.h"
#include "ops/schema/table_entries.h"
#include "proto/all_ops.h"
#include "proto/feed_layout.h"
#include "tools/cmd/evaluation.h"
#include "tools/cmd/weft_run_checks.h"
#include "tools/files/setting_file.h"
#include "tools/flags/assume_flag.h"
#include "tools/flags/command_line.h"
#include "tools/inspect/program_stats.h"
#include "transpiler/verifier/servers/server_programs.h"

namespace weft {

void PrintNote(absl::string_view note) {
  std::fprintf(stderr, "note: %s\n", std::string(note).c_str());
}

namespace {

void Note(const RunFlags& flags, std::string text) {
  flags.say({Severity::kNote, std::move(text)});
}

// Warns if the file has only some of the parameters: the others keep their initial values.
void WarnAboutMissingParams(const RunFlags& flags, const RunFiles& inputs) {
  int parameters = 0, found = 0;
  for (const absl::optional<Program>* program : {&inputs.main, &inputs.server}) {
    if (!program->has_value()) continue;
    for (VarId id : (*program)->block(0).vars()) {
      const Var var = (*program)->var(id);
      if (!var.is_parameter()) continue;
      ++parameters;
      if (inputs.params->params.count(std::string(var.name())) > 0) ++found;
    }
  }
  if (found == parameters) return;
  flags.say({Severity::kWarning,
             absl::StrCat(flags.params, ": holds ", found, " of ", parameters,
                          " parameters; from the startup program: ", parameters - found),
             /*names_command=*/true});
}

void PrintMismatch(const RunFlags& flags, const RunFiles& inputs) {
  const std::string others = OthersText(*inputs.params);
  if (!others.empty()) {
    Note(flags, absl::StrCat(flags.params, ": ", others,
                             flags.save.empty() ? "" : "; --save writes them again"));
  }
  // Without a startup program, missing parameters are an error.
  if (inputs.startup.has_value() && flags.resume.empty()) WarnAboutMissingParams(flags, inputs);
}

// It initializes parameters of this model.
absl::Status CheckStartup(const RunFlags& flags, const RunFiles& inputs) {
  if (!inputs.startup.has_value()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(Annotate(flags.startup, CheckIsStartup(*inputs.startup)));
  const Block& root = inputs.main->block(0);
  absl::string_view missing;
  for (VarId id : root.vars()) {
    const Var var = inputs.main->var(id);
    if (!var.is_parameter()) continue;
    if (inputs.startup->block(0).FindVar(var.name()).valid()) return absl::OkStatus();
    if (missing.empty()) missing = var.name();
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flags.startup, ": declares no parameter of ",
                                                 flags.main, ", such as ", missing,
                                                 ": the two programs do not belong together"));
}

// Losses may differ from those that Paddle printed.
void PrintDeviationsOfPaddle(const RunFlags& flags, const Program& main) {
  if (flags.device != "cpu") return;
  const std::vector<QuirkyOp> ops = FindQuirkyOps(main);
  const auto print = [&](bool is_reproduced, absl::string_view advice) {
    const auto is_of = [&](const QuirkyOp& op) { return op.is_reproduced == is_reproduced; };
    const auto first = absl::c_find_if(ops, is_of);
    if (first == ops.end()) return;
    const auto more = absl::c_count_if(ops, is_of) - 1;
    Note(flags,
         absl::StrCat(
             "Paddle's CPU kernel of ", main.op(first->op).DebugName(), " ", first->how,
             more > 0 ? absl::StrCat(" (and ", more, more == 1 ? " more op)" : " more ops)") : "",
             "; ", advice));
  };
  if (!flags.run.paddle_cpu_quirks) print(true, "--paddle_cpu_quirks reproduces it");
  print(false, "Weft computes the op as it is defined");
}

// Of the first batch of a file that has such rows.
absl::Status PrintLoneRows(const RunFlags& flags, const FeedSource& feeds) {
  if (!feeds.types || flags.run.nranks == 1) return absl::OkStatus();
  for (int64_t step = 0; step < feeds.num_steps; ++step) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<TensorType> types, feeds.types(step));
    std::vector<Dims> batch;
    for (const TensorType& type : types) batch.push_back(type.dims);
    const std::string text =
        LoneRowsText(step, feeds.variables, batch, feeds.layouts, flags.run.nranks);
    if (text.empty()) continue;
    flags.say({Severity::kWarning, absl::StrCat(flags.feeds, ": ", text), /*names_command=*/true});
    break;
  }
  return absl::OkStatus();
}

// Of the first.
void PrintEntriesOfTables(const RunFlags& flags, const Program& main) {
  for (const Op& op : AllOps(main)) {
    if (const absl::optional<std::string> note = NoteOnEntries(op)) return Note(flags, *note);
  }
}

// Of data variables about which the user has said nothing.
void PrintFeedLayout(const RunFlags& flags, const FeedLayouts& given, const FeedLayouts& layouts) {
  std::vector<std::string> whole, others;
  for (const auto& [name, layout] : layouts) {
    if (given.count(name) > 0) continue;
    if (!layout.axis.has_value()) whole.push_back(name);
    if (layout.axis.value_or(0) > 0)
      others.push_back(absl::StrCat(name, " along axis ", *layout.axis));
  }
  std::vector<std::string> how;
  if (!whole.empty()) how.push_back(absl::StrCat("the whole of ", absl::StrJoin(whole, ", ")));
  if (!others.empty()) how.push_back(absl::StrCat("a part of ", absl::StrJoin(others, ", ")));
  if (how.empty()) return;
  Note(flags, absl::StrCat("every rank gets ", absl::StrJoin(how, " and "),
                           "; --feed_layout says otherwise"));
}

// What the run reports, or follows.
std::vector<std::string> ReportedVariables(const RunFlags& flags, const RunFiles& inputs) {
  std::vector<std::string> names = flags.run.fetch;
  if (names.empty()) {
    for (Symbol loss : FindLosses(*inputs.main)) names.emplace_back(inputs.main->name(loss));
  }
  if (!inputs.plateau.has_value()) return names;
  const std::string& metric = inputs.plateau->schedule.metric();
  if (!metric.empty() && !absl::c_linear_search(names, metric)) names.push_back(metric);
  return names;
}

// A program that was rewritten for some number of ranks may divide by it.
absl::Status CheckNumRanks(const RunFlags& flags, const Setting& setting) {
  if (setting.rank.has_value() && flags.run.nranks > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.main, ": is the program of rank ", *setting.rank,
                     " (setting of the file): expected one that all ranks run"));
  }
  if (!setting.nranks.has_value() || *setting.nranks == flags.run.nranks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      flags.main, ": was rewritten for ", *setting.nranks,
      *setting.nranks == 1 ? " rank" : " ranks", " (setting of the file): expected --ranks ",
      *setting.nranks, ", found ", flags.run.nranks));
}

absl::Status DropLast(const RunFlags& flags, FeedSource* feeds) {
  const int64_t steps = feeds->num_steps;
  WEFT_ASSIGN_OR_RETURN(*feeds, WithoutUnevenLastStep(std::move(*feeds), flags.run.nranks));
  if (feeds->num_steps < steps && flags.reports) {
    Note(flags, absl::StrCat("step ", steps - 1,
                             " of the feeds is left out: its batch does not divide "
                             "by ",
                             flags.run.nranks, " ranks (--drop_last)"));
  }
  return absl::OkStatus();
}

absl::Status AddHostValues(const RunFlags& flags, RunFiles* inputs) {
  const auto note = [&flags](const std::string& text) {
    if (flags.reports) Note(flags, text);
  };
  RunSchedule schedule = flags.schedule;
  schedule.is_paddles_model = absl::EndsWith(flags.main, ".pdmodel");
  const int64_t begin = flags.run.begin_step;
  WEFT_ASSIGN_OR_RETURN(HostSettings settings,
                        HostSettingsOf(schedule, *inputs->main, inputs->feeds.variables, begin,
                                       begin + inputs->steps, note));
  WEFT_ASSIGN_OR_RETURN(inputs->feeds,
                        WithHostValues(std::move(inputs->feeds), *inputs->main, settings.values));
  inputs->plateau = std::move(settings.plateau);
  inputs->schedules = std::move(settings.of_program);
  return absl::OkStatus();
}

// Known before the first step, not only when the results are written.
absl::Status CheckFormats(const RunFlags& flags, const Program& main) {
  const auto check = [&main](const std::string& path, VarId id) {
    const absl::optional<TensorType> type = DeclaredType(main.var(id));
    if (!absl::EndsWith(path, ".npz") || !type.has_value()) return absl::OkStatus();
    const absl::Status status = NpyHeaderFor(type->dtype, {}).status();
    return status.ok() ? status
                       : absl::InvalidArgumentError(absl::StrCat(
                             path, ": variable ", main.var(id).name(), ": ", status.message(),
                             "; --save to a .safetensors or .pdparams file"));
  };
  for (VarId id : main.block(0).vars()) {
    if (main.var(id).persistable()) WEFT_RETURN_IF_ERROR(check(flags.save, id));
  }
  for (const std::string& name : flags.run.fetch) {
    const VarId id = main.block(0).FindVar(name);
    if (id.valid()) WEFT_RETURN_IF_ERROR(check(flags.fetch_npz, id));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunFiles> ReadRunFiles(const RunFlags& flags, JobLink* link, RunFiles given) {
  RunFiles inputs = std::move(given);
  if (!inputs.main.has_value()) {
    WEFT_ASSIGN_OR_RETURN(inputs.main, ReadProgramOrExplain(flags.main));
    WEFT_ASSIGN_OR_RETURN(inputs.startup, ReadStartupIfGiven(flags.startup));
    WEFT_ASSIGN_OR_RETURN(inputs.server, ReadProgramIfGiven(flags.server));
  }
  if (!flags.assume.empty()) inputs.fingerprint = Fingerprint(*inputs.main);
  WEFT_RETURN_IF_ERROR(AssumeOps(flags.assume, {{&*inputs.main, flags.main}}));
  // Losses are printed.
  WEFT_RETURN_IF_ERROR(Annotate(flags.main, MarkGradients(&*inputs.main).status()));
  for (OpId id : inputs.main->block(0).ops()) {
    if (inputs.main->op(id).type() != kPirFetchType) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flags.main,
                     ": a model for inference, which trains nothing: expected a program with an "
                     "optimizer, as tools/paddle/export_program.py writes it"));
  }
  if (flags.by_steps && HasServerOps(*inputs.main)) {
    return absl::UnimplementedError(absl::StrCat(
        flags.main, ": a program of workers or of servers alone: weft run --server trains both"));
  }
  const absl::StatusOr<ServedKeys> served = FindServedKeys(*inputs.main);
  if (served.ok() && !served->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        flags.main,
        ": the program of parameter servers: expected the program of the workers, with this "
        "one as --server"));
  }
  if (HasServerOps(*inputs.main) && !inputs.server.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        flags.main,
        ": a program for workers of parameter servers: expected --server, with the program that "
        "transpile --server_out wrote, and --servers"));
  }
  WEFT_RETURN_IF_ERROR(CheckStartup(flags, inputs));
  if (!flags.params.empty()) {
    std::vector<const Program*> programs = {&*inputs.main};
    if (inputs.server.has_value()) programs.push_back(&*inputs.server);
    if (!inputs.params.has_value()) {
      WEFT_ASSIGN_OR_RETURN(inputs.params, ReadParams(flags.params, flags.params_names, programs));
    }
    // The state comes from the checkpoint, which has no arrays of other programs.
    if (!flags.resume.empty()) inputs.params->params.clear();
    if (flags.reports) PrintMismatch(flags, inputs);
  } else if (!inputs.startup.has_value() && !inputs.params.has_value() && flags.resume.empty()) {
    WEFT_ASSIGN_OR_RETURN(inputs.params, StartParamsOf(flags.main, *inputs.main));
  }
  if (!flags.feeds.empty()) {
    WEFT_ASSIGN_OR_RETURN(inputs.feeds, FeedsFromFile(flags.feeds));
  }
  WEFT_ASSIGN_OR_RETURN(const FeedLayouts given_layouts, ParseFeedLayouts(flags.feed_layout));
  WEFT_ASSIGN_OR_RETURN(inputs.setting, SettingOfFile(flags.main, *inputs.main));
  WEFT_RETURN_IF_ERROR(CheckNumRanks(flags, inputs.setting));
  const absl::StatusOr<FeedLayouts> layouts =
      FeedLayoutsOf({&*inputs.main}, given_layouts, inputs.setting.feeds);
  if (!layouts.ok()) return Annotate(flags.main, layouts.status());
  inputs.feeds.layouts = *layouts;
  if (flags.drop_last) WEFT_RETURN_IF_ERROR(DropLast(flags, &inputs.feeds));
  const int64_t in_file = inputs.feeds.num_steps;
  const int64_t to_end = in_file > 0 ? in_file - flags.run.begin_step % in_file : 0;
  inputs.steps = flags.steps.value_or(to_end);
  WEFT_RETURN_IF_ERROR(Annotate(flags.main, AddHostValues(flags, &inputs)));
  WEFT_RETURN_IF_ERROR(CheckFormats(flags, *inputs.main));
  if (flags.reports) PrintDeviationsOfPaddle(flags, *inputs.main);
  if (flags.reports) PrintEntriesOfTables(flags, *inputs.main);
  if (flags.reports) WEFT_RETURN_IF_ERROR(PrintLoneRows(flags, inputs.feeds));
  if (flags.run.nranks > 1 && flags.reports) PrintFeedLayout(flags, given_layouts, *layouts);
  inputs.reported = ReportedVariables(flags, inputs);
  WEFT_RETURN_IF_ERROR(CheckRunPrograms(flags, link, &inputs));
  inputs.sums = FindPartialSums(flags, inputs);
  if (inputs.plateau.has_value() && !inputs.reported.empty()) {
    const std::string& metric = inputs.plateau->schedule.metric();
    const bool is_sum = inputs.sums.count(metric.empty() ? inputs.reported[0] : metric) > 0;
    if (is_sum) inputs.plateau->schedule.AddUpRanks(flags.run.nranks);
  }
  return inputs;
}

absl::Status ContinueFrom(const Checkpoint& checkpoint, RunFlags* flags) {
  const auto note = [flags](const std::string& text) {
    if (flags->reports) Note(*flags, text);
  };
  RunOptions& run = flags->run;
  WEFT_RETURN_IF_ERROR(ContinueSchedule(checkpoint, note, &flags->schedule));
  if (!flags->has_ranks) run.nranks = checkpoint.nranks;
  if (!flags->has_seed) run.seed = checkpoint.seed;
  if (run.nranks != checkpoint.nranks) {
    // Otherwise the run ends with the error, which says what to do.
    const bool are_equal = CheckRanks(checkpoint, run.nranks).ok();
    note(absl::StrCat("--ranks ", run.nranks, ": the checkpoint has ", checkpoint.nranks,
                      are_equal ? ", whose values are equal: the run goes on as one that begins "
                                  "with them (--params, --resume_step)"
                                : ""));
  }
  if (run.seed != checkpoint.seed) {
    note(absl::StrCat("--seed ", run.seed, ": the checkpoint has ", checkpoint.seed));
  }
  run.begin_step = checkpoint.step;
  if (!flags->steps.has_value()) {
    flags->steps = std::max<int64_t>(0, checkpoint.end_step - checkpoint.step);
  }
  return absl::OkStatus();
}

std::string LoneRowsText(int64_t step, absl::Span<const std::string> variables,
                         absl::Span<const Dims> batch, const FeedLayouts& layouts, int nranks) {
  const std::string *one = nullptr, *several = nullptr;
  int64_t count = 0;
  for (size_t i = 0; i < variables.size(); ++i) {
    const auto layout = layouts.find(variables[i]);
    if (layout == layouts.end() || !layout->second.axis.has_value()) continue;
    const auto axis = static_cast<size_t>(*layout->second.axis);
    if (axis >= batch[i].size() || batch[i][axis] < nranks) continue;
    if (batch[i][axis] == nranks) {
      one = &variables[i];
    } else {
      several = &variables[i];
      count = batch[i][axis] / nranks;
    }
  }
  if (nranks == 1 || one == nullptr || several == nullptr) return "";
  return absl::StrCat("step ", step, ": each rank gets 1 row of ", *one, ", and ", count, " of ",
                      *several,
                      ": ops may take the one for all, where one device would refuse the batch");
}

std::string FingerprintOf(const RunFiles& files) {
  return files.fingerprint.empty() ? Fingerprint(*files.main) : files.fingerprint;
}

std::map<std::string, Tensor> PersistablesOf(const Program& main, const Checkpoint& checkpoint) {
  const std::map<std::string, std::vector<int>> groups = FindGroupVariables(main);
  std::map<std::string, Tensor> persistables;
  const auto add = [&](const std::string& name) {
    if (absl::StartsWith(name, "@step/")) return;  // no variable: a value that a step leaves
    const auto group = groups.find(name);
    const int rank = group == groups.end() ? 0 : group->second.front();
    if (const Tensor* const value = FindValue(checkpoint, rank, name)) persistables[name] = *value;
  };
  for (const auto& [name, tensor] : checkpoint.shared) add(name);
  for (const auto& own : checkpoint.own) {
    for (const auto& [name, tensor] : own) add(name);
  }
  return persistables;
}

absl::StatusOr<std::map<std::string, std::string>> JobSettings(const RunFlags& flags,
                                                               const RunFiles& inputs) {
  std::map<std::string, std::string> settings;
  for (const auto& [variable, schedule] : inputs.schedules) {
    settings[absl::StrCat("the schedule of variable ", variable)] = schedule;
  }
  settings["--lr_schedule"] = flags.schedule.lr_schedule;
  settings["--lr_var"] = flags.schedule.lr_var;
  settings["--set"] = absl::StrJoin(flags.schedule.set, ", ");
  Setting setting;
  setting.feeds = inputs.feeds.layouts;
  settings["--feed_layout"] = ToJson(setting);
  if (flags.feeds.empty() || flags.feeds == "-") return settings;
  WEFT_ASSIGN_OR_RETURN(const FileBytes file, ReadFile(flags.feeds));
  const absl::string_view bytes = file.bytes;
  const size_t shown = std::min<size_t>(bytes.size(), 1 << 20);
  settings["the feeds"] =
      absl::StrFormat("%d bytes, hash %016x", bytes.size(),
                      XXH3_64bits_withSeed(bytes.data() + bytes.size() - shown, shown,
                                           XXH3_64bits(bytes.data(), shown)));
  return settings;
}

JobSessionOptions JobOptions(const RunFlags& flags) {
  JobSessionOptions job;
  job.backend = flags.backend;
  job.on_gpus = flags.device == "gpu";
  job.nccl_id_file = flags.nccl_id_file;
  job.token_file = flags.job_token_file;
  job.facts = {{"build", BuildId()}};
  const char* const limit = std::getenv("ONEDNN_MAX_CPU_ISA");
  job.onednn_limit = limit != nullptr ? limit : std::getenv("DNNL_MAX_CPU_ISA");
  job.on_note = [say = flags.say](const std::string& note) { say({Severity::kNote, note}); };
  job.local_ranks = flags.run.nranks;
  job.timeout_s = flags.run.timeout_s;
  return job;
}

absl::Status CheckRunDevice(const RunFlags& flags) {
  if (flags.device != "gpu" && flags.cuda_graph != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("--cuda_graph ", flags.cuda_graph, ": expected --device gpu"));
  }
  if (flags.device != "gpu" && flags.run.tf32) {
    return absl::InvalidArgumentError("--tf32: expected --device gpu");
  }
  const auto refuse = [&flags](absl::string_view flag, double value, absl::string_view why) {
    if (flags.device != "gpu") return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(flag, " ", value, ": --device gpu ", why));
  };
  if (flags.run.threads != 1) {
    WEFT_RETURN_IF_ERROR(refuse("--threads", flags.run.threads, "computes on the GPU"));
  }
  const SimDeviceOptions& sim = flags.run.sim;
  if (sim.memory_bytes != 0) {
    WEFT_RETURN_IF_ERROR(refuse("--sim_memory", sim.memory_bytes, "has the memory of the GPU"));
  }
  if (sim.copy_bytes_per_s != 0) {
    WEFT_RETURN_IF_ERROR(
        refuse("--sim_copy_bandwidth", sim.copy_bytes_per_s, "copies as fast as the GPU"));
  }
  if (flags.device == "gpu") {
    WEFT_RETURN_IF_ERROR(Annotate("--device gpu", CudaDeviceCount().status()));
  }
  return absl::OkStatus();
}

void ChooseDevice(const RunFlags& flags, std::function<int(int rank)> gpu_of, RunOptions* options) {
  options->kernels = flags.device == "gpu" ? &GpuKernels() : &CpuKernels();
  if (flags.device == "gpu") {
    options->host_kernels = &CpuKernels();
    options->ranks_share_device = flags.backend == "local";
    options->new_device = [gpu_of = std::move(gpu_of)](int rank, Memory*) {
      return NewCudaDevice(gpu_of(rank));
    };
  }
  if (flags.cuda_graph != "off") {
    options->graph = flags.cuda_graph == "on" ? GraphMode::kOn : GraphMode::kAuto;
  }
}

absl::Status SaveState(const std::string& path, const RunFiles& files,
                       std::map<std::string, Tensor> tensors) {
  if (files.params.has_value()) {
    tensors.insert(files.params->others.begin(), files.params->others.end());
  }
  const std::string pdopt = PdoptBeside(path);
  if (pdopt.empty()) return SaveParams(path, tensors);
  // As Paddle has it: parameters in one file, other variables in the other. Those of another
  // program go back to where they came from.
  std::map<std::string, Tensor> parameters;
  if (files.params.has_value()) {
    for (const std::string& name : files.params->others_of_pdparams) {
      parameters.insert(tensors.extract(name));
    }
  }
  for (const absl::optional<Program>* program : {&files.main, &files.server}) {
    if (!program->has_value()) continue;
    for (VarId id : (*program)->block(0).vars()) {
      const Var var = (*program)->var(id);
      if (!var.is_parameter()) continue;
      parameters.insert(tensors.extract(std::string(var.name())));
    }
    WEFT_ASSIGN_OR_RETURN(const SharedStates shares, SharedStates::Of(**program));
    for (const std::string& name : shares.parameters()) parameters.insert(tensors.extract(name));
  }
  return WritePickles({{pdopt, &tensors}, {path, &parameters}});
}

absl::Status NameFile(const RunFlags& flags, const std::string& backend,
                      const absl::Status& status) {
  const absl::string_view message = status.message();
  if (absl::StrContains(message, kSelfTest)) return Annotate("--backend " + backend, status);
  if (!flags.feeds.empty() && absl::StartsWith(message, flags.feeds + ": ")) return status;
  if (!flags.resume.empty() && absl::StartsWith(message, "checkpoint: ")) {
    return Annotate(flags.resume, status);
  }
  const bool is_startup = !flags.startup.empty() && absl::StartsWith(message, "startup");
  return Annotate(is_startup ? flags.startup : flags.main, status);
}

}  // namespace weft
