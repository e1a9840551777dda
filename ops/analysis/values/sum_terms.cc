#include "ops/analysis/values/sum_terms.h"

#include <cstdint>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/storage.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {
namespace {

bool IsOfForwardPass(const Op& op) { return (op.role() & ~kRoleLoss) == kRoleForward; }

Algebra AlgebraOfType(absl::string_view type) { return AlgebraOf(type, FindOpSchema(type)); }

bool Adds(absl::string_view type) {
  const Algebra algebra = AlgebraOfType(type);
  return algebra == Algebra::kSum || algebra == Algebra::kAdd || algebra == Algebra::kSubtract;
}

class Finder {
 public:
  Finder(const Program& program, const BatchFlow& flow)
      : program_(program),
        flow_(flow),
        storage_(program),
        writes_(program.var_id_limit(), 0),
        writer_(program.var_id_limit()) {}

  absl::flat_hash_map<VarId, OpId> Find() {
    FindWriters();
    for (OpId id : program_.block(0).ops()) {
      const Op op = program_.op(id);
      if (Divides(op)) terms_.emplace(Resolve(op, op.output_args()[0]), id);
    }
    if (terms_.empty()) return {};
    absl::flat_hash_set<VarId> added, read_otherwise;
    for (const Op& op : AllOps(program_)) {
      const bool adds = AddsToSum(op), differentiates = DifferentiatesSum(op);
      for (Symbol name : op.input_args()) {
        const VarId var = Resolve(op, name);
        if (!terms_.contains(var)) continue;
        if (adds) added.insert(var);
        const bool is_operand =
            differentiates && !absl::c_linear_search(op.Input("Out@GRAD"), name);
        if (!adds && !is_operand) read_otherwise.insert(var);
      }
    }
    absl::flat_hash_map<VarId, OpId> found;
    for (const auto& [var, op] : terms_) {
      if (added.contains(var) && !read_otherwise.contains(var)) found.emplace(var, op);
    }
    return found;
  }

 private:
  VarId Resolve(const Op& op, Symbol name) const {
    return program_.block(op.block()).Resolve(name);
  }

  void FindWriters() {
    int32_t position = 0;
    position_.assign(program_.op_id_limit(), -1);
    for (OpId id : program_.block(0).ops()) position_[id.value()] = position++;
    for (const Op& op : AllOps(program_)) {
      for (Symbol name : op.output_args()) {
        const VarId var = Resolve(op, name);
        if (!var.valid()) continue;
        ++writes_[var.value()];
        writer_[var.value()] = op.id();
      }
    }
  }

  // Whether the variable has one value in each step, which an op of the root block makes before
  // `op`: what it holds at the end of the step.
  bool IsMadeOnceBefore(const Op& op, Symbol name) const {
    const VarId var = Resolve(op, name);
    if (!var.valid() || writes_[var.value()] != 1 || program_.var(var).persistable()) return false;
    if (program_.var(var).block() != 0 || storage_.SharesMemory(0, name)) return false;
    const int32_t written = position_[writer_[var.value()].value()];
    return written >= 0 && written < position_[op.id().value()];
  }

  bool IsMadeOnceBy(const Op& op, Symbol name) const {
    const VarId var = Resolve(op, name);
    return var.valid() && writes_[var.value()] == 1 && !program_.var(var).persistable() &&
           program_.var(var).block() == 0 && !storage_.SharesMemory(0, name);
  }

  BatchRelation RelationOf(const Op& op, Symbol name) const {
    return flow_.AtEnd(Resolve(op, name)).relation;
  }

  bool Divides(const Op& op) const {
    if (!IsOfForwardPass(op) || !op.HasAttr(kNumRanksAttr)) return false;
    if (AlgebraOfType(op.type()) != Algebra::kScale) return false;
    if (op.input_args().size() != 1 || op.output_args().size() != 1) return false;
    const Symbol in = op.input_args()[0], out = op.output_args()[0];
    if (!IsMadeOnceBefore(op, in) || !IsMadeOnceBy(op, out)) return false;
    const absl::optional<TensorType> type = DeclaredType(program_.var(Resolve(op, out)));
    if (!type.has_value() || !IsFloating(type->dtype)) return false;
    const BatchRelation mean = RelationOf(op, in);
    return (mean == BatchRelation::Partial() || mean.IsSame()) &&
           RelationOf(op, out) == mean.Times(-1);
  }

  // Whether the op adds terms to a sum over the batch, of which it makes another one.
  bool AddsToSum(const Op& op) const {
    if (op.block() != 0 || !IsOfForwardPass(op) || !Adds(op.type())) return false;
    if (op.output_args().size() != 1 || !IsMadeOnceBy(op, op.output_args()[0])) return false;
    if (RelationOf(op, op.output_args()[0]) != BatchRelation::PartialSum()) return false;
    bool has_sum = false;
    for (Symbol name : op.input_args()) {
      const bool is_term = terms_.contains(Resolve(op, name));
      const bool is_sum = !is_term && IsMadeOnceBefore(op, name) &&
                          RelationOf(op, name) == BatchRelation::PartialSum();
      if (!is_term && !is_sum) return false;
      has_sum = has_sum || is_sum;
    }
    return has_sum;
  }

  // Such a gradient op reads the dims of what was added, and no values.
  static bool DifferentiatesSum(const Op& op) {
    absl::string_view type = op.type();
    return op.block() == 0 && IsBackward(op) && absl::ConsumeSuffix(&type, kGradOpSuffix) &&
           Adds(type);
  }

  static constexpr absl::string_view kGradOpSuffix = "_grad";

  const Program& program_;
  const BatchFlow& flow_;
  const Storage storage_;
  std::vector<int32_t> writes_;    // by VarId
  std::vector<OpId> writer_;       // by VarId: the last
  std::vector<int32_t> position_;  // by OpId; -1: in another block
  absl::flat_hash_map<VarId, OpId> terms_;
};

}  // namespace

absl::flat_hash_map<VarId, OpId> FindSumTerms(const Program& program, const BatchFlow& flow) {
  return Finder(program, flow).Find();
}

}  // namespace weft
