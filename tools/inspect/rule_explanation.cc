#include "tools/inspect/rule_explanation.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "tools/inspect/wrap_text.h"
#include "transpiler/verifier/rules/rule_text.h"

namespace weft {
namespace {

constexpr size_t kWidth = 80;

std::string Indented(absl::string_view text) {
  return absl::StrCat("    ", absl::StrReplaceAll(text, {{"\n", "\n    "}}), "\n");
}

}  // namespace

absl::StatusOr<std::string> ExplainRule(absl::string_view id) {
  WEFT_ASSIGN_OR_RETURN(const RuleText text, RuleTextOf(id));
  const Rule& rule = FindRule(id);
  WEFT_ASSIGN_OR_RETURN(const std::string message, MessageOfExample(rule, text));
  std::string page = absl::StrCat(text.heading, "\nlayer ", static_cast<int>(rule.layer), ": ",
                                  LayerName(rule.layer), "\n\n", WrapText(text.why, kWidth), "\n\n",
                                  WrapText(absl::StrCat("Fix: ", text.fix), kWidth),
                                  "\n\nAn example, for 2 ranks:\n\n");
  for (const auto& [title, program] : ProgramsOf(text)) {
    if (!title.empty()) absl::StrAppend(&page, title, ":\n\n");
    absl::StrAppend(&page, Indented(program), "\n");
  }
  absl::StrAppend(&page, "The verifier says:\n\n",
                  Indented(WrapText(message, kWidth - 4, /*indent=*/4)));
  return page;
}

}  // namespace weft
