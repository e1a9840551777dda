#include "transpiler/verifier/rules/rule_text.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/similar_name.h"
#include "base/status_macros.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "proto/setting.h"
#include "proto/text/program_text.h"
#include "transpiler/verifier/verify.h"

namespace weft {
namespace {

// By id, sorted.
constexpr std::pair<absl::string_view, absl::string_view> kTexts[] = {
#include "transpiler/verifier/rules/rule_texts.inc"
};

// Removes the head of comments from `lines` and returns its paragraphs, each as one line.
std::vector<std::string> TakeParagraphs(std::vector<absl::string_view>* lines) {
  std::vector<std::string> paragraphs(1);
  size_t taken = 0;
  for (; taken < lines->size() && absl::StartsWith((*lines)[taken], "#"); ++taken) {
    const absl::string_view line = absl::StripAsciiWhitespace((*lines)[taken].substr(1));
    if (line.empty()) {
      paragraphs.emplace_back();
    } else {
      absl::StrAppend(&paragraphs.back(), paragraphs.back().empty() ? "" : " ", line);
    }
  }
  lines->erase(lines->begin(), lines->begin() + taken);
  return paragraphs;
}

absl::StatusOr<absl::optional<Program>> ParseProgram(const std::string& text) {
  if (text.empty()) return absl::nullopt;
  WEFT_ASSIGN_OR_RETURN(Program program, ParseProgramText(text));
  return absl::make_optional(std::move(program));
}

// Null if there is none.
const Program* Pointer(const absl::optional<Program>& program) {
  return program.has_value() ? &*program : nullptr;
}

}  // namespace

absl::StatusOr<RuleText> ParseRuleText(absl::string_view text) {
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  std::vector<std::string> paragraphs = TakeParagraphs(&lines);
  if (paragraphs.size() != 3 || !absl::StartsWith(paragraphs[2], "Fix: ")) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a head of three paragraphs, the last of which begins with 'Fix: ', "
                     "found:\n",
                     absl::StrJoin(paragraphs, "\n\n")));
  }
  RuleText rule;
  rule.heading = paragraphs[0];
  rule.why = paragraphs[1];
  rule.fix = std::string(absl::StripPrefix(paragraphs[2], "Fix: "));
  const std::map<absl::string_view, std::string*> programs = {
      {"startup", &rule.startup},
      {"rank 1", &rule.rank1},
      {"server", &rule.server},
      {"original", &rule.original},
      {"rank 1 startup", &rule.rank1_startup},
      {"original startup", &rule.original_startup}};
  std::string* program = &rule.main;
  for (absl::string_view line : lines) {
    if (line == "## ordered by data") {
      rule.is_ordered_by_data = true;
    } else if (absl::ConsumePrefix(&line, "## ")) {
      const auto found = programs.find(line);
      if (found == programs.end()) {
        return absl::InvalidArgumentError(absl::StrCat("unexpected heading: ", line));
      }
      program = found->second;
    } else if (!program->empty() || !line.empty()) {
      absl::StrAppend(program, line, "\n");
    }
  }
  for (std::string* one : {&rule.main, &rule.startup, &rule.rank1, &rule.rank1_startup,
                           &rule.server, &rule.original, &rule.original_startup}) {
    absl::StripTrailingAsciiWhitespace(one);
  }
  if (rule.main.empty()) return absl::InvalidArgumentError("expected a program, found none");
  return rule;
}

absl::StatusOr<RuleText> RuleTextOf(absl::string_view id) {
  std::vector<absl::string_view> ids;
  for (const auto& [of_rule, text] : kTexts) {
    ids.push_back(of_rule);
    if (of_rule != id) continue;
    absl::StatusOr<RuleText> rule = ParseRuleText(text);
    WEFT_RETURN_IF_ERROR(Annotate(id, rule.status()));
    return rule;
  }
  return absl::NotFoundError(absl::StrCat("expected a rule from ", ids.front(), " to ", ids.back(),
                                          ", found ", id, DidYouMean(id, ids)));
}

std::vector<std::pair<std::string, std::string>> ProgramsOf(const RuleText& rule) {
  std::vector<std::pair<std::string, std::string>> programs;
  const auto add = [&programs](absl::string_view title, const std::string& program) {
    if (!program.empty()) programs.emplace_back(title, program);
  };
  add(rule.rank1.empty() ? "" : "Rank 0", rule.main);
  add(rule.ranks_differ() ? "The startup program of rank 0" : "The startup program", rule.startup);
  add("Rank 1", rule.rank1);
  add("The startup program of rank 1", rule.rank1_startup);
  add("The program of the servers", rule.server);
  add("The original", rule.original);
  add("Its startup program", rule.original_startup);
  return programs;
}

absl::StatusOr<Findings> VerifyExample(const RuleText& rule) {
  WEFT_ASSIGN_OR_RETURN(const auto main, ParseProgram(rule.main));
  WEFT_ASSIGN_OR_RETURN(const auto startup, ParseProgram(rule.startup));
  WEFT_ASSIGN_OR_RETURN(const auto rank1, ParseProgram(rule.rank1));
  WEFT_ASSIGN_OR_RETURN(const auto rank1_startup, ParseProgram(rule.rank1_startup));
  WEFT_ASSIGN_OR_RETURN(const auto server, ParseProgram(rule.server));
  WEFT_ASSIGN_OR_RETURN(const auto original, ParseProgram(rule.original));
  WEFT_ASSIGN_OR_RETURN(const auto original_startup, ParseProgram(rule.original_startup));

  VerifyOptions options;
  WEFT_ASSIGN_OR_RETURN(options.setting, SettingOf(*main));
  options.setting.nranks = 2;
  options.setting.ordered_by_data = rule.is_ordered_by_data;
  options.server = Pointer(server);
  options.original = {Pointer(original), Pointer(original_startup)};
  std::vector<ConstProgramPair> ranks = {{Pointer(main), Pointer(startup)}};
  if (rule.ranks_differ()) {
    ranks.push_back({Pointer(rank1.has_value() ? rank1 : main),
                     Pointer(rank1_startup.has_value() ? rank1_startup : startup)});
  }
  return Verify(ranks, options);
}

absl::StatusOr<std::string> MessageOfExample(const Rule& rule, const RuleText& text) {
  absl::StatusOr<Findings> findings = VerifyExample(text);
  WEFT_RETURN_IF_ERROR(Annotate(rule.id, findings.status()));
  for (const Finding& finding : findings->all()) {
    if (finding.rule == rule.id) return ToString(finding, !text.ranks_differ());
  }
  return absl::InternalError(absl::StrCat(rule.id, ": its example does not break it"));
}

}  // namespace weft
