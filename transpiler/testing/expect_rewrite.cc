#include "transpiler/testing/expect_rewrite.h"

#include <algorithm>
#include <cstddef>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "proto/program.h"
#include "transpiler/testing/compact_program.h"
#include "transpiler/testing/message_lines.h"
#include "transpiler/verifier/communication/collectives.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

struct Programs {
  Program main;
  absl::optional<Program> startup;

  ProgramPair pair() { return {&main, startup.has_value() ? &*startup : nullptr}; }
};

absl::StatusOr<Program> ParseProgram(absl::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const pb::ProgramDesc desc, ParseCompactProgram(text));
  return Program::FromProto(desc);
}

absl::StatusOr<Programs> Parse(const ProgramTexts& texts) {
  WEFT_ASSIGN_OR_RETURN(Program main, ParseProgram(texts.main));
  if (!texts.startup.has_value()) return Programs{std::move(main), absl::nullopt};
  WEFT_ASSIGN_OR_RETURN(Program startup, ParseProgram(*texts.startup));
  return Programs{std::move(main), std::move(startup)};
}

absl::StatusOr<TranspileResult> Rewrite(absl::string_view passes, const RewriteOptions& options,
                                        Programs* programs) {
  TranspileOptions transpile = options;
  transpile.passes = std::string(passes);
  transpile.explain = true;
  ProgramPair pair = programs->pair();
  return Transpile(transpile, pair, options.registry);
}

// Removes the declarations of variables in the root block.
pb::ProgramDesc Without(const std::set<std::string>& names, pb::ProgramDesc program) {
  if (program.blocks_size() == 0) return program;
  auto* vars = program.mutable_blocks(0)->mutable_vars();
  vars->erase(std::remove_if(vars->begin(), vars->end(),
                             [&](const pb::VarDesc& var) { return names.count(var.name()) > 0; }),
              vars->end());
  return program;
}

void ExpectText(const char* which, const Program& found, const std::string& after,
                const pb::ProgramDesc& before) {
  const auto expected = ParseCompactProgram(after, before);
  ASSERT_TRUE(expected.ok()) << which << ": " << expected.status();
  pb::ProgramDesc program = found.ToProto();
  program.clear_weft_setting();  // which follows from options and claims, not from the pass
  const std::string diff = LineDiff(CanonicalText(*expected), CanonicalText(program));
  EXPECT_TRUE(diff.empty()) << which << ": - expected, + found\n" << diff;
}

// Transpile leaves out layer kCommunication if no pass claims to communicate, as those that write
// startup programs: their collectives are checked here.
void ExpectViolatedRules(const RewriteOptions& options, const Program* startup,
                         const std::vector<Message>& messages) {
  std::set<std::string> found;
  std::vector<std::string> lines = DefectLines(messages);
  for (const Message& message : messages) {
    const bool is_of_rule = !message.rule.empty();
    if (is_of_rule && message.topic == Message::Topic::kPaddleDefect) found.insert(message.rule);
  }
  if (startup != nullptr && options.verification != Verification::kNever) {
    Findings findings;
    CheckCollectives(*startup, /*startup=*/nullptr, options.cluster.nranks, {0, true}, &findings);
    for (const Finding& finding : findings.all()) {
      found.insert(finding.rule);
      lines.push_back(ToString(finding));
    }
  }
  EXPECT_EQ(found, options.violated_rules) << "violated rules:\n" << absl::StrJoin(lines, "\n");
}

// A pass or its contract refuses the result, or a second run changes nothing.
void ExpectNothingMoreToDo(absl::string_view passes, const RewriteOptions& options,
                           Programs programs) {
  const Programs before = programs;
  const absl::Status second = Rewrite(passes, options, &programs).status();
  // Messages of the verifier begin with "after pass".
  const bool is_of_verifier = absl::StartsWith(second.message(), "after pass ");
  if (absl::IsFailedPrecondition(second) && !is_of_verifier) return;
  if (!second.ok()) {
    ADD_FAILURE() << "second run: " << second;
    return;
  }
  const auto expect_same = [](const Program& a, const Program& b) {
    const std::string diff = LineDiff(CanonicalText(a.ToProto()), CanonicalText(b.ToProto()));
    EXPECT_TRUE(diff.empty()) << "a second run changes the result:\n" << diff;
  };
  expect_same(before.main, programs.main);
  if (before.startup.has_value()) expect_same(*before.startup, *programs.startup);
}

}  // namespace

RewriteOptions OnRanks(int nranks) {
  RewriteOptions options;
  options.cluster.nranks = nranks;
  return options;
}

RewriteOptions OnEndpoints(int nranks, Dialect dialect) {
  RewriteOptions options;
  options.dialect = dialect;
  for (int i = 0; i < nranks; ++i) {
    options.cluster.endpoints.push_back(absl::StrCat("127.0.0.1:", 6170 + i));
  }
  return options;
}

RewriteOptions OnDevices(int trainers, std::vector<int> devices, Dialect dialect) {
  RewriteOptions options = OnEndpoints(trainers, dialect);
  options.cluster.devices = std::move(devices);
  return options;
}

RewriteOptions Violating(std::set<std::string> rules, RewriteOptions options) {
  options.violated_rules = std::move(rules);
  return options;
}

TranspileResult ExpectRewrite(absl::string_view passes, const ProgramTexts& before,
                              const ProgramTexts& after, const RewriteOptions& options,
                              const char* file, int line) {
  const ::testing::ScopedTrace trace(file, line, absl::StrCat("passes ", passes));
  absl::StatusOr<Programs> programs = Parse(before);
  if (!programs.ok()) {
    ADD_FAILURE() << "text before: " << programs.status();
    return {};
  }
  const pb::ProgramDesc main = Without(options.erased_vars, programs->main.ToProto());
  const pb::ProgramDesc startup =
      Without(options.erased_vars,
              programs->startup.has_value() ? programs->startup->ToProto() : pb::ProgramDesc());
  absl::StatusOr<TranspileResult> result = Rewrite(passes, options, &*programs);
  if (!result.ok()) {
    ADD_FAILURE() << result.status() << "\n" << CanonicalText(programs->main.ToProto());
    return {};
  }
  ExpectText("main program", programs->main, after.main, main);
  if (programs->startup.has_value()) {
    const std::string& text = after.startup.has_value() ? *after.startup : *before.startup;
    ExpectText("startup program", *programs->startup, text, startup);
  }
  ExpectViolatedRules(options, programs->pair().startup, result->messages);
  if (options.second_run == RewriteOptions::SecondRun::kIsChecked) {
    ExpectNothingMoreToDo(passes, options, *std::move(programs));
  }
  return *std::move(result);
}

TranspileResult ExpectNoRewrite(absl::string_view passes, const ProgramTexts& programs,
                                const RewriteOptions& options, const char* file, int line) {
  TranspileResult result = ExpectRewrite(passes, programs, programs, options, file, line);
  const ::testing::ScopedTrace trace(file, line, absl::StrCat("passes ", passes));
  for (const PassReport& report : result.passes) EXPECT_FALSE(report.changed) << report.pass;
  return result;
}

std::vector<std::string> RemarkTexts(const TranspileResult& result) {
  std::vector<std::string> texts;
  for (const Remark& remark : result.remarks) {
    std::string text = absl::StrCat(remark.subject, " ", remark.what);
    if (!remark.why.empty()) absl::StrAppend(&text, ": ", remark.why);
    for (const auto& [name, value] : remark.details) absl::StrAppend(&text, " ", name, "=", value);
    texts.push_back(std::move(text));
  }
  return texts;
}

absl::Status RewriteStatus(absl::string_view passes, const ProgramTexts& texts,
                           const RewriteOptions& options) {
  WEFT_ASSIGN_OR_RETURN(Programs programs, Parse(texts));
  return Rewrite(passes, options, &programs).status();
}

std::string LineDiff(absl::string_view expected, absl::string_view found) {
  const std::vector<absl::string_view> a = absl::StrSplit(expected, '\n');
  const std::vector<absl::string_view> b = absl::StrSplit(found, '\n');
  if (a == b) return "";
  // longest[i][j]: the length of the longest common subsequence of a from i and b from j.
  std::vector<std::vector<size_t>> longest(a.size() + 1, std::vector<size_t>(b.size() + 1, 0));
  for (size_t i = a.size(); i-- > 0;) {
    for (size_t j = b.size(); j-- > 0;) {
      longest[i][j] =
          a[i] == b[j] ? longest[i + 1][j + 1] + 1 : std::max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  std::string diff;
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      absl::StrAppend(&diff, "  ", a[i], "\n");
      ++i, ++j;
    } else if (j == b.size() || (i < a.size() && longest[i + 1][j] >= longest[i][j + 1])) {
      absl::StrAppend(&diff, "- ", a[i++], "\n");
    } else {
      absl::StrAppend(&diff, "+ ", b[j++], "\n");
    }
  }
  return diff;
}

}  // namespace weft::testing
