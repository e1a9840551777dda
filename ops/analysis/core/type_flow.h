// The types of variables, op by op.
#ifndef WEFT_OPS_ANALYSIS_CORE_TYPE_FLOW_H_
#define WEFT_OPS_ANALYSIS_CORE_TYPE_FLOW_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ops/schema/infer_cache.h"
#include "ops/schema/tensor_type.h"
#include "ops/schema/type_table.h"
#include "proto/program.h"

namespace weft {

// Whether one type is a scalar and the other [1], of equal dtype and kind. Paddle before 2.5 had no
// scalars: older programs declare reductions as [1], inference says [].
bool IsScalarAndOne(const TensorType& a, const TensorType& b);

// Follows the types of variables through a program, in program order: declared ones at first, then
// those inferred for the ops that write them. (If the two differ as IsScalarAndOne says, the
// declared one stays, so that older programs are consistent.) The verifier and the executor's plan
// check types with it. The program must outlive it and not change.
class TypeFlow {
 public:
  // The types of an op; spans are valid during the visit. kUnknownType and invalid ids stand for
  // unknown types, empty arguments and undeclared variables.
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

  // Replaces the declared type of a variable. Call it before Run.
  void Assume(VarId var, const TensorType& type) { current_[var.value()] = types_.Intern(type); }

  // Visits the ops of the block and of its sub-blocks, each block once, before the op that runs it.
  // Continues from earlier calls. Returns false if the visitor stopped it. O(arguments), and the
  // depth of the block for each; inference as InferCache says.
  bool Run(int block, Visit visit);

  // Why the op does not fit: InvalidArgument.
  absl::Status Error(const Step& step) const { return cache_.Error(step.op, step.inputs); }

  const TypeTable& types() const { return types_; }
  TypeId declared(VarId var) const { return declared_[var.value()]; }
  // After the ops visited so far, including the current one.
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

#endif  // WEFT_OPS_ANALYSIS_CORE_TYPE_FLOW_H_
