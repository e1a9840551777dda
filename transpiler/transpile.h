// The transpiler as a library: what `transpile` does between reading and writing.
//
//   ProgramPair programs{&main, &startup};
//   TranspileOptions options;
//   options.mode = "grad_allreduce";
//   options.cluster.nranks = 4;
//   WEFT_ASSIGN_OR_RETURN(TranspileResult result, Transpile(options, programs));
//
// For a pipeline of passes that no registry has, use Pipeline (transpiler/pipeline/pipeline.h)
// directly: docs/writing_a_pass.md.
#ifndef WEFT_TRANSPILER_TRANSPILE_H_
#define WEFT_TRANSPILER_TRANSPILE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transpiler/pipeline/claims.h"
#include "transpiler/pipeline/cluster.h"
#include "transpiler/pipeline/pass.h"
#include "transpiler/pipeline/pipeline.h"
#include "transpiler/pipeline/registry.h"

namespace weft {

struct TranspileOptions {
  // One of the two: a mode (transpiler/modes.h) with its flags ("nrings": "2"), or passes as text
  // ("comm-init{nrings=2},broadcast-params{nrings=2}").
  std::string mode;
  std::map<std::string, std::string> mode_flags;
  std::string passes;

  Dialect dialect = Dialect::kWeft;
  ClusterSpec cluster;
  // Parameters that are not replicated: no file says it.
  std::set<std::string> distributed_params;

  // Refuses programs that are wrong: an input whose structure is wrong, and a result that is not
  // what the passes claim (transpiler/claim_verifier.h). In the paddle dialect, which reproduces
  // Paddle's known defects, findings in the result are warnings.
  Verification verification = Verification::kAtEnd;
  // Whether to collect TranspileResult::remarks.
  bool explain = false;
  // Sees the programs before, between and after the passes.
  PipelineObserver observer;
};

struct TranspileResult {
  std::vector<PassReport> passes;
  // What the passes claim of the result.
  Claims claims;
  std::vector<Remark> remarks;
  // What is known to be wrong with what the paddle dialect wrote, as Paddle does.
  std::vector<std::string> warnings;
};

// Rewrites the programs in place. On an error they may not be used further. Passes by name come
// from `registry`, so your own can be among them.
absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs,
                                          const PassRegistry& registry);

// With the built-in passes.
absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs);

// Finds what is wrong with the options before any program is read: an unknown mode, pass or option,
// contradictory participants, passes whose claims contradict each other.
absl::Status CheckOptions(const TranspileOptions& options, const PassRegistry& registry);

// The same for the mode alone: an unknown one, or flags, participants or parameters that it does
// not read.
absl::Status CheckMode(const TranspileOptions& options);

}  // namespace weft

#endif  // WEFT_TRANSPILER_TRANSPILE_H_
