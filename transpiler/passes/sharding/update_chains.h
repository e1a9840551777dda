// What updates a parameter from its reduced gradient on: ops that may run on a part of the elements
// alone, or on one rank.
#ifndef WEFT_TRANSPILER_PASSES_SHARDING_UPDATE_CHAINS_H_
#define WEFT_TRANSPILER_PASSES_SHARDING_UPDATE_CHAINS_H_

#include <map>
#include <string>
#include <vector>

#include "ops/analysis/training/gradients.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

// The ops that lead from a gradient to the update of its parameter, such as clipping by value,
// weight decay and Adam. They are in the root block, or in the block that uses up gradients of
// several steps (Gradient::block). Nobody else reads what they write, the new value of the
// parameter included, and the gradient, but for what fills an accumulator, and resets it after the
// update.
struct UpdateChain {
  // A variable with an element for each of the parameter.
  struct Tensor {
    Symbol name;
    DType dtype;
    std::string slot;       // of the chain's op that first takes it: "Moment1"
    bool is_state = false;  // persists from step to step
  };
  static constexpr size_t kParam = 0, kGrad = 1;  // into `tensors`

  int block = 0;  // of the ops
  OpId run_by;    // the op of the root block that runs another block
  Dims dims;
  // An op, such as Lamb, needs the whole parameter, and no others: it has an owner.
  bool needs_whole = false;
  std::vector<OpId> ops;         // in order; the last one updates the parameter
  std::vector<Tensor> tensors;   // states and temporaries come after the gradient
  std::vector<Symbol> scalars;   // states of one element, such as powers of beta
  std::vector<Symbol> partials;  // sums of squares of tensors, which are added to others
  // Equal for chains that compute the same of tensors and scalars with the same numbers, and whose
  // partials the same ops add up.
  std::string signature;
};

struct UpdateChains {
  std::map<Symbol, UpdateChain> by_param;
  std::map<Symbol, std::string> why_not;  // of the other parameters of the gradients
  // What adds up partials, of these chains and of others: a sum op, or a stack op of one-element
  // tensors, whose only reader adds up its elements.
  struct PartialSum {
    OpId op;
    OpId reader = {};  // of a stack
  };
  std::vector<PartialSum> sums;
  // Ops that unscale lists of gradients, of these chains and of others: tensor by tensor.
  std::vector<OpId> lists;
};

// The chains of the gradients of the analysis. O(arguments).
UpdateChains FindUpdateChains(const Program& program, const GradientAnalysis& analysis);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SHARDING_UPDATE_CHAINS_H_
