#include "transpiler/mode_choice.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/training/gradients.h"
#include "transpiler/modes.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/support/properties.h"

namespace weft {
namespace {

// For every program, or what most users want if they want its flags.
struct Candidate {
  absl::string_view mode, what;
};
constexpr Candidate kCandidates[] = {
    {"grad_allreduce", "gradients are averaged over the ranks, or summed where losses are sums"},
    {"local_sgd", "ranks train separately, and average their parameters every k steps"},
    {"single_process_multi_thread", "several devices per trainer, gradients in one all-reduce"},
    {"multi_thread", "several devices per trainer, gradients in buckets or gathered"},
};

absl::Status CheckOther(absl::string_view mode, const TranspileOptions& options) {
  TranspileOptions with_mode = options;
  with_mode.mode = std::string(mode);
  return CheckMode(with_mode);
}

}  // namespace

absl::StatusOr<ModeChoice> ChooseMode(const ProgramPair& programs,
                                      const TranspileOptions& options) {
  // Optimizers without a schema are known by the gradients that op_role_var names.
  const auto pairs = FindGradientPairs(*programs.main);
  const bool has_pairs = pairs.ok() && !pairs->empty();
  if (!has_pairs && !AnyHas(*programs.main, Trait::kOptimizer)) {
    return absl::FailedPreconditionError(
        absl::StrCat(WhyNoGradients(*programs.main), "; option:mode none copies the program"));
  }
  bool are_assumed = false;
  WEFT_ASSIGN_OR_RETURN(const Properties properties, DetectProperties(programs, &are_assumed));
  if (!properties.empty()) {
    const std::string& evidence = properties.begin()->second;
    // If the unregistered op exchanges nothing, a copy would train a model on each rank, whatever
    // other ops exchange.
    if (are_assumed) {
      return absl::FailedPreconditionError(absl::StrCat("option:mode auto: ", evidence));
    }
    const std::string why = absl::StrCat("ranks exchange values already: ", evidence);
    const absl::Status none = CheckOther("none", options);
    if (none.ok()) return ModeChoice{"none", why};
    return absl::InvalidArgumentError(
        absl::StrCat("option:mode auto: ", why, "; ", none.message()));
  }
  std::string skipped;
  for (const Candidate& candidate : kCandidates) {
    const absl::Status status = CheckOther(candidate.mode, options);
    if (status.ok()) {
      return ModeChoice{std::string(candidate.mode), absl::StrCat(candidate.what, skipped)};
    }
    absl::StrAppend(&skipped, "; ", status.message());
  }
  std::vector<std::string> fitting;
  for (const Mode& mode : Modes()) {
    if (CheckOther(mode.name, options).ok()) fitting.push_back(mode.name);
  }
  if (fitting.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("option:mode auto finds no mode for these flags", skipped, "; name one"));
  }
  if (fitting.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "option:mode auto: several modes read these flags: ", absl::StrJoin(fitting, ", "),
        "; name one"));
  }
  return ModeChoice{fitting[0], absl::StrCat("no other mode reads these flags: ",
                                             (*FindMode(fitting[0]))->description)};
}

}  // namespace weft
