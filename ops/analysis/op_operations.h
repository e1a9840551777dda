// Ops of programs as operations on expressions.
#ifndef WEFT_OPS_ANALYSIS_OP_OPERATIONS_H_
#define WEFT_OPS_ANALYSIS_OP_OPERATIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ops/analysis/expressions.h"
#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

// Says which ops of one program, or of several that share a table, compute the same from the same
// inputs. Two ops do if they have the same type, the same slots with as many arguments, and the
// same attributes, where
// - attributes that a schema does not name (op_role, op_callstack, nranks, ...) do not count, nor
//   do those that choose a representation or an engine (is_sparse, use_mkldnn, ...);
// - an attribute that is left out equals its default;
// - the order of slots and attributes, and which optional outputs are asked for, does not matter.
// Of an op type without schema all attributes count but those that every op has for bookkeeping.
// Blocks count by what their ops do, by name.
class OpOperations {
 public:
  OpOperations(const Program& program, ExpressionTable* table);

  // O(bytes of the op), less where it repeats the op of its signature before it.
  OperationId Of(const Op& op);
  // Run number `run` of an op whose every run has another result.
  OperationId Draw(const Op& op, int run);
  // How the op's arguments become operands: the arguments op.input_args()[order[i]].
  const std::vector<uint32_t>& OperandOrder(const Op& op) { return Entry(op).operand_order; }
  // The number of outputs of the call, and which of them is op.output_args()[i].
  uint32_t NumOutputs(const Op& op) { return Entry(op).num_outputs; }
  uint32_t OutputIndex(const Op& op, size_t i) { return Entry(op).output_index[i]; }

 private:
  struct SignatureInfo {
    bool is_made = false;
    std::string prefix;  // of the identity: type and slots
    std::vector<uint32_t> operand_order;
    std::vector<uint32_t> output_index;
    uint32_t num_outputs = 0;
    // By attribute: its place in the identity, -1 where it does not count; the bytes of its
    // default.
    std::vector<int> attr_place;
    std::vector<std::string> default_bytes;
    uint32_t num_places = 0;
    bool has_blocks = false;
    // The last identity that was asked for.
    std::string last_identity;
    OperationId last;
  };

  SignatureInfo& Entry(const Op& op);
  void Make(const Op& op, SignatureInfo* signature) const;
  void MakeAttrs(const Op& op, const OpSchema* schema, SignatureInfo* signature) const;
  const std::string& BlockText(int block);

  const Program& program_;
  ExpressionTable& table_;
  std::vector<SignatureInfo> signatures_;   // by Op::signature_id
  std::map<int, std::string> block_texts_;  // references stay valid
  std::vector<absl::string_view> places_;
  std::string identity_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_OP_OPERATIONS_H_
