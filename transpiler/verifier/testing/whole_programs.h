// Verification the long way, for tests that compare it with the short one.
#ifndef WEFT_TRANSPILER_VERIFIER_TESTING_WHOLE_PROGRAMS_H_
#define WEFT_TRANSPILER_VERIFIER_TESTING_WHOLE_PROGRAMS_H_

#include "absl/types/span.h"
#include "proto/program_pair.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {

// Returns what Verify returns, but without EquivalenceProof: layer kEquivalence compares whole
// programs.
Findings VerifyWholePrograms(absl::Span<const ConstProgramPair> ranks,
                             const VerifyOptions& options = {});

}  // namespace weft::testing

#endif  // WEFT_TRANSPILER_VERIFIER_TESTING_WHOLE_PROGRAMS_H_
