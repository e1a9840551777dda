// The verifier: proves that a rewritten program has no data race, cannot deadlock between ranks,
// and computes what the original computes, without running it.
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

#include <set>
#include <string>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/program_pair.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/local_schedule.h"
#include "transpiler/verify/rule.h"

namespace weft {

struct VerifyOptions {
  // Unknown: taken from the programs where they say it (ring set-up, attribute nranks); else the
  // programs must be right for any number.
  absl::optional<int> nranks;
  // Parameters that are not replicated: each rank updates its own part.
  std::set<std::string> distributed_params;
  // Gradients are summed over the ranks and divided by nobody, as the user wants it.
  bool gradients_are_summed = false;
  // The programs before the rewrite, for layer kEquivalence; null: that layer does not run.
  ConstProgramPair original;
  // When parameters are to be averaged, under LocalSGD; none: nobody says.
  absl::optional<AveragingSchedule> averaging;
  // kEquivalence runs where there is an original, too.
  std::set<Layer> layers = AllLayers();
  // 1, or more: then layers that do not depend on each other run at the same time, on two threads.
  int threads = 2;
};

// Verifies one program for all ranks, or one per rank in the order of ranks. A layer runs where
// those before it that it relies on found no errors: everything needs kStructure.
// O(ops + arguments) for each program and layer.
Findings Verify(absl::Span<const ConstProgramPair> ranks, const VerifyOptions& options = {});

// The same findings, without trying EquivalenceProof first: layer kEquivalence compares whole
// programs. Tests compare the two ways.
Findings VerifyWholePrograms(absl::Span<const ConstProgramPair> ranks,
                             const VerifyOptions& options = {});

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_VERIFY_H_
