// Layer 6: does the rewritten program compute what the original computes?
#ifndef WEFT_TRANSPILER_VERIFY_EQUIVALENCE_H_
#define WEFT_TRANSPILER_VERIFY_EQUIVALENCE_H_

#include <cstddef>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/analysis/expressions.h"
#include "ops/analysis/rank_values.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "transpiler/verify/averaging_conditions.h"
#include "transpiler/verify/compared_variables.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/local_schedule.h"
#include "transpiler/verify/startup_values.h"

namespace weft {

// Compares what a step makes of every persistable variable, as an expression over the inputs of the
// step: of the original on one device that gets the batches of all ranks, and of the rewritten
// program on all ranks (W601 to W608).
//
// Values are equal up to re-association of sums, where gradients are means over ranks. Under
// LocalSGD they are equal up to averaging over the ranks, always or on a condition. Conditions are
// followed from the startup program on and compared with `averaging`. Without these, parameters
// have to be averaged in some steps, again and again, and in others not. Running statistics and
// other states may differ between ranks, parameters may not. What the startup programs make is
// compared where both are given.
class EquivalenceChecker {
 public:
  // `options`: as for RankValues::Of; table and observer are ignored. Programs, options and
  // findings must outlive the checker. O(ops).
  EquivalenceChecker(const ConstProgramPair& original, const ConstProgramPair& rewritten,
                     const RankValuesOptions& options,
                     const absl::optional<AveragingSchedule>& averaging, ProgramRef ref,
                     Findings* findings);

  EquivalenceChecker(const EquivalenceChecker&) = delete;
  EquivalenceChecker& operator=(const EquivalenceChecker&) = delete;

  // RankValues::Of(rewritten), which Check needs, has to use and to tell these.
  ExpressionTable* table() { return &table_; }
  RankObserver* observer() { return &averaging_; }

  // `after`: what the rewritten program makes. From op `first_op` of the root block of the original
  // on, and from its counterpart in the rewritten program; before these, variables of both hold
  // what their names say. O(arguments of both programs from there on).
  void Check(const RankValues& after, size_t first_op = 0);

 private:
  // A variable of both programs.
  struct Compared {
    absl::string_view name;
    RankValue expected, found;
    RankValue start;  // of the rewritten program
  };

  void CheckStartup();
  void CheckData();
  void CheckVariable(const RankValues& before, VarId var, const RankValues& after);
  void Compare(Compared values);
  // False where the values differ otherwise than by averaging.
  bool CheckAveraged(const Compared& values);
  void ReportDifference(const Compared& values);

  RankValue WithExpr(RankValue value, absl::string_view name);
  bool BeginsWithZero(absl::string_view name) const;
  bool IsAveraged(const RankValue& value, ExprId found, ExprId expected, absl::string_view name);
  bool BeginsAnew(ExprId found, ExprId condition, absl::string_view name) const;

  void Report(const char* rule, absl::string_view name, absl::string_view why);
  OpId LastWriter(absl::string_view name);

  const ConstProgramPair original_, rewritten_;
  const RankValuesOptions& options_;
  const ProgramRef ref_;
  Findings& findings_;
  Reporter reporter_;
  const ComparedVariables variables_;
  ExpressionTable table_;
  AveragingConditions averaging_;
  StartupValues startup_values_;  // of the rewritten program
  // Conditions on which parameters are averaged; invalid: in every step.
  absl::flat_hash_set<ExprId> averaged_on_;
  const RankValues* after_ = nullptr;  // null where expressions are of a part of the program
  std::vector<OpId> last_writer_;      // by Symbol; empty until it is needed
};

// Walks the rewritten program and checks it as a whole.
void CheckEquivalence(const ConstProgramPair& original, const ConstProgramPair& rewritten,
                      const RankValuesOptions& options,
                      const absl::optional<AveragingSchedule>& averaging, ProgramRef ref,
                      Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_EQUIVALENCE_H_
