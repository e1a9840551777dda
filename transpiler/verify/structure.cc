#include "transpiler/verify/structure.h"

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/op_traits.h"
#include "ops/schema/check_slots.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"

namespace weft {
namespace {

// Integer attributes of 32 and 64 bits, and floats of both sizes, are read alike (OpAttrs). Some
// attributes may name a variable that holds the value instead.
bool TypeFits(int found, int expected) {
  const auto both = [&](int a, int b) {
    return (found == a || found == b) && (expected == a || expected == b);
  };
  return found == expected || both(pb::INT, pb::LONG) || both(pb::INTS, pb::LONGS) ||
         both(pb::FLOAT, pb::FLOAT64) || both(pb::FLOATS, pb::FLOAT64S) || found == pb::VAR ||
         found == pb::VARS || !pb::AttrType_IsValid(found);
}

absl::Status CheckAttrs(const Op& op, const OpSchema& schema) {
  const Program& program = op.program();
  for (const AttrSchema& attr : schema.attrs()) {
    if (!attr.required || op.HasAttr(attr.name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(op.DebugName(), " attribute ", attr.name, ": expected a value, found none"));
  }
  for (const OpLayout::Attr& attr : op.layout().attrs) {
    const AttrSchema* expected = schema.FindAttr(program.name(attr.name));
    if (expected == nullptr) continue;
    const pb::AttrType type = AttrTypeOf(expected->default_value);
    if (TypeFits(attr.type, type)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(op.DebugName(), " attribute ", program.name(attr.name), ": expected type ",
                     pb::AttrType_Name(type), ", found ",
                     pb::AttrType_Name(static_cast<pb::AttrType>(attr.type))));
  }
  return absl::OkStatus();
}

// The slot that holds the op's i-th argument: "input X".
std::string SlotOfArg(const Op& op, size_t i) {
  for (const auto* slots : {&op.layout().inputs, &op.layout().outputs}) {
    for (const OpLayout::Slot& slot : *slots) {
      if (i < slot.first || i >= slot.first + slot.count) continue;
      return absl::StrCat(slots == &op.layout().inputs ? "input " : "output ",
                          absl::CEscape(op.program().name(slot.name)));
    }
  }
  return "argument";
}

absl::Status NotDeclared(const Op& op, size_t i) {
  return absl::InvalidArgumentError(
      absl::StrCat(op.DebugName(), " ", SlotOfArg(op, i), ": variable ",
                   absl::CEscape(op.program().name(op.args()[i])), " is not declared"));
}

}  // namespace

absl::Status VerifyStructure(const Program& program) {
  OpTraits traits(program);
  std::vector<bool> layout_checked(program.num_layouts(), false);
  const Symbol empty = program.FindSymbol(kEmptyVarName);
  // Nearly all arguments are declared in the root block: one look into a table for those.
  std::vector<bool> in_root(program.symbols().size(), false);
  for (VarId id : program.block(0).vars()) in_root[program.var(id).name_symbol().value()] = true;
  if (empty.valid()) in_root[empty.value()] = true;

  for (int b = 0; b < program.num_blocks(); ++b) {
    const Block block = program.block(b);
    // A block that does not descend from the root does not see its variables.
    int ancestor = b;
    while (program.block(ancestor).parent_idx() != -1) {
      ancestor = program.block(ancestor).parent_idx();
    }
    const bool sees_root = ancestor == 0;
    for (OpId id : block.ops()) {
      const Op op = program.op(id);
      const absl::Span<const Symbol> args = op.args();
      for (size_t i = 0; i < args.size(); ++i) {
        if (in_root[args[i].value()] && (sees_root || args[i] == empty)) continue;
        if (b == 0 || !block.Resolve(args[i]).valid()) return NotDeclared(op, i);
      }
      if (layout_checked[op.layout_id()]) continue;
      layout_checked[op.layout_id()] = true;
      const OpSchema* schema = traits.SchemaOf(op);
      if (schema == nullptr) continue;
      WEFT_RETURN_IF_ERROR(CheckSlots(op, *schema));
      WEFT_RETURN_IF_ERROR(CheckAttrs(op, *schema));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
