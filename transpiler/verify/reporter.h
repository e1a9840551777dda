// How a layer reports: by rule, and without making messages that nobody keeps.
#ifndef WEFT_TRANSPILER_VERIFY_REPORTER_H_
#define WEFT_TRANSPILER_VERIFY_REPORTER_H_

#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/rules.h"

namespace weft {

// Adds findings of one layer and one program.
class Reporter {
 public:
  // All must outlive the reporter.
  Reporter(absl::Span<const Rule> rules, ProgramRef program, Findings* findings)
      : rules_(rules), program_(program), findings_(findings) {}

  // `rule` is one of `rules`. `message` is called where Findings keeps it: it may name ops,
  // which takes long in a large program.
  void Add(absl::string_view rule, OpId op, absl::string_view variable,
           absl::FunctionRef<std::string()> message, OpId other = OpId()) {
    size_t i = 0;
    while (rules_[i].id != rule) ++i;
    Finding finding;
    finding.rule = rules_[i].id;
    finding.severity = rules_[i].severity;
    finding.program = program_;
    finding.op = op;
    finding.other = other;
    if (findings_->Keeps(rule)) {
      finding.variable = std::string(variable);
      finding.message = message();
    }
    findings_->Add(std::move(finding));
  }

 private:
  const absl::Span<const Rule> rules_;
  const ProgramRef program_;
  Findings* const findings_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_REPORTER_H_
