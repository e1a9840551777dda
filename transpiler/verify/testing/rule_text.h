// What transpiler/verify/rules says of a rule: the text of the manual, and programs that break it.
//
// A file is program text (proto/program_text.h) with a head of comments:
//
//   # W507 error: two startup programs join a ring as the same rank
//   #
//   # What goes wrong.
//   #
//   # Fix: What to do.
//
//   program {
//     ...
//   }
//
//   ## startup
//   program {
//     ...
//   }
//
// The first program is a main program for 2 ranks. Headings say what the others are: its `startup`
// program; what rank 1 runs where ranks differ, `rank 1` and `rank 1 startup`; what layer 6
// compares with, `original` and `original startup`.
#ifndef WEFT_TRANSPILER_VERIFY_TESTING_RULE_TEXT_H_
#define WEFT_TRANSPILER_VERIFY_TESTING_RULE_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "transpiler/verify/finding.h"

namespace weft::testing {

struct RuleText {
  std::string heading;  // "W507 error: TITLE"
  std::string why, fix;
  // Program text; empty: there is none. That of rank 1: that of rank 0.
  std::string main, startup, rank1, rank1_startup, original, original_startup;

  // Whether the example is the programs of two ranks, rather than one for all.
  bool ranks_differ() const { return !rank1.empty() || !rank1_startup.empty(); }
};

// InvalidArgument for a text of another form.
absl::StatusOr<RuleText> ParseRuleText(absl::string_view text);

// That of transpiler/verify/rules/ID.prog, from the root of the repository or of runfiles. NotFound
// if there is no such file.
absl::StatusOr<RuleText> ReadRuleText(absl::string_view id);

// What the verifier finds in the example for 2 ranks. ToString(finding, !rule.ranks_differ())
// prints it. InvalidArgument if a text is no program.
absl::StatusOr<Findings> VerifyExample(const RuleText& rule);

}  // namespace weft::testing

#endif  // WEFT_TRANSPILER_VERIFY_TESTING_RULE_TEXT_H_
