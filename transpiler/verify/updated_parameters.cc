#include "transpiler/verify/updated_parameters.h"

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ops/schema/algebra.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/op_schema.h"

namespace weft {

UpdatedParameters::UpdatedParameters(const Program& program) : program_(program) {
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (OpId id : program.block(block).ops()) {
      const Op op = program.op(id);
      const Algebra algebra = AlgebraOf(op, FindOpSchema(op.type()));
      const bool adds =
          algebra == Algebra::kAdd || algebra == Algebra::kSum || algebra == Algebra::kSubtract;
      if (!adds && !CopiesFrom(op.type()).has_value()) continue;
      if (op.output_args().size() != 1) continue;
      const VarId out = program.block(block).Resolve(op.output_args()[0]);
      bool is_in_place = false;
      std::vector<VarId> others;
      for (Symbol name : op.input_args()) {
        const VarId in = program.block(block).Resolve(name);
        if (in == out) is_in_place = true;
        if (in.valid() && in != out && !program.var(in).persistable()) others.push_back(in);
      }
      if (!out.valid() || is_in_place != adds) continue;
      for (VarId other : others) next_.emplace(other, out);
    }
  }
}

VarId UpdatedParameters::Of(VarId var) const {
  absl::flat_hash_set<VarId> passed;
  for (VarId at = var; at.valid() && passed.insert(at).second;) {
    if (program_.var(at).persistable()) return at;
    const auto it = next_.find(at);
    if (it == next_.end()) break;
    at = it->second;
  }
  return var;
}

}  // namespace weft
