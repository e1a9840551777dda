// The types of variables, op by op.
#ifndef WEFT_OPS_ANALYSIS_TYPE_FLOW_H_
#define WEFT_OPS_ANALYSIS_TYPE_FLOW_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ops/schema/infer_cache.h"
#include "ops/schema/tensor_type.h"
#include "ops/schema/type_table.h"
#include "proto/program.h"

namespace weft {

// True where the types differ only as a scalar does from a tensor of dimensions [1]. Paddle before
// 2.5 had no scalars: what a reduction gives is [1] in older programs, where inference says [].
bool IsScalarAndOne(const TensorType& a, const TensorType& b);

// Follows the types of variables through a program in its order: declared ones at first, then what
// is inferred of the ops that write them. (Where the two differ as IsScalarAndOne says, the
// declared one stands, so that older programs agree with themselves.) Whoever checks types does it
// over this: the verifier and the executor's plan. Of one program, which must outlive it and not
// change.
class TypeFlow {
 public:
  // What an op does to types; spans are good during the visit. kUnknownType, and invalid ids, stand
  // for what is not known, and for arguments that are no variables or not declared.
  struct Step {
    Op op;
    // False: the inputs do not fit the op, and the outputs keep their types. Error() says why.
    bool fits;
    absl::Span<const TypeId> inputs;    // one per Op::input_args()
    absl::Span<const TypeId> inferred;  // one per Op::output_args(); empty if not `fits`
    absl::Span<const VarId> outputs;    // one per Op::output_args()
  };
  // Returns whether to go on.
  using Visit = absl::FunctionRef<bool(const Step&)>;

  explicit TypeFlow(const Program& program);

  // Gives a variable another type than the declared one, from the beginning: call it before Run.
  void Assume(VarId var, const TensorType& type) { current_[var.value()] = types_.Intern(type); }

  // Visits the ops of the block and of those that its ops run, each block once: a block before the
  // op that runs it. Goes on where a Run before has ended. False: the visitor stopped it.
  // O(arguments), and the depth of the block for each; inference as InferCache says.
  bool Run(int block, Visit visit);
  // Whether a Run has come to the block.
  bool HasRun(int block) const { return has_run_[block]; }

  // Why the op does not fit: InvalidArgument.
  absl::Status Error(const Step& step) const { return cache_.Error(step.op, step.inputs); }

  const TypeTable& types() const { return types_; }
  TypeId declared(VarId var) const { return declared_[var.value()]; }
  // As it is behind the ops visited so far, during a visit those of that op.
  TypeId current(VarId var) const { return current_[var.value()]; }

 private:
  const Program& program_;
  TypeTable types_;
  InferCache cache_;
  std::vector<bool> has_run_;     // by block
  std::vector<TypeId> declared_;  // by VarId
  std::vector<TypeId> current_;   // by VarId
  std::vector<TypeId> inputs_;    // of the op that is being visited
  std::vector<VarId> outputs_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_TYPE_FLOW_H_
