// Layer 6: does the rewritten program compute what the original computes?
#ifndef WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_EQUIVALENCE_H_
#define WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_EQUIVALENCE_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/values/expressions.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "transpiler/verifier/equivalence/averaging_conditions.h"
#include "transpiler/verifier/equivalence/outer_updates.h"
#include "transpiler/verifier/equivalence/unchanged_prefix.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// What is compared. The programs must outlive it.
struct Comparison {
  ConstProgramPair original, rewritten;
  // As for RankValues::Of of the rewritten main program; table is ignored. And when parameters are
  // averaged.
  RankValuesOptions values;
  ProgramRef ref;
  int expression_depth = 0;  // VerifyOptions
  // Of the main programs.
  ProgramFacts of_original = *original.main, of_rewritten = *rewritten.main;
};

// Divides the persistable variables into parameters, which must be equal on all ranks, and states,
// which need not be.
class ComparedVariables {
 public:
  // The program must outlive this object. O(ops + variables).
  ComparedVariables(const ProgramFacts& facts, const std::set<std::string>& distributed_params);

  // Trained by an optimizer or by other ops. Running statistics and optimizer states are none, even
  // if Paddle marks them as parameters.
  bool IsParam(absl::string_view name) const { return Is(kParam, original_.FindSymbol(name)); }
  bool IsParam(Symbol name) const { return Is(kParam, name); }  // of the original
  // A parameter that an optimizer updates.
  bool HasOptimizer(absl::string_view name) const {
    return Is(kOptimized, original_.FindSymbol(name));
  }
  // The gradient of a loss, which each step makes anew: no state, although it is persistable to be
  // fetched.
  bool IsLossGradient(absl::string_view name) const {
    return Is(kLossGradient, original_.FindSymbol(name));
  }
  // A distributed parameter or its state: a rank has only a slice, so it cannot be compared.
  bool IsSkipped(absl::string_view name) const { return Is(kSkipped, original_.FindSymbol(name)); }
  bool IsSkipped(Symbol name) const { return Is(kSkipped, name); }

 private:
  enum Kind : uint8_t {
    kParam = 1,
    kOptimized = 2,
    kDistributed = 4,
    kSkipped = 8,
    kLossGradient = 16
  };

  bool Is(Kind kind, Symbol name) const {
    return name.valid() && (kinds_[name.value()] & kind) != 0;
  }
  void Add(Kind kind, Symbol name) { kinds_[name.value()] |= kind; }

  const Program& original_;
  std::vector<uint8_t> kinds_;  // by Symbol of the original
};

// Compares every persistable variable, of all blocks, after a step, as an expression over the
// inputs of the step: in the original on one device with the global batch, and in the rewritten
// program on all ranks (W601 to W609, W613, W614). And, where fetch ops of both fetch into one
// column, the last value there, and the losses (W610).
//
// Values are equal up to re-association of sums, where gradients are means over ranks. Under
// LocalSGD they are equal up to averaging over the ranks, always or on a condition. Conditions run
// from the startup program on and are compared with `averaging`. Without either, parameters must be
// averaged repeatedly, but not always. With an outer optimizer, parameters move as it says, and its
// states are equal on all ranks (W613). Parameters must be equal on all ranks; running statistics
// and other states need not be. If both startup programs are given, their results are compared.
class EquivalenceChecker {
 public:
  // Both must outlive the checker. O(ops).
  EquivalenceChecker(const Comparison& given, Findings* findings);

  EquivalenceChecker(const EquivalenceChecker&) = delete;
  EquivalenceChecker& operator=(const EquivalenceChecker&) = delete;

  // The table of the walk over the rewritten program, RankValues::Of(rewritten).
  ExpressionTable* table() { return &table_; }

  // `after`: from that walk. Compares from op `first_op` of the original's root block on, and from
  // its counterpart in the rewritten program; before these ops, variables of the same name are
  // equal. O(arguments of both programs from there on).
  void Check(const RankValues& after, size_t first_op = 0);

 private:
  // A variable of both programs.
  struct Compared {
    absl::string_view name;
    RankValue expected, found;
    VarId other;  // in the rewritten program
  };

  // Factors that count as 1, and that one of the programs has (W614).
  void NoteFactorsOfOne();
  void CheckAddedStates();
  void CheckStartup();
  // The values that states of Setting::shares and Setting::common hold.
  void FindShares();
  void CheckShares();
  // Whether a value is of the kind that the setting says: parts of a buffer of that layout, or
  // equal numbers.
  bool HoldsShare(absl::string_view variable, const RankValue& value);
  bool HoldsAtStart(absl::string_view variable, RankValue value);
  // Why the declarations do not allow that; empty: they do.
  std::string WhyNoShare(absl::string_view variable) const;
  // `whole`: what the startup program of one of the pairs leaves.
  void CheckSharesAtStart(const Program& startup, const RankValues& whole, Reporter* reporter);
  void CheckData();
  void CheckVariable(VarId var);
  void CheckInnerVariables();
  void CheckFetches();
  // `expected`: of the original.
  void CompareFetched(const RankFetch& expected, const RankFetch& found);
  void CheckLosses();
  // How users of both programs get a value of the rewritten one.
  enum class HandedOut { kOther, kEqual, kNthPart };
  // `loss`: of the rewritten program; invalid: the value is none.
  HandedOut IsHandedOut(const RankValue& expected, RankValue found, Symbol loss);
  bool IsNthPart(Symbol loss);
  void ReportNthPart(OpId op, absl::string_view name, absl::string_view what);
  void ReportHandedOut(OpId op, absl::string_view name, absl::string_view what,
                       const RankValue& expected, const RankValue& found);
  void CompareWritten(absl::string_view name, VarId var, VarId other);
  void Compare(Compared values);
  bool DiffersAtStart(absl::string_view name) const;
  // Whether the values differ by averaging only.
  bool CheckAveraged(const Compared& values);
  // Of a parameter that an outer optimizer moves.
  void CheckOuter(const Compared& values);
  void CheckStartOfOuter(absl::string_view param, const OuterUpdates::Result& states);
  ExprId RateOf(absl::string_view param);
  void CheckAveragedInTurn();
  void ReportDifference(const Compared& values);

  RankValue WithExpr(RankValue value, absl::string_view name);
  bool BeginsWithZero(absl::string_view name) const;
  bool IsAveragedInGroups(ExprId found, ExprId expected);
  bool IsAveraged(const RankValue& value, ExprId found, ExprId expected, absl::string_view name);
  bool BeginsAnew(ExprId found, ExprId condition, absl::string_view name);
  void ReportResets();

  void Report(const char* rule, absl::string_view name, absl::string_view why);
  OpId LastWriter(absl::string_view name);

  const Comparison& given_;
  const ConstProgramPair &original_ = given_.original, &rewritten_ = given_.rewritten;
  const RankValuesOptions& options_ = given_.values;
  Findings& findings_;
  Reporter reporter_;
  const ComparedVariables variables_;
  ExpressionTable table_;
  AveragingConditions averaging_;
  OuterUpdates outer_updates_;
  // Of the original: by parameter or master weight, the learning rate. Computed on demand.
  absl::optional<absl::flat_hash_map<Symbol, Symbol>> rate_of_;
  StartupValues startup_values_;  // of the rewritten program
  // Value `index` of a state of the rewritten program: what one device has in variable `name`.
  struct Shared {
    absl::string_view variable, name;
    size_t index;
  };
  std::vector<Shared> shares_;  // those of a variable one after another, from 0 on
  absl::flat_hash_set<absl::string_view> is_shared_;  // by name
  // Conditions on which parameters are averaged; invalid: in every step.
  absl::flat_hash_set<ExprId> averaged_on_, averaged_in_groups_on_;
  std::vector<ExprId> conditions_;  // the same, in the order in which they were met
  // Parameters whose conditions are judged together.
  std::vector<std::pair<absl::string_view, ExprId>> averaged_in_turn_;
  bool begins_anew_ = false;               // the variable that is compared
  std::vector<absl::string_view> resets_;  // variables that begin anew
  RankValues before_;                      // of the original
  const RankValues* after_ = nullptr;      // of the rewritten program
  bool is_whole_ = false;                  // expressions cover the whole programs
  std::vector<OpId> last_writer_;          // by Symbol; computed on demand
};

// Walks and compares whole programs.
void CheckEquivalence(const Comparison& given, Findings* findings);

// Compares the programs in the walk over the rewritten one that other layers need anyway, and only
// from the end of the unchanged prefix on. Only expressions over whole programs tell what differs,
// so that it walks again (CheckEquivalence) if these do.
class Equivalence {
 public:
  explicit Equivalence(Comparison given);  // O(ops)

  // Prepares the options of the walk, RankValues::Of(rewritten), which may have a batch that those
  // of this object lack.
  void AttachTo(RankValuesOptions* options);

  // Whether the walk shows that the programs are equivalent: CheckEquivalence finds nothing then.
  // Call once. O(persistable variables + arguments after the unchanged prefix).
  bool IsShownBy(const RankValues& after);
  // `after`: from the walk. Call once, instead of IsShownBy.
  void Check(const RankValues& after, Findings* findings);

 private:
  Comparison given_;
  UnchangedPrefix prefix_;
  Findings of_rest_;
  EquivalenceChecker rest_;  // after the prefix
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_EQUIVALENCE_H_
