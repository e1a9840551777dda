// What passes ask of one op or one variable.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_OP_QUERIES_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_OP_QUERIES_H_

#include "absl/types/optional.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

// Whether the op has the trait; an unregistered one has none. Of all ops of a program, ask OpTraits
// (ops/analysis/core/op_traits.h).
inline bool HasTrait(const Op& op, Trait trait) {
  const OpSchema* const schema = FindOpSchema(op.type());
  return schema != nullptr && schema->Has(trait);
}

// The declared type of the variable that ops of the block call `name`. None: it is not declared, or
// has no such type.
inline absl::optional<TensorType> DeclaredType(const Program& program, Symbol name, int block = 0) {
  const VarId var = program.block(block).Resolve(name);
  return var.valid() ? DeclaredType(program.var(var)) : absl::nullopt;
}

// Whether that variable holds rows of a tensor.
inline bool IsRows(const Program& program, Symbol name, int block = 0) {
  const VarId var = program.block(block).Resolve(name);
  return var.valid() && program.var(var).type() == pb::VarType::SELECTED_ROWS;
}

// Calls visit(name) for the arguments of an op and of the ops of its blocks.
template <typename Visit>
void ForEachArgument(const Op& op, const Visit& visit) {
  for (Symbol name : op.args()) visit(name);
  for (int block : op.SubBlocks()) {
    for (OpId id : op.program().block(block).ops()) ForEachArgument(op.program().op(id), visit);
  }
}

inline bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_OP_QUERIES_H_
