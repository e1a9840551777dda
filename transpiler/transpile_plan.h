// What options ask for: the passes, and what these know of the run.
#ifndef WEFT_TRANSPILER_TRANSPILE_PLAN_H_
#define WEFT_TRANSPILER_TRANSPILE_PLAN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "proto/feed_layout.h"
#include "proto/program_pair.h"
#include "proto/setting.h"
#include "transpiler/buckets/step_times.h"
#include "transpiler/modes.h"
#include "transpiler/pipeline/cluster.h"
#include "transpiler/pipeline/param_attrs.h"
#include "transpiler/pipeline/pass.h"
#include "transpiler/pipeline/pipeline.h"
#include "transpiler/pipeline/registry.h"
#include "transpiler/pipeline/target.h"

namespace weft {

// Which ops run on the host and which on an accelerator: options of pass hetero-partition, typed.
struct Placement {
  // Rules as text (PlaceSpec). Empty: one device has all.
  std::string place;
  // Puts on the host, besides, what does not fit into so many bytes of an accelerator. None: as
  // `place` says.
  absl::optional<int64_t> device_memory;
  // For that. None: the defaults of the pass.
  absl::optional<int64_t> batch, copy_bandwidth, accelerator_speed;

  bool is_given() const { return !place.empty() || device_memory.has_value(); }
};

struct TranspileOptions {
  // Either a mode (transpiler/modes.h) with its flags ("nrings": "2"), or passes as text
  // ("comm-init{nrings=2},broadcast-params{nrings=2}").
  std::string mode;
  std::map<std::string, std::string> mode_flags;
  std::string passes;
  // After these: which ops run on the host and which on an accelerator (pass hetero-partition). In
  // every mode, flags `order` and `staging` say how.
  Placement placement;

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

  // How data variables are given to the ranks; those of others follow from `setting`, or else from
  // their declarations (FeedLayoutsOf).
  FeedLayouts feeds;
  // What the main program is for, if a file beside it says so; none: what the program says.
  absl::optional<Setting> setting;

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

// A mode or passes by name, resolved once, for the programs of any rank.
struct TranspilePlan {
  const Mode* mode = nullptr;  // null: passes by name
  Pipeline pipeline;

  bool is_copy() const { return pipeline.passes().empty(); }
  // Whether the run matters to the passes. Placement alone keeps the ranks of the program.
  bool reads_run() const { return mode == nullptr || !mode->pipelines.empty(); }
};

// Resolves and checks the options before a program is read. InvalidArgument: an unknown mode, pass
// or option; flags, fields of the cluster or distributed parameters that the mode does not read;
// attributes of parameters that no pass reads, or parameters that servers hold where each rank
// would train them for itself; two placements; a contradictory cluster; passes with contradictory
// claims.
absl::StatusOr<TranspilePlan> PlanOf(const TranspileOptions& options, const PassRegistry& registry);

// The errors of PlanOf about the mode alone.
absl::Status CheckMode(const TranspileOptions& options);

// InvalidArgument, naming the parameter, if one is marked for servers
// (ParamAttrs::parameter_server) and the plan would leave each rank to train it for itself.
absl::Status CheckServed(const TranspilePlan& plan, const TranspileOptions& options);

// What the passes know of the run, before the program is. `file`: the setting of the main program.
// Errors are those of PlanOf.
absl::StatusOr<PassContext> ContextOf(const TranspilePlan& plan, const TranspileOptions& options,
                                      const Setting& file);

}  // namespace weft

#endif  // WEFT_TRANSPILER_TRANSPILE_PLAN_H_
