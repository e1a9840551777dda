// Blocks that run in some steps only, by the number of the step.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_STEP_CONDITION_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_STEP_CONDITION_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"
#include "transpiler/passes/support/program_edits.h"

namespace weft {

// A persistable int64 counter, PREFIX_step, that the startup program sets to 0 and every step
// increments first: it is 1 in the first step. Ops go before op `before` of the root block of the
// main program; invalid: to its end. All calls append, so that ops are in the order of the calls.
class StepCounter {
 public:
  StepCounter(absl::string_view prefix, OpId before, ProgramEdits* edits);

  // counter % period. Call once per suffix.
  std::string Remainder(int period, absl::string_view suffix = "");
  // remainder == phase. Call once per suffix, which distinguishes names.
  std::string IsDue(const std::string& remainder, int phase, absl::string_view suffix = "");
  // condition and remainder != phase. Call once.
  std::string AndNot(const std::string& condition, const std::string& remainder, int phase);
  // counter >= step, and the opposite of a condition. Call each once.
  std::string IsFrom(int step);
  std::string Not(const std::string& condition);
  // condition and counter >= first_step. Call once.
  std::string FromStep(int first_step, const std::string& condition);
  // condition or counter < begin_step. Call once.
  std::string OrBefore(int begin_step, const std::string& condition);

 private:
  std::string Declare(const std::string& name, DType dtype);
  std::string Constant(const std::string& name, int value);
  std::string Compute(const std::string& name, DType dtype, const char* type, const std::string& x,
                      const std::string& y, bool has_axis);

  const std::string prefix_;
  const OpId before_;
  ProgramEdits& edits_;
  std::string counter_;
};

// The variables of the block around a branch that ops of the branch read and write.
struct BranchVariables {
  std::vector<std::string> reads, writes;
};

// Writes, at that place of the root block, an op that runs a new block if `condition` holds.
// Returns the number of the block.
int WriteBranch(const std::string& condition, const BranchVariables& variables,
                const std::string& scope, OpId before, ProgramEdits* edits);

// The same at the end of block `parent`.
int AppendBranch(int parent, const std::string& condition, const BranchVariables& variables,
                 const std::string& scope, ProgramEdits* edits);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_STEP_CONDITION_H_
