#include "transpiler/transpile.h"

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/spec_text.h"
#include "base/status_macros.h"
#include "transpiler/claim_verifier.h"
#include "transpiler/facts.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/pipeline/modes.h"
#include "transpiler/verify/structure.h"

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

absl::StatusOr<std::vector<Spec>> ExpandModeOf(const TranspileOptions& options) {
  std::map<std::string, std::string> flags = ContextFlags(options);
  flags.insert(options.mode_flags.begin(), options.mode_flags.end());
  return ExpandMode(options.mode, options.dialect, flags);
}

absl::StatusOr<Pipeline> PipelineOf(const TranspileOptions& options, const PassRegistry& registry) {
  if (options.mode.empty() == options.passes.empty()) {
    return absl::InvalidArgumentError("expected a mode or passes, and not both");
  }
  if (options.mode.empty()) return Pipeline::FromText(options.passes, registry);
  WEFT_ASSIGN_OR_RETURN(const std::vector<Spec> passes, ExpandModeOf(options));
  return Pipeline::FromSpecs(passes, registry);
}

// A single trainer is enough where it may drive several devices.
absl::StatusOr<Participants> ParticipantsOf(const TranspileOptions& options) {
  bool one_is_enough = options.participants.devices.has_value();
  if (!options.mode.empty()) {
    WEFT_ASSIGN_OR_RETURN(const Mode* const mode, FindMode(options.mode));
    one_is_enough = mode->trainers == Mode::Trainers::kOneOrMoreWithDevices;
  }
  return Participants::Create(options.participants, one_is_enough ? 1 : 2);
}

absl::StatusOr<PassContext> ContextOf(const TranspileOptions& options, TranspileResult* result) {
  PassContext context;
  context.dialect = options.dialect;
  WEFT_ASSIGN_OR_RETURN(context.participants, ParticipantsOf(options));
  context.distributed_params = options.distributed_params;
  if (options.explain) context.notes = &result->notes;
  context.warnings = &result->warnings;
  return context;
}

absl::Status VerifyInput(const ProgramPair& programs) {
  WEFT_RETURN_IF_ERROR(VerifyStructure(*programs.main));
  if (programs.startup == nullptr) return absl::OkStatus();
  return Annotate("startup program", VerifyStructure(*programs.startup));
}

}  // namespace

absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs,
                                          const PassRegistry& registry) {
  TranspileResult result;
  WEFT_ASSIGN_OR_RETURN(const Pipeline pipeline, PipelineOf(options, registry));
  WEFT_ASSIGN_OR_RETURN(PassContext context, ContextOf(options, &result));
  WEFT_ASSIGN_OR_RETURN(result.claims, pipeline.ClaimsOf(context));

  PipelineOptions run;
  run.verification = options.verification;
  run.observer = options.observer;
  const bool verifies = options.verification != Verification::kNever;
  if (verifies) WEFT_RETURN_IF_ERROR(VerifyInput(programs));
  if (verifies || pipeline.AsksForFacts()) {
    WEFT_ASSIGN_OR_RETURN(run.initial_facts, DetectFacts(programs));
  }
  if (verifies) run.verifier = ClaimVerifier(result.claims, context, run.initial_facts, programs);
  WEFT_ASSIGN_OR_RETURN(result.passes, pipeline.Run(context, programs, run));
  return result;
}

absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs) {
  return Transpile(options, programs, BuiltinPasses());
}

absl::Status CheckOptions(const TranspileOptions& options, const PassRegistry& registry) {
  TranspileResult result;
  WEFT_ASSIGN_OR_RETURN(const Pipeline pipeline, PipelineOf(options, registry));
  WEFT_ASSIGN_OR_RETURN(const PassContext context, ContextOf(options, &result));
  return pipeline.ClaimsOf(context).status();
}

absl::Status CheckMode(const TranspileOptions& options) {
  return options.mode.empty() ? absl::OkStatus() : ExpandModeOf(options).status();
}

}  // namespace weft
