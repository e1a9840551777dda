// Edits of a main program and its startup program.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_PROGRAM_EDITS_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_PROGRAM_EDITS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/tensor_type.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// What a pass changes, and names that are free in both programs.
struct ProgramEdits {
  explicit ProgramEdits(const ProgramPair& programs) : names(programs), main(programs.main) {
    if (programs.startup != nullptr) startup.emplace(programs.startup);
  }

  // Declares a variable in both programs that lasts from step to step, and has the startup program
  // run `initializer`. Requires a startup program.
  void AddState(const std::string& name, DType dtype, const Dims& dims, const NewOp& initializer) {
    pb::VarDesc var = TensorVar(name, dtype, dims);
    var.set_persistable(true);
    var.set_stop_gradient(true);
    main.AddVar(0, var);
    startup->AddVar(0, var);
    startup->Append(0, BuildOp(initializer));
  }

  // Inserts an op into the main program: before an op, or, if that is invalid, at the end of the
  // root block.
  void InsertBefore(OpId before, const pb::OpDesc& op) {
    if (before.valid()) return main.InsertBefore(before, op);
    main.Append(0, op);
  }

  // Returns whether there were edits, as Pass::Run does.
  absl::StatusOr<bool> Commit() {
    WEFT_ASSIGN_OR_RETURN(const bool changed, CommitEdits(&main));
    if (!startup.has_value()) return changed;
    WEFT_ASSIGN_OR_RETURN(const bool startup_changed, CommitEdits(&*startup));
    return changed || startup_changed;
  }

  UniqueNames names;
  Rewriter main;
  absl::optional<Rewriter> startup;  // none: there is no startup program
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_PROGRAM_EDITS_H_
