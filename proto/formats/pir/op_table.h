// Which op of ProgramDesc an op of PIR is: one rule for each op type, from the records of ops
// (OpSchema::Pir).
#ifndef WEFT_PROTO_FORMATS_PIR_OP_TABLE_H_
#define WEFT_PROTO_FORMATS_PIR_OP_TABLE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/framework.pb.h"

namespace weft::pir {

namespace pb = ::paddle::framework::proto;

struct OperandRule {
  enum class Kind {
    kTensor,    // an argument of a slot
    kList,      // the arguments of a slot, from 0.combine
    kConstant,  // an attribute, from 1.full or 1.full_int_array
    kDropped,   // ProgramDesc has no such input
  };
  absl::string_view name;  // in PIR's declaration
  Kind kind = Kind::kTensor;
  absl::string_view target;     // slot or attribute
  pb::AttrType type = pb::INT;  // of the attribute
  bool optional = false;
  // Where it may be a tensor instead of a constant: the slots of the tensor, and of a list of
  // numbers that it is stacked from, if ProgramDesc has that.
  absl::string_view tensor_slot, list_slot;
  bool may_be_tensor() const { return !tensor_slot.empty(); }
};

struct ResultRule {
  absl::string_view name;
  bool is_list = false;
  bool dropped = false;
  bool optional = false;  // may be left out where the gradient op reads it
  absl::string_view slot;
  int in_place_of = -1;  // the operand whose variable it overwrites
};

struct OpRule {
  absl::string_view pir;   // "1.matmul"
  absl::string_view desc;  // "matmul_v2"
  std::vector<OperandRule> operands;
  std::vector<ResultRule> results;
  // Attributes with another name; an empty one has no counterpart. All others keep their names.
  std::vector<std::pair<absl::string_view, absl::string_view>> attrs;
  // The op of ProgramDesc also makes the dims of X (slot XShape), which its gradient op reads.
  bool has_xshape = false;

  // -1 if there is none.
  int FindOperand(absl::string_view name) const;
  int FindResult(absl::string_view name) const;
};

// The rule for an op type of PIR or, the first one, of ProgramDesc; null: there is none. O(1).
const OpRule* FindRule(absl::string_view pir);
const OpRule* FindRuleOfDesc(absl::string_view desc);
// All rules, for documentation and tests.
absl::Span<const OpRule> AllRules();

// "matmul" of "1.matmul", "sgd" of "1.sgd_".
absl::string_view BaseName(absl::string_view pir);
bool IsGradientOp(absl::string_view pir);
// Ops that overwrite operands: their names end in '_'.
bool IsInPlace(absl::string_view pir);
// Ops that ranks run together. All of c_* and sync_* count.
bool IsCollective(absl::string_view pir);

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_OP_TABLE_H_
