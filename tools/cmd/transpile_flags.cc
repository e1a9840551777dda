#include "tools/cmd/transpile_flags.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/formats/program_file.h"
#include "tools/cmd/transpile_help.h"
#include "tools/flags/assume_flag.h"
#include "tools/flags/command_line.h"
#include "transpiler/context_flags.h"
#include "transpiler/modes.h"
#include "transpiler/passes/builtin_passes.h"

namespace weft {
namespace {

// Unknown ones are reported before --help is.
std::string CheckModeName(const std::string& name) {
  return name == kAuto ? "" : std::string(FindMode(name).status().message());
}

// Sets the fields of those that are given.
void SetContext(const TranspileFlags& flags, TranspileOptions* options) {
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
void CheckAllRanks(const TranspileFlags& flags) {
  if (!flags.all_ranks) {
    for (const auto& [flag, path] :
         {std::make_pair("out", flags.out), std::make_pair("--startup_out", flags.startup_out),
          std::make_pair("--remarks", flags.explain),
          std::make_pair("--certificate", flags.certificate)}) {
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
void CheckPlan(const TranspileFlags& flags) {
  const std::string& mode = flags.options.mode;
  if (!mode.empty()) {
    const bool makes_server = flags.plan->pipeline.HasTrait(PassTrait::kMakesServer);
    Require(flags.server_out.empty() || makes_server, "--server_out",
            absl::StrCat("mode ", mode, " makes no program for parameter servers"));
    Require(!makes_server || !flags.server_out.empty() || !flags.to_files, "--server_out",
            "expected a file for the program of the servers");
    Require(flags.param_attrs.empty() || flags.plan->reads_run(), "--param_attrs",
            absl::StrCat("mode ", mode, " does not read it"));
  }
  if (mode == kAuto) return;
  const absl::Status times = CheckTimesAreRead(flags);
  if (!times.ok()) throw CLI::ValidationError(std::string(times.message()));
}

}  // namespace

bool IsCopy(const TranspileFlags& flags) {
  return flags.options.mode == "none" && !flags.options.placement.is_given();
}

// InvalidArgument for times that no pass goes by.
absl::Status CheckTimesAreRead(const TranspileFlags& flags) {
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

void AddFlags(CLI::App& app, TranspileFlags& flags) {
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
  app.add_option("--dialect", flags.dialect,
                 "weft: Weft's own rewrite; paddle: op for op what Paddle writes")
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
  app.add_option("--certificate", flags.certificate,
                 "a proof that the result computes what it should, for checker/ to check: writes "
                 "claim.txt and proof.txt; fails if Weft cannot certify what the mode does")
      ->type_name("DIR");
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
  AddInteger(app, "--rank_memory", flags.rank_memory, 1, kMaxInt64,
             "Bytes of memory that a rank has: warns if a step needs more, and names the stage of "
             "mode zero that fits")
      ->type_name("BYTES");
  AddInteger(app, "--batch", flags.batch, 1, kMaxInt64,
             "--device_memory and --rank_memory: rows of a rank's batch (default 32)")
      ->type_name("NUMBER");
  AddInteger(app, "--copy_bandwidth", placement.copy_bandwidth, 1, kMaxInt64,
             "--device_memory: bytes per second between the two memories (default 10000000000)")
      ->type_name("NUMBER");
  AddInteger(app, "--accelerator_speed", placement.accelerator_speed, 1, kMaxInt64,
             "--device_memory: speed of the accelerator, in cores of the host (default 50)")
      ->type_name("NUMBER");
  app.add_option("--feed_layout", flags.feed_layout,
                 "how feed variables are given to the ranks: x=axis:1,rate=whole; default: as the "
                 "file says, else as their declarations suggest");
  AddAssumeFlag(&app, &flags.assume);
  app.add_option(
         "--param_attrs", flags.param_attrs,
         "JSON: comm_fusion, group, layerwise_parallel, in_shard, lr_ratio, parameter_server, "
         "weight_decay of parameters, and groups of ranks")
      ->type_name("FILE");
  app.add_option("--op_times,--profile", flags.profile,
                 "--buckets optimal: times of ops, from weft run --profile; default: estimated")
      ->type_name("FILE");
  app.add_option("--comm_table", flags.comm_table,
                 "--buckets optimal and --device_memory: times of collectives, from weft "
                 "comm_bench; default: 20 us and 4 GB/s")
      ->type_name("FILE");
  app.add_option("--dump_dir", flags.dump_dir, "program text before, between and after passes")
      ->type_name("DIR");
  app.add_flag("--list_modes", flags.list_modes, "prints the modes");
  app.add_flag("--list_passes", flags.list_passes, "prints the passes and their options");
  ShowInHelp(app, {"--mode", "--passes", "--startup_in", "--startup_out", "--nranks", "--endpoints",
                   "--rank", "--dialect", "--feed_layout", "--remarks", "--certificate"});
}

// Checks combinations of flags.
void CheckFlags(TranspileFlags& flags) {
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
  Placement& placement = options.placement;
  if (placement.device_memory.has_value()) placement.batch = flags.batch;
  Require(!flags.batch.has_value() || placement.batch.has_value() || flags.rank_memory.has_value(),
          "--batch", "only --device_memory and --rank_memory read it");
  for (const auto& [flag, is_given] :
       {std::make_pair("--copy_bandwidth", placement.copy_bandwidth.has_value()),
        std::make_pair("--accelerator_speed", placement.accelerator_speed.has_value())}) {
    Require(!is_given || placement.device_memory.has_value(), flag,
            "only --device_memory reads it");
  }
  if (flags.context_flags["rank"] == "all") {
    flags.all_ranks = true;
    flags.context_flags["rank"].reset();
  }
  Require(flags.certificate.empty() || !IsCopy(flags), "--certificate",
          "expected a mode that rewrites the program");
  SetContext(flags, &options);
  CheckAllRanks(flags);
  if (options.mode != kAuto) flags.plan = PlanOf(options, BuiltinPasses());
  if (flags.plan.ok()) return CheckPlan(flags);
  const absl::Status mode = CheckMode(options);
  Require(mode.ok(), "--mode", mode.message());
}

}  // namespace weft
