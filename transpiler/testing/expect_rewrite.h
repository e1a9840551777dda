// Tests of passes as program text, before and after:
//
//   TEST(DropAttr, AttributeIsRemovedAndOthersStay) {
//     RewriteOptions options;
//     options.registry.Add<DropAttr>();
//     ExpectRewrite("drop-attr{attr=stage}", R"(
//         Out=[h] = relu(X=[x])
//       - Out=[y] = relu(X=[h]) {stage=3, other=4}
//       + Out=[y] = relu(X=[h]) {other=4}
//     )", options);
//   }
//
// Texts are program text, or the lines of blocks alone (ops/analysis/testing/compact_program.h).
#ifndef WEFT_TRANSPILER_TESTING_EXPECT_REWRITE_H_
#define WEFT_TRANSPILER_TESTING_EXPECT_REWRITE_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/pipeline/cluster.h"
#include "transpiler/pipeline/pass.h"
#include "transpiler/pipeline/registry.h"
#include "transpiler/transpile.h"

namespace weft::testing {

// A main program and, optionally, its startup program.
struct ProgramTexts {
  ProgramTexts(const char* main) : main(main) {}             // NOLINT: a main program is enough
  ProgramTexts(std::string main) : main(std::move(main)) {}  // NOLINT
  ProgramTexts(std::string main, std::string startup)
      : main(std::move(main)), startup(std::move(startup)) {}

  std::string main;
  absl::optional<std::string> startup;
};

// Use Verification::kNever for passes that refuse a program with a wrong structure, or leave one
// with a race alone.
struct RewriteOptions : TranspileOptions {
  PassRegistry registry = BuiltinPasses();  // add your own passes
  // Whether to run the passes again. A contract cannot refuse the second run of a pass if no
  // property of the programs shows its effect.
  enum class SecondRun { kIsChecked, kIsNotChecked };
  SecondRun second_run = SecondRun::kIsChecked;
  // Variables of the root blocks that the passes erase.
  std::set<std::string> erased_vars;
  // The rules that the result violates in the paddle dialect, which reproduces Paddle's known
  // defects: {"W401"}. No other dialect may violate a rule.
  std::set<std::string> violated_rules;
};

// Options for a known number of ranks.
RewriteOptions OnRanks(int nranks);
// Options for rank 0 of endpoints 127.0.0.1:6170, 127.0.0.1:6171, ...
RewriteOptions OnEndpoints(int nranks, Dialect dialect = Dialect::kWeft);
// Options for trainer 0 of such endpoints, of which each drives `devices`.
RewriteOptions OnDevices(int trainers, std::vector<int> devices, Dialect dialect = Dialect::kWeft);

// The same options, but the result violates `rules`.
RewriteOptions Violating(std::set<std::string> rules, RewriteOptions options);

// Expects that the passes, given as text, rewrite a program as margins say
// (transpiler/testing/text_edits.h), that the verifier finds nothing in the result except
// `options.violated_rules`, and that a second run changes nothing or is refused. Lines after a line
// "startup:" are of the startup program.
//
// The program after the rewrite may omit attributes with their default value. It declares only
// variables that are new or have changed; those of the program before are expected, too, but for
// those of lines "- var NAME".
//
// A failure shows the lines that differ, and the rewrite with margins. Returns remarks and messages
// of the passes.
TranspileResult ExpectRewrite(absl::string_view passes, absl::string_view edits,
                              const RewriteOptions& options = {},
                              const char* file = __builtin_FILE(), int line = __builtin_LINE());
// Of programs that several tests share: `after` has all ops, or margins and only lines that change
// or that tell where. Omit a program that does not change.
TranspileResult ExpectRewrite(absl::string_view passes, const ProgramTexts& before,
                              const ProgramTexts& after, const RewriteOptions& options = {},
                              const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Expects that the passes leave the programs as they are.
TranspileResult ExpectNoRewrite(absl::string_view passes, const ProgramTexts& programs,
                                const RewriteOptions& options = {},
                                const char* file = __builtin_FILE(), int line = __builtin_LINE());

// What passes make of programs, for tests of a few ops of a long result. A failure to run is one of
// the test.
struct Rewritten {
  Program main;
  absl::optional<Program> startup;
  TranspileResult result;
};
Rewritten Rewrite(absl::string_view passes, const ProgramTexts& programs,
                  const RewriteOptions& options = {}, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE());

// Remarks as "w@GRAD reduced: because ring=0 after=op 3 (mul_grad)"; empty parts are left out.
std::vector<std::string> RemarkTexts(const TranspileResult& result);

// The status of the passes, for programs that they refuse.
absl::Status RewriteStatus(absl::string_view passes, const ProgramTexts& programs,
                           const RewriteOptions& options = {});

}  // namespace weft::testing

#endif  // WEFT_TRANSPILER_TESTING_EXPECT_REWRITE_H_
