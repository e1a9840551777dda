#include "transpiler/transpile.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/spec_text.h"
#include "base/status_macros.h"
#include "ops/analysis/op_traits.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/passes/local_sgd.h"
#include "transpiler/pipeline/facts.h"
#include "transpiler/pipeline/modes.h"
#include "transpiler/verify/structure.h"
#include "transpiler/verify/verify.h"

namespace weft {
namespace {

// What the user gave that passes do not take as options.
std::map<std::string, std::string> ContextFlags(const TranspileOptions& options) {
  std::map<std::string, std::string> flags;
  const ParticipantsSpec& who = options.participants;
  if (who.nranks.has_value()) flags["nranks"] = absl::StrCat(*who.nranks);
  if (!who.endpoints.empty()) flags["endpoints"] = absl::StrJoin(who.endpoints, ",");
  if (who.rank.has_value()) flags["rank"] = absl::StrCat(*who.rank);
  if (!who.current_endpoint.empty()) flags["current_endpoint"] = who.current_endpoint;
  if (who.devices.has_value()) flags["devices"] = absl::StrJoin(*who.devices, ",");
  if (!options.distributed_params.empty()) {
    flags["distributed_params"] = absl::StrJoin(options.distributed_params, ",");
  }
  return flags;
}

absl::StatusOr<std::vector<Spec>> Schedule(const TranspileOptions& options) {
  if (options.mode.empty() == options.passes.empty()) {
    return absl::InvalidArgumentError("expected a mode or passes, and not both");
  }
  if (options.mode.empty()) return ParseSpecs(options.passes);
  std::map<std::string, std::string> flags = ContextFlags(options);
  flags.insert(options.mode_flags.begin(), options.mode_flags.end());
  return ExpandMode(options.mode, options.dialect, flags);
}

// The participants, of which a single trainer is enough where it may drive several devices.
absl::StatusOr<Participants> WhoTakesPart(const TranspileOptions& options) {
  bool one_is_enough = options.participants.devices.has_value();
  if (!options.mode.empty()) {
    WEFT_ASSIGN_OR_RETURN(const Mode* const mode, FindMode(options.mode));
    one_is_enough = mode->trainers == Mode::Trainers::kOneOrMoreWithDevices;
  }
  return Participants::Create(options.participants, one_is_enough ? 1 : 2);
}

absl::Status VerifyInput(const ProgramPair& programs) {
  WEFT_RETURN_IF_ERROR(VerifyStructure(*programs.main));
  if (programs.startup == nullptr) return absl::OkStatus();
  return Annotate("startup program", VerifyStructure(*programs.startup));
}

// Whether somebody asks for sums of gradients that nobody divides.
bool SumsGradients(const std::vector<Spec>& schedule) {
  return std::any_of(schedule.begin(), schedule.end(), [](const Spec& pass) {
    return std::find(pass.options.begin(), pass.options.end(),
                     std::make_pair(std::string("scale"), std::string("none"))) !=
           pass.options.end();
  });
}

// When parameters are averaged, where they are and somebody says when.
absl::optional<LocalSteps> LocalStepsOf(const std::vector<Spec>& schedule) {
  for (const Spec& pass : schedule) {
    if (pass.name != LocalSgd::kName) continue;
    LocalSteps steps;
    for (const auto& [key, value] : pass.options) {
      // Numbers, or the pass would not have been made.
      if (key == "k_steps") (void)absl::SimpleAtoi(value, &steps.every);
      if (key == "begin_step") (void)absl::SimpleAtoi(value, &steps.begin);
    }
    return steps;
  }
  return absl::nullopt;
}

// The first finding of each rule, and how many more there are.
void AddWarnings(const Findings& findings, std::vector<std::string>* warnings) {
  std::map<std::string, std::pair<const Finding*, int64_t>> by_rule;
  for (const Finding& finding : findings.all()) {
    if (finding.severity == Severity::kNote) continue;
    const auto it = by_rule.emplace(finding.rule, std::make_pair(&finding, 0)).first;
    ++it->second.second;
  }
  for (const auto& [rule, found] : by_rule) {
    const int64_t more = found.second - 1 + findings.NumOmitted(rule);
    warnings->push_back(absl::StrCat(rule, ": ", found.first->message,
                                     more == 0 ? "" : absl::StrCat(" (and ", more, " more)")));
  }
}

bool Provides(const Pipeline& pipeline, absl::string_view fact) {
  for (const std::unique_ptr<Pass>& pass : pipeline.passes()) {
    const std::vector<std::string>& provides = pass->contract().provides;
    if (std::find(provides.begin(), provides.end(), fact) != provides.end()) return true;
  }
  return false;
}

// Whether ranks exchange what they learn.
absl::StatusOr<bool> Communicate(const ProgramPair& programs) {
  WEFT_ASSIGN_OR_RETURN(const auto facts, DetectFacts(programs));
  return facts.count(kGradientsReduced) + facts.count(kParametersAveraged) > 0;
}

}  // namespace

absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs,
                                          const PassRegistry& registry) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Spec> schedule, Schedule(options));
  WEFT_ASSIGN_OR_RETURN(const Pipeline pipeline, Pipeline::FromSpecs(schedule, registry));
  TranspileResult result;
  PassContext context;
  context.dialect = options.dialect;
  WEFT_ASSIGN_OR_RETURN(context.participants, WhoTakesPart(options));
  context.distributed_params = options.distributed_params;
  if (options.explain) context.notes = &result.notes;
  context.warnings = &result.warnings;

  PipelineOptions pipeline_options;
  pipeline_options.observer = options.observer;
  if (!options.verify) {
    WEFT_ASSIGN_OR_RETURN(result.passes, pipeline.Run(context, programs, pipeline_options));
    return result;
  }
  WEFT_RETURN_IF_ERROR(VerifyInput(programs));
  VerifyOptions verify;
  verify.nranks = context.participants.nranks();
  if (options.dialect == Dialect::kPaddle && !options.participants.devices.has_value()) {
    // Paddle has defaults of its own for the devices of some modes: what it wrote says for how
    // many.
    verify.nranks = absl::nullopt;
  }
  verify.distributed_params = options.distributed_params;
  verify.gradients_are_summed = SumsGradients(schedule);
  verify.layers = {Layer::kStructure, Layer::kTypes, Layer::kRaces};
  bool communicate =
      Provides(pipeline, kGradientsReduced) || Provides(pipeline, kParametersAveraged);
  absl::optional<Program> before, startup_before;
  if (communicate && !AnyHas(*programs.main, Trait::kCollective) &&
      !Provides(pipeline, kComputationChanged)) {
    before = *programs.main;
    if (programs.startup != nullptr) startup_before = *programs.startup;
  }
  if (!communicate) {
    WEFT_ASSIGN_OR_RETURN(communicate, Communicate(programs));
  }
  if (options.verify_each_pass) {
    pipeline_options.verify = PipelineOptions::Verify::kAfterEachPass;
  }
  const auto verify_result = [&](const ProgramPair& pair) {
    if (communicate) {
      verify.layers = AllLayers();
      verify.local_steps = LocalStepsOf(schedule);
      if (before.has_value()) verify.original.main = &*before;
      if (startup_before.has_value()) verify.original.startup = &*startup_before;
    }
    const Findings findings = Verify({{pair.main, pair.startup}}, verify);
    if (options.dialect == Dialect::kWeft) return ToStatus(findings);
    AddWarnings(findings, &result.warnings);
    return absl::OkStatus();
  };
  size_t passes_left = pipeline.passes().size();
  pipeline_options.verifier = [&](absl::string_view, const ProgramPair& pair) {
    if (--passes_left == 0 || !options.verify_each_pass) return verify_result(pair);
    if (options.dialect == Dialect::kPaddle) return absl::OkStatus();
    return ToStatus(Verify({{pair.main, pair.startup}}, verify));
  };
  WEFT_ASSIGN_OR_RETURN(result.passes, pipeline.Run(context, programs, pipeline_options));
  if (pipeline.passes().empty()) WEFT_RETURN_IF_ERROR(verify_result(programs));
  return result;
}

absl::Status CheckOptions(const TranspileOptions& options, const PassRegistry& registry) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Spec> schedule, Schedule(options));
  WEFT_RETURN_IF_ERROR(WhoTakesPart(options).status());
  return Pipeline::FromSpecs(schedule, registry).status();
}

absl::Status CheckMode(const TranspileOptions& options) {
  return options.mode.empty() ? absl::OkStatus() : Schedule(options).status();
}

absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs) {
  return Transpile(options, programs, BuiltinPasses());
}

}  // namespace weft
