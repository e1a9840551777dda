// The findings of the verifier.
#ifndef WEFT_TRANSPILER_VERIFIER_FINDINGS_FINDING_H_
#define WEFT_TRANSPILER_VERIFIER_FINDINGS_FINDING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/program.h"
#include "transpiler/verifier/findings/rule.h"

namespace weft {

// Identifies one of the programs that are verified together.
struct ProgramRef {
  int rank = 0;  // 0 if one program is given for all ranks
  bool is_startup = false;

  friend bool operator==(ProgramRef a, ProgramRef b) {
    return a.rank == b.rank && a.is_startup == b.is_startup;
  }
};

// A violation of a rule.
struct Finding {
  std::string rule;  // "W402"
  Layer layer = Layer::kStructure;
  Severity severity = Severity::kError;
  FindingKind kind = FindingKind::kDefect;
  ProgramRef program;
  OpId op;               // invalid: the program as a whole
  OpId other;            // the op that it conflicts with, in the same program; invalid: none
  std::string variable;  // may be empty
  std::string message;   // names op, variable, expected and found, but not the rule or the program
  std::vector<std::string> more_variables = {};  // that the finding is about, too
};

// Findings in the order of layers and ops. Keeps the first kMaxPerRule findings of every rule, and
// counts the others: a wrong program often has thousands.
class Findings {
 public:
  static constexpr int kMaxPerRule = 20;

  void Add(Finding finding);
  void Append(const Findings& other);
  // Attributes all findings to the programs of a rank.
  void SetRank(int rank);
  // Drops all findings of a kind.
  void Remove(FindingKind kind);
  const std::vector<Finding>& all() const { return findings_; }
  // The number of findings that were not kept.
  int64_t NumOmitted(absl::string_view rule) const;
  int64_t NumOmittedErrors() const;
  bool HasErrors() const;

 private:
  struct Count {
    Severity severity = Severity::kError;
    int64_t count = 0;
  };
  std::vector<Finding> findings_;
  absl::flat_hash_map<std::string, Count> counts_;  // by rule
};

// Adds findings about one program.
class Reporter {
 public:
  // `findings` must outlive the reporter.
  Reporter(ProgramRef program, Findings* findings) : program_(program), findings_(*findings) {}

  // `rule` is the id of one of Rules(); `kind`: another than the rule's.
  void Add(absl::string_view rule, OpId op, absl::string_view variable, std::string message,
           OpId other = OpId(), absl::optional<FindingKind> kind = absl::nullopt);
  // About any number of variables.
  void Add(absl::string_view rule, OpId op, absl::Span<const absl::string_view> variables,
           std::string message);

 private:
  const ProgramRef program_;
  Findings& findings_;
};

// "error: W402: op 17 (sgd) ...". Before the message, "startup program: " and, unless one program
// is given for all ranks, "rank 1: ".
std::string ToString(const Finding& finding, bool one_program_for_all = true);

// "state a", or "each of 12 states (a, b, c, ...)".
std::string StatesText(absl::Span<const absl::string_view> names);

// FailedPrecondition with the first error and the number of the others, if there are errors.
absl::Status ToStatus(const Findings& findings, bool one_program_for_all = true);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_FINDINGS_FINDING_H_
