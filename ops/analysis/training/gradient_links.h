// How the arguments of a gradient op correspond to those of the op that it differentiates.
#ifndef WEFT_OPS_ANALYSIS_TRAINING_GRADIENT_LINKS_H_
#define WEFT_OPS_ANALYSIS_TRAINING_GRADIENT_LINKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/optional.h"
#include "proto/program.h"

namespace weft {

// By slots: the gradient op of op(X -> Out) reads X, Out and Out@GRAD, and writes X@GRAD. The op
// may be a gradient op itself (ops/schema/second_gradients.h). Equal for all pairs of two
// signatures.
struct GradientLinks {
  static constexpr uint32_t kNone = ~uint32_t{0};

  // Of each input of the gradient op, by Op::input_args().
  struct Input {
    // The argument of the op whose value it is, or whose gradient; kNone: neither.
    uint32_t argument = kNone;
    bool is_gradient = false;
  };
  std::vector<Input> inputs;
  // By output: the input of the op whose gradient it is; kNone: of none.
  std::vector<uint32_t> outputs;
};

// None if the type of `gradient` is not that of the gradient op of `op`. O(slots^2).
absl::optional<GradientLinks> LinkGradient(const Op& op, const Op& gradient);

// Whether the attributes that the schemas of both ops name have equal values; those that choose a
// representation may differ (is_sparse). Without schemas, whether those that both have are equal.
// False if one of them has no schema, or an attribute that cannot be read. O(attributes).
bool AttributesAgree(const Op& op, const Op& gradient);

// Ends the name of a parameter that ranks gather once more, for the backward pass.
inline constexpr char kAgainSuffix[] = "@AGAIN";

// Whether `gradient` names, in all linked slots of values, the variables that `op` names, or these
// gathered again.
bool HasArgumentsOf(const Op& op, const Op& gradient, const GradientLinks& links);

// The gradient ops of a program without a forward pass: none of them differentiates an op of a type
// that the program has, or reads the gradient of a variable that it writes. In op order; empty for
// all other programs. O(arguments).
std::vector<OpId> GradientsOfAbsentOps(const Program& program);

// Finds, for gradient ops, the op that each differentiates.
class DifferentiatedOps {
 public:
  // The program must outlive it.
  explicit DifferentiatedOps(const Program& program) : program_(program) {}

  // The last op for which `was_visited` holds that `gradient` differentiates, going by type,
  // arguments and attributes. Invalid: none. Of the ops that share a variable with `gradient`, the
  // last kMaxCandidates count. The first call for a type is O(ops).
  OpId Find(const Op& gradient, absl::FunctionRef<bool(OpId)> was_visited);

 private:
  static constexpr size_t kMaxCandidates = 64;
  using OpsBySymbol = absl::flat_hash_map<Symbol, std::vector<OpId>>;

  // The ops that ops of the type of `gradient` differentiate, by argument.
  const OpsBySymbol& OpsOfType(const Op& gradient);

  const Program& program_;
  absl::flat_hash_map<Symbol, OpsBySymbol> by_type_;  // of gradient ops
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_TRAINING_GRADIENT_LINKS_H_
