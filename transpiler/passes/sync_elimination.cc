#include "transpiler/passes/sync_elimination.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/streams.h"
#include "proto/rewriter.h"

namespace weft {
namespace {

// Why a wait can go; empty: it cannot.
std::string WhyRedundant(SyncEffect effect) {
  switch (effect) {
    case SyncEffect::kNeeded:
    case SyncEffect::kPrecaution:
      return "";
    case SyncEffect::kNotNeeded:
      return "what it orders is ordered without it";
    case SyncEffect::kOrdersNothing:
      return "what it waits for has been waited for before";
    case SyncEffect::kNoStream:
      return "the ring has no stream of its own";
  }
  return "";
}

absl::StatusOr<bool> RemoveFrom(Program* program, bool is_startup, std::vector<Remark>* remarks) {
  StreamOptions options;
  options.find_redundant_syncs = true;
  const StreamReport report = AnalyzeStreams(*program, options);
  if (!report.races.empty()) return false;
  Rewriter rewriter(program);
  std::vector<SyncUse> removed;
  for (const SyncUse& sync : report.syncs) {
    if (WhyRedundant(sync.effect).empty()) continue;
    rewriter.Erase(sync.op);
    removed.push_back(sync);
  }
  if (removed.empty()) return false;
  if (remarks != nullptr) {
    for (const SyncUse& sync : removed) {
      Remark remark{std::string(SyncElimination::kName),
                    program->op(sync.op).DebugName(),
                    "removed",
                    WhyRedundant(sync.effect),
                    {{"program", is_startup ? "startup" : "main"}}};
      if (sync.sync != StreamSync::kAllWaitForCompute) {
        remark.details.push_back({"ring", absl::StrCat(sync.ring_id)});
      }
      remarks->push_back(std::move(remark));
    }
  }
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return true;
}

}  // namespace

void SyncElimination::Options::Bind(OptionBinder& bind) {}

absl::StatusOr<bool> SyncElimination::Run(PassContext& context, ProgramPair& programs) const {
  WEFT_ASSIGN_OR_RETURN(bool changed,
                        RemoveFrom(programs.main, /*is_startup=*/false, context.remarks));
  if (programs.startup != nullptr) {
    WEFT_ASSIGN_OR_RETURN(const bool startup_changed,
                          RemoveFrom(programs.startup, /*is_startup=*/true, context.remarks));
    changed = changed || startup_changed;
  }
  return changed;
}

}  // namespace weft
