// The files of transpiler/verifier/rules, which are compiled in: what a rule means, and programs
// that break it.
//
// A file is program text (proto/text/program_text.h) with a head of comments:
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
// The first program is a main program for 2 ranks. Headings name the others: its `startup` program;
// `rank 1` and `rank 1 startup`, if ranks differ; `server`, of parameter servers; `original` and
// `original startup`, with which layer 6 compares. Heading `ordered by data` has no program: the
// example is for an executor that orders ops so (Setting::ordered_by_data).
#ifndef WEFT_TRANSPILER_VERIFIER_RULES_RULE_TEXT_H_
#define WEFT_TRANSPILER_VERIFIER_RULES_RULE_TEXT_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "transpiler/verifier/findings/finding.h"
#include "transpiler/verifier/findings/rule.h"

namespace weft {

struct RuleText {
  std::string heading;  // "W507 error: TITLE"
  std::string why, fix;
  bool is_ordered_by_data = false;
  // Program texts; may be empty, in which case rank 1 runs those of rank 0.
  std::string main, startup, rank1, rank1_startup, server, original, original_startup;

  // Whether the example has different programs for two ranks.
  bool ranks_differ() const { return !rank1.empty() || !rank1_startup.empty(); }
};

// InvalidArgument for a text of another form.
absl::StatusOr<RuleText> ParseRuleText(absl::string_view text);

// The text of a rule. NotFound if there is no such rule; names a similar one.
absl::StatusOr<RuleText> RuleTextOf(absl::string_view id);

// The programs of the example, each after its title: ("Rank 0", "program {..."). The title of a
// main program for all ranks is empty.
std::vector<std::pair<std::string, std::string>> ProgramsOf(const RuleText& rule);

// The findings in the example for 2 ranks; ToString(finding, !rule.ranks_differ()) prints them.
// InvalidArgument for malformed program text.
absl::StatusOr<Findings> VerifyExample(const RuleText& rule);

// What the verifier says about the example of a rule: "error: W101: ...". Internal if the example
// does not break the rule.
absl::StatusOr<std::string> MessageOfExample(const Rule& rule, const RuleText& text);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_RULES_RULE_TEXT_H_
