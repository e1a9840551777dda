#include "transpiler/transpile.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/status_macros.h"
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

absl::StatusOr<std::vector<PassSpec>> Schedule(const TranspileOptions& options) {
  if (options.mode.empty() == options.passes.empty()) {
    return absl::InvalidArgumentError("expected a mode or passes, and not both");
  }
  if (options.mode.empty()) return ParsePipelineText(options.passes);
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

absl::Status VerifyPair(const ProgramPair& programs) {
  WEFT_RETURN_IF_ERROR(VerifyStructure(*programs.main));
  if (programs.startup == nullptr) return absl::OkStatus();
  return Annotate("startup program", VerifyStructure(*programs.startup));
}

}  // namespace

absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs,
                                          const PassRegistry& registry) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<PassSpec> schedule, Schedule(options));
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
  if (options.verify) {
    WEFT_RETURN_IF_ERROR(VerifyPair(programs));
    pipeline_options.verifier = [](absl::string_view, const ProgramPair& pair) {
      return VerifyPair(pair);
    };
    if (options.verify_each_pass) {
      pipeline_options.verify = PipelineOptions::Verify::kAfterEachPass;
    }
  }
  WEFT_ASSIGN_OR_RETURN(result.passes, pipeline.Run(context, programs, pipeline_options));
  return result;
}

absl::Status CheckOptions(const TranspileOptions& options, const PassRegistry& registry) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<PassSpec> schedule, Schedule(options));
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
