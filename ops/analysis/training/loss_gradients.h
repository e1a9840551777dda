// Multiples of the gradients of losses, before the backward pass.
#ifndef WEFT_OPS_ANALYSIS_TRAINING_LOSS_GRADIENTS_H_
#define WEFT_OPS_ANALYSIS_TRAINING_LOSS_GRADIENTS_H_

#include <vector>

#include "proto/program.h"

namespace weft {

class LossGradients {
 public:
  // The program must outlive it and not change.
  explicit LossGradients(const Program& program) : program_(program) {}

  // Whether `op`, of the root block, multiplies the gradient of a loss by a factor, or by another
  // variable, that
  // differentiation does not ask for, as a division by the number of ranks does: in place, or as
  // another gradient of the same variable ("loss@GRAD" as "loss@GRAD@RENAME@7").
  //
  // Differentiation turns the gradient of the output of an op into that of its input, which is
  // another variable, or the same one in place. So an op between two gradients of one variable
  // belongs to no op of the forward pass, unless that works in place.
  //
  // Gradients have names by their places in a chain, where factors may have changed places: if one
  // device divides by as many, too, a division that says so (attribute nranks) may have got the
  // name that belongs to the op after it. That op is then the one of the forward pass, so that as
  // many ops remain as differentiation asks for. The first call is O(ops).
  bool IsScaledBy(const Op& op);

 private:
  void FindAll();
  bool AreOfOneVariable(Symbol a, Symbol b) const;

  const Program& program_;
  bool has_all_ = false;
  std::vector<bool> is_scaling_;  // by OpId
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_TRAINING_LOSS_GRADIENTS_H_
