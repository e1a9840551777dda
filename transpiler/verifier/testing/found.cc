#include "transpiler/verifier/testing/found.h"

#include <cstdlib>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/text/program_text.h"
#include "transpiler/verifier/rules/rule_text.h"

namespace weft::testing {

Program ProgramOf(absl::string_view text, const Edits& edits) {
  std::string edited(text);
  for (const auto& [from, to] : edits) {
    EXPECT_GT(absl::StrReplaceAll({{from, to}}, &edited), 0) << from;
  }
  if (!absl::StartsWith(edited, "program")) return CompactProgram(edited);
  absl::StatusOr<Program> program = ParseProgramText(edited);
  if (!program.ok()) {
    ADD_FAILURE() << program.status() << "\n" << edited;
    std::abort();
  }
  return *std::move(program);
}

Program ExampleOf(absl::string_view rule, const Edits& edits) {
  return ProgramOf(RuleTextOf(rule)->main, edits);
}

std::vector<std::string> Lines(const Findings& findings, bool one_program_for_all) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings.all()) {
    if (finding.severity != Severity::kNote) {
      lines.push_back(ToString(finding, one_program_for_all));
    }
  }
  return lines;
}

std::vector<std::string> AllLines(const Findings& findings) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings.all()) lines.push_back(ToString(finding));
  return lines;
}

std::vector<std::string> RulesAndMessages(const Findings& findings) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings.all()) {
    lines.push_back(absl::StrCat(finding.rule, " ", finding.message));
  }
  return lines;
}

VerifyOptions ForRanks(int nranks) {
  VerifyOptions options;
  options.setting.nranks = nranks;
  return options;
}

std::vector<std::string> Errors(absl::Span<const ConstProgramPair> ranks, const Program* original) {
  VerifyOptions options = ForRanks(2);
  options.original.main = original;
  std::vector<std::string> errors;
  const Findings findings = Verify(ranks, options);
  for (const Finding& finding : findings.all()) {
    if (finding.severity == Severity::kError) {
      errors.push_back(ToString(finding, ranks.size() == 1));
    }
  }
  return errors;
}

std::vector<std::string> Found(absl::string_view main, const VerifyOptions& options) {
  const Program program = ProgramOf(main);
  return Lines(Verify({{&program, nullptr}}, options));
}

std::vector<std::string> Found(absl::string_view main) { return Found(main, ForRanks(2)); }

std::vector<std::string> Differences(absl::string_view original, absl::string_view main,
                                     VerifyOptions options) {
  const Program before = ProgramOf(original), after = ProgramOf(main);
  options.original.main = &before;
  return Lines(Verify({{&after, nullptr}}, options));
}

std::vector<std::string> Differences(absl::string_view original, absl::string_view main) {
  return Differences(original, main, ForRanks(2));
}

}  // namespace weft::testing
