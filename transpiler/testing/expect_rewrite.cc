#include "transpiler/testing/expect_rewrite.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "proto/program.h"
#include "transpiler/testing/message_lines.h"
#include "transpiler/testing/text_edits.h"
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

absl::StatusOr<TranspileResult> RunPasses(absl::string_view passes, const RewriteOptions& options,
                                          Programs* programs) {
  TranspileOptions transpile = options;
  transpile.passes = std::string(passes);
  transpile.explain = true;
  ProgramPair pair = programs->pair();
  return Transpile(transpile, pair, options.registry);
}

// The lines after a line "startup:" are of the startup program.
ProgramTexts Split(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits("startup:\n", 1));
  return parts.size() == 1 ? ProgramTexts(parts[0]) : ProgramTexts(parts[0], parts[1]);
}

absl::StatusOr<std::string> AfterText(const std::string& before, const std::string& after) {
  if (absl::StripAsciiWhitespace(after).empty()) return before;
  return HasMargins(after) ? Edited(before, after) : after;
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

// The lines of a canonical text, but for what compact programs leave out.
std::string CompactText(const pb::ProgramDesc& program) {
  std::string compact;
  for (absl::string_view line : absl::StrSplit(CanonicalText(program), '\n')) {
    line = absl::StripAsciiWhitespace(line);
    const bool is_block = absl::StartsWith(line, "block ");
    const bool is_left_out =
        line == "}" || absl::StartsWith(line, "program ") || line == "block 0 parent=-1 {";
    if (is_left_out) continue;
    absl::StrAppend(&compact, compact.empty() ? "" : "\n",
                    is_block ? absl::StrReplaceAll(line, {{" {", ":"}})
                             : absl::StrReplaceAll(line, {{" role=forward", ""}}));
  }
  return compact;
}

// As ExpectRewrite takes it.
std::string Margins(const pb::ProgramDesc& before, const pb::ProgramDesc& after) {
  const std::string diff = LineDiff(CompactText(before), CompactText(after));
  return absl::StrReplaceAll(absl::StrCat("\n", diff), {{"\n", "\n  "}});
}

// `erased`: variables of `before` that the rewrite erases.
void ExpectText(const char* which, const Program& found, const std::string& after,
                const pb::ProgramDesc& before, std::set<std::string> erased,
                const RewriteOptions& options) {
  erased.insert(options.erased_vars.begin(), options.erased_vars.end());
  const auto parsed = ParseCompactProgram(after, before);
  ASSERT_TRUE(parsed.ok()) << which << ": " << parsed.status();
  const pb::ProgramDesc expected = Without(erased, *parsed);
  pb::ProgramDesc program = found.ToProto();
  program.clear_weft_setting();  // which follows from options and claims, not from the pass
  const std::string diff = LineDiff(CanonicalText(expected), CanonicalText(program));
  EXPECT_TRUE(diff.empty()) << which << ": - expected, + found\n"
                            << diff << "the rewrite that was found:" << Margins(before, program);
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
  const absl::Status second = RunPasses(passes, options, &programs).status();
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
                              const ProgramTexts& rewritten, const RewriteOptions& options,
                              const char* file, int line) {
  const ::testing::ScopedTrace trace(file, line, absl::StrCat("passes ", passes));
  absl::StatusOr<Programs> programs = Parse(before);
  const ProgramTexts after = rewritten.startup.has_value() ? rewritten : Split(rewritten.main);
  const absl::StatusOr<std::string> main_after = AfterText(before.main, after.main);
  const absl::StatusOr<std::string> startup_after =
      AfterText(before.startup.value_or(""), after.startup.value_or(""));
  for (const absl::Status& status :
       {programs.status(), main_after.status(), startup_after.status()}) {
    if (status.ok()) continue;
    ADD_FAILURE() << "texts: " << status;
    return {};
  }
  if (after.startup.has_value() && !before.startup.has_value()) {
    ADD_FAILURE() << "texts: expected a startup program before the rewrite, too";
  }
  const pb::ProgramDesc main = programs->main.ToProto();
  const pb::ProgramDesc startup =
      programs->startup.has_value() ? programs->startup->ToProto() : pb::ProgramDesc();
  absl::StatusOr<TranspileResult> result = RunPasses(passes, options, &*programs);
  if (!result.ok()) {
    ADD_FAILURE() << result.status() << "\n" << CanonicalText(programs->main.ToProto());
    return {};
  }
  ExpectText("main program", programs->main, *main_after, main, ErasedVars(after.main), options);
  if (programs->startup.has_value()) {
    ExpectText("startup program", *programs->startup, *startup_after, startup,
               ErasedVars(after.startup.value_or("")), options);
  }
  ExpectViolatedRules(options, programs->pair().startup, result->messages);
  if (options.second_run == RewriteOptions::SecondRun::kIsChecked) {
    ExpectNothingMoreToDo(passes, options, *std::move(programs));
  }
  return *std::move(result);
}

TranspileResult ExpectRewrite(absl::string_view passes, absl::string_view edits,
                              const RewriteOptions& options, const char* file, int line) {
  return ExpectRewrite(passes, Split(TextBefore(edits)), Split(edits), options, file, line);
}

TranspileResult ExpectNoRewrite(absl::string_view passes, const ProgramTexts& programs,
                                const RewriteOptions& options, const char* file, int line) {
  TranspileResult result = ExpectRewrite(passes, programs, programs, options, file, line);
  const ::testing::ScopedTrace trace(file, line, absl::StrCat("passes ", passes));
  for (const PassReport& report : result.passes) EXPECT_FALSE(report.changed) << report.pass;
  return result;
}

Rewritten Rewrite(absl::string_view passes, const ProgramTexts& texts,
                  const RewriteOptions& options, const char* file, int line) {
  const ::testing::ScopedTrace trace(file, line, absl::StrCat("passes ", passes));
  absl::StatusOr<Programs> programs = Parse(texts);
  absl::Status status = programs.status();
  if (status.ok()) {
    absl::StatusOr<TranspileResult> result = RunPasses(passes, options, &*programs);
    status = result.status();
    if (status.ok()) {
      return {std::move(programs->main), std::move(programs->startup), *std::move(result)};
    }
  }
  ADD_FAILURE() << status;
  return {CompactProgram(""), absl::nullopt, {}};
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
  return RunPasses(passes, options, &programs).status();
}

}  // namespace weft::testing
