#include "transpiler/verifier/testing/whole_programs.h"

#include "absl/algorithm/container.h"
#include "absl/types/optional.h"
#include "ops/analysis/values/batch_flow.h"
#include "transpiler/verifier/batch/batch.h"
#include "transpiler/verifier/equivalence/equivalence.h"
#include "transpiler/verifier/value_options.h"
#include "transpiler/verifier/values/startup_values.h"

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
    const absl::optional<int> nranks = NumRanks(options, ranks[rank], ranks.size());
    const BatchFlow flow = BatchFlow::Of(
        *ranks[rank].main, BatchOptionsOf(ranks[rank], options.setting.feeds, nranks));
    BatchFacts facts = BatchFactsOf(options, *ranks[rank].main, &flow);
    facts.lifts.clear();
    StartupValues start;
    RankValuesOptions values = ValueOptions(options, ranks[rank], nranks, facts, &start);
    if (ranks.size() > 1) values.rank = static_cast<int>(rank);
    CheckEquivalence(options.original, ranks[rank], values, options.setting.averaging,
                     {static_cast<int>(rank), false}, &findings);
  }
  return findings;
}

}  // namespace weft::testing
