#include "executor/losses.h"

#include <algorithm>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/op_role.h"

namespace weft {
namespace {

absl::optional<Symbol> Single(absl::Span<const Symbol> args) {
  if (args.size() != 1) return absl::nullopt;
  return args[0];
}

// Ops that only change the type or the shape.
bool KeepsValues(absl::string_view type) {
  return type == "cast" || type == "assign" || type == "reshape" || type == "reshape2" ||
         type == "squeeze2" || type == "unsqueeze2";
}

// Visits the ops of a block in order, and tracks which variables hold a scaled loss.
class ScaledLosses {
 public:
  explicit ScaledLosses(const Program& program) {
    for (OpId id : program.block(0).ops()) {
      const Op op = program.op(id);
      if (op.type() == "check_finite_and_unscale") AddScales(op.Input("Scale"));
      if (op.type() == "update_loss_scaling") AddScales(op.Input("PrevLossScaling"));
    }
  }

  void Pass(const Op& op) {
    if (scales_.empty()) return;
    absl::optional<Symbol> unscaled;
    bool is_scale = false;
    const absl::optional<Symbol> x = Single(op.Input("X"));
    if (x.has_value() && KeepsValues(op.type())) {
      is_scale = scales_.contains(*x);
      const auto found = unscaled_.find(*x);
      if (found != unscaled_.end()) unscaled = found->second;
    } else if (x.has_value() && (op.type() == "elementwise_mul" || op.type() == "scale")) {
      const char* slot = op.type() == "scale" ? "ScaleTensor" : "Y";
      const absl::optional<Symbol> y = Single(op.Input(slot));
      if (y.has_value() && scales_.contains(*y)) unscaled = x;
      if (y.has_value() && scales_.contains(*x)) unscaled = y;
    }
    const absl::optional<Symbol> out = Single(op.Output("Out"));
    for (Symbol written : op.output_args()) {
      unscaled_.erase(written);
      const bool holds_value = out.has_value() && written == *out;
      if (holds_value && is_scale) scales_.insert(written);
      // A loss that was scaled in place is lost.
      if (holds_value && unscaled.has_value() && written != *unscaled) {
        unscaled_[written] = *unscaled;
      }
    }
  }

  // The loss of which the variable holds a multiple, or the variable itself.
  Symbol Unscaled(Symbol variable) const {
    const auto found = unscaled_.find(variable);
    return found == unscaled_.end() ? variable : found->second;
  }

 private:
  void AddScales(absl::Span<const Symbol> names) { scales_.insert(names.begin(), names.end()); }

  absl::flat_hash_set<Symbol> scales_;
  absl::flat_hash_map<Symbol, Symbol> unscaled_;
};

}  // namespace

std::vector<Symbol> FindLosses(const Program& program) {
  absl::flat_hash_set<std::string> loss_grads;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (!IsLossGrad(op)) continue;
    for (Symbol out : op.output_args()) loss_grads.emplace(program.name(out));
  }
  std::vector<Symbol> losses;
  absl::flat_hash_set<Symbol> found;
  ScaledLosses scaled(program);
  for (OpId id : program.block(0).ops()) {
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
  return losses;
}

}  // namespace weft
