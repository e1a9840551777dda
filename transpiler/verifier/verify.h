// The verifier: proves, without running a rewritten program, that it has no data race, cannot
// deadlock between ranks and computes what the original computes.
//
//   VerifyOptions options;
//   options.setting.nranks = 4;
//   options.original = {&before, &startup_before};
//   const Findings findings = Verify({{&main, &startup}}, options);
//   for (const Finding& finding : findings.all()) std::cerr << ToString(finding) << "\n";
//
// docs/reference/verifier_rules.md lists the rules. Tests of passes use matchers:
// transpiler/verifier/testing/matchers.h.
#ifndef WEFT_TRANSPILER_VERIFIER_VERIFY_H_
#define WEFT_TRANSPILER_VERIFIER_VERIFY_H_

#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/program_pair.h"
#include "proto/setting.h"
#include "transpiler/verifier/findings/finding.h"
#include "transpiler/verifier/findings/rule.h"

namespace weft {

struct VerifyOptions {
  // What the programs are for. Whoever has files takes SettingOf(program).
  Setting setting;
  // Variables that the user reads after each step, besides those that fetch ops name.
  std::vector<std::string> fetched;
  // The program of the parameter servers of a program for workers; null: there are none.
  const Program* server = nullptr;
  // The programs before the rewrite; null disables layer kEquivalence, and so does a wrong
  // structure (W611).
  ConstProgramPair original;
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
// servers compute together (transpiler/verifier/servers/server_programs.h). Programs with errors
// of kStructure get no findings of other layers: none of these begins before kStructure is done
// with the programs of the rank. O(ops + arguments) for each program and layer.
Findings Verify(absl::Span<const ConstProgramPair> ranks, const VerifyOptions& options = {});

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_VERIFY_H_
