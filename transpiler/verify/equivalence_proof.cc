#include "transpiler/verify/equivalence_proof.h"

namespace weft {

EquivalenceProof::EquivalenceProof(const ConstProgramPair& original,
                                   const ConstProgramPair& rewritten,
                                   const RankValuesOptions& options,
                                   const absl::optional<AveragingSchedule>& averaging)
    : options_(options),
      prefix_(*original.main, *rewritten.main),
      checker_(original, rewritten, options_, averaging, ProgramRef(), &findings_) {}

void EquivalenceProof::AttachTo(RankValuesOptions* options) {
  options->table = checker_.table();
  options->first_expression = prefix_.program_ops();
  options->original_ops = &prefix_.kept();
}

bool EquivalenceProof::Prove(const RankValues& after) {
  if (!prefix_.IsValid()) return false;
  checker_.Check(after, prefix_.original_ops());
  return findings_.all().empty();
}

}  // namespace weft
