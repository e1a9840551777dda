// Layer 3: is every gradient summed once, divided once, and used when it has arrived?
#ifndef WEFT_TRANSPILER_VERIFY_COMMUNICATION_H_
#define WEFT_TRANSPILER_VERIFY_COMMUNICATION_H_

#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/rank_divergence.h"
#include "ops/analysis/rank_values.h"
#include "proto/program.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/rules.h"

namespace weft {

class Reporter;

absl::Span<const Rule> CommunicationRules();

// Rings, roots, element types and places of the collectives of one program (W301 to W309): each is
// looked at by itself. `startup` may be null: rings then count as set up. O(ops).
void CheckCollectives(const Program& program, const Program* startup, absl::optional<int> nranks,
                      ProgramRef ref, Findings* findings);

// What optimizers are given (W310 and on): watches RankValues::Of walk the program, then looks at
// what it leaves.
class UpdateChecker : public RankObserver {
 public:
  // `start`: what the startup program leaves, by name; null: parameters are the same on all ranks.
  // It must outlive the checker.
  UpdateChecker(const Program& program, std::set<std::string> distributed_params,
                const absl::flat_hash_map<std::string, RankValue>* start, ProgramRef ref);

  void Restart() override { updates_.clear(); }
  void OnUpdate(const Op& op, const RankValue& param, const RankValue& grad) override;
  void OnCollective(const Op& op, Symbol variable, const RankValue& in) override {}
  void OnBranch(const Op& op, Symbol condition, const RankValue& value) override {}
  void OnOpaqueBlock(const Op& op) override {}

  // O(updates).
  void Check(const RankValues& values, Findings* findings) const;

 private:
  struct Update {
    OpId op;
    uint32_t index;  // of the parameter in slot Param
    RankValue param, grad;
  };
  void CheckUpdate(const Update& update, const RankValues& values,
                   absl::optional<RankDivergence>* divergence, Reporter* reporter) const;
  void ReportOwnParameter(const Update& update, const RankValues& values,
                          absl::optional<RankDivergence>* divergence, Reporter* reporter) const;
  // As the startup program leaves it.
  bool IsOwnAtFirst(absl::string_view param) const;

  const Program& program_;
  const std::set<std::string> distributed_params_;
  const absl::flat_hash_map<std::string, RankValue>* const start_;
  const ProgramRef ref_;
  std::vector<Update> updates_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_COMMUNICATION_H_
