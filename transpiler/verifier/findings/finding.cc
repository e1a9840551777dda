#include "transpiler/verifier/findings/finding.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace weft {

void Findings::Add(Finding finding) {
  Count& count = counts_[finding.rule];
  count.severity = finding.severity;
  if (++count.count <= kMaxPerRule) findings_.push_back(std::move(finding));
}

void Findings::Remove(FindingKind kind) {
  findings_.erase(std::remove_if(findings_.begin(), findings_.end(),
                                 [&](const Finding& finding) { return finding.kind == kind; }),
                  findings_.end());
  absl::erase_if(counts_, [&](const auto& count) { return FindRule(count.first).kind == kind; });
}

void Findings::Append(const Findings& other) {
  for (const Finding& finding : other.findings_) Add(finding);
  for (const auto& [rule, count] : other.counts_) counts_[rule].count += other.NumOmitted(rule);
}

void Findings::SetRank(int rank) {
  for (Finding& finding : findings_) finding.program.rank = rank;
}

int64_t Findings::NumOmitted(absl::string_view rule) const {
  const auto found = counts_.find(rule);
  return found == counts_.end() ? 0 : std::max<int64_t>(0, found->second.count - kMaxPerRule);
}

int64_t Findings::NumOmittedErrors() const {
  int64_t omitted = 0;
  for (const auto& [rule, count] : counts_) {
    if (count.severity == Severity::kError) omitted += NumOmitted(rule);
  }
  return omitted;
}

bool Findings::HasErrors() const {
  return std::any_of(findings_.begin(), findings_.end(),
                     [](const Finding& finding) { return finding.severity == Severity::kError; });
}

void Reporter::Add(absl::string_view rule, OpId op, absl::string_view variable, std::string message,
                   OpId other, absl::optional<FindingKind> kind) {
  const Rule& found = FindRule(rule);
  findings_.Add({found.id, found.layer, found.severity, kind.value_or(found.kind), program_, op,
                 other, std::string(variable), std::move(message)});
}

void Reporter::Add(absl::string_view rule, OpId op, absl::Span<const absl::string_view> variables,
                   std::string message) {
  const Rule& found = FindRule(rule);
  Finding finding{found.id, found.layer, found.severity,    found.kind, program_, op,
                  OpId(),   "",          std::move(message)};
  if (!variables.empty()) {
    finding.variable = std::string(variables[0]);
    for (absl::string_view name : variables.subspan(1)) finding.more_variables.emplace_back(name);
  }
  findings_.Add(std::move(finding));
}

namespace {

std::string WithoutSeverity(const Finding& finding, bool one_program_for_all) {
  return absl::StrCat(finding.rule, ": ",
                      one_program_for_all ? "" : absl::StrCat("rank ", finding.program.rank, ": "),
                      finding.program.is_startup ? "startup program: " : "", finding.message);
}

}  // namespace

std::string ToString(const Finding& finding, bool one_program_for_all) {
  return absl::StrCat(SeverityName(finding.severity), ": ",
                      WithoutSeverity(finding, one_program_for_all));
}

std::string StatesText(absl::Span<const absl::string_view> names) {
  constexpr size_t kMaxNames = 8;
  if (names.size() == 1) return absl::StrCat("state ", names[0]);
  return absl::StrCat("each of ", names.size(), " states (",
                      absl::StrJoin(names.subspan(0, kMaxNames), ", "),
                      names.size() > kMaxNames ? ", ..." : "", ")");
}

absl::Status ToStatus(const Findings& findings, bool one_program_for_all) {
  const Finding* first = nullptr;
  int64_t more = findings.NumOmittedErrors() - 1;
  for (const Finding& finding : findings.all()) {
    if (finding.severity != Severity::kError) continue;
    if (first == nullptr) first = &finding;
    ++more;
  }
  if (first == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(WithoutSeverity(*first, one_program_for_all),
                   more == 0 ? "" : absl::StrCat(" (and ", more, " more)")));
}

}  // namespace weft
