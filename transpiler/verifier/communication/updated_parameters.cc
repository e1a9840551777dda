#include "transpiler/verifier/communication/updated_parameters.h"

#include <cstddef>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"

namespace weft {

UpdatedParameters::UpdatedParameters(const Program& program) : program_(program) {
  for (const Op& op : AllOps(program)) {
    const Algebra algebra = AlgebraOf(op, FindOpSchema(op.type()));
    const bool adds =
        algebra == Algebra::kAdd || algebra == Algebra::kSum || algebra == Algebra::kSubtract;
    if (!adds && algebra != Algebra::kCopy && algebra != Algebra::kCast) continue;
    if (op.output_args().size() != 1) continue;
    const VarId out = program.block(op.block()).Resolve(op.output_args()[0]);
    bool is_in_place = false;
    std::vector<VarId> others;
    for (Symbol name : op.input_args()) {
      const VarId in = program.block(op.block()).Resolve(name);
      if (in == out) is_in_place = true;
      if (in.valid() && in != out && !program.var(in).persistable()) others.push_back(in);
    }
    if (!out.valid() || is_in_place != adds) continue;
    for (VarId other : others) next_[other].push_back(out);
  }
}

VarId UpdatedParameters::Of(VarId var) const {
  if (!var.valid()) return var;
  std::vector<VarId> reached = {var};  // nearest first
  absl::flat_hash_set<VarId> is_reached = {var};
  for (size_t i = 0; i < reached.size(); ++i) {
    if (program_.var(reached[i]).persistable()) return reached[i];
    const auto it = next_.find(reached[i]);
    if (it == next_.end()) continue;
    for (VarId next : it->second) {
      if (is_reached.insert(next).second) reached.push_back(next);
    }
  }
  return var;
}

}  // namespace weft
