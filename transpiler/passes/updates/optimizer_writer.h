// The ops of an optimizer, and the variables that they need.
#ifndef WEFT_TRANSPILER_PASSES_UPDATES_OPTIMIZER_WRITER_H_
#define WEFT_TRANSPILER_PASSES_UPDATES_OPTIMIZER_WRITER_H_

#include <functional>
#include <string>
#include <vector>

#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/program_edits.h"
#include "transpiler/passes/updates/optimizer_settings.h"

namespace weft {

// A parameter, and the gradient to update it by, of the same element type and known dimensions:
// fp32, or a type for which Supports holds. So is the state.
struct NewUpdate {
  std::string param, grad;
  DType dtype = DType::kFloat32;
  Dims dims;
  bool has_rows = false;  // the gradient is SelectedRows
  // A variable that holds whether the update is skipped; empty: it never is. Needs CanSkip.
  std::string skip;
};

// Writes, for parameter p and gradient g, in the order of the lines:
//
//   all      g += weight_decay p                        if weight_decay is not 0
//   sgd      v = momentum v + (1 - dampening) g         if momentum is not 0
//            g = v, with Nesterov momentum g + momentum v
//            p -= lr g
//   rmsprop  r = rho r + (1 - rho) g²;  p -= lr g / √(r + epsilon)
//   adagrad  h += g²;                   p -= lr g / √(h + epsilon)
//   adam     m = beta_1 m + (1 - beta_1) g;  v = beta_2 v + (1 - beta_2) g²
//            p -= lr (m / (1 - beta_1^(k + 1))) / (√(v / (1 - beta_2^(k + 1))) + epsilon)
//   adamw    p -= lr weight_decay p, then as adam     instead of the first line
//
// in step k = 0, 1, ...; states begin with 0. These are the formulas of SGD, RMSProp, AdaGrad and
// Adam of Apache SINGA (python/singa/opt.py). Hyperparameters have the values of step k, also
// epsilon of Adam, which SINGA leaves at that of step 0.
//
// An update is one op `sgd`, `momentum`, `rmsprop`, `adam` or `adamw` where that computes the
// formula. Otherwise ops on tensors compute by what p changes, and an op `sgd` applies it, so that
// every parameter is updated by an op with slots Param and Grad: sgd with a momentum that decays,
// rmsprop with a rho or epsilon that decays, and adagrad, whose epsilon stands outside of the root
// in Paddle's op.
//
// Gradients are not written: what is added to one goes to a new variable. Where a gradient has rows
// (SelectedRows), those of the others are 0. Ops sgd, momentum, rmsprop and adam read rows as they
// are; for ops on tensors, and with weight decay, a sum with a tensor makes them dense.
//
// Scalars have no dimensions, so that they broadcast to every parameter. What decays is computed
// from a persistable counter of updates, int64 as in Paddle's schedules: SINGA's, in fp32, stops at
// 2^24.
class OptimizerWriter {
 public:
  using Emit = std::function<void(const pb::OpDesc&)>;

  // Op attribute op_namescope of all ops in the main program is `scope`. Variables that last from
  // step to step are declared in both root blocks, and startup ops initialize them; others are
  // declared in `block` of the main program. Pointers must outlive the writer.
  OptimizerWriter(const OptimizerSettings& settings, std::string scope, int block,
                  ProgramEdits* edits);

  // Whether parameters of the element type can be updated so. SINGA's SGD updates fp16, too.
  static bool Supports(const OptimizerSettings& settings, DType dtype);
  // Whether updates of these settings can be skipped.
  static bool CanSkip(const OptimizerSettings& settings);

  // What all updates of a step share; once, before them. Emits ops of role lr_sched.
  void WriteSchedules(const Emit& emit);
  // One update, of role optimize. O(1).
  void WriteUpdate(const NewUpdate& update, const Emit& emit);
  // Ends the step; once, after all updates.
  void WriteStep(const Emit& emit);

  // The persistable variables that the ops read, and those of them that they write.
  const std::vector<std::string>& reads() const { return reads_; }
  const std::vector<std::string>& writes() const { return writes_; }

 private:
  // A hyperparameter in a step: a constant, or a variable.
  struct Value {
    double constant = 0;
    std::string variable;  // empty: the constant
    bool IsConstant() const { return variable.empty(); }
  };
  // The update whose ops are written.
  struct Current {
    const NewUpdate& update;
    const Emit& emit;
  };

  Value ValueOf(const ScheduleValue& schedule, const std::string& name, const Emit& emit);
  std::string VariableOf(const Value& value, const std::string& name, const Emit& emit);
  Value OneMinus(const Value& value, const std::string& name, const Emit& emit);
  void WriteBetas(const Emit& emit);

  std::string GradientOf(const Current& current);
  void WriteSgd(const std::string& grad, const Current& current);
  void WriteRmsProp(const std::string& grad, const Current& current);
  void WriteAdaGrad(const std::string& grad, const Current& current);
  void WriteAdam(const std::string& grad, const Current& current);
  // p -= lr grad / √(squares + epsilon).
  void WriteByRoot(const std::string& grad, const std::string& squares, const Current& current);
  void WriteLast(const std::string& grad, const Current& current);
  void UpdateOp(const std::string& type, const std::string& grad, NewSlots inputs, NewSlots outputs,
                NewAttrs attrs, const Current& current);

  void Op(const std::string& type, NewSlots inputs, const std::string& out, NewAttrs attrs,
          const Current& current);
  void Times(const std::string& x, const Value& factor, const std::string& out,
             const Current& current);
  void Plus(const std::string& x, const std::string& y, const std::string& out,
            const Current& current);
  std::string StateOf(const char* name, const Current& current);
  std::string Temporary(const char* name, const Current& current);

  // A persistable variable that ops read, and one that they also write.
  std::string Persistable(const std::string& key, DType dtype, const Dims& dims, double value);
  std::string State(const std::string& key, DType dtype, const Dims& dims, double value);
  std::string Scalar(const std::string& name);
  void ScalarOp(const std::string& type, NewSlots inputs, const std::string& out, NewAttrs attrs,
                const Emit& emit);
  pb::OpDesc Build(const NewOp& op, const NewUpdate* update) const;

  const OptimizerSettings settings_;
  const std::string scope_;
  const int block_;
  ProgramEdits& edits_;
  std::vector<std::string> reads_, writes_;

  std::string counter_, step_;  // empty: nothing decays; the step as fp32
  Value lr_, weight_decay_, momentum_, gradient_part_, rho_, square_part_, epsilon_, beta_1_,
      beta_2_;
  std::string beta_1_pow_, beta_2_pow_;  // empty: each update keeps its own
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_UPDATES_OPTIMIZER_WRITER_H_
