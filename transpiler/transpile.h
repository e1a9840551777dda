// The transpiler as a library: the rewrite of command `transpile`, without its files.
//
//   ProgramPair programs{&main, &startup};
//   TranspileOptions options;
//   options.mode = "grad_allreduce";
//   options.cluster.nranks = 4;
//   WEFT_ASSIGN_OR_RETURN(TranspileResult result, Transpile(options, programs));
//
// For passes outside a registry, use Pipeline (transpiler/pipeline/pipeline.h):
// docs/writing_a_pass.md.
#ifndef WEFT_TRANSPILER_TRANSPILE_H_
#define WEFT_TRANSPILER_TRANSPILE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/setting.h"
#include "transpiler/pipeline/claims.h"
#include "transpiler/pipeline/message.h"
#include "transpiler/pipeline/pass.h"
#include "transpiler/pipeline/pipeline.h"
#include "transpiler/pipeline/registry.h"
#include "transpiler/transpile_plan.h"

namespace weft {

struct TranspileResult {
  // The program of the parameter servers; none: the workers hold all parameters.
  absl::optional<Program> server;
  std::vector<PassReport> passes;
  Claims claims;
  // What the main program is for. In the weft dialect its file carries it; what the paddle dialect
  // writes has Paddle's bytes only, and a copy what it had.
  Setting setting;
  // Whether the rewrite or the file that was read says so; else it is what programs are by default.
  bool says_setting = false;
  std::vector<Remark> remarks;
  // What passes and the verifier say of the rewrite; nothing in it is refused.
  std::vector<Message> messages;
};

// Rewrites the programs in place with passes of `registry`. After an error, the programs must not
// be used.
absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs,
                                          const PassRegistry& registry);

// With the built-in passes.
absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs);

// With the passes of `plan`, which PlanOf has made of the options.
absl::StatusOr<TranspileResult> Transpile(const TranspilePlan& plan,
                                          const TranspileOptions& options, ProgramPair& programs);

// Rewrites the programs of all trainers in place, in the order of cluster.endpoints, and verifies
// them together: also that no rank waits for another forever, and that values which are equal by
// the program of each rank are equal. Remarks and messages are those of each trainer; what
// the verifier says of all is the last one's. cluster.rank and current_endpoint must be unset,
// `ranks` as many as endpoints. InvalidArgument for passes that make parameter servers: all workers
// run one program. After an error, the programs must not be used.
absl::StatusOr<std::vector<TranspileResult>> TranspileAllRanks(const TranspilePlan& plan,
                                                               const TranspileOptions& options,
                                                               absl::Span<ProgramPair> ranks);

}  // namespace weft

#endif  // WEFT_TRANSPILER_TRANSPILE_H_
