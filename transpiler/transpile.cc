#include "transpiler/transpile.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/pipeline/modes.h"
#include "transpiler/verify/structure.h"

namespace weft {
namespace {

absl::StatusOr<std::vector<PassSpec>> Schedule(const TranspileOptions& options) {
  if (options.mode.empty() == options.passes.empty()) {
    return absl::InvalidArgumentError("expected a mode or passes, and not both");
  }
  if (options.mode.empty()) return ParsePipelineText(options.passes);
  return ExpandMode(options.mode, options.dialect, options.mode_flags);
}

absl::Status VerifyPair(const ProgramPair& programs) {
  WEFT_RETURN_IF_ERROR(VerifyStructure(*programs.main));
  if (programs.startup == nullptr) return absl::OkStatus();
  const absl::Status status = VerifyStructure(*programs.startup);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("startup program, ", status.message()));
}

}  // namespace

absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs,
                                          const PassRegistry& registry) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<PassSpec> schedule, Schedule(options));
  WEFT_ASSIGN_OR_RETURN(const Pipeline pipeline, Pipeline::FromSpecs(schedule, registry));
  TranspileResult result;
  PassContext context;
  context.dialect = options.dialect;
  WEFT_ASSIGN_OR_RETURN(context.participants, Participants::Create(options.participants));
  context.distributed_params = options.distributed_params;
  if (options.explain) context.notes = &result.notes;

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
  WEFT_RETURN_IF_ERROR(Participants::Create(options.participants).status());
  WEFT_ASSIGN_OR_RETURN(const std::vector<PassSpec> schedule, Schedule(options));
  return Pipeline::FromSpecs(schedule, registry).status();
}

absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs) {
  return Transpile(options, programs, BuiltinPasses());
}

}  // namespace weft
