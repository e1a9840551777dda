// Products with constants, which attributes give or ops of the program make:
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

// Follows numbers that fill whole variables through the program: through copies, casts and
// arithmetic, and through all-reduces over all ranks, which make their number of a 1.
class ConstantFactors {
 public:
  struct Factor {
    uint32_t operand;  // of Op::input_args()
    double value;
    int constant = -1;  // the operand that is the constant; -1: an attribute
    bool divides = false;
  };
  // Output `output` of Op::output_args() is a multiple of an operand.
  struct GradientFactor {
    uint32_t output;
    Factor factor;
  };

  // The program and the table of its signatures must outlive it. `nranks`: none if it is not known.
  ConstantFactors(const Program& program, const SignatureTable& signatures,
                  absl::optional<int> nranks)
      : program_(program), signatures_(signatures), nranks_(nranks) {}

  // Of an op whose algebra is kScale, kMultiply or kDivide: the operand that it multiplies, and by
  // which number. None: it adds something; or the other operand of a product is no constant, is
  // no floating-point number, or has more elements. The first call is O(arguments).
  absl::optional<Factor> Of(const Op& op);
  // The same for the gradient op of such an op. Empty for all others.
  std::vector<GradientFactor> OfGradient(const Op& op);

 private:
  class Walk;

  void Find();

  const Program& program_;
  const SignatureTable& signatures_;
  const absl::optional<int> nranks_;
  bool is_made_ = false;
  absl::flat_hash_map<OpId, Factor> factors_;
  absl::flat_hash_map<OpId, std::vector<GradientFactor>> gradient_factors_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_CONSTANT_FACTORS_H_
