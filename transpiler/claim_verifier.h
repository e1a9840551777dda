// Verifies rewritten programs against the claims of the passes.
#ifndef WEFT_TRANSPILER_CLAIM_VERIFIER_H_
#define WEFT_TRANSPILER_CLAIM_VERIFIER_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "proto/program_pair.h"
#include "proto/setting.h"
#include "transpiler/pipeline/claims.h"
#include "transpiler/pipeline/pass.h"
#include "transpiler/pipeline/pipeline.h"
#include "transpiler/verifier/verify.h"

namespace weft {

// What the result of the passes is for: the setting of `context`, its ranks and groups, and, if the
// passes communicate, what they claim of gradients and parameters.
Setting ClaimedSetting(const Claims& claims, const PassContext& context);

// The options that make the verifier check `claims` in that setting. If the computation is
// preserved, the result is compared with `original`, the programs before the rewrite; null disables
// the comparison.
VerifyOptions ExpectationsOf(const Claims& claims, const PassContext& context,
                             const ConstProgramPair& original);

// The programs of a job, which pipelines make rank by rank. They outlive it.
struct JobPrograms {
  size_t num_ranks = 0;
  std::vector<ConstProgramPair> made;              // in rank order
  std::map<std::string, std::vector<int>> groups;  // Setting::groups, of all of these ranks
};

// A verifier for a pipeline that starts from the programs `before`, in which `properties` hold, and
// whose passes claim `claims` (Pipeline::ClaimsOf).
//
// Between passes it checks layers kStructure, kTypes and kRaces. At the end it checks all layers if
// the passes claim to communicate or `before` communicates. It compares the result with `before` if
// that does not communicate, nor divides by the number of ranks as half of a rewrite, or, if the
// first passes change what is computed, with what they made of it (Stage::kComputationChanged). If
// later ones do, it compares the result with `changed`, what they make of `before` (MakeReference);
// without that, there is nothing to compare with. Passes that communicate without a claim are an
// error.
//
// Findings are FailedPrecondition errors. In the paddle dialect, which reproduces Paddle's known
// defects, they are messages. So is, at the end, in both dialects, what differs from one device,
// and what Paddle's executor may reorder.
//
// With a job, the end of the pipeline adds its result to the job. The last rank's end verifies all
// ranks together, one program that all of them run once; messages about one of several programs
// name its rank. Messages that several ranks share are the last rank's, once.
//
// Copies the programs that it compares with; copies share bytes. `context` and `job` must outlive
// the verifier.
PipelineVerifier ClaimVerifier(const Claims& claims, const PassContext& context,
                               const Properties& properties, const ProgramPair& before,
                               const ProgramPair& changed = {}, JobPrograms* job = nullptr);

}  // namespace weft

#endif  // WEFT_TRANSPILER_CLAIM_VERIFIER_H_
