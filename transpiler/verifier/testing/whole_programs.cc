#include "transpiler/verifier/testing/whole_programs.h"

#include "absl/algorithm/container.h"
#include "absl/types/optional.h"
#include "ops/analysis/values/batch_flow.h"
#include "transpiler/verifier/batch/batch.h"
#include "transpiler/verifier/equivalence/equivalence.h"
#include "transpiler/verifier/value_options.h"

namespace weft::testing {

Findings VerifyWholePrograms(absl::Span<const ConstProgramPair> ranks,
                             const VerifyOptions& options) {
  VerifyOptions others = options;
  others.layers.erase(Layer::kEquivalence);
  Findings findings = Verify(ranks, others);
  const bool compares =
      options.original.main != nullptr && options.layers.count(Layer::kEquivalence) > 0;
  const bool is_sound = absl::c_none_of(findings.all(), [](const Finding& finding) {
    return finding.severity == Severity::kError && finding.layer == Layer::kStructure;
  });
  if (!compares || !is_sound) return findings;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    Setting setting = options.setting;
    setting.nranks = NumRanks(setting, ranks[rank], ranks.size());
    setting.rank = absl::nullopt;
    if (ranks.size() > 1) setting.rank = static_cast<int>(rank);
    const BatchFlow flow = BatchFlow::Of(*ranks[rank].main, BatchOptionsOf(ranks[rank], setting));
    StartupValues start;
    RankValuesOptions values = ValueOptions(setting, ranks[rank], &start);
    values.batch = &flow;
    CheckEquivalence({options.original, ranks[rank], values, {static_cast<int>(rank), false}},
                     &findings);
  }
  return findings;
}

}  // namespace weft::testing
