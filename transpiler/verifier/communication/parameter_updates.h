// Layer 3, part 2: is every gradient summed once, divided once, and reduced before its update?
#ifndef WEFT_TRANSPILER_VERIFIER_COMMUNICATION_PARAMETER_UPDATES_H_
#define WEFT_TRANSPILER_VERIFIER_COMMUNICATION_PARAMETER_UPDATES_H_

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/values/rank_divergence.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/program.h"
#include "transpiler/verifier/communication/updated_parameters.h"
#include "transpiler/verifier/findings/finding.h"
#include "transpiler/verifier/values/option_flows.h"

namespace weft {

struct UpdateProblem {
  const char* rule;
  std::string why;      // "op 5 (sgd) updates w by w@GRAD, WHY"
  OpId other = OpId();  // the op that it conflicts with, if not the first nonlinear op
};

// Checks the updates of parameters (W310 to W317). Observes RankValues::Of walking the program,
// then reads its result.
class UpdateChecker : public RankObserver {
 public:
  // `start`: what the startup program leaves, by name; null: parameters begin equal on all ranks.
  // `group`: RankValuesOptions::group. The program and `start` must outlive the checker.
  UpdateChecker(const ProgramFacts& facts, std::set<std::string> distributed_params,
                const absl::flat_hash_map<std::string, RankValue>* start, ProgramRef ref,
                std::vector<int> group = {});

  void Restart() override { updates_.clear(); }
  void OnUpdate(const Op& op, const RankValue& param, const RankValue& grad) override;

  // `mended`: of the same program, for findings that name an option; may be null. O(updates), and
  // what OptionFlows needs where a parameter is a statistic that ranks do not reduce.
  void Check(const RankValues& values, OptionFlows* mended, Findings* findings) const;

 private:
  struct Update {
    OpId op;
    size_t index;  // in slots Param and Grad
    Symbol param, grad;
    VarId var;  // the parameter, of which `param` may be the mirror or the change
    RankValue param_value, grad_value;
  };
  struct Context {
    const RankValues& values;
    OptionFlows* mended;  // may be null
    Reporter reporter;
    absl::optional<RankDivergence> divergence;  // computed on demand
    // A parameter is not equal on all ranks when training begins.
    bool starts_differ = false;
    // Of gradients that an all-reduce sums: what is wrong unless that explains it.
    std::vector<std::pair<UpdateProblem, const Update*>> after_sums = {};
  };

  void CheckUpdate(const Update& update, Context* context) const;
  void CheckAveragedParameter(const Update& update, Context* context) const;
  void ReportRankLocalParameter(const Update& update, Context* context) const;
  void CheckManualUpdates(Context* context) const;
  static std::string AdviceForStatistic(VarId var, Context* context);
  void Report(const UpdateProblem& problem, const Update& update, Context* context) const;
  absl::string_view NameOf(const Update& update) const;  // of the parameter
  // Whether ranks begin with different values.
  bool DiffersAtStart(absl::string_view param) const;

  const ProgramFacts facts_;
  const Program& program_;
  const UpdatedParameters parameters_;
  const std::set<std::string> distributed_params_;
  const absl::flat_hash_map<std::string, RankValue>* const start_;
  const ProgramRef ref_;
  const std::vector<int> group_;
  std::vector<Update> updates_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_COMMUNICATION_PARAMETER_UPDATES_H_
