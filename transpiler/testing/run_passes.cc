#include "transpiler/testing/run_passes.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/passes/facts.h"
#include "transpiler/pipeline/pipeline.h"
#include "transpiler/verify/verify.h"

namespace weft::testing {
namespace {

PassContext Context(const ClusterSpec& spec, Dialect dialect, int min_trainers = 2) {
  PassContext context;
  context.dialect = dialect;
  absl::StatusOr<Cluster> cluster = Cluster::Create(spec, min_trainers);
  if (!cluster.ok()) std::abort();
  context.cluster = *std::move(cluster);
  return context;
}

Findings FindErrors(const ProgramPair& programs, const PassContext& context) {
  VerifyOptions options;
  options.nranks = context.cluster.nranks();
  options.distributed_params = context.distributed_params;
  options.layers = {Layer::kStructure, Layer::kTypes, Layer::kRaces};
  options.threads = 1;
  return Verify({{programs.main, programs.startup}}, options);
}

}  // namespace

PassContext ContextWithEndpoints(int nranks, Dialect dialect) {
  ClusterSpec spec;
  for (int i = 0; i < nranks; ++i) spec.endpoints.push_back(absl::StrCat("127.0.0.1:", 6170 + i));
  return Context(spec, dialect);
}

PassContext ContextWithRanks(int nranks) {
  ClusterSpec spec;
  if (nranks > 0) spec.nranks = nranks;
  return Context(spec, Dialect::kWeft);
}

PassContext ContextWithDevices(const std::vector<std::string>& endpoints,
                               absl::optional<std::vector<int>> devices) {
  ClusterSpec spec;
  spec.endpoints = endpoints;
  spec.devices = std::move(devices);
  return Context(spec, Dialect::kPaddle, /*min_trainers=*/1);
}

absl::Status RunPasses(absl::string_view text, PassContext context, Program* main,
                       Program* startup) {
  WEFT_ASSIGN_OR_RETURN(const Pipeline pipeline, Pipeline::FromText(text, BuiltinPasses()));
  ProgramPair programs{main, startup};
  const bool is_checked =
      context.dialect == Dialect::kWeft && !FindErrors(programs, context).HasErrors();
  PipelineOptions options;
  if (pipeline.AsksForFacts()) {
    WEFT_ASSIGN_OR_RETURN(options.initial_facts, DetectFacts(programs));
  }
  WEFT_RETURN_IF_ERROR(pipeline.Run(context, programs, options).status());
  if (!is_checked) return absl::OkStatus();
  return Annotate(absl::StrCat("result of ", text), ToStatus(FindErrors(programs, context)));
}

}  // namespace weft::testing
