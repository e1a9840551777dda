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

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/feed_layout.h"
#include "proto/setting.h"
#include "transpiler/buckets/step_times.h"
#include "transpiler/pipeline/claims.h"
#include "transpiler/pipeline/cluster.h"
#include "transpiler/pipeline/message.h"
#include "transpiler/pipeline/param_attrs.h"
#include "transpiler/pipeline/pass.h"
#include "transpiler/pipeline/pipeline.h"
#include "transpiler/pipeline/registry.h"
#include "transpiler/pipeline/target.h"

namespace weft {

struct TranspileOptions {
  // Either a mode (transpiler/modes.h) with its flags ("nrings": "2"), or passes as text
  // ("comm-init{nrings=2},broadcast-params{nrings=2}").
  std::string mode;
  std::map<std::string, std::string> mode_flags;
  std::string passes;
  // After these: which ops run on the host and which on an accelerator, as text (PlaceSpec of pass
  // hetero-partition). Empty: one device has all.
  std::string place;
  // Puts on the host, besides, what does not fit into so many bytes of an accelerator (pass
  // hetero-partition). None: as `place` says.
  absl::optional<int64_t> device_memory;
  // For that, as text: `batch`, `copy_bandwidth` and `accelerator_speed` of the pass.
  std::map<std::string, std::string> device_flags;

  Dialect dialect = Dialect::kWeft;
  ClusterSpec cluster;
  // The major version of the Paddle that runs the result, 2 or 3; none: of that which wrote the
  // main program. The weft dialect writes for CUDA devices and CPUs.
  absl::optional<int> paddle_version;
  absl::optional<TargetDevice> device_kind;  // none: kCuda
  // Parameters that are not replicated. Transpile adds those that the file names.
  std::set<std::string> distributed_params;
  // What else they cannot say. Parameters that are not replicated count as distributed.
  ParamAttrsByName param_attrs;

  // How data variables are given to the ranks; those of others follow from their declarations
  // (FeedLayoutsOf).
  FeedLayouts feeds;

  // What the bucket policy `optimal` and, of collectives, device_memory go by. times.op_seconds:
  // empty, or a time for every op of the root block of the main program.
  StepTimes times;

  // Refuses an input with a wrong structure, and a result that differs from the claims of the
  // passes (transpiler/claim_verifier.h). In the paddle dialect, which reproduces Paddle's known
  // defects, findings in the result are warnings.
  Verification verification = Verification::kAtEnd;
  // Whether to collect TranspileResult::remarks.
  bool explain = false;
  // Called with the programs before, between and after the passes.
  PipelineObserver observer;
  // Called once with the result before it is verified (PipelineOptions::on_result): its file can be
  // written meanwhile, and take its name when Transpile succeeds. By TranspileAllRanks: called for
  // each rank, in order.
  std::function<void(const ProgramPair&)> on_result;
};

struct TranspileResult {
  // The program of the parameter servers; none: the workers hold all parameters.
  absl::optional<Program> server;
  std::vector<PassReport> passes;
  Claims claims;
  // What the main program is for. In the weft dialect its file carries it; what the paddle dialect
  // writes has Paddle's bytes only.
  Setting setting;
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

// Rewrites the programs of all trainers in place, in the order of cluster.endpoints, and verifies
// them together: also that no rank waits for another forever, and that values which are equal by
// the program of each rank are equal. Remarks and messages are those of each trainer; what
// the verifier says of all is the last one's. cluster.rank and current_endpoint must be unset,
// `ranks` as many as endpoints. InvalidArgument for passes that make parameter servers: all workers
// run one program. After an error, the programs must not be used.
absl::StatusOr<std::vector<TranspileResult>> TranspileAllRanks(const TranspileOptions& options,
                                                               absl::Span<ProgramPair> ranks,
                                                               const PassRegistry& registry);

// The passes that the options name. Errors are those of CheckOptions.
absl::StatusOr<Pipeline> PipelineOf(const TranspileOptions& options, const PassRegistry& registry);

// Checks the options without a program: an unknown mode, pass or option, a contradictory cluster,
// passes with contradictory claims.
absl::Status CheckOptions(const TranspileOptions& options, const PassRegistry& registry);

// InvalidArgument, naming the parameter, if one is marked for servers
// (ParamAttrs::parameter_server) and the mode or the passes would leave each rank to train it for
// itself.
absl::Status CheckServed(const TranspileOptions& options);

// Checks the mode alone: an unknown mode, or flags, cluster fields or distributed parameters that
// it does not read.
absl::Status CheckMode(const TranspileOptions& options);

}  // namespace weft

#endif  // WEFT_TRANSPILER_TRANSPILE_H_
