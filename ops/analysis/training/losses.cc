#include "ops/analysis/training/losses.h"

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {
namespace {

absl::optional<Symbol> Single(absl::Span<const Symbol> args) {
  if (args.size() != 1) return absl::nullopt;
  return args[0];
}

// Ops that only change the type or the shape.
bool KeepsValues(Algebra algebra) {
  return algebra == Algebra::kCopy || algebra == Algebra::kCast || algebra == Algebra::kReshape;
}

// Visits the ops of a block in order, and tracks which variables hold a scaled loss.
class ScaledLosses {
 public:
  explicit ScaledLosses(const Program& program) {
    OpTraits traits(program);
    std::vector<bool> is_seen(program.num_signatures(), false), has_scales(is_seen);
    for (const Op& op : BlockOps(program, 0)) {
      const uint32_t signature = op.signature_id();
      if (is_seen[signature] && !has_scales[signature]) continue;
      is_seen[signature] = true;
      const OpSchema* schema = traits.SchemaOf(op);
      if (schema == nullptr) continue;
      for (const SlotSchema& slot : schema->inputs()) {
        if (!slot.is_loss_scale) continue;
        has_scales[signature] = true;
        const absl::Span<const Symbol> scales = op.Input(slot.name);
        scales_.insert(scales.begin(), scales.end());
      }
    }
  }

  // Whether there are any.
  bool MayExist() const { return !scales_.empty(); }

  void Pass(const Op& op) {
    if (scales_.empty()) return;
    const Algebra algebra = AlgebraOf(op, FindOpSchema(op.type()));
    absl::optional<Symbol> unscaled;
    bool is_scale = false;
    const absl::optional<Symbol> x = Single(op.Input("X"));
    if (x.has_value() && KeepsValues(algebra)) {
      is_scale = scales_.contains(*x);
      const auto found = unscaled_.find(*x);
      if (found != unscaled_.end()) unscaled = found->second;
    } else if (x.has_value() && (algebra == Algebra::kMultiply || algebra == Algebra::kScale)) {
      const char* slot = algebra == Algebra::kScale ? "ScaleTensor" : "Y";
      const absl::optional<Symbol> y = Single(op.Input(slot));
      if (y.has_value() && scales_.contains(*y)) unscaled = x;
      if (y.has_value() && scales_.contains(*x)) unscaled = y;
    }
    const absl::optional<Symbol> out = Single(op.Output("Out"));
    for (Symbol written : op.output_args()) {
      unscaled_.erase(written);
      const bool holds_value = out.has_value() && written == *out;
      if (holds_value && is_scale) scales_.insert(written);
      // The value of a loss that was scaled in place is lost.
      if (holds_value && unscaled.has_value() && written != *unscaled) {
        unscaled_[written] = *unscaled;
      }
    }
  }

  // The loss that the variable holds a multiple of, or the variable itself.
  Symbol Unscaled(Symbol variable) const {
    const auto found = unscaled_.find(variable);
    return found == unscaled_.end() ? variable : found->second;
  }

 private:
  absl::flat_hash_set<Symbol> scales_;
  absl::flat_hash_map<Symbol, Symbol> unscaled_;
};

}  // namespace

std::vector<Symbol> FindLosses(const Program& program) {
  absl::flat_hash_set<std::string> loss_grads;
  std::vector<OpId> marked;
  for (const Op& op : BlockOps(program, 0)) {
    if ((op.role() & kRoleLoss) != 0) marked.push_back(op.id());
    if (!IsLossGrad(op)) continue;
    for (Symbol out : op.output_args()) loss_grads.emplace(program.name(out));
  }
  std::vector<Symbol> losses;
  absl::flat_hash_set<Symbol> found;
  ScaledLosses scaled(program);
  for (OpId id : scaled.MayExist() ? program.block(0).ops() : absl::MakeConstSpan(marked)) {
    const Op op = program.op(id);
    scaled.Pass(op);
    if ((op.role() & kRoleLoss) == 0 || (op.role() & kRoleBackward) != 0) continue;
    std::vector<Symbol> all, with_grad;
    for (Symbol out : op.output_args()) {
      all.push_back(out);
      if (loss_grads.contains(absl::StrCat(program.name(out), kGradSuffix))) {
        with_grad.push_back(out);
      }
    }
    for (Symbol out : with_grad.empty() ? all : with_grad) {
      const Symbol loss = scaled.Unscaled(out);
      if (found.insert(loss).second) losses.push_back(loss);
    }
  }
  // Losses whose op has lost its role, by their gradients.
  for (OpId id : marked) {
    const Op op = program.op(id);
    if (!IsLossGrad(op)) continue;
    for (Symbol out : op.output_args()) {
      absl::string_view name = program.name(out);
      if (!absl::ConsumeSuffix(&name, kGradSuffix)) continue;
      const Symbol variable = program.FindSymbol(name);
      if (!variable.valid() || !program.block(0).FindVar(variable).valid()) continue;
      const Symbol loss = scaled.Unscaled(variable);
      if (found.insert(loss).second) losses.push_back(loss);
    }
  }
  return losses;
}

}  // namespace weft
