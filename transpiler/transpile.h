// The transpiler as a library: what `transpile` does between reading and writing.
//
//   ProgramPair programs{&main, &startup};
//   TranspileOptions options;
//   options.mode = "grad_allreduce";
//   options.participants.nranks = 4;
//   WEFT_ASSIGN_OR_RETURN(TranspileResult result, Transpile(options, programs));
//
// For pipelines of your own, with passes of your own, use Pipeline (transpiler/pipeline/pipeline.h)
// directly: docs/writing_a_pass.md.
#ifndef WEFT_TRANSPILER_TRANSPILE_H_
#define WEFT_TRANSPILER_TRANSPILE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transpiler/pipeline/participants.h"
#include "transpiler/pipeline/pass.h"
#include "transpiler/pipeline/pipeline.h"
#include "transpiler/pipeline/registry.h"

namespace weft {

struct TranspileOptions {
  // One of the two: a mode (transpiler/pipeline/modes.h) with its flags ("nrings": "2"), or passes
  // as text ("comm-init{nrings=2},broadcast-params{nrings=2}").
  std::string mode;
  std::map<std::string, std::string> mode_flags;
  std::string passes;

  Dialect dialect = Dialect::kWeft;
  ParticipantsSpec participants;
  // Parameters that are not replicated: no file says it.
  std::set<std::string> distributed_params;

  // Programs that are found wrong (transpiler/verify/verify.h) are an error: before the rewrite by
  // layer kStructure, after it by all layers. In the paddle dialect, which is written with known
  // defects, what is found after the rewrite is a warning.
  // Communication is verified where the programs are to communicate: a pass says so in its
  // contract, or they did before. That they compute what they did before, where they did not
  // communicate yet, and no pass provides kComputationChanged.
  bool verify = true;
  // Structure, types and races after each pass, too.
  bool verify_each_pass = false;
  // Whether to collect TranspileResult::notes.
  bool explain = false;
  // Sees the programs before, between and after the passes.
  PipelineHook observer;
};

struct TranspileResult {
  std::vector<PassReport> passes;
  std::vector<Note> notes;
  // What is known to be wrong with what the paddle dialect wrote, as Paddle does.
  std::vector<std::string> warnings;
};

// Rewrites the programs in place. On an error they may not be used further. Passes by name come
// from `registry`, so your own can be among them.
absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs,
                                          const PassRegistry& registry);
// What can be found wrong with the options before any program is read: an unknown mode, pass or
// option, participants that contradict themselves.
absl::Status CheckOptions(const TranspileOptions& options, const PassRegistry& registry);

// The same for what concerns the mode alone: unknown, or flags, participants or parameters given
// that it does not read.
absl::Status CheckMode(const TranspileOptions& options);

// With the built-in passes.
absl::StatusOr<TranspileResult> Transpile(const TranspileOptions& options, ProgramPair& programs);

}  // namespace weft

#endif  // WEFT_TRANSPILER_TRANSPILE_H_
