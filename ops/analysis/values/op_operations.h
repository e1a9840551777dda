// Ops of programs as operations on expressions.
#ifndef WEFT_OPS_ANALYSIS_VALUES_OP_OPERATIONS_H_
#define WEFT_OPS_ANALYSIS_VALUES_OP_OPERATIONS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/block_names.h"
#include "ops/analysis/values/expressions.h"
#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

// Maps ops to operations: ops of programs that share a table compute equal results from equal
// inputs if they have one operation. They need equal types, slots, numbers of arguments and
// attributes.
// - Attributes that the schema does not name (op_role, op_callstack, nranks, ...) do not count, nor
//   those that choose a representation or an engine (is_sparse, use_mkldnn, ...).
// - Factors of gradients (kRescaleGradAttr) do not count: the operand is the multiple.
// - A missing attribute equals its default.
// - The order of slots and attributes, and the choice of optional outputs, do not matter.
// - sync_batch_norm is batch_norm: layer 7 tells whose batch each of them normalizes by. A gradient
//   op of the other of the two differs from both.
// For an unregistered op all attributes count except those for bookkeeping. Blocks count by their
// ops, and by the names and declarations of their variables. Inputs of the op that has the block
// count by their place, so that they may have other names; what the block of a gradient op calls
// gradients counts by name (ops/analysis/core/block_names.h). The places in a slot are those in
// which the block first names the variables, and for a gradient op the order of their names in the
// block: the order in which the op lists them does not matter.
class OpOperations {
 public:
  OpOperations(const Program& program, ExpressionTable* table);

  // O(bytes of the op).
  OperationId Of(const Op& op);
  // Run `run` of an op whose runs have different results.
  OperationId Draw(const Op& op, int run);
  // Operand i of the call is op.input_args()[order[i]].
  const std::vector<uint32_t>& OperandOrder(const Op& op) { return OrderOf(op).operands; }
  // The number of outputs of the call, and which of them is op.output_args()[i].
  uint32_t NumOutputs(const Op& op) { return Entry(op).num_outputs; }
  uint32_t OutputIndex(const Op& op, size_t i) { return OrderOf(op).outputs[i]; }
  // Inputs and then outputs, both in that order.
  std::vector<Symbol> OrderedArgs(const Op& op);

 private:
  // Whether the op is the gradient of a sync_batch_norm, but not synchronized, or the other way
  // round; or may be, where its mean comes from another op. The first call for such an op is
  // O(ops).
  bool MixesBatchNorms(const Op& op);

  struct Order {
    std::vector<uint32_t> operands, outputs;  // as OperandOrder and OutputIndex
  };
  struct SignatureInfo {
    std::string prefix;        // of the identity: type and slots
    Order order;               // by slots; those of an op with blocks are in orders_
    uint32_t num_outputs = 0;  // 0: not made yet
    // By attribute: its place in the identity, or -1 if it does not count; the bytes of its
    // default.
    std::vector<int> attr_place;
    std::vector<std::string> default_bytes;
    uint32_t num_places = 0;
    bool has_blocks = false;
    // The result of the last call of Of.
    std::string last_identity;
    OperationId last;
  };

  SignatureInfo& Entry(const Op& op);
  const Order& OrderOf(const Op& op);
  Order MakeOrder(const Op& op);
  // Numbers variables by the first op of the block, or of one in it, that names them.
  void FindFirstUses(int block, std::set<int>* walked, absl::flat_hash_map<VarId, size_t>* uses);
  void Make(const Op& op, SignatureInfo* signature) const;
  void MakeAttrs(const Op& op, const OpSchema* schema, SignatureInfo* signature) const;
  // What an op with blocks says about the names in these.
  struct OuterNames {
    absl::flat_hash_map<VarId, uint32_t> operands;  // by variable: its place among the inputs
    const BlockGradientNames* gradients = nullptr;  // of a gradient op
  };
  std::string BlocksText(const Op& op);
  void AppendBlock(int block, const OuterNames& outer, std::string* text);

  const Program& program_;
  ExpressionTable& table_;
  std::vector<SignatureInfo> signatures_;  // by Op::signature_id
  // Of ops with blocks.
  absl::flat_hash_map<OpId, std::string> blocks_texts_;
  absl::node_hash_map<OpId, Order> orders_;
  // By SavedMean that a batch norm is the last to write: whether that one is synchronized.
  absl::optional<absl::flat_hash_map<Symbol, bool>> batch_norm_of_mean_;
  bool has_batch_norms_[2] = {false, false};  // by whether they are synchronized
  std::vector<absl::string_view> places_;
  std::string identity_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_OP_OPERATIONS_H_
