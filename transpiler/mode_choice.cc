#include "transpiler/mode_choice.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "ops/analysis/op_traits.h"
#include "transpiler/passes/facts.h"

namespace weft {
namespace {

struct Candidate {
  absl::string_view mode, what;
};
constexpr Candidate kCandidates[] = {
    {"grad_allreduce",
     "every step computes what one device computes with the batches of all ranks"},
    {"local_sgd", "ranks train separately, and average their parameters every k steps"},
    {"single_process_multi_thread", "several devices per trainer, gradients in one all-reduce"},
    {"multi_thread", "several devices per trainer, gradients in buckets or gathered"},
};

}  // namespace

absl::StatusOr<ModeChoice> ChooseMode(const ProgramPair& programs,
                                      const TranspileOptions& options) {
  if (!AnyHas(*programs.main, Trait::kOptimizer)) {
    return ModeChoice{"none", "no op updates parameters, so ranks have nothing to exchange"};
  }
  WEFT_ASSIGN_OR_RETURN(const Facts facts, DetectFacts(programs));
  for (const char* fact : {kGradientsReduced, kParametersAveraged}) {
    const auto found = facts.find(fact);
    if (found == facts.end()) continue;
    return ModeChoice{"none", absl::StrCat("ranks exchange values already: ", found->second)};
  }
  std::string skipped;
  for (const Candidate& candidate : kCandidates) {
    TranspileOptions with_mode = options;
    with_mode.mode = std::string(candidate.mode);
    const absl::Status status = CheckMode(with_mode);
    if (status.ok()) {
      return ModeChoice{with_mode.mode, absl::StrCat(candidate.what, skipped)};
    }
    absl::StrAppend(&skipped, "; ", status.message());
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--mode auto finds no mode for these flags", skipped, "; name one"));
}

}  // namespace weft
