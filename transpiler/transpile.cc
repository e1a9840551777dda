#include "transpiler/transpile.h"

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "ops/analysis/devices/op_times.h"
#include "ops/analysis/training/gradients.h"
#include "ops/analysis/training/mark_gradients.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/analysis/values/layout_guess.h"
#include "ops/analysis/values/sum_losses.h"
#include "proto/formats/pir/importer.h"
#include "transpiler/claim_verifier.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/passes/gradients/gradient_buckets.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/reference_program.h"
#include "transpiler/verifier/structure/structure.h"

namespace weft {
namespace {

absl::Status VerifyInput(const ProgramPair& programs) {
  WEFT_RETURN_IF_ERROR(VerifyStructure(*programs.main));
  if (programs.startup == nullptr) return absl::OkStatus();
  return VerifyStructure(*programs.startup, {/*rank=*/0, /*is_startup=*/true});
}

absl::Status CheckTimes(const StepTimes& times, const Program& main) {
  const size_t num_ops = main.block(0).ops().size();
  if (times.op_seconds.empty() || times.op_seconds.size() == num_ops) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected the times of ", num_ops,
                                                 " ops of the root block, found ",
                                                 times.op_seconds.size()));
}

// Of the formats, PIR alone leaves the order to the data.
bool IsOfPaddle3(const Program& program) {
  return program.origin() != nullptr && program.origin()->OrdersByData();
}

// Only a ProgramDesc can be what Paddle's transpiler writes. Other programs would get its mistakes,
// and nothing to be equal to.
absl::Status CheckDialect(const Program& main, const TranspileOptions& options) {
  if (options.dialect == Dialect::kWeft || !IsOfPaddle3(main)) return absl::OkStatus();
  return absl::UnimplementedError(
      "the paddle dialect writes what Paddle's transpiler writes, which reads ProgramDesc only; "
      "found a program in Paddle 3's own format (PIR): use dialect weft");
}

// Such programs are of Paddle 3, and so are both of a job.
absl::Status CheckFormats(const ProgramPair& programs, const TranspileOptions& options) {
  if (!IsOfPaddle3(*programs.main)) return absl::OkStatus();
  if (options.paddle_version == 2) {
    return absl::InvalidArgumentError(
        "paddle_version 2: found a program in Paddle 3's own format (PIR), which Paddle 2 does not "
        "read");
  }
  if (programs.startup == nullptr || programs.startup->origin() != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the main program is in Paddle 3's own format (PIR), and the startup program in the old one "
      "(ProgramDesc): Paddle runs them in different modes; expected the startup program of the "
      "same export, a .json file");
}

absl::Status CheckInput(const ProgramPair& programs, const TranspilePlan& plan,
                        const TranspileOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckDialect(*programs.main, options));
  WEFT_RETURN_IF_ERROR(CheckFormats(programs, options));
  if (plan.is_copy()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(pir::CheckWritesAreKnown(*programs.main));
  return programs.startup == nullptr ? absl::OkStatus()
                                     : pir::CheckWritesAreKnown(*programs.startup);
}

// Checks options that name parts of the program, and finds what passes go by.
absl::Status Foresee(const TranspilePlan& plan, const TranspileOptions& options,
                     const ConstProgramPair& programs, PassContext* context) {
  const Program& main = *programs.main;
  Forecast& forecast = context->target.forecast;
  context->target.paddle_version = options.paddle_version.value_or(PaddleVersionOf(main.version()));
  WEFT_RETURN_IF_ERROR(CheckTimes(options.times, main));
  WEFT_RETURN_IF_ERROR(CheckParamAttrs(options.param_attrs, main));
  WEFT_ASSIGN_OR_RETURN(context->setting.feeds,
                        FeedLayoutsOf({&main}, options.feeds, context->setting.feeds));
  // Paddle divides whatever losses are.
  if (options.dialect == Dialect::kWeft) {
    BatchFlowOptions flow;
    flow.setting.feeds = context->setting.feeds;
    flow.extent = BatchFlowOptions::Extent::kToLosses;
    forecast.sum_losses = FindSumLosses(main, BatchFlow::Of(main, flow));
  }
  if (plan.pipeline.HasTrait(PassTrait::kReadsOpTimes)) {
    // The pass that reads them reports gradients that cannot be found. Gradients keep their names
    // in later passes; ops do not keep their positions.
    const auto analysis = AnalyzeGradients(main, context->setting.distributed_params);
    const std::vector<double>& measured = options.times.op_seconds;
    if (analysis.ok()) {
      forecast.gradient_ready =
          FindReadyTimes(main, *analysis, measured.empty() ? EstimateOpTimes(main) : measured);
    }
  }
  forecast = plan.pipeline.Foresee(programs, *context);
  return absl::OkStatus();
}

// The setting of the main program; `is_said` if it says more than the format of its file implies.
struct FileSetting {
  Setting setting;
  bool is_said = false;
};

absl::StatusOr<FileSetting> ReadSetting(const TranspilePlan& plan, const TranspileOptions& options,
                                        const Program& main, const Sink& sink) {
  absl::StatusOr<Setting> own = options.setting.has_value() ? *options.setting : SettingOf(main);
  if (!own.ok() && !plan.is_copy()) return own.status();
  if (!own.ok()) {
    sink.Note(absl::StrCat("the copy keeps what does not count: ", own.status().message()));
    return FileSetting();
  }
  const bool is_said =
      !main.setting().empty() ||
      (main.origin() == nullptr && options.setting.value_or(Setting()) != Setting());
  // Assumptions are said apart.
  Setting of_run = *own;
  of_run.assumptions.clear();
  if (is_said && of_run != Setting()) {
    sink.Note(absl::StrCat("taken from the file where options say nothing else: ", ToJson(of_run)));
  }
  return FileSetting{*std::move(own), is_said};
}

// Options, completed with what the file says of the run.
TranspileOptions WithSettingOfFile(const TranspileOptions& options, const FileSetting& said,
                                   const Sink& sink) {
  TranspileOptions complete = options;
  const Setting& file = said.setting;
  for (const std::string& name : file.distributed_params) {
    if (!complete.distributed_params.insert(name).second || said.is_said) continue;
    sink.Note(absl::StrCat("parameter ", name,
                           " is not replicated: the file says is_distributed, which counts as "
                           "option:distributed_params"));
  }
  if (file.nranks.has_value() && options.cluster.endpoints.empty()) {
    absl::optional<int>& nranks = complete.cluster.nranks;
    if (!nranks.has_value()) nranks = file.nranks;
  }
  return complete;
}

// A program that was rewritten for some number of ranks, or for one of them, is for these.
absl::Status CheckRanks(const Setting& file, const Cluster& cluster) {
  if (file.rank.has_value() && cluster.has_endpoints() && *file.rank != cluster.rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the rank: expected ", *file.rank,
                     ", whose program this is (setting of the file), found ", cluster.rank()));
  }
  if (!file.nranks.has_value() || !cluster.nranks().has_value() ||
      file.nranks == cluster.nranks()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the number of ranks: expected ", *file.nranks,
      ", for which the program was rewritten (setting of the file), found ", *cluster.nranks()));
}

// With a job: the programs of its next rank.
absl::StatusOr<TranspileResult> TranspileRank(const TranspilePlan& plan,
                                              const TranspileOptions& given, ProgramPair& programs,
                                              JobPrograms* job) {
  const Pipeline& pipeline = plan.pipeline;
  TranspileResult result;
  Setting shares;
  const Sink sink{given.explain ? &result.remarks : nullptr, &result.messages, &result.server,
                  &shares};
  WEFT_ASSIGN_OR_RETURN(const FileSetting read, ReadSetting(plan, given, *programs.main, sink));
  const Setting& file = read.setting;
  // Where the passes do not read it, only the verifier needs to know.
  const bool passes_read = !plan.is_copy() && plan.reads_run();
  const TranspileOptions options = passes_read ? WithSettingOfFile(given, read, sink) : given;
  WEFT_RETURN_IF_ERROR(CheckInput(programs, plan, options));
  WEFT_ASSIGN_OR_RETURN(PassContext context, ContextOf(plan, options, file));
  context.sink = sink;
  WEFT_RETURN_IF_ERROR(CheckRanks(file, context.target.cluster));
  const bool verifies = options.verification != Verification::kNever;
  // Everything else relies on the structure.
  if (verifies) WEFT_RETURN_IF_ERROR(VerifyInput(programs));
  if (!plan.is_copy() && options.dialect == Dialect::kWeft) {
    WEFT_ASSIGN_OR_RETURN(const bool marks, MarkGradients(programs.main));
    if (marks) {
      context.sink.Note(
          "no op names gradients or a loss, as static.gradients writes programs: they are found by "
          "data");
    }
  }
  // Beside the losses: both only read the programs.
  std::future<absl::StatusOr<Properties>> properties;
  if (verifies || pipeline.AsksForProperties()) {
    properties = std::async(std::launch::async | std::launch::deferred,
                            [&programs] { return DetectProperties(programs); });
  }
  WEFT_RETURN_IF_ERROR(Foresee(plan, options, programs, &context));
  WEFT_ASSIGN_OR_RETURN(result.claims, pipeline.ClaimsOf(context));
  result.setting = ClaimedSetting(result.claims, context);
  // Of a program in which no loss is a sum, both are the same. (The paddle dialect looks for none.)
  const bool is_mean = result.setting.reduction == Setting::Reduction::kMean;
  const bool has_sums = context.target.forecast.sum_losses.any();
  if (is_mean && !has_sums) result.setting.reduction = file.reduction;

  // A copy has the setting of the file, but for what options say of its feeds.
  absl::optional<Setting> copied;
  if (plan.is_copy() && !options.feeds.empty() && options.dialect == Dialect::kWeft) {
    WEFT_ASSIGN_OR_RETURN(copied, SettingOf(*programs.main));
    for (const auto& [name, layout] : options.feeds) copied->feeds[name] = layout;
  }

  PipelineOptions run;
  run.verification = options.verification;
  run.observer = options.observer;
  result.says_setting = read.is_said || result.claims.Communicate();
  run.on_result = [&](const ProgramPair& made) {
    AddShares(shares, &result.setting);
    if (copied.has_value()) {
      made.main->set_setting(ToJson(*copied));
    } else if (result.says_setting && !plan.is_copy()) {
      made.main->set_setting(options.dialect == Dialect::kWeft ? ToJson(result.setting) : "");
    }
    if (options.on_result) options.on_result(made);
  };
  if (properties.valid()) {
    WEFT_ASSIGN_OR_RETURN(run.initial_properties, properties.get());
  }
  if (verifies) {
    absl::optional<ReferenceProgram> reference = MakeReference(pipeline, context, programs);
    if (reference.has_value()) {
      context.sink.Note(absl::StrCat(
          "updates are changed on purpose: the result is compared with what option:passes '",
          reference->passes, "' makes of the original, as weft verify option:original can"));
    }
    run.verifier = ClaimVerifier(result.claims, context, run.initial_properties, programs,
                                 reference.has_value() ? reference->pair() : ProgramPair(), job);
  }
  WEFT_ASSIGN_OR_RETURN(result.passes, pipeline.Run(context, programs, run));
  return result;
}

}  // namespace

absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs,
                                          const PassRegistry& registry) {
  WEFT_ASSIGN_OR_RETURN(const TranspilePlan plan, PlanOf(options, registry));
  return Transpile(plan, options, programs);
}

absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs) {
  return Transpile(options, programs, BuiltinPasses());
}

absl::StatusOr<TranspileResult> Transpile(const TranspilePlan& plan,
                                          const TranspileOptions& options, ProgramPair& programs) {
  return TranspileRank(plan, options, programs, /*job=*/nullptr);
}

absl::StatusOr<std::vector<TranspileResult>> TranspileAllRanks(const TranspilePlan& plan,
                                                               const TranspileOptions& options,
                                                               absl::Span<ProgramPair> ranks) {
  const ClusterSpec& cluster = options.cluster;
  if (ranks.empty() || cluster.endpoints.size() != ranks.size()) {
    return absl::InvalidArgumentError(absl::StrCat("expected an endpoint of each rank, found ",
                                                   cluster.endpoints.size(), " for ", ranks.size(),
                                                   " ranks"));
  }
  if (cluster.rank.has_value() || cluster.current_endpoint.has_value()) {
    return absl::InvalidArgumentError(
        "expected neither rank nor current_endpoint, as all ranks are asked for");
  }
  std::vector<TranspileResult> results;
  JobPrograms job;
  job.num_ranks = ranks.size();
  for (ProgramPair& programs : ranks) {
    const std::string rank = absl::StrCat("rank ", results.size());
    TranspileOptions of_rank = options;
    of_rank.cluster.rank = static_cast<int>(results.size());
    absl::StatusOr<TranspileResult> result = TranspileRank(plan, of_rank, programs, &job);
    const bool is_of_all = job.made.size() == ranks.size();
    WEFT_RETURN_IF_ERROR(Annotate(is_of_all ? "ranks together" : rank, result.status()));
    if (result->server.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(rank,
                       ": found parameter servers: expected passes that make none, as all "
                       "workers run one program"));
    }
    results.push_back(*std::move(result));
  }
  return results;
}

}  // namespace weft
