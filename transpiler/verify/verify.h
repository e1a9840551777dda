// The verifier: proves, without running a rewritten program, that it has no data race, cannot
// deadlock between ranks and computes what the original computes.
//
//   VerifyOptions options;
//   options.nranks = 4;
//   options.original = {&before, &startup_before};
//   const Findings findings = Verify({{&main, &startup}}, options);
//   for (const Finding& finding : findings.all()) std::cerr << ToString(finding) << "\n";
//
// docs/verifier.md lists the rules. Tests of passes use matchers:
// transpiler/verify/testing/matchers.h.
#ifndef WEFT_TRANSPILER_VERIFY_VERIFY_H_
#define WEFT_TRANSPILER_VERIFY_VERIFY_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/feed_layout.h"
#include "proto/program_pair.h"
#include "transpiler/pipeline/claims.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/rule.h"

namespace weft {

struct VerifyOptions {
  // None: read from the programs (ring set-up, attribute nranks); if they do not have it, they must
  // be right for any number.
  absl::optional<int> nranks;
  // Parameters that are not replicated: each rank updates a part.
  std::set<std::string> distributed_params;
  // Parameters that some of the ranks share: these ranks, ascending, by name. Their gradients are
  // expected to be reduced over these ranks, on a ring that connects no others.
  std::map<std::string, std::vector<int>> groups;
  // How gradients are expected to be reduced: summed over the ranks and not divided, or averaged.
  // None: those of losses that are sums over the batch summed, others averaged.
  absl::optional<bool> gradients_are_summed;
  // Gradients may be rounded from fp32 to half precision and back: layer kEquivalence takes a
  // gradient for what that leaves of it.
  bool gradients_are_rounded = false;
  // How the batch is given to the ranks (FeedLayoutsOf). Empty: as the program suggests.
  FeedLayouts feeds;
  // Variables that the user reads after each step, besides those that fetch ops name.
  std::vector<std::string> fetched;
  // The executor orders ops by data alone, and the collectives of each block by their places, as
  // Paddle 3 does with PIR: whether all ranks call collectives in one order is checked (W518). For
  // programs as their file has them; a rewritten one gets the order that it lacks when it is
  // written (proto/pir/exporter.h).
  bool ordered_by_data = false;
  // The program of the parameter servers of a program for workers; null: there are none.
  const Program* server = nullptr;
  // The programs before the rewrite; null disables layer kEquivalence, and so does a wrong
  // structure (W611).
  ConstProgramPair original;
  // The expected averaging schedule of LocalSGD; none: any.
  absl::optional<AveragingSchedule> averaging;
  // Layer kEquivalence reports where two expressions differ (W601, W602); more than 0: also both as
  // a whole, down to so many levels.
  int expression_depth = 0;
  // Without kStructure, the caller knows that programs have no errors of it.
  std::set<Layer> layers = AllLayers();
  // More than 1: independent layers run concurrently, on at most three threads.
  int threads = 2;
};

// Verifies one program for all ranks, or one per rank in rank order. With parameter servers, one
// program for all workers: the layers that compare ranks or the original see what workers and
// servers compute together (transpiler/verify/server_programs.h). Programs with errors of
// kStructure get no findings of other layers: none of these begins before kStructure is done with
// the programs of the rank. O(ops + arguments) for each program and layer.
Findings Verify(absl::Span<const ConstProgramPair> ranks, const VerifyOptions& options = {});

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_VERIFY_H_
