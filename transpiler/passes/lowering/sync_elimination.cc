#include "transpiler/passes/lowering/sync_elimination.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/streams/streams.h"
#include "proto/rewriter.h"

namespace weft {
namespace {

// Why a wait is redundant; empty if it is not.
std::string WhyRedundant(SyncEffect effect) {
  switch (effect) {
    case SyncEffect::kNeeded:
    case SyncEffect::kPrecaution:
      return "";
    case SyncEffect::kNotNeeded:
      return "the program orders the same accesses without it";
    case SyncEffect::kOrdersNothing:
      return "an earlier wait covers the same work";
    case SyncEffect::kNoStream:
      return "the ring has no stream";
  }
  return "";
}

// `name` is that of the program in remarks.
absl::StatusOr<bool> RemoveFrom(Program* program, StepEnd end, const char* name,
                                const PassContext& context) {
  StreamOptions options;
  options.end = end;
  options.find_redundant_syncs = true;
  const StreamReport report = AnalyzeStreams(*program, options);
  if (!report.races.empty()) return false;
  Rewriter rewriter(program);
  for (const SyncUse& sync : report.syncs) {
    const std::string why = WhyRedundant(sync.effect);
    if (why.empty()) continue;
    rewriter.Erase(sync.op);
    if (context.sink.remarks == nullptr) continue;
    std::vector<std::pair<std::string, std::string>> details = {{"program", name}};
    if (sync.sync == StreamSync::kStreamWaitsForStream) {
      details.push_back({"stream", StreamName(report, sync.waiting)});
    } else if (sync.sync != StreamSync::kAllWaitForCompute) {
      details.push_back({"ring", absl::StrCat(sync.ring_id)});
    }
    context.sink.Explain(SyncElimination::kName, program->op(sync.op).DebugName(), "removed", why,
                         std::move(details));
  }
  return CommitEdits(&rewriter);
}

}  // namespace

void SyncElimination::Options::Bind(OptionBinder& bind) {}

absl::StatusOr<bool> SyncElimination::Run(const PassContext& context, ProgramPair& programs) const {
  WEFT_ASSIGN_OR_RETURN(const bool changed,
                        RemoveFrom(programs.main, StepEnd::kNextStep, "main", context));
  if (programs.startup == nullptr) return changed;
  WEFT_ASSIGN_OR_RETURN(const bool startup_changed,
                        RemoveFrom(programs.startup, StepEnd::kOtherProgram, "startup", context));
  return changed || startup_changed;
}

}  // namespace weft
