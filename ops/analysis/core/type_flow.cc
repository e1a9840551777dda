#include "ops/analysis/core/type_flow.h"

#include "ops/analysis/core/block_names.h"

namespace weft {

bool IsScalarAndOne(const TensorType& a, const TensorType& b) {
  const Dims scalar, one = {1};
  return a.dtype == b.dtype && a.kind == b.kind &&
         ((a.dims == scalar && b.dims == one) || (a.dims == one && b.dims == scalar));
}

TypeFlow::TypeFlow(const Program& program)
    : program_(program),
      cache_(program, &types_),
      has_run_(program.num_blocks(), false),
      declared_(DeclaredTypes(program, &types_)),
      current_(declared_) {}

bool TypeFlow::Run(int block_index, Visit visit) {
  has_run_[block_index] = true;
  const Block block = program_.block(block_index);
  for (OpId id : block.ops()) {
    const Op op = program_.op(id);
    for (int sub_block : op.SubBlocks()) {
      // Once each: the number of ways into a block may be exponential in the size of the program.
      if (!has_run_[sub_block] && !Run(sub_block, visit)) return false;
    }
    inputs_.clear();
    for (Symbol name : op.input_args()) {
      const VarId var = ResolveArgument(program_, block_index, name);
      inputs_.push_back(var.valid() ? current_[var.value()] : kUnknownType);
    }
    outputs_.clear();
    for (Symbol name : op.output_args())
      outputs_.push_back(ResolveArgument(program_, block_index, name));

    const auto inferred = cache_.Infer(op, inputs_);
    Step step = {op, inferred.has_value(), inputs_, {}, outputs_};
    if (step.fits) {
      step.inferred = *inferred;
      for (size_t i = 0; i < outputs_.size(); ++i) {
        const TypeId type = step.inferred[i];
        const VarId var = outputs_[i];
        if (type == kUnknownType || !var.valid()) continue;
        TypeId& current = current_[var.value()];
        if (type == current) continue;
        const TypeId declared = declared_[var.value()];
        const bool keep = declared != kUnknownType && type != declared &&
                          IsScalarAndOne(*types_.type(type), *types_.type(declared));
        current = keep ? declared : type;
      }
    }
    if (!visit(step)) return false;
  }
  return true;
}

}  // namespace weft
