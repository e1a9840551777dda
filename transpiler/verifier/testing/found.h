// Findings of the verifier as lines, for comparisons in tests.
#ifndef WEFT_TRANSPILER_VERIFIER_TESTING_FOUND_H_
#define WEFT_TRANSPILER_VERIFIER_TESTING_FOUND_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "transpiler/verifier/findings/finding.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {

using Edits = std::vector<std::pair<absl::string_view, absl::string_view>>;

// Parses program text, or a compact program (ops/analysis/testing/compact_program.h), after
// replacements, each of which must occur. Ends the test for malformed text.
Program ProgramOf(absl::string_view text, const Edits& edits = {});

// The main program of the example of a rule, after such replacements.
Program ExampleOf(absl::string_view rule, const Edits& edits = {});

// "error: W312: op 4 (sgd) ...", without notes.
std::vector<std::string> Lines(const Findings& findings, bool one_program_for_all = true);

// With notes.
std::vector<std::string> AllLines(const Findings& findings);

// "W312 op 4 (sgd) ...", with notes.
std::vector<std::string> RulesAndMessages(const Findings& findings);

// The errors that Verify finds for 2 ranks.
std::vector<std::string> Errors(absl::Span<const ConstProgramPair> ranks,
                                const Program* original = nullptr);
// The findings in one program for all ranks, without notes. Default: for 2 ranks.
std::vector<std::string> Found(absl::string_view main, const VerifyOptions& options);
std::vector<std::string> Found(absl::string_view main);
// The findings in a rewrite of `original`.
std::vector<std::string> Differences(absl::string_view original, absl::string_view main,
                                     VerifyOptions options);
std::vector<std::string> Differences(absl::string_view original, absl::string_view main);

VerifyOptions ForRanks(int nranks);

}  // namespace weft::testing

#endif  // WEFT_TRANSPILER_VERIFIER_TESTING_FOUND_H_
