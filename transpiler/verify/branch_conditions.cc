#include "transpiler/verify/branch_conditions.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft {

ConditionChecker::ConditionChecker(const Program& program, ProgramRef ref)
    : program_(program), ref_(ref), blocks_(program) {}

void ConditionChecker::OnBranch(const Op& op, Symbol condition, const RankValue& value) {
  if (value.IsEqualOnRanks() || !blocks_.RunBy(op)) return;
  found_.push_back({op.id(), condition, value.placement});
}

void ConditionChecker::OnOpaqueBlock(const Op& op) {
  if (blocks_.RunBy(op)) found_.push_back({op.id(), Symbol(), {}});
}

void ConditionChecker::Check(Findings* findings) const {
  Reporter report(ref_, findings);
  for (const Found& found : found_) {
    const std::string op = program_.op(found.op).DebugName();
    if (!found.condition.valid()) {
      report.Add("W504", found.op, "",
                 absl::StrCat(op,
                              ": its block has collectives, and how often it runs is not known: it "
                              "cannot be shown that it runs equally often on all ranks"));
      continue;
    }
    const absl::string_view name = program_.name(found.condition);
    report.Add("W503", found.op, name,
               absl::StrCat(op, ": its block has collectives, but its condition ", name, " is ",
                            ToString(found.placement),
                            ": ranks on which it holds wait forever for the others"));
  }
}

}  // namespace weft
