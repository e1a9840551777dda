#include "tools/cmd/weft_run_checks.h"

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/values/batch_flow.h"
#include "proto/all_ops.h"
#include "proto/rewriter.h"
#include "tools/flags/command_line.h"
#include "tools/flags/flag_names.h"
#include "tools/inspect/program_stats.h"
#include "transpiler/passes/support/op_edits.h"
#include "transpiler/verifier/batch/batch.h"
#include "transpiler/verifier/servers/server_programs.h"
#include "transpiler/verifier/verify.h"

namespace weft {
namespace {

ConstProgramPair ProgramsOf(const RunFiles& inputs) {
  return {&*inputs.main, inputs.startup.has_value() ? &*inputs.startup : nullptr};
}

bool RunsOnRanks(const RunFlags& flags, const RunFiles& inputs) {
  return flags.run.nranks > 1 && (Communicates(*inputs.main) || inputs.server.has_value());
}

// The programs of all ranks, in rank order; one pair: all ranks have the same.
struct RankPrograms {
  std::vector<ConstProgramPair> ranks;
  std::vector<std::unique_ptr<const Program>> others;  // of other processes
};

absl::StatusOr<RankPrograms> GatherPrograms(const RunFlags& flags, const ConstProgramPair& own,
                                            JobLink* link) {
  RankPrograms all;
  all.ranks = {own};
  if (link == nullptr) return all;
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<std::string> fingerprints,
      link->AllGather(absl::StrCat(
          Fingerprint(*own.main),
          own.startup == nullptr ? "" : absl::StrCat(" ", Fingerprint(*own.startup)))));
  const auto is_first = [&](const std::string& one) { return one == fingerprints[0]; };
  if (absl::c_all_of(fingerprints, is_first)) return all;
  WEFT_ASSIGN_OR_RETURN(std::vector<std::string> mains, link->AllGather(own.main->Serialize()));
  WEFT_ASSIGN_OR_RETURN(
      std::vector<std::string> startups,
      link->AllGather(own.startup == nullptr ? std::string() : own.startup->Serialize()));
  const auto parse = [&](std::string bytes) -> absl::StatusOr<const Program*> {
    if (bytes.empty()) return static_cast<const Program*>(nullptr);
    WEFT_ASSIGN_OR_RETURN(Program program, Program::Parse(std::move(bytes)));
    all.others.push_back(std::make_unique<const Program>(std::move(program)));
    return all.others.back().get();
  };
  all.ranks.clear();
  const int local_ranks = flags.run.nranks / link->num_processes();
  for (int process = 0; process < link->num_processes(); ++process) {
    ConstProgramPair programs = own;
    if (process != link->process()) {
      WEFT_ASSIGN_OR_RETURN(programs.main, parse(std::move(mains[process])));
      WEFT_ASSIGN_OR_RETURN(programs.startup, parse(std::move(startups[process])));
    }
    all.ranks.insert(all.ranks.end(), local_ranks, programs);
  }
  return all;
}

// Whether the host feeds what the op reads.
bool IsFed(const Finding& finding, const RunFiles& inputs) {
  return finding.kind == FindingKind::kUnwrittenRead &&
         absl::c_linear_search(inputs.feeds.variables, finding.variable);
}

// No layer runs after errors of kStructure. Reads of what is fed are none.
Findings VerifyFed(const RankPrograms& programs, const RunFiles& inputs, VerifyOptions* options) {
  Findings findings = Verify(programs.ranks, *options);
  bool has_fed = false;
  for (const Finding& finding : findings.all()) {
    if (finding.severity != Severity::kError) continue;
    if (FindRule(finding.rule).layer == Layer::kStructure && !IsFed(finding, inputs)) {
      return findings;
    }
    has_fed |= IsFed(finding, inputs);
  }
  if (!has_fed) return findings;
  options->layers.erase(Layer::kStructure);
  return Verify(programs.ranks, *options);
}

Findings Find(const RunFlags& flags, const RunFiles& inputs, const RankPrograms& programs) {
  const bool is_for_all = programs.ranks.size() == 1;
  VerifyOptions options;
  if (inputs.server.has_value()) options.server = &*inputs.server;
  options.setting = inputs.setting;
  // What no op synchronizes is no rewritten program; the executor has a message for it.
  const bool runs_on_ranks = RunsOnRanks(flags, inputs) || !is_for_all;
  options.setting.nranks = runs_on_ranks ? flags.run.nranks : 1;
  options.setting.feeds = inputs.feeds.layouts;
  options.fetched = inputs.reported;
  if (!is_for_all) options.setting.rank = absl::nullopt;
  const bool is_meant = is_for_all && options.setting.reduction != Setting::Reduction::kByLoss;
  if (is_meant) options.layers.erase(Layer::kBatch);
  Findings findings = VerifyFed(programs, inputs, &options);
  if (!is_meant) return findings;
  for (const Finding& finding : findings.all()) {
    const bool is_error = finding.severity == Severity::kError;
    if (is_error && FindRule(finding.rule).layer == Layer::kStructure) return findings;
  }
  // Also what differs because the rewrite meant it: sums where one device has means, or the other
  // way round.
  options.setting.reduction = Setting::Reduction::kByLoss;
  options.layers = {Layer::kBatch};
  findings.Append(Verify(programs.ranks, options));
  return findings;
}

std::string Text(const Finding& finding, const RankPrograms& programs) {
  const bool is_for_all = programs.ranks.size() == 1;
  return absl::StrCat(is_for_all ? "" : absl::StrCat("rank ", finding.program.rank, ": "),
                      finding.program.is_startup ? "startup program: " : "", finding.rule, ": ",
                      WithFlags(finding.message));
}

void Say(const RunFlags& flags, Severity severity, const Finding& finding,
         const RankPrograms& programs, absl::string_view more = "") {
  flags.say({severity, absl::StrCat(Text(finding, programs), more)});
}

// How the run differs from one on one device: what matters most comes last, where it is seen.
void SayDifferences(const RunFlags& flags, const Findings& findings, const RankPrograms& programs) {
  for (const Severity severity : {Severity::kNote, Severity::kWarning}) {
    for (const Finding& finding : findings.all()) {
      const bool is_note = finding.severity == Severity::kNote;
      if (FindRule(finding.rule).layer != Layer::kBatch) continue;
      if (is_note == (severity == Severity::kNote)) Say(flags, severity, finding, programs);
    }
  }
}

// One line for each rule, as warnings.
void SayErrors(const RunFlags& flags, const std::vector<Finding>& errors, const Findings& findings,
               const RankPrograms& programs, absl::string_view why) {
  std::map<std::string, std::vector<const Finding*>> by_rule;
  for (const Finding& error : errors) by_rule[error.rule].push_back(&error);
  for (const auto& [rule, of_rule] : by_rule) {
    const int64_t others = static_cast<int64_t>(of_rule.size()) - 1 + findings.NumOmitted(rule);
    Say(flags, Severity::kWarning, *of_rule[0], programs,
        absl::StrCat(others == 0 ? "" : absl::StrCat(" (and ", others, " more)"), why));
  }
}

absl::Status PutCollectivesOnComputeStream(Program* program) {
  Rewriter rewriter(program);
  OpTraits traits(*program);
  for (const Op& op : AllOps(*program)) {
    if (!traits.Has(op, Trait::kCollective)) continue;
    if (op.BoolAttr("use_calc_stream").value_or(false)) continue;
    pb::OpDesc on_stream = op.ToProto();
    SetBoolAttr(&on_stream, "use_calc_stream", true);
    rewriter.Replace(op.id(), on_stream);
  }
  return rewriter.Commit();
}

// The order of the ops on one stream is one in which ops wait for those before them that have a
// variable in common.
absl::Status OrderByVariables(RunFiles* inputs) {
  if (inputs->fingerprint.empty()) inputs->fingerprint = Fingerprint(*inputs->main);
  WEFT_RETURN_IF_ERROR(PutCollectivesOnComputeStream(&*inputs->main));
  if (!inputs->startup.has_value()) return absl::OkStatus();
  return PutCollectivesOnComputeStream(&*inputs->startup);
}

// Whether the errors are races that are none where variables order ops.
bool AreOrderedByVariables(const std::vector<Finding>& errors, const RankPrograms& programs) {
  const auto is_race = [](const Finding& error) { return error.kind == FindingKind::kRace; };
  if (!absl::c_all_of(errors, is_race)) return false;
  VerifyOptions options;
  options.layers = {Layer::kRaces};
  options.setting.ordered_by_data = true;
  return !Verify(programs.ranks, options).HasErrors();
}

// The program of one device, say, makes no parts.
absl::Status CheckMakesShares(const RunFlags& flags, const RunFiles& inputs) {
  if (!inputs.startup.has_value() || flags.force) return absl::OkStatus();
  for (const auto& [variable, tensors] : inputs.setting.shares) {
    if (inputs.startup->block(0).FindVar(variable).valid()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        flags.startup, ": expected the startup program that transpile wrote with ", flags.main,
        ", which makes ", variable, ", of which each rank has a part, found another one"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRunPrograms(const RunFlags& flags, JobLink* link, RunFiles* inputs) {
  if (!flags.order.empty()) inputs->setting.ordered_by_data = flags.order == "events";
  WEFT_ASSIGN_OR_RETURN(const RankPrograms programs,
                        GatherPrograms(flags, ProgramsOf(*inputs), link));
  WEFT_RETURN_IF_ERROR(CheckMakesShares(flags, *inputs));
  const Findings findings = Find(flags, *inputs, programs);
  std::vector<Finding> errors, of_paddle, of_factor;
  if (flags.reports) SayDifferences(flags, findings, programs);
  for (const Finding& finding : findings.all()) {
    if (FindRule(finding.rule).layer == Layer::kBatch) continue;
    if (finding.severity == Severity::kError) {
      if (IsFed(finding, *inputs) || finding.kind == FindingKind::kStart) continue;
      // Without the original nobody knows what else divides: the loss, or the rate.
      (finding.kind == FindingKind::kPaddleOnly ? of_paddle
       : finding.kind == FindingKind::kFactor   ? of_factor
                                                : errors)
          .push_back(finding);
    }
  }
  if (flags.reports) {
    SayErrors(flags, of_paddle, findings, programs,
              "; weft run runs collectives in the order of the program");
    SayErrors(flags, of_factor, findings, programs,
              "; right where the loss (of which the n-th part is then printed) or the rate is "
              "divided by the number of ranks: weft verify --original decides");
  }
  const bool is_ordered = !errors.empty() && !flags.force && flags.order.empty() &&
                          !inputs->setting.ordered_by_data &&
                          AreOrderedByVariables(errors, programs);
  if (errors.empty() || is_ordered || flags.force) {
    if (!errors.empty() && flags.reports) {
      SayErrors(flags, errors, findings, programs,
                is_ordered ? "; this run orders ops by variables, as Paddle's executor does "
                             "since 2.5 (--order events); --force runs them as they stand"
                           : "");
    }
    return is_ordered || inputs->setting.ordered_by_data ? OrderByVariables(inputs)
                                                         : absl::OkStatus();
  }
  int64_t others = static_cast<int64_t>(errors.size()) - 1;
  std::set<std::string> rules;
  for (const Finding& error : errors) {
    if (rules.insert(error.rule).second) others += findings.NumOmitted(error.rule);
  }
  const Layer layer = FindRule(errors[0].rule).layer;
  const bool may_run = layer != Layer::kStructure && layer != Layer::kTypes;
  // A program of another rank may be in another file.
  const std::string& file = errors[0].program.is_startup ? flags.startup : flags.main;
  return absl::FailedPreconditionError(absl::StrCat(
      programs.ranks.size() > 1 ? "" : absl::StrCat(file, ": "), Text(errors[0], programs),
      others == 0 ? "" : absl::StrCat(" (and ", others, " more)"), "; weft verify shows all",
      may_run ? ", and --force runs the program nevertheless" : ""));
}

std::set<std::string> FindPartialSums(const RunFlags& flags, const RunFiles& inputs) {
  std::set<std::string> sums;
  // Ranks that train apart have other losses than one device.
  if (flags.run.nranks == 1 || flags.run.allow_unsynchronized) return sums;
  absl::optional<Program> joined;
  if (inputs.server.has_value()) {
    absl::StatusOr<Program> both = JoinServers(*inputs.main, *inputs.server);
    if (!both.ok()) return sums;
    joined = *std::move(both);
  }
  const Program& main = joined.has_value() ? *joined : *inputs.main;
  Setting setting = inputs.setting;
  setting.feeds = inputs.feeds.layouts;
  setting.nranks = flags.run.nranks;
  const BatchFlow flow =
      BatchFlow::Of(main, BatchOptionsOf({&main, ProgramsOf(inputs).startup}, setting));
  for (const std::string& name : inputs.reported) {
    const VarId var = main.block(0).FindVar(name);
    if (var.valid() && flow.AtEnd(var).relation == BatchRelation::PartialSum()) sums.insert(name);
  }
  return sums;
}

}  // namespace weft
