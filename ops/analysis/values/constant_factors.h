// Products with constants that ops of the program make:
//
//   Out=[two] = fill_constant() {value=2}; Out=[half] = elementwise_div(X=[g], Y=[two])
#ifndef WEFT_OPS_ANALYSIS_VALUES_CONSTANT_FACTORS_H_
#define WEFT_OPS_ANALYSIS_VALUES_CONSTANT_FACTORS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "ops/analysis/values/signature_facts.h"
#include "proto/program.h"

namespace weft {

// Whether the op fills its outputs with zeros.
bool FillsZeros(const Op& op, const SignatureFacts& facts);

class ConstantFactors {
 public:
  struct Factor {
    uint32_t operand;  // of Op::input_args()
    double value;
  };
  // Output `output` of Op::output_args() is a multiple of an operand.
  struct GradientFactor {
    uint32_t output;
    Factor factor;
  };

  // The program must outlive it.
  explicit ConstantFactors(const Program& program) : program_(program) {}

  // Of an op whose algebra is kMultiply or kDivide: the floating-point operand that it multiplies,
  // and by which number. None: the other one is no constant, or has more elements than the operand.
  // The first call is O(arguments).
  absl::optional<Factor> OfProduct(const Op& op, const SignatureFacts& facts);
  // The same for the gradient op of such an op. Empty for all others.
  std::vector<GradientFactor> OfGradient(const Op& op);

 private:
  // The number that each element of a variable always is; none: unknown, or 0.
  absl::optional<double> ConstantIn(const Op& op, Symbol name);
  // Whether a product of the two has the shape of `operand`.
  bool KeepsShape(const Op& op, Symbol operand, Symbol constant) const;
  void FindConstants();

  const Program& program_;
  bool is_made_ = false;
  // Of variables that a single op writes. In sub-blocks: only for ops of the same block.
  absl::flat_hash_map<VarId, double> constants_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_CONSTANT_FACTORS_H_
