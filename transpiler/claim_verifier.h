// Verifies that rewritten programs are what the passes claim.
#ifndef WEFT_TRANSPILER_CLAIM_VERIFIER_H_
#define WEFT_TRANSPILER_CLAIM_VERIFIER_H_

#include "transpiler/pipeline/claims.h"
#include "transpiler/pipeline/pass.h"
#include "transpiler/pipeline/pipeline.h"
#include "transpiler/verify/verify.h"

namespace weft {

// What the verifier has to expect of programs that are what `claims` say, for the ranks and
// distributed parameters of `context`. `original`: the programs before the rewrite, which they are
// compared with where the computation is preserved; null where there is nothing to compare.
VerifyOptions ExpectationsOf(const Claims& claims, const PassContext& context,
                             const ConstProgramPair& original);

// A verifier for a pipeline whose passes claim `claims` (Pipeline::ClaimsOf) and that starts from
// the programs `before`, where `facts` hold.
//
// Between passes it checks layers kStructure, kTypes and kRaces; at the end all layers where the
// passes claim to communicate or the programs did so before. The result is compared with `before`
// where these did not communicate yet. Passes that communicate without a claim are an error, too.
//
// What it finds is a FailedPrecondition. In the paddle dialect, which reproduces Paddle's known
// defects, findings go to PassContext::warnings.
//
// Keeps a copy of `before` where it compares (copies share bytes), and `context`, which must
// outlive the verifier.
PipelineVerifier ClaimVerifier(const Claims& claims, const PassContext& context, const Facts& facts,
                               const ProgramPair& before);

}  // namespace weft

#endif  // WEFT_TRANSPILER_CLAIM_VERIFIER_H_
