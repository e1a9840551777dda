#include "tools/cmd/weft_verify.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/run/runner.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/analysis/training/gradient_links.h"
#include "ops/analysis/training/mark_gradients.h"
#include "ops/analysis/training/num_ranks.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/kernel.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/feed_layout.h"
#include "proto/formats/pir/importer.h"
#include "proto/formats/program_file.h"
#include "proto/text/program_text.h"
#include "tools/cmd/weft_commands.h"
#include "tools/files/certificate.h"
#include "tools/flags/assume_flag.h"
#include "tools/flags/flag_names.h"
#include "tools/flags/setting_flags.h"
#include "tools/inspect/json_number.h"
#include "tools/inspect/rule_explanation.h"
#include "tools/numeric/numeric_check.h"
#include "transpiler/verifier/batch/batch.h"
#include "transpiler/verifier/servers/server_programs.h"
#include "transpiler/verifier/verify.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kCommand[] = "weft verify";
// The number of ranks to run if the programs do not specify one.
constexpr int kRanksToRun = 2;
constexpr char kNumericNeeds[] =
    "requires gradients averaged over the ranks, and replicated parameters";

// A finding could be missed, or false.
absl::Status CheckWrites(const VerifyFlags& options, const VerifiedPrograms& programs) {
  for (size_t i = 0; i < programs.mains.size(); ++i) {
    WEFT_RETURN_IF_ERROR(Annotate(options.mains[i], pir::CheckWritesAreKnown(*programs.mains[i])));
  }
  for (size_t i = 0; i < programs.startups.size(); ++i) {
    WEFT_RETURN_IF_ERROR(
        Annotate(options.startups[i], pir::CheckWritesAreKnown(*programs.startups[i])));
  }
  if (!programs.original.has_value()) return absl::OkStatus();
  return Annotate(options.original, pir::CheckWritesAreKnown(*programs.original));
}

// With what the user and names say of ops. Files of several ranks may be one, whose program they
// share.
absl::Status Complete(const VerifyFlags& options, VerifiedPrograms* programs) {
  std::map<const Program*, std::shared_ptr<Program>> copies;
  std::vector<ProgramOfFile> files;
  for (size_t i = 0; i < programs->mains.size(); ++i) {
    std::shared_ptr<const Program>& main = programs->mains[i];
    std::shared_ptr<Program>& copy = copies[main.get()];
    if (copy == nullptr) {
      copy = std::make_shared<Program>(*main);
      WEFT_RETURN_IF_ERROR(MarkGradients(copy.get()).status());
      files.push_back({copy.get(), options.mains[i]});
    }
    main = copy;
  }
  WEFT_RETURN_IF_ERROR(AssumeOps(options.setting.assume, files));
  if (!programs->original.has_value()) return absl::OkStatus();
  AssumeAs(*programs->mains[0], &*programs->original);
  return MarkGradients(&*programs->original).status();
}

absl::StatusOr<std::unique_ptr<VerifiedPrograms>> Read(const VerifyFlags& options) {
  auto programs = std::make_unique<VerifiedPrograms>();
  WEFT_ASSIGN_OR_RETURN(programs->mains, ReadPrograms(options.mains));
  WEFT_ASSIGN_OR_RETURN(programs->startups, ReadStartupPrograms(options.startups));
  WEFT_ASSIGN_OR_RETURN(programs->original, ReadProgramIfGiven(options.original));
  WEFT_ASSIGN_OR_RETURN(programs->original_startup, ReadStartupIfGiven(options.original_startup));
  WEFT_ASSIGN_OR_RETURN(programs->server, ReadProgramIfGiven(options.server));
  return programs;
}

absl::Status Prepare(const VerifyFlags& options, VerifiedPrograms* programs) {
  WEFT_RETURN_IF_ERROR(CheckWrites(options, *programs));
  WEFT_RETURN_IF_ERROR(Complete(options, programs));
  const std::vector<std::shared_ptr<const Program>>& startups = programs->startups;
  for (size_t i = 0; i < programs->mains.size(); ++i) {
    ConstProgramPair rank;
    rank.main = programs->mains[i].get();
    if (!startups.empty()) rank.startup = startups[startups.size() == 1 ? 0 : i].get();
    programs->ranks.push_back(rank);
  }
  return absl::OkStatus();
}

// The states that LocalSGD resets.
std::set<std::string> ResetStates(const Findings& findings) {
  std::set<std::string> states;
  for (const Finding& finding : findings.all()) {
    if (finding.kind != FindingKind::kReset) continue;
    states.insert(finding.variable);
    states.insert(finding.more_variables.begin(), finding.more_variables.end());
  }
  return states;
}

// Whether findings say that these variables are not what one device has. Ranks with different
// values of one variable are another matter.
bool AreDeclaredDifferent(const std::vector<NumericReport::Difference>& differences,
                          const VerifiedPrograms& programs, Setting setting, int nranks,
                          const Findings& findings) {
  const ConstProgramPair& rewritten = programs.ranks[0];
  setting.nranks = nranks;
  BatchFlowOptions options = BatchOptionsOf(rewritten, setting);
  options.original = programs.Original().main;
  options.follow_effects = true;
  options.affected = ResetStates(findings);
  const BatchFlow flow = BatchFlow::Of(*rewritten.main, options);
  return absl::c_all_of(differences, [&](const NumericReport::Difference& difference) {
    const VarId var = rewritten.main->block(0).FindVar(difference.variable);
    if (!var.valid()) return false;
    const BatchValue& value = flow.AtEnd(var);
    if (!difference.is_among_ranks && options.affected.count(difference.variable) > 0) return true;
    return difference.is_among_ranks ? !value.relation.IsSame() : !value.IsOfOneDevice();
  });
}

// None if not requested.
absl::StatusOr<absl::optional<NumericReport>> RunBoth(const VerifyFlags& options,
                                                      const VerifiedPrograms& programs,
                                                      const Setting& setting,
                                                      const Findings& findings) {
  if (!options.numeric) return absl::nullopt;
  const ConstProgramPair& rewritten = programs.ranks[0];
  NumericOptions numeric;
  numeric.kernels = &CpuKernels();
  numeric.steps = options.steps;
  numeric.feeds = setting.feeds;
  numeric.nranks = setting.nranks.has_value()
                       ? *setting.nranks
                       : FindNumRanks(*rewritten.main, rewritten.startup).value_or(kRanksToRun);
  absl::StatusOr<NumericReport> report = CheckNumerically(programs.Original(), rewritten, numeric);
  WEFT_RETURN_IF_ERROR(Annotate("--numeric", report.status()));
  const bool are_findings = absl::c_any_of(findings.all(), [](const Finding& finding) {
    return IsDifference(finding.kind) || finding.kind == FindingKind::kLossScale;
  });
  report->is_explained =
      !report->IsEqual() && are_findings &&
      AreDeclaredDifferent(report->differences, programs, setting, numeric.nranks, findings);
  return *std::move(report);
}

bool IsWrong(const NumericReport& numeric) { return !numeric.IsEqual() && !numeric.is_explained; }

// The line of program text of an op, with its position.
std::string TextOfOp(const Program& program, OpId id) {
  if (!id.valid()) return "";
  const Op op = program.op(id);
  PrintOptions options;
  options.attrs = PrintOptions::Attrs::kShort;
  options.callstack = false;
  const std::string block = op.block() == 0 ? "" : absl::StrCat("block ", op.block(), ", ");
  return absl::StrCat("    ", block, "op ", op.position(), ": ", OpText(op, options), "\n");
}

std::string TextOf(const Finding& finding, const std::vector<ConstProgramPair>& ranks,
                   bool short_lines) {
  std::string text = WithFlags(ToString(finding, ranks.size() == 1)) + "\n";
  if (short_lines) return text;
  const ConstProgramPair& programs = ranks[finding.program.rank];
  const Program& program = finding.program.is_startup ? *programs.startup : *programs.main;
  if (finding.other != finding.op) text += TextOfOp(program, finding.other);
  absl::StrAppend(&text, TextOfOp(program, finding.op), "    see weft verify --explain ",
                  finding.rule, "\n");
  return text;
}

// "2 errors, 1 warning"; empty without findings.
std::string Counts(const Findings& findings) {
  int64_t counts[3] = {};
  for (const Finding& finding : findings.all()) ++counts[static_cast<int>(finding.severity)];
  for (const Rule& rule : Rules()) {
    counts[static_cast<int>(rule.severity)] += findings.NumOmitted(rule.id);
  }
  std::vector<std::string> parts;
  for (Severity severity : {Severity::kError, Severity::kWarning, Severity::kNote}) {
    const int64_t count = counts[static_cast<int>(severity)];
    if (count == 0) continue;
    parts.push_back(absl::StrCat(count, " ", SeverityName(severity), count == 1 ? "" : "s"));
  }
  return absl::StrJoin(parts, ", ");
}

VerdictScope ScopeOf(const VerifyFlags& options, const VerifiedPrograms& programs,
                     const GivenSetting& given) {
  VerdictScope scope;
  const ConstProgramPair& first = programs.ranks[0];
  scope.nranks = given.setting.nranks;
  if (!scope.nranks.has_value()) {
    scope.nranks = FindNumRanks(*first.main, first.startup, programs.ranks.size());
  }
  scope.communicates =
      !options.server.empty() || absl::c_any_of(programs.ranks, [](const ConstProgramPair& rank) {
        return Communicates(*rank.main);
      });
  const bool is_async = programs.server.has_value() && IsAsynchronous(*programs.server);
  for (Layer layer : AllLayers()) {
    if (layer == Layer::kEquivalence && options.original.empty()) continue;
    scope.layers.emplace_back(LayerName(layer));
  }
  if (scope.nranks != 1 && (scope.communicates || scope.nranks.has_value())) {
    scope.assumptions = given.feeds;
  }
  scope.assumptions.insert(scope.assumptions.end(), given.claims.begin(), given.claims.end());
  if (scope.nranks == 1 || !scope.communicates) return scope;
  if (programs.server.has_value()) {
    scope.assumptions.emplace_back(
        is_async ? "what servers hold is left out, as they do not wait for all workers (--server)"
                 : "servers wait for the gradients of all workers, and answer with what they hold "
                   "(--server)");
  }
  const std::vector<OpId> gradients = GradientsOfAbsentOps(*first.main);
  if (!gradients.empty()) {
    scope.assumptions.push_back(absl::StrCat(
        first.main->op(gradients[0]).DebugName(),
        gradients.size() == 1 ? ""
                              : absl::StrCat(" to ", first.main->op(gradients.back()).DebugName()),
        gradients.size() == 1 ? " gets" : " get",
        " gradients of values that the program does not compute, and these are right"));
  }
  std::set<std::string> of_ops;
  for (const ConstProgramPair& rank : programs.ranks) {
    for (std::string& line : AssumedOfOps(*rank.main, options.setting.assume)) {
      if (of_ops.insert(line).second) scope.assumptions.push_back(std::move(line));
    }
  }
  if (options.startups.empty()) {
    scope.assumptions.emplace_back(
        "rings are set up, and ranks begin with equal values (--startup checks it)");
  } else if (!options.original.empty() && options.original_startup.empty()) {
    scope.assumptions.emplace_back(
        "states begin as in the original (--original_startup checks it)");
  }
  return scope;
}

// "2 ranks", "any number of ranks".
std::string RanksText(const VerdictScope& scope) {
  if (!scope.communicates && !scope.nranks.has_value()) return "one device";
  if (!scope.nranks.has_value()) return "any number of ranks";
  return absl::StrCat(*scope.nranks, *scope.nranks == 1 ? " rank" : " ranks");
}

// Whether updates may differ from the original because a mode or options of offloading say so.
bool MayDifferOnPurpose(const Findings& findings, const std::vector<ConstProgramPair>& ranks) {
  const Program& main = *ranks[0].main;
  const auto sparsifies = [](const Op& op) {
    return AlgebraOf(op, FindOpSchema(op.type())) == Algebra::kSparsify;
  };
  return (IsOnTwoDevices(main) || absl::c_any_of(AllOps(main), sparsifies)) &&
         absl::c_any_of(findings.all(), [](const Finding& finding) {
           return finding.kind == FindingKind::kExpression;
         });
}

// Whether there are races, and only such as Paddle's executor does not have.
bool HasRacesOfStreams(const Findings& findings, const std::vector<ConstProgramPair>& ranks,
                       const Setting& setting) {
  const auto is_race = [](const Finding& finding) { return finding.kind == FindingKind::kRace; };
  if (setting.ordered_by_data || absl::c_none_of(findings.all(), is_race)) return false;
  VerifyOptions options;
  options.setting = setting;
  options.setting.ordered_by_data = true;
  options.layers = {Layer::kRaces};
  return !Verify(ranks, options).HasErrors();
}

Json OpJson(const Program& program, OpId id) {
  if (!id.valid()) return nullptr;
  const Op op = program.op(id);
  return {{"block", op.block()}, {"index", op.position()}, {"type", op.type()}};
}

Json DifferenceJson(const NumericReport::Difference& difference) {
  return {{"variable", difference.variable},
          {"parameter", difference.is_parameter},
          {"among_ranks", difference.is_among_ranks},
          {"rank", difference.rank},
          {"step", difference.step},
          {"index", std::vector<int64_t>(difference.index.begin(), difference.index.end())},
          {"expected", NumberToJson(difference.expected)},
          {"found", NumberToJson(difference.found)},
          {"relative", NumberToJson(difference.relative)},
          {"of_original", NumberToJson(difference.of_original)}};
}

Json NumericJson(const NumericReport& report) {
  Json differences = Json::array();
  for (const NumericReport::Difference& difference : report.differences) {
    differences.push_back(DifferenceJson(difference));
  }
  const bool is_rounded = report.largest_rounding.has_value();
  return {{"verdict", !report.IsEqual() ? "different"
                      : is_rounded      ? "equal within rounding"
                                        : "equal bit by bit"},
          {"nranks", report.nranks},
          {"steps", report.steps},
          {"batch", report.batch},
          {"compared", report.compared},
          {"own_to_ranks", report.rank_local},
          {"rough", report.rough},
          {"unchanged", report.unchanged},
          {"largest_rounding", is_rounded ? DifferenceJson(*report.largest_rounding) : Json()},
          {"differences", std::move(differences)},
          {"explained", report.is_explained}};
}

// True if nothing is wrong.
absl::StatusOr<bool> Verify(const VerifyFlags& options) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<VerifiedPrograms> programs, Read(options));
  WEFT_ASSIGN_OR_RETURN(const Verdict verdict, VerifyPrograms(options, programs.get()));
  if (!verdict.not_run.empty()) PrintWarning(kCommand, verdict.not_run);
  const std::string text = options.format == "json"
                               ? VerdictJson(verdict, *programs)
                               : VerdictText(verdict, *programs, options.short_lines);
  std::fputs(text.c_str(), stdout);
  if (verdict.IsRight() && !options.certificate.empty()) {
    const bool has_startup = !options.startups.empty();
    const CertifiedPaths paths{options.original, options.mains[0],
                               has_startup ? options.original_startup : "",
                               has_startup ? options.startups[0] : ""};
    const CertificateClaim claim = {verdict.scope.nranks, verdict.reduction};
    WEFT_RETURN_IF_ERROR(WriteCertificate(paths, claim, options.certificate).status());
  }
  return verdict.IsRight();
}

int Explain(const VerifyFlags& options) {
  const absl::StatusOr<std::string> page = ExplainRule(options.explain);
  if (page.ok()) std::fputs(WithFlags(*page).c_str(), stdout);
  return FinishCommand(kCommand, Annotate("--explain", page.status()), kExitDone, kExitUsage);
}

// Checks combinations of flags.
void CheckFlags(const VerifyFlags& options) {
  std::vector<std::pair<const char*, std::string>> inputs;
  for (const std::string& path : options.mains) inputs.emplace_back("MAIN", path);
  for (const std::string& path : options.startups) inputs.emplace_back("--startup", path);
  inputs.emplace_back("--original", options.original);
  inputs.emplace_back("--original_startup", options.original_startup);
  inputs.emplace_back("--server", options.server);
  CheckStandardInput(inputs);
  Require(options.mains.empty() != options.explain.empty(), "mains",
          "expected programs to verify, or --explain");
  if (!options.explain.empty()) return;
  const size_t mains = options.mains.size(), startups = options.startups.size();
  Require(options.original_startup.empty() || startups > 0 || options.numeric, "--original_startup",
          "expected --startup, with which it is compared");
  Require(startups <= 1 || startups == mains, "--startup",
          absl::StrCat("expected one, or ", mains, ", one per program, found ", startups));
  const int nranks = options.setting.nranks;
  Require(mains == 1 || nranks == 0 || static_cast<size_t>(nranks) == mains, "--nranks",
          absl::StrCat("expected ", mains, ", the number of programs, found ", nranks));
  Require(options.server.empty() || (mains == 1 && !options.numeric), "--server",
          "expected one program, for all workers, without --numeric");
  Require(options.certificate.empty() || (mains == 1 && startups <= 1), "--certificate",
          "expected one program, which all ranks run, and at most one startup program");
  Require(
      options.certificate.empty() || options.original_startup.empty() == options.startups.empty(),
      "--certificate", "expected both startup programs, or none");
  Require(!options.short_lines || options.format == "text", "--short",
          "works with --format text only");
  if (!options.numeric) return;
  Require(mains == 1, "--numeric", "accepts one program, which all ranks run");
  Require(nranks <= kMaxRanks, "--nranks",
          absl::StrCat("expected at most ", kMaxRanks, " to run, found ", nranks));
  Require(!options.setting.summed_gradients.value_or(false) &&
              options.setting.distributed_params.empty() && options.setting.param_attrs.empty(),
          "--numeric", kNumericNeeds);
}

}  // namespace

bool Verdict::IsRight() const {
  return !findings.HasErrors() && (!numeric.has_value() || !IsWrong(*numeric));
}

absl::StatusOr<Verdict> VerifyPrograms(const VerifyFlags& flags, VerifiedPrograms* programs) {
  WEFT_RETURN_IF_ERROR(Prepare(flags, programs));
  WEFT_ASSIGN_OR_RETURN(
      const GivenSetting given,
      SettingFor(flags.setting, flags.mains, programs->ranks, programs->Original().main));
  const Setting& setting = given.setting;
  if (flags.numeric && (setting.reduction == Setting::Reduction::kSum ||
                        !setting.distributed_params.empty() || !setting.groups.empty())) {
    return absl::InvalidArgumentError(absl::StrCat("--numeric: ", kNumericNeeds));
  }
  VerifyOptions verify;
  verify.setting = setting;
  verify.expression_depth = flags.expression_depth.value_or(0);
  verify.original = programs->Original();
  if (programs->server.has_value()) verify.server = &*programs->server;
  Verdict verdict;
  verdict.findings = Verify(programs->ranks, verify);
  verdict.scope = ScopeOf(flags, *programs, given);
  verdict.scope.has_races_of_streams =
      HasRacesOfStreams(verdict.findings, programs->ranks, setting);
  verdict.reduction = setting.reduction;
  // A program that breaks a rule of layer 1 or 2 may not run. Then the findings matter more than
  // the reason.
  absl::StatusOr<absl::optional<NumericReport>> numeric =
      RunBoth(flags, *programs, setting, verdict.findings);
  if (!numeric.ok() && !verdict.findings.HasErrors()) return numeric.status();
  if (numeric.ok()) {
    verdict.numeric = *std::move(numeric);
  } else {
    verdict.not_run = std::string(numeric.status().message());
  }
  return verdict;
}

std::string VerdictText(const Verdict& verdict, const VerifiedPrograms& programs,
                        bool short_lines) {
  const Findings& findings = verdict.findings;
  const std::vector<ConstProgramPair>& ranks = programs.ranks;
  std::string text;
  for (const std::string& assumption : verdict.scope.assumptions) {
    absl::StrAppend(&text, "note: assumed: ", assumption, "\n");
  }
  for (const Finding& finding : findings.all()) text += TextOf(finding, ranks, short_lines);
  for (const Rule& rule : Rules()) {
    const int64_t omitted = findings.NumOmitted(rule.id);
    if (omitted > 0) absl::StrAppend(&text, rule.id, ": ", omitted, " more like these\n");
  }
  const absl::optional<NumericReport>& numeric = verdict.numeric;
  if (numeric.has_value()) absl::StrAppend(&text, "numeric: ", NumericReportText(*numeric));
  const bool differs = numeric.has_value() && IsWrong(*numeric);
  std::string counts = Counts(findings);
  if (differs) {
    absl::StrAppend(&counts, counts.empty() ? "" : ", ", "the result differs from the original");
  }
  if (!verdict.IsRight()) {
    if (MayDifferOnPurpose(findings, ranks)) {
      text +=
          "note: if transpile noted that it changed updates on purpose, as --offload states, "
          "power_sgd and sparse modes do, --original must have the same change, or be left out: "
          "docs/offload.md#optimizers\n";
    }
    if (verdict.scope.has_races_of_streams) {
      text +=
          "note: Paddle's executor orders ops by the variables that they name since 2.5; --order "
          "events judges by that\n";
    }
    absl::StrAppend(&text, "wrong: ", counts, "\n");
    return text;
  }
  absl::StrAppend(&text, "verified: ", RanksText(verdict.scope), "; layers ",
                  absl::StrJoin(verdict.scope.layers, ", "), counts.empty() ? "" : "; ", counts,
                  "\n");
  return text;
}

// The findings as JSON, a contract with programs that read it: an indented object with these keys,
// followed by a newline:
//   verified   true if there is no error and, if programs were run, no unexplained difference
//   findings   a list, in the order of Findings::all(): rule, severity, rank (null if one program
//              is for all ranks), startup, op, other, variable, more_variables (a list of names),
//              message; op and other are objects with block, index and type, or null
//   omitted    the number of findings that were dropped, by rule
//   ranks      what the verdict is about: "2 ranks", "any number of ranks", "one device"
//   layers     the layers that were checked: a list of names
//   assumed    a list of sentences
//   numeric    if programs were run: verdict ("equal bit by bit", "equal within rounding",
//              "different"), nranks, steps, batch; compared, own_to_ranks, rough and unchanged:
//              lists of names; largest_rounding (or null) and the list
//              differences: variable, parameter, among_ranks, rank, step, index, expected, found,
//              relative, of_original; explained: true if a finding says so of each difference
std::string VerdictJson(const Verdict& verdict, const VerifiedPrograms& programs) {
  const Findings& findings = verdict.findings;
  const std::vector<ConstProgramPair>& ranks = programs.ranks;
  const VerdictScope& scope = verdict.scope;
  Json list = Json::array();
  for (const Finding& finding : findings.all()) {
    const ConstProgramPair& programs = ranks[finding.program.rank];
    const Program& program = finding.program.is_startup ? *programs.startup : *programs.main;
    list.push_back({{"rule", finding.rule},
                    {"severity", SeverityName(finding.severity)},
                    {"rank", ranks.size() == 1 ? Json() : Json(finding.program.rank)},
                    {"startup", finding.program.is_startup},
                    {"op", OpJson(program, finding.op)},
                    {"other", OpJson(program, finding.other)},
                    {"variable", finding.variable},
                    {"more_variables", finding.more_variables},
                    {"message", WithFlags(finding.message)}});
  }
  Json omitted = Json::object();
  for (const Rule& rule : Rules()) {
    const int64_t count = findings.NumOmitted(rule.id);
    if (count > 0) omitted[rule.id] = count;
  }
  Json json = {{"verified", verdict.IsRight()}, {"findings", std::move(list)},
               {"omitted", std::move(omitted)}, {"ranks", RanksText(scope)},
               {"layers", scope.layers},        {"assumed", scope.assumptions}};
  if (verdict.numeric.has_value()) json["numeric"] = NumericJson(*verdict.numeric);
  // Names are UTF-8.
  return json.dump(2) + "\n";
}

void AddVerifyFlags(CLI::App* app, VerifyFlags* flags) {
  AddOption(*app, "mains", "MAIN", flags->mains,
            "One program for all ranks, or one per rank, in order");
  AddOption(*app, "--startup", "F", flags->startups,
            "The startup program, or one per rank; without it, rings count as set up");
  auto* original =
      AddOption(*app, "--original", "F", flags->original, "The program before the rewrite");
  AddOption(*app, "--server", "F", flags->server,
            "The program of the parameter servers of a program for workers");
  AddInteger(*app, "--expression_depth", flags->expression_depth, 1, 1000,
             "Also print each value that differs (W601, W602) as a whole, down to N levels")
      ->needs(original);
  AddSettingFlags(app, &flags->setting, original);
  auto* numeric = app->add_flag("--numeric", flags->numeric,
                                "Also run both programs on small random data, and compare "
                                "persistable variables: the rewritten one on as many ranks as "
                                "--nranks says (2 if unknown), the original on one rank with the "
                                "global batch");
  numeric->needs(original);
  AddOption(*app, "--original_startup", "F", flags->original_startup,
            "The startup program before the rewrite, compared too; with --numeric, it sets the "
            "initial state, which is otherwise 0")
      ->needs(original);
  AddInteger(*app, "--steps", flags->steps, 1, 1000, "Steps that --numeric runs")
      ->capture_default_str()
      ->needs(numeric);
  AddOption(*app, "--certificate", "DIR", flags->certificate,
            "If nothing is wrong, write a proof for checker/ to check: claim.txt and proof.txt")
      ->needs(original);
  app->add_option("--format", flags->format, "json: findings as JSON")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app->add_flag("--short", flags->short_lines, "One line per finding, without the ops");
  AddOption(*app, "--explain", "RULE", flags->explain,
            "Only print what a rule (such as W312) means, with a program that breaks it");
  app->callback([flags] { CheckFlags(*flags); });
}

Subcommand AddVerify(CLI::App* weft) {
  CLI::App* app = weft->add_subcommand(
      "verify",
      "Proves that a program is correct on many ranks: no data race, no deadlock, every gradient\n"
      "reduced once. With --original: that it computes what the original computes. Exit status 1:\n"
      "it is wrong.");
  auto options = std::make_shared<VerifyFlags>();
  AddVerifyFlags(app, options.get());
  app->footer(
      "Examples:\n"
      "  weft verify out.pb --startup out_startup.pb --original main.pb\n"
      "  weft verify rank0.pb rank1.pb --startup startup0.pb --startup startup1.pb\n"
      "  weft verify --explain W312");
  return {app, [options] {
            if (!options->explain.empty()) return Explain(*options);
            const absl::StatusOr<bool> right = Verify(*options);
            const int done = right.ok() && !*right ? kExitFailed : kExitDone;
            return FinishCommand(kCommand, right.status(), done, kExitFailed);
          }};
}

}  // namespace weft
