// Layer 5: do all ranks make the same calls, in an order that cannot lock up?
#ifndef WEFT_TRANSPILER_VERIFY_ACROSS_RANKS_H_
#define WEFT_TRANSPILER_VERIFY_ACROSS_RANKS_H_

#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/rank_values.h"
#include "proto/program.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/rules.h"

namespace weft {

absl::Span<const Rule> AcrossRanksRules();

// Whether blocks with collectives run on all ranks or on none (W503, W504): watches RankValues::Of
// walk a program that all ranks run.
class ConditionChecker : public RankObserver {
 public:
  ConditionChecker(const Program& program, ProgramRef ref);

  void Restart() override;
  void OnUpdate(const Op& op, const RankValue& param, const RankValue& grad) override {}
  void OnCollective(const Op& op, Symbol variable, const RankValue& in) override {}
  void OnBranch(const Op& op, Symbol condition, const RankValue& value) override;
  void OnOpaqueBlock(const Op& op) override;

  void Check(Findings* findings) const;

 private:
  // A block with collectives: on a condition, or, where there is none, in a loop.
  struct Found {
    OpId op;
    Symbol condition;
    RankValue::Place place;
  };

  bool HasCollectives(const Op& op) const;

  const Program& program_;
  const ProgramRef ref_;
  std::vector<bool> block_has_collectives_;
  std::vector<Found> found_;
};

// The programs of several ranks, in their order: per ring the same sequence of collectives, with
// equal kind, reduction, element type, count and root (W501), of variables of the same names
// (W505); an order of the collectives of all rings that ranks do not contradict each other in
// (W502). Conditional blocks are compared as collectives are: the same conditions in the same
// places. In startup programs also whether two ranks join a ring as one (W507). O(ops of all
// programs).
void CheckSequences(absl::Span<const Program* const> programs, bool is_startup, Findings* findings);

// The same programs, which make the same calls: whether the conditions of their blocks with
// collectives are computed alike, in every step, from variables that begin alike (W506).
// `startups` may be empty: variables then count as beginning alike. O(arguments of all programs),
// where there are such blocks.
void CheckConditions(absl::Span<const Program* const> programs,
                     absl::Span<const Program* const> startups, absl::optional<int> nranks,
                     Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_ACROSS_RANKS_H_
