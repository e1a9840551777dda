// transpile: rewrites training programs. Reads arguments and prints messages; //transpiler works.
#include "transpiler/transpile.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <future>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/free_memory.h"
#include "base/status_macros.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/feed_layout.h"
#include "proto/formats/malformed_program.h"
#include "proto/formats/program_file.h"
#include "proto/host_schedules.h"
#include "proto/op_role.h"
#include "proto/text/program_text.h"
#include "tools/cmd/transpile_help.h"
#include "tools/cmd/transpile_outputs.h"
#include "tools/files/param_attrs_file.h"
#include "tools/files/setting_file.h"
#include "tools/files/step_times_file.h"
#include "tools/flags/command_line.h"
#include "tools/flags/flag_names.h"
#include "transpiler/context_flags.h"
#include "transpiler/mode_choice.h"
#include "transpiler/modes.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/transpile_plan.h"
#include "transpiler/verifier/verify.h"

namespace weft {
namespace {

struct Flags {
  std::string in, out, startup_in, startup_out, server_out;
  std::string explain, dump_dir, feed_layout, profile, comm_table, param_attrs;
  std::string dialect = "weft";
  bool list_modes = false, list_passes = false;
  TranspileOptions options;
  bool verify = true;
  bool all_ranks = false;  // --rank all
  std::string chosen;      // what mode auto says, when the result is there
  // Flags that modes read, by name; given ones go to TranspileOptions.
  std::map<std::string, absl::optional<std::string>> mode_flags, context_flags;
  absl::StatusOr<TranspilePlan> plan = TranspilePlan();
};

// Writes the text of each state as <dir>/<number>_<pass>.main.prog and .startup.prog.
auto DumpTo(const std::string& dir) {
  return [dir, number = 0](absl::string_view pass,
                           const ProgramPair& programs) mutable -> absl::Status {
    if (mkdir(dir.c_str(), 0777) != 0 && errno != EEXIST) {
      return absl::ErrnoToStatus(errno, absl::StrCat(dir, ": cannot create the directory"));
    }
    const std::string stem = absl::StrFormat("%s/%02d_%s", dir, number++, pass);
    const std::pair<const Program*, const char*> files[] = {{programs.main, ".main.prog"},
                                                            {programs.startup, ".startup.prog"}};
    for (const auto& [program, suffix] : files) {
      const std::string path = stem + suffix;
      if (program == nullptr) continue;
      WEFT_RETURN_IF_ERROR(Annotate(path, WriteFile(path, ProgramText(*program))));
    }
    return absl::OkStatus();
  };
}

// One line per pass, on a terminal.
void ShowReports(const std::vector<PassReport>& reports) {
  if (isatty(STDERR_FILENO) == 0) return;
  for (const PassReport& report : reports) {
    std::fprintf(stderr, "transpile: %-28s %s, %zu ops, %.3f s\n", report.pass.c_str(),
                 report.changed ? "changed" : "no change", report.main_ops, report.seconds);
  }
}

// Of those that are given.
absl::Status ReadTimes(const Flags& flags, const Program& main, StepTimes* times) {
  if (!flags.comm_table.empty()) {
    WEFT_ASSIGN_OR_RETURN(times->collective, ReadAs(flags.comm_table, ParseCollectiveTable));
  }
  if (flags.profile.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(times->op_seconds, ReadAs(flags.profile, [&](absl::string_view text) {
                          return ParseProfile(text, main);
                        }));
  return absl::OkStatus();
}

// InvalidArgument for times that no pass goes by.
absl::Status CheckTimesAreRead(const Flags& flags) {
  const Pipeline& passes = flags.plan->pipeline;
  if (!flags.profile.empty() && !passes.HasTrait(PassTrait::kReadsOpTimes)) {
    return absl::InvalidArgumentError("--op_times: only --buckets optimal reads it");
  }
  if (flags.comm_table.empty() || passes.HasTrait(PassTrait::kReadsCollectiveTimes)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "--comm_table: only --buckets optimal and --device_memory read it");
}

constexpr char kAuto[] = "auto";

// Plans mode auto: the one that fits, and says which and why.
absl::Status Choose(const ProgramPair& programs, Flags* flags) {
  TranspileOptions& options = flags->options;
  WEFT_ASSIGN_OR_RETURN(const ModeChoice choice, ChooseMode(programs, options));
  options.mode = choice.mode;
  flags->plan = PlanOf(options, BuiltinPasses());
  if (flags->plan.ok()) WEFT_RETURN_IF_ERROR(CheckTimesAreRead(*flags));
  flags->chosen = absl::StrCat("note: ", flags->in, ": mode ", choice.mode, ": ", choice.why);
  return flags->plan.status();
}

// Some passes only run if attributes of parameters say so.
absl::Status ReadParamAttrs(Flags* flags) {
  TranspileOptions& options = flags->options;
  if (flags->param_attrs.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(options.param_attrs, ReadAs(flags->param_attrs, ParseParamAttrs));
  if (options.mode == kAuto)
    return Annotate(flags->param_attrs, CheckServed(TranspilePlan(), options));
  flags->plan = PlanOf(options, BuiltinPasses());
  return Annotate(flags->param_attrs, flags->plan.status());
}

// The main program, given twice, would be taken for one that initializes nothing.
absl::Status CheckStartup(const Program& startup) {
  OpTraits traits(startup);
  for (OpId id : startup.block(0).ops()) {
    if (!traits.Has(startup.op(id), Trait::kOptimizer)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("expected a startup program, but ", startup.op(id).DebugName(),
                     " updates a parameter; --startup_in takes what initializes them"));
  }
  return absl::OkStatus();
}

// Stands for the number of a trainer in names of outputs, with --rank all.
constexpr char kRankInName[] = "{rank}";

// The path for a trainer. None if the file of trainer 0 holds for all.
std::string PathFor(const std::string& path, int rank) {
  const bool is_own = absl::StrContains(path, kRankInName);
  if (!is_own && rank > 0) return "";
  return absl::StrReplaceAll(path, {{kRankInName, absl::StrCat(rank)}});
}

// The programs of one trainer. At a fixed address: what is written refers to them.
struct Trainer {
  Program main;
  absl::optional<Program> startup;
  OutputPaths paths;
  std::future<absl::StatusOr<StagedPrograms>> written;

  ProgramPair programs() { return {&main, startup.has_value() ? &*startup : nullptr}; }
  absl::StatusOr<StagedPrograms> Write() const {
    std::vector<ProgramOutput> outputs;
    if (!paths.main.empty()) outputs.push_back({&main, paths.main});
    if (!paths.startup.empty()) outputs.push_back({&*startup, paths.startup});
    return StagedPrograms::Write(outputs);
  }
};

// One trainer, or with --rank all every one.
std::deque<Trainer> TrainersOf(const Flags& flags, Program main, absl::optional<Program> startup) {
  std::deque<Trainer> trainers;
  if (!flags.all_ranks) {
    trainers.push_back({std::move(main),
                        std::move(startup),
                        {flags.out, flags.startup_out, flags.server_out, flags.explain},
                        {}});
    return trainers;
  }
  const int count = static_cast<int>(flags.options.cluster.endpoints.size());
  for (int rank = 0; rank < count; ++rank) {
    const OutputPaths paths{PathFor(flags.out, rank), PathFor(flags.startup_out, rank), "",
                            PathFor(flags.explain, rank)};
    trainers.push_back({main, startup, paths, {}});
  }
  return trainers;
}

absl::StatusOr<std::vector<TranspileResult>> TranspileFor(const Flags& flags,
                                                          std::deque<Trainer>* trainers) {
  TranspileOptions options = flags.options;
  // The disk is slow: a thread writes a result while it is verified. The files get their names only
  // then. If no thread can be started, get() writes.
  auto next = trainers->begin();
  options.on_result = [&next](const ProgramPair&) {
    Trainer& trainer = *next++;
    trainer.written = std::async(std::launch::async | std::launch::deferred,
                                 [&trainer] { return trainer.Write(); });
  };
  std::vector<ProgramPair> ranks;
  for (Trainer& trainer : *trainers) ranks.push_back(trainer.programs());
  if (flags.all_ranks) return TranspileAllRanks(*flags.plan, options, absl::MakeSpan(ranks));
  std::vector<TranspileResult> results;
  WEFT_ASSIGN_OR_RETURN(results.emplace_back(), Transpile(*flags.plan, options, ranks[0]));
  return results;
}

// InvalidArgument if one file is to hold programs of trainers that differ.
absl::Status CheckAreShared(const Flags& flags, std::deque<Trainer>* trainers) {
  const ProgramPair first = trainers->front().programs();
  for (size_t i = 1; i < trainers->size(); ++i) {
    const ProgramPair other = (*trainers)[i].programs();
    for (const auto& [path, a, b] :
         {std::make_tuple(flags.out, first.main, other.main),
          std::make_tuple(flags.startup_out, first.startup, other.startup)}) {
      const bool is_own = absl::StrContains(path, kRankInName);
      if (a == nullptr || is_own || ProgramText(*a) == ProgramText(*b)) continue;
      return absl::InvalidArgumentError(absl::StrCat(path, ": the programs of ranks 0 and ", i,
                                                     " differ: expected ", kRankInName,
                                                     " in the name of the file"));
    }
  }
  return absl::OkStatus();
}

// A program on one device runs on one, whatever its ops say.
void NoteDevices(const Flags& flags, const Program& written, const Sink& sink) {
  if (IsOnTwoDevices(written)) return;
  int64_t on_host = 0, others = 0;
  for (OpId id : written.block(0).ops()) {
    const Op op = written.op(id);
    const bool is_on_host = absl::StrContains(op.bytes(), kHostDeviceName) &&
                            op.StringAttr(kOpDeviceAttr) == kHostDeviceName;
    ++(is_on_host ? on_host : others);
  }
  if (on_host == 0 || others == 0) return;
  sink.Note(absl::StrCat(flags.in, ": op_device of ", on_host,
                         " ops is \"cpu\", but all ops run on one device; --place op_device runs "
                         "them on the host"));
}

// In Paddle, the scheduler of the script that built the program set the rate.
void NoteSchedules(const Flags& flags, const Program& main, const Sink& sink) {
  if (!absl::EndsWith(flags.out, ".json")) return;
  for (const HostSchedule& schedule : FindHostSchedules(main)) {
    sink.Note(absl::StrCat(flags.out, ": `weft run` follows the schedule of ", schedule.variable,
                           "; in Paddle, a program that is loaded keeps the rate that it has: set "
                           "the variable before each step (docs/pir.md)"));
  }
}

// In Paddle, nothing says that ranks do not begin alike; `weft run` does.
void NoteStart(const Flags& flags, const Program& written, const Sink& sink) {
  const bool is_for_paddle =
      absl::EndsWith(flags.out, ".json") || flags.options.device_kind.has_value();
  if (!is_for_paddle || !flags.startup_in.empty() || !AnyHas(written, Trait::kCollective)) return;
  sink.Note(absl::StrCat(flags.out,
                         ": ranks must begin with equal parameters; --startup_in and --startup_out "
                         "write a startup program that broadcasts them"));
}

// A declared batch is that of one rank: it does not shrink when others share the work.
void NoteFixedBatch(const Flags& flags, const Program& written, const Setting& setting,
                    const Sink& sink) {
  if (!AnyHas(written, Trait::kCollective)) return;
  std::map<int64_t, std::vector<std::string>> names;  // by size of a rank's part
  for (const auto& [name, layout] : setting.feeds) {
    const VarId var = written.block(0).FindVar(name);
    if (!var.valid() || !layout.axis.has_value()) continue;
    const absl::optional<TensorType> type = DeclaredType(written.var(var));
    const auto axis = static_cast<size_t>(*layout.axis);
    if (!type.has_value() || axis >= type->dims.size() || type->dims[axis] < 0) continue;
    names[type->dims[axis]].push_back(name);
  }
  for (const auto& [size, variables] : names) {
    const int64_t n = setting.nranks.value_or(0);
    sink.Note(absl::StrCat(flags.in, ": the batch is fixed: ", absl::StrJoin(variables, ", "),
                           " of ", size, " is what each rank takes, so a step takes ",
                           n > 0 ? absl::StrCat(size * n, " on ", n, n == 1 ? " rank" : " ranks")
                                 : absl::StrCat(size, " times the number of ranks"),
                           "; declare -1 to share a batch of ", size, " among the ranks"));
  }
}

// What the verdict rests on.
void NoteUnregistered(const Flags& flags, const Program& written, const Sink& sink) {
  const ProgramFacts facts(written);
  if (!Communicates(facts)) return;
  const OpTraits& traits = facts.Get<OpTraits>();
  const Communications& communications = facts.Get<Communications>();
  std::set<std::string> types;
  for (const Op& op : AllOps(written)) {
    if (traits.IsRegistered(op) || communications.Of(op) != Communication::kNone) continue;
    types.emplace(op.type());
  }
  if (types.empty()) return;
  sink.Note(absl::StrCat(flags.in, ": assumed: ops of unregistered type",
                         types.size() == 1 ? " " : "s ", absl::StrJoin(types, ", "),
                         " exchange nothing with other ranks"));
}

// Whether the mode of these options reads a flag, too, whatever its value.
bool ReadsFlag(TranspileOptions options, const std::string& flag) {
  options.mode_flags[flag] = "";
  return !absl::StrContains(CheckMode(options).message(), "does not read");
}

// Hints name the mode that reads their flag, if this one does not.
std::string WithModeOfHints(const Flags& flags, absl::string_view text) {
  constexpr absl::string_view kHint = "transpile option:";
  TranspileOptions other;
  other.mode = "grad_allreduce";
  std::string result;
  for (size_t at; (at = text.find(kHint)) != text.npos;) {
    const absl::string_view rest = text.substr(at + kHint.size());
    const std::string flag(rest.substr(0, rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz_")));
    const bool is_read = !flags.options.mode.empty() && ReadsFlag(flags.options, flag);
    const bool needs_other = !is_read && ReadsFlag(other, flag);
    absl::StrAppend(&result, text.substr(0, at), "transpile ",
                    needs_other ? absl::StrCat("option:mode ", other.mode, " ") : "", "option:");
    text = rest;
  }
  return absl::StrCat(result, text);
}

// What is said of several trainers is said once.
void ShowResults(const Flags& flags, const std::vector<TranspileResult>& results,
                 const std::deque<Trainer>& trainers) {
  ShowReports(results.front().passes);
  if (!flags.chosen.empty()) std::fprintf(stderr, "%s\n", WithFlags(flags.chosen).c_str());
  std::vector<Message> notes;
  std::set<std::string> shown;
  for (const TranspileResult& result : results) {
    for (const Message& message : result.messages) {
      if (message.topic == Message::Topic::kResult) {
        notes.push_back(message);
      } else if (shown.insert(ToString(message)).second) {
        PrintWarning("transpile",
                     absl::StrCat(flags.in, ": ", WithModeOfHints(flags, TextWithRule(message))));
      }
    }
  }
  const Sink sink{nullptr, &notes};
  for (const Trainer& trainer : trainers) {
    NoteSchedules(flags, trainer.main, sink);
    NoteStart(flags, trainer.main, sink);
    NoteDevices(flags, trainer.main, sink);
    NoteFixedBatch(flags, trainer.main, results.front().setting, sink);
    NoteUnregistered(flags, trainer.main, sink);
  }
  for (const Message& note : notes) {
    const std::string line = WithModeOfHints(flags, ToString(note));
    if (shown.insert(line).second) std::fprintf(stderr, "%s\n", WithFlags(line).c_str());
  }
}

// Whether the outputs are the inputs. Nothing that can be read is refused then: what is wrong with
// it is a line.
bool IsCopy(const Flags& flags) {
  return flags.options.mode == "none" && !flags.options.placement.is_given();
}

// Copies programs byte for byte, as nothing can write malformed ones.
absl::Status CopyFiles(const std::vector<std::pair<std::string, std::string>>& copies,
                       const std::vector<ReadableProgram>& programs) {
  std::vector<AtomicFile> files;
  for (size_t i = 0; i < copies.size(); ++i) {
    const auto& [in, out] = copies[i];
    for (const std::string& line : programs[i].malformed) {
      PrintWarning("transpile", absl::StrCat(in, ": ", line));
    }
    if (*ProgramFormatOf(in) != *ProgramFormatOf(out)) {
      return absl::InvalidArgumentError(absl::StrCat(out, ": expected the kind of file of ", in,
                                                     ", as a malformed program is only copied"));
    }
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(out);
    WEFT_RETURN_IF_ERROR(Annotate(out, file.status()));
    WEFT_RETURN_IF_ERROR(Annotate(out, file->Write(programs[i].file.bytes)));
    WEFT_RETURN_IF_ERROR(Annotate(out, file->Sync()));
    files.push_back(*std::move(file));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    WEFT_RETURN_IF_ERROR(Annotate(copies[i].second, files[i].Replace()));
  }
  for (AtomicFile& file : files) file.Keep();
  return absl::OkStatus();
}

// What the verifier finds in a copy.
void WarnOfFindings(const Flags& flags, const ConstProgramPair& programs, const Setting& setting) {
  VerifyOptions verify;
  verify.setting = setting;
  const Findings findings = Verify({programs}, verify);
  for (const Finding& finding : findings.all()) {
    if (finding.severity == Severity::kNote) continue;
    PrintWarning("transpile", absl::StrCat(finding.program.is_startup ? flags.startup_in : flags.in,
                                           ": ", finding.rule, ": ", finding.message));
  }
}

// Reads the inputs of a copy; none if they are malformed, and copied already.
absl::StatusOr<absl::optional<std::vector<Program>>> ReadOrCopy(const Flags& flags) {
  std::vector<std::pair<std::string, std::string>> copies = {{flags.in, flags.out}};
  if (!flags.startup_in.empty()) copies.emplace_back(flags.startup_in, flags.startup_out);
  std::vector<ReadableProgram> programs;
  bool malformed = false;
  for (const auto& [in, out] : copies) {
    absl::StatusOr<ReadableProgram> program = ReadMalformedProgram(in);
    WEFT_RETURN_IF_ERROR(Annotate(in, program.status()));
    malformed |= !program->malformed.empty();
    programs.push_back(*std::move(program));
  }
  if (malformed) {
    WEFT_RETURN_IF_ERROR(CopyFiles(copies, programs));
    return absl::nullopt;
  }
  std::vector<Program> read;
  for (ReadableProgram& program : programs) read.push_back(std::move(program.program));
  return read;
}

// The main program, and the startup program if it is given.
absl::StatusOr<std::vector<Program>> ReadInputs(const Flags& flags) {
  std::vector<Program> read;
  for (const std::string& path : {flags.in, flags.startup_in}) {
    if (path.empty()) continue;
    WEFT_ASSIGN_OR_RETURN(Program program, ReadProgramOrExplain(path));
    read.push_back(std::move(program));
  }
  return read;
}

absl::Status Run(Flags& flags) {
  if (flags.options.mode != kAuto) WEFT_RETURN_IF_ERROR(flags.plan.status());
  WEFT_RETURN_IF_ERROR(
      CheckOutputs({flags.in, flags.startup_in},
                   {flags.out, flags.startup_out, flags.server_out, flags.explain}));
  for (const std::string& path : {flags.out, flags.startup_out, flags.server_out}) {
    if (!path.empty()) WEFT_RETURN_IF_ERROR(Annotate(path, ProgramFormatOf(path).status()));
  }
  std::vector<Program> read;
  const bool is_copy = IsCopy(flags);
  if (is_copy) {
    flags.options.verification = Verification::kNever;
    WEFT_ASSIGN_OR_RETURN(absl::optional<std::vector<Program>> copied, ReadOrCopy(flags));
    if (!copied.has_value()) return absl::OkStatus();
    read = *std::move(copied);
  } else {
    WEFT_ASSIGN_OR_RETURN(read, ReadInputs(flags));
  }
  Program main = std::move(read.front());
  absl::optional<Program> startup;
  if (read.size() > 1) startup = std::move(read.back());
  if (startup.has_value()) {
    WEFT_RETURN_IF_ERROR(Annotate(flags.startup_in, CheckStartup(*startup)));
  }
  const ProgramPair programs{&main, startup.has_value() ? &*startup : nullptr};

  TranspileOptions& options = flags.options;
  WEFT_RETURN_IF_ERROR(ReadParamAttrs(&flags));
  if (options.mode == kAuto) WEFT_RETURN_IF_ERROR(Annotate(flags.in, Choose(programs, &flags)));
  WEFT_ASSIGN_OR_RETURN(options.feeds, ParseFeedLayouts(flags.feed_layout));
  if (main.setting().empty()) {
    WEFT_ASSIGN_OR_RETURN(options.setting, SettingOfFile(flags.in, main));
  }
  WEFT_RETURN_IF_ERROR(ReadTimes(flags, main, &options.times));
  options.explain = !flags.explain.empty();
  if (!flags.dump_dir.empty()) options.observer = DumpTo(flags.dump_dir);
  std::deque<Trainer> trainers = TrainersOf(flags, std::move(main), std::move(startup));
  absl::StatusOr<std::vector<TranspileResult>> results = TranspileFor(flags, &trainers);
  WEFT_RETURN_IF_ERROR(Annotate(flags.in, results.status()));
  WEFT_RETURN_IF_ERROR(CheckAreShared(flags, &trainers));
  std::vector<StagedOutputs> staged;
  for (size_t i = 0; i < trainers.size(); ++i) {
    absl::StatusOr<StagedOutputs> outputs =
        StageAll(trainers[i].written.get(), trainers[i].paths, (*results)[i], trainers[i].main);
    WEFT_RETURN_IF_ERROR(outputs.status());
    staged.push_back(*std::move(outputs));
  }
  ShowResults(flags, *results, trainers);
  if (is_copy && flags.verify) {
    const Trainer& copy = trainers.front();
    WarnOfFindings(flags, {&copy.main, copy.startup.has_value() ? &*copy.startup : nullptr},
                   results->front().setting);
  }
  for (StagedOutputs& outputs : staged) WEFT_RETURN_IF_ERROR(outputs.Replace());
  for (StagedOutputs& outputs : staged) outputs.Keep();
  return absl::OkStatus();
}

// Unknown ones are reported before --help is.
std::string CheckModeName(const std::string& name) {
  return name == kAuto ? "" : std::string(FindMode(name).status().message());
}

void AddFlags(CLI::App& app, Flags& flags) {
  TranspileOptions& options = flags.options;
  app.add_option("in", flags.in, absl::StrCat("main program: ", kProgramFileNames));
  app.add_option("out", flags.out, "the rewritten main program");
  auto* mode = app.add_option(
      "--mode", options.mode,
      "named pipeline, or auto: the one that fits the program and the flags; see --list_modes");
  mode->check(CLI::Validator(CheckModeName, ""))->type_name("MODE");
  app.add_option("--passes", options.passes,
                 "passes instead of a mode: 'a{k=v},b'; see --list_passes")
      ->excludes(mode);
  auto* startup_in =
      app.add_option("--startup_in", flags.startup_in, "startup program")->type_name("FILE");
  auto* startup_out =
      app.add_option("--startup_out", flags.startup_out, "the rewritten startup program")
          ->type_name("FILE");
  startup_in->needs(startup_out);
  startup_out->needs(startup_in);
  app.add_option("--server_out", flags.server_out, "parameter_server: the program of the servers")
      ->type_name("FILE");
  AddContextFlags(app, &flags.context_flags);
  AddModeFlags(app, &flags.mode_flags);
  app.add_option("--dialect", flags.dialect, "weft, or paddle: op for op what Paddle writes")
      ->check(CLI::IsMember({"weft", "paddle"}))
      ->capture_default_str();
  app.add_option(
         "--verify", flags.verify,
         "whether to refuse programs that the verifier finds wrong (default true; mode none only "
         "warns)")
      ->type_name("BOOL");
  app.add_flag_callback(
      "--no_verify", [&flags] { flags.verify = false; }, "the same as --verify false");
  app.add_option("--remarks,--explain", flags.explain, "JSON: what was inserted where, and why")
      ->type_name("FILE");
  Placement& placement = options.placement;
  app.add_option("--place", placement.place,
                 "Which ops run on the host (cpu) and which on an accelerator (sim or gpu), after "
                 "all other passes: type:adam=cpu,param:w=cpu,name:fc_*=sim; see pass "
                 "hetero-partition")
      ->type_name("RULES");
  constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
  AddInteger(app, "--device_memory", placement.device_memory, 1, kMaxInt64,
             "Bytes of an accelerator: puts on the host what does not fit (state of optimizers, "
             "then embeddings, then other ops), so that a step takes the least predicted time")
      ->type_name("BYTES");
  AddInteger(app, "--batch", placement.batch, 1, kMaxInt64,
             "--device_memory: rows of a rank's batch (default 32)")
      ->type_name("NUMBER");
  AddInteger(app, "--copy_bandwidth", placement.copy_bandwidth, 1, kMaxInt64,
             "--device_memory: bytes per second between the two memories (default 10000000000)")
      ->type_name("NUMBER");
  AddInteger(app, "--accelerator_speed", placement.accelerator_speed, 1, kMaxInt64,
             "--device_memory: how many times as fast as a core of the host (default 50)")
      ->type_name("NUMBER");
  app.add_option("--feed_layout", flags.feed_layout,
                 "how data variables are given to the ranks: x=axis:1,rate=whole; default: as "
                 "the file or their declarations suggest");
  app.add_option(
         "--param_attrs", flags.param_attrs,
         "JSON: comm_fusion, group, layerwise_parallel, in_shard, lr_ratio, parameter_server, "
         "weight_decay of parameters, and groups of ranks")
      ->type_name("FILE");
  app.add_option("--op_times,--profile", flags.profile,
                 "--buckets optimal: times of ops, of weft run --profile; default: estimated")
      ->type_name("FILE");
  app.add_option("--comm_table", flags.comm_table,
                 "--buckets optimal and --device_memory: times of collectives, of weft comm_bench; "
                 "default: 20 us and 4 GB/s")
      ->type_name("FILE");
  app.add_option("--dump_dir", flags.dump_dir, "program text before, between and after passes")
      ->type_name("DIR");
  app.add_flag("--list_modes", flags.list_modes, "prints the modes");
  app.add_flag("--list_passes", flags.list_passes, "prints the passes and their options");
  ShowInHelp(app, {"--mode", "--passes", "--startup_in", "--startup_out", "--nranks", "--endpoints",
                   "--rank", "--dialect", "--feed_layout", "--remarks"});
}

// Sets the fields of those that are given.
void SetContext(const Flags& flags, TranspileOptions* options) {
  for (const ContextFlag& flag : ContextFlags()) {
    const absl::optional<std::string>& text = flags.context_flags.at(flag.name);
    if (!text.has_value()) continue;
    const absl::optional<absl::string_view> bad_word = flag.set(*text, options);
    Require(!bad_word.has_value(), absl::StrCat("--", flag.name),
            absl::StrCat("expected ", flag.expected, ", found '",
                         absl::CEscape(bad_word.value_or("")), "'"));
  }
}

// What --rank all cannot go with.
void CheckAllRanks(const Flags& flags) {
  if (!flags.all_ranks) {
    for (const auto& [flag, path] :
         {std::make_pair("out", flags.out), std::make_pair("--startup_out", flags.startup_out),
          std::make_pair("--remarks", flags.explain)}) {
      Require(!absl::StrContains(path, kRankInName), flag,
              absl::StrCat(kRankInName, " in the name of a file: only --rank all replaces it"));
    }
    return;
  }
  const auto& cluster = flags.options.cluster;
  Require(!cluster.endpoints.empty(), "--rank", "all: expected the trainers as --endpoints");
  Require(!cluster.current_endpoint.has_value(), "--current_endpoint",
          "with --rank all: leave it out, as --endpoints names the endpoint of every rank");
  Require(flags.server_out.empty(), "--server_out",
          "with --rank all: the programs of workers and servers hold for all ranks");
  Require(flags.dump_dir.empty(), "--dump_dir", "expected one trainer, found --rank all");
}

// Checks flags against the passes, of which there are none yet in mode auto.
void CheckPlan(const Flags& flags) {
  const std::string& mode = flags.options.mode;
  if (!mode.empty()) {
    const bool makes_server = flags.plan->pipeline.HasTrait(PassTrait::kMakesServer);
    Require(flags.server_out.empty() || makes_server, "--server_out",
            absl::StrCat("mode ", mode, " makes no program for parameter servers"));
    Require(!makes_server || !flags.server_out.empty(), "--server_out",
            "expected a file for the program of the servers");
    Require(flags.param_attrs.empty() || flags.plan->reads_run(), "--param_attrs",
            absl::StrCat("mode ", mode, " does not read it"));
  }
  if (mode == kAuto) return;
  const absl::Status times = CheckTimesAreRead(flags);
  if (!times.ok()) throw CLI::ValidationError(std::string(times.message()));
}

// Checks combinations of flags.
void CheckFlags(Flags& flags) {
  if (flags.list_modes || flags.list_passes) return;
  Require(!flags.in.empty() && !flags.out.empty(), "in, out",
          "expected an input and an output program");
  CheckStandardInput({{"the main program", flags.in}, {"--startup_in", flags.startup_in}});
  TranspileOptions& options = flags.options;
  Require(!options.mode.empty() || !options.passes.empty(), "--mode",
          "expected --mode or --passes");
  for (const auto& [name, value] : flags.mode_flags) {
    if (value.has_value()) options.mode_flags[name] = *value;
  }
  if (!options.passes.empty() && !options.mode_flags.empty()) {
    throw CLI::ValidationError("--" + options.mode_flags.begin()->first,
                               "with --passes, options are written after the pass: 'a{k=v}'");
  }
  options.verification = flags.verify ? Verification::kAtEnd : Verification::kNever;
  options.dialect = flags.dialect == "paddle" ? Dialect::kPaddle : Dialect::kWeft;
  const Placement& placement = options.placement;
  for (const auto& [flag, is_given] :
       {std::make_pair("--batch", placement.batch.has_value()),
        std::make_pair("--copy_bandwidth", placement.copy_bandwidth.has_value()),
        std::make_pair("--accelerator_speed", placement.accelerator_speed.has_value())}) {
    Require(!is_given || placement.device_memory.has_value(), flag,
            "only --device_memory reads it");
  }
  if (flags.context_flags["rank"] == "all") {
    flags.all_ranks = true;
    flags.context_flags["rank"].reset();
  }
  SetContext(flags, &options);
  CheckAllRanks(flags);
  if (options.mode != kAuto) flags.plan = PlanOf(options, BuiltinPasses());
  if (flags.plan.ok()) return CheckPlan(flags);
  const absl::Status mode = CheckMode(options);
  Require(mode.ok(), "--mode", mode.message());
}

int Main(int argc, char** argv) {
  CLI::App app("Rewrites a training program so that it trains on many ranks.", "transpile");
  app.footer("Example:\n  transpile --mode grad_allreduce in.pb out.pb");
  Flags flags;
  AddFlags(app, flags);
  app.callback([&] { CheckFlags(flags); });
  const auto before_help = [&] {
    const absl::StatusOr<const Mode*> mode = FindMode(flags.options.mode);
    mode.ok() ? ShowFlagsOf(**mode, app) : ShowModes(app);
  };
  if (absl::optional<int> status = ParseCommandLine(app, argc, argv, before_help)) return *status;
  if (flags.list_modes || flags.list_passes) {
    const std::string text =
        (flags.list_modes ? ListModes() : "") + (flags.list_passes ? ListPasses() : "");
    std::fputs(WithFlags(text).c_str(), stdout);
    return FinishCommand("transpile", absl::OkStatus());
  }
  return FinishCommand("transpile", Run(flags));
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  return weft::RunTool("transpile", weft::kExitFailed, [&] {
    weft::ReturnLargeArraysAtOnce();
    return weft::Main(argc, argv);
  });
}
