// The verifier: proves that a rewritten program has no data race, cannot deadlock between ranks,
// and computes what the original computes, without running it.
//
//   VerifyOptions options;
//   options.nranks = 4;
//   options.original = {&before, &startup_before};
//   const Findings findings = Verify({{&main, &startup}}, options);
//   for (const Finding& finding : findings.all()) std::cerr << ToString(finding) << "\n";
//
// docs/verifier.md lists the rules. For tests of passes there are matchers:
// transpiler/verify/matchers.h.
#ifndef WEFT_TRANSPILER_VERIFY_VERIFY_H_
#define WEFT_TRANSPILER_VERIFY_VERIFY_H_

#include <set>
#include <string>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/program.h"
#include "transpiler/verify/equivalence.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/rules.h"

namespace weft {

// What one rank runs.
struct RankPrograms {
  const Program* main = nullptr;
  // Null: rings count as set up, and persistable variables as equal on all ranks.
  const Program* startup = nullptr;
};

struct VerifyOptions {
  // Unknown: taken from the programs where they say it (ring set-up, attribute nranks); else the
  // programs must be right for any number.
  absl::optional<int> nranks;
  // Parameters that are not replicated: each rank updates its own part.
  std::set<std::string> distributed_params;
  // Gradients are summed over the ranks and divided by nobody, as the user wants it.
  bool gradients_are_summed = false;
  // The programs before the rewrite, for layer kEquivalence; null: that layer does not run.
  RankPrograms original;
  // When parameters are to be averaged, under LocalSGD; none: nobody says.
  absl::optional<AveragingSchedule> averaging;
  // Layer kEquivalence walks both programs from their beginnings, and does not try EquivalenceProof
  // before: for tests, which compare the two.
  bool compares_whole_programs = false;
  // kEquivalence runs where there is an original, too.
  std::set<Layer> layers = AllLayers();
  // Threads for layers that do not depend on each other.
  int threads = 2;
};

// Verifies one program for all ranks, or one per rank in the order of ranks. A layer runs where
// those before it that it relies on found no errors: everything needs kStructure.
// O(ops + arguments) for each program and layer.
Findings Verify(absl::Span<const RankPrograms> ranks, const VerifyOptions& options = {});

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_VERIFY_H_
