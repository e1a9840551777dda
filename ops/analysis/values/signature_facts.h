// What abstract interpretation (ops/analysis/values/rank_values.h) needs of a signature.
#ifndef WEFT_OPS_ANALYSIS_VALUES_SIGNATURE_FACTS_H_
#define WEFT_OPS_ANALYSIS_VALUES_SIGNATURE_FACTS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_schema.h"
#include "proto/op_assumptions.h"
#include "proto/program.h"

namespace weft {

struct SignatureFacts {
  enum class Kind : uint8_t {
    kIgnored,
    kFeed,
    kCollective,
    kFuse,
    kBranch,
    kOpaqueBlock,
    kBlockGrad,
    kFunction
  };
  Kind kind = Kind::kFunction;
  Algebra algebra = Algebra::kNone;
  bool is_elementwise = false;
  bool is_linear = false;  // in all inputs together
  const OpSchema* schema = nullptr;
  // Of an op without a schema.
  OpAssumption assumption;
  // By input: for kBackward, whether its slot ends in @GRAD; for kMove, whether it is in slot X,
  // or in slot Y of a choice between two. With keeps_outputs, true for each output follows.
  std::vector<bool> is_operand;
  bool keeps_outputs = false;
  // Slots Param, Grad, ParamOut, MasterParamOut of an optimizer; count 0: none.
  OpSignature::Slot param, grad, param_out, master_out;
  // By input, of kSparsify: whether it is in slot Residual.
  std::vector<bool> is_residual;
  // By output: whether the op names it without writing it.
  std::vector<bool> is_left;
  // By output: the input whose place it takes; -1: none.
  std::vector<int> in_place_of;
  // The arguments of slots X and Y of sums and products. Of kCopy, the argument that is copied:
  // that of slot X, or the first.
  uint32_t x = 0, y = 1;
  // For kBackward, by output of a slot S@GRAD: the input of slot S; -1: none.
  std::vector<int> forward_input;
  // For kBackward of an op that is linear: forward_input gives only the dims of its gradient.
  bool reads_dims = false;
};

SignatureFacts MakeSignatureFacts(const Op& op, const OpAssumptions& assumptions = {});

// The facts of all ops of a program: ProgramFacts::Get<SignatureTable>().
class SignatureTable {
 public:
  // O(ops). Goes by AssumptionsOf the program.
  explicit SignatureTable(const Program& program);

  const SignatureFacts& Of(const Op& op) const {
    if (!exceptions_.empty()) {
      const auto found = exceptions_.find(op.id());
      if (found != exceptions_.end()) return found->second;
    }
    return by_signature_[op.signature_id()];
  }

 private:
  std::vector<SignatureFacts> by_signature_;
  // Of ops that are unlike the first op of their signature: attributes of an op without a schema
  // may say that it draws nothing.
  absl::flat_hash_map<OpId, SignatureFacts> exceptions_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_SIGNATURE_FACTS_H_
