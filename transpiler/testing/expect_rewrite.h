// Tests of passes as program text, before and after:
//
//   TEST(DropAttr, AttributeIsRemovedAndOthersStay) {
//     RewriteOptions options;
//     options.registry.Add<DropAttr>();
//     ExpectRewrite("drop-attr{attr=stage}", "Out=[y] = relu(X=[x]) {stage=3, other=4}",
//                   "Out=[y] = relu(X=[x]) {other=4}", options);
//   }
//
// Texts are program text, or the lines of blocks alone (transpiler/testing/compact_program.h).
#ifndef WEFT_TRANSPILER_TESTING_EXPECT_REWRITE_H_
#define WEFT_TRANSPILER_TESTING_EXPECT_REWRITE_H_

#include <set>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/pipeline/cluster.h"
#include "transpiler/pipeline/pass.h"
#include "transpiler/pipeline/registry.h"
#include "transpiler/transpile.h"

namespace weft::testing {

// A main program and, where there is one, its startup program.
struct ProgramTexts {
  ProgramTexts(const char* main) : main(main) {}             // NOLINT: a main program is enough
  ProgramTexts(std::string main) : main(std::move(main)) {}  // NOLINT
  ProgramTexts(std::string main, std::string startup)
      : main(std::move(main)), startup(std::move(startup)) {}

  std::string main;
  absl::optional<std::string> startup;
};

struct RewriteOptions {
  Dialect dialect = Dialect::kWeft;
  ClusterSpec cluster;  // the default: nobody knows how many
  std::set<std::string> distributed_params;
  PassRegistry registry = BuiltinPasses();  // add your own passes
  // Whether to run the passes again. A pass whose effect no fact of the programs shows cannot be
  // refused the second time.
  enum class SecondRun { kIsChecked, kIsNotChecked };
  SecondRun second_run = SecondRun::kIsChecked;
};

// Options for a known number of ranks.
RewriteOptions OnRanks(int nranks);
// The same with endpoints 127.0.0.1:6170, 127.0.0.1:6171, ...; rank 0.
RewriteOptions OnEndpoints(int nranks, Dialect dialect = Dialect::kWeft);

// Expects that the passes, given as text, make `after` of `before`, that the verifier finds nothing
// wrong with the result (in the paddle dialect, findings are warnings of the result), and that the
// passes change nothing, or are refused, where they run again.
//
// `after` lists all ops; attributes with their default value may be left out. It declares variables
// that are new or have changed; others are as in `before`. Leave `after.startup` out where the
// startup program does not change.
//
// A failure shows the lines that differ. Returns notes and warnings of the passes.
TranspileResult ExpectRewrite(absl::string_view passes, const ProgramTexts& before,
                              const ProgramTexts& after, const RewriteOptions& options = {},
                              const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Expects that the passes leave the programs as they are.
TranspileResult ExpectNoRewrite(absl::string_view passes, const ProgramTexts& programs,
                                const RewriteOptions& options = {},
                                const char* file = __builtin_FILE(), int line = __builtin_LINE());

// What the passes answer: for programs that they refuse.
absl::Status RewriteStatus(absl::string_view passes, const ProgramTexts& programs,
                           const RewriteOptions& options = {});

// The lines of two texts that differ, as `diff -u` shows them; empty where they are equal.
std::string LineDiff(absl::string_view expected, absl::string_view found);

}  // namespace weft::testing

#endif  // WEFT_TRANSPILER_TESTING_EXPECT_REWRITE_H_
