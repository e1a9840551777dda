// What the verifier found, as data, and how a layer reports it.
#ifndef WEFT_TRANSPILER_VERIFY_FINDING_H_
#define WEFT_TRANSPILER_VERIFY_FINDING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"
#include "transpiler/verify/rule.h"

namespace weft {

// Which of the programs that are verified together: the rank's main program, or its startup
// program.
struct ProgramRef {
  int rank = 0;  // into the programs as they were given; 0 where one stands for all
  bool is_startup = false;

  friend bool operator==(ProgramRef a, ProgramRef b) {
    return a.rank == b.rank && a.is_startup == b.is_startup;
  }
};

// A violation of one rule at one place.
struct Finding {
  std::string rule;  // "W402"
  Layer layer = Layer::kStructure;
  Severity severity = Severity::kError;
  ProgramRef program;
  OpId op;               // where; invalid: the program as a whole
  OpId other;            // the op that it conflicts with, in the same program; invalid: none
  std::string variable;  // that it is about; may be empty
  std::string message;   // names op, variable, expected and found, but not the rule or the program
};

// Findings in the order of layers and ops. A wrong program is often wrong in a thousand places:
// of every rule the first kMaxPerRule findings are kept, and the others are counted.
class Findings {
 public:
  static constexpr int kMaxPerRule = 20;

  void Add(Finding finding);
  // Adds the findings of `other` after those that are there.
  void Append(const Findings& other);
  const std::vector<Finding>& all() const { return findings_; }
  // Findings of the rule that were not kept.
  int64_t NumOmitted(absl::string_view rule) const;
  // Of all rules.
  int64_t NumOmittedErrors() const;
  bool HasErrors() const;

 private:
  struct Count {
    std::string rule;
    Severity severity;
    int64_t count = 0;
  };
  std::vector<Finding> findings_;
  std::vector<Count> counts_;  // a handful of rules
};

// Adds findings about one program.
class Reporter {
 public:
  // `findings` must outlive the reporter.
  Reporter(ProgramRef program, Findings* findings) : program_(program), findings_(*findings) {}

  // `rule` is the id of one of Rules().
  void Add(absl::string_view rule, OpId op, absl::string_view variable, std::string message,
           OpId other = OpId());

 private:
  const ProgramRef program_;
  Findings& findings_;
};

// "W402 error: op 17 (sgd) ...", with "startup program: " or "rank 1: " before the message where
// it is not the only program.
std::string ToString(const Finding& finding, bool one_program_for_all = true);

// OK, or FailedPrecondition with the first error, and how many more there are.
absl::Status ToStatus(const Findings& findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_FINDING_H_
