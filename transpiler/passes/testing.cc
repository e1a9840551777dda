#include "transpiler/passes/testing.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transpiler/facts.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/pipeline/pipeline.h"

namespace weft::testing {
namespace {

PassContext Context(const ParticipantsSpec& spec, Dialect dialect, int min_trainers = 2) {
  PassContext context;
  context.dialect = dialect;
  absl::StatusOr<Participants> participants = Participants::Create(spec, min_trainers);
  if (!participants.ok()) std::abort();
  context.participants = *std::move(participants);
  return context;
}

}  // namespace

PassContext ContextWithEndpoints(int nranks, Dialect dialect) {
  ParticipantsSpec spec;
  for (int i = 0; i < nranks; ++i) spec.endpoints.push_back(absl::StrCat("127.0.0.1:", 6170 + i));
  return Context(spec, dialect);
}

PassContext ContextWithRanks(int nranks) {
  ParticipantsSpec spec;
  if (nranks > 0) spec.nranks = nranks;
  return Context(spec, Dialect::kWeft);
}

PassContext ContextWithDevices(const std::vector<std::string>& endpoints,
                               absl::optional<std::vector<int>> devices) {
  ParticipantsSpec spec;
  spec.endpoints = endpoints;
  spec.devices = std::move(devices);
  return Context(spec, Dialect::kPaddle, /*min_trainers=*/1);
}

absl::Status RunPasses(absl::string_view text, PassContext context, Program* main,
                       Program* startup) {
  WEFT_ASSIGN_OR_RETURN(const Pipeline pipeline, Pipeline::FromText(text, BuiltinPasses()));
  ProgramPair programs{main, startup};
  PipelineOptions options;
  if (pipeline.AsksForFacts()) {
    WEFT_ASSIGN_OR_RETURN(options.initial_facts, DetectFacts(programs));
  }
  return pipeline.Run(context, programs, options).status();
}

}  // namespace weft::testing
