#include "ops/analysis/training/mark_gradients.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_attrs.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"

namespace weft {
namespace {

// The gradient of a loss, and the loss.
struct LossGradient {
  OpId filled_by, made_by;
  Symbol loss, gradient;
};

class Marker {
 public:
  explicit Marker(Program* program) : program_(*program), traits_(*program), rewriter_(program) {
    for (const Op& op : AllOps(program_)) {
      if (!traits_.Has(op, Trait::kOptimizer)) continue;
      const absl::Span<const Symbol> params = op.Input("Param");
      params_.insert(params.begin(), params.end());
    }
  }

  absl::StatusOr<bool> Mark() {
    const auto is_marked = [](const Op& op) {
      return IsBackward(op) && (op.has_role_vars() || IsLossGrad(op));
    };
    if (params_.empty() || absl::c_any_of(BlockOps(program_, 0), is_marked)) return false;
    absl::flat_hash_set<Symbol> reached;  // from gradients of losses
    for (const LossGradient& loss : FindLossGradients()) {
      roles_[loss.filled_by] = roles_[loss.made_by] = kRoleLoss;
      reached.insert(loss.gradient);
    }
    for (OpId id : program_.block(0).ops()) {
      const Op op = program_.op(id);
      const auto is_reached = [&](Symbol name) { return reached.contains(name); };
      if (!IsBackward(op) || absl::c_none_of(op.input_args(), is_reached)) continue;
      reached.insert(op.output_args().begin(), op.output_args().end());
      NotePairs(op);
    }
    if (param_of_.empty()) return false;
    for (const auto& [gradient, param] : param_of_) {
      if (!parts_.contains(gradient)) pairs_[writer_[gradient]].push_back({param, gradient});
    }
    for (OpId id : program_.block(0).ops()) Replace(program_.op(id));
    WEFT_RETURN_IF_ERROR(rewriter_.Commit());
    return true;
  }

 private:
  using Pair = std::pair<Symbol, Symbol>;  // of parameter and gradient

  void NotePairs(const Op& op) {
    const OpSignature& signature = op.signature();
    for (const OpSignature::Slot& slot : signature.outputs) {
      absl::string_view name = program_.name(slot.name);
      if (!absl::ConsumeSuffix(&name, kGradSuffix)) continue;
      const absl::Span<const Symbol> of = op.Input(name), gradients = op.args(slot);
      for (size_t i = 0; i < std::min(of.size(), gradients.size()); ++i) {
        if (params_.contains(of[i])) Note(op, of[i], gradients[i]);
      }
    }
    if (AlgebraOf(op, traits_.SchemaOf(op)) != Algebra::kSum || op.input_args().empty()) return;
    const auto first = param_of_.find(op.input_args()[0]);
    if (first == param_of_.end() || op.output_args().size() != 1) return;
    const Symbol param = first->second, sum = op.output_args()[0];
    const auto is_of_it = [&](Symbol name) {
      const auto found = param_of_.find(name);
      return found != param_of_.end() && found->second == param;
    };
    if (!absl::c_all_of(op.input_args(), is_of_it)) return;
    for (Symbol part : op.input_args()) {
      if (part != sum) parts_.insert(part);
    }
    Note(op, param, sum);
  }

  void Note(const Op& op, Symbol param, Symbol gradient) {
    if (program_.name(gradient) == kEmptyVarName) return;
    param_of_[gradient] = param;
    writer_[gradient] = op.id();
  }

  std::vector<LossGradient> FindLossGradients() const {
    std::vector<LossGradient> all;
    absl::flat_hash_map<Symbol, OpId> writers;
    for (OpId id : program_.block(0).ops()) {
      const Op op = program_.op(id);
      const absl::optional<LossGradient> loss = LossGradientOf(op, writers);
      if (loss.has_value()) all.push_back(*loss);
      for (Symbol out : op.output_args()) writers[out] = id;
    }
    if (all.size() < 2) return all;
    std::vector<LossGradient> outer;
    absl::c_copy_if(all, std::back_inserter(outer),
                    [&](const LossGradient& loss) { return !AnyFollowsFrom(loss, all); });
    return outer;
  }

  absl::optional<LossGradient> LossGradientOf(
      const Op& op, const absl::flat_hash_map<Symbol, OpId>& writers) const {
    if (!IsBackward(op) || op.output_args().size() != 1) return absl::nullopt;
    const Algebra algebra = AlgebraOf(op, traits_.SchemaOf(op));
    const bool fills = algebra == Algebra::kFill || algebra == Algebra::kConstant;
    if (!fills || op.FloatAttr("value") != 1.0) return absl::nullopt;
    const Symbol gradient = op.output_args()[0];
    const Symbol loss =
        op.input_args().empty()
            ? program_.FindSymbol(absl::StripSuffix(program_.name(gradient), kGradSuffix))
            : op.input_args()[0];
    const auto writer = writers.find(loss);
    if (!loss.valid() || loss == gradient || writer == writers.end()) return absl::nullopt;
    return LossGradient{op.id(), writer->second, loss, gradient};
  }

  bool AnyFollowsFrom(const LossGradient& first, const std::vector<LossGradient>& all) const {
    absl::flat_hash_set<Symbol> reached = {first.gradient};
    bool is_behind = false;
    for (OpId id : program_.block(0).ops()) {
      const Op op = program_.op(id);
      is_behind |= id == first.filled_by;
      if (!is_behind || id == first.filled_by) continue;
      const auto is_reached = [&](Symbol name) { return reached.contains(name); };
      if (absl::c_none_of(op.input_args(), is_reached)) continue;
      // Of a fill, the dims of the loss.
      const auto begins = [&](const LossGradient& loss) { return loss.filled_by == id; };
      if (absl::c_any_of(all, begins)) return true;
      reached.insert(op.output_args().begin(), op.output_args().end());
    }
    return false;
  }

  void Replace(const Op& op) {
    const auto role = roles_.find(op.id());
    const auto pairs = pairs_.find(op.id());
    if (role == roles_.end() && pairs == pairs_.end()) return;
    pb::OpDesc desc = op.ToProto();
    const auto set = [&](pb::OpDesc::Attr attr) {
      for (pb::OpDesc::Attr& old : *desc.mutable_attrs()) {
        if (old.name() == attr.name()) return old.Swap(&attr);
      }
      desc.add_attrs()->Swap(&attr);
    };
    if (role != roles_.end()) {
      set(MakeAttr(kOpRoleAttr, static_cast<int32_t>(op.role() | role->second)));
    }
    if (pairs != pairs_.end()) {
      std::vector<std::string> names;
      for (const auto& [param, gradient] : pairs->second) {
        names.emplace_back(program_.name(param));
        names.emplace_back(program_.name(gradient));
      }
      set(MakeAttr(kOpRoleVarAttr, names));
    }
    rewriter_.Replace(op.id(), desc);
  }

  const Program& program_;
  const OpTraits traits_;
  Rewriter rewriter_;
  absl::flat_hash_set<Symbol> params_;
  std::map<Symbol, Symbol> param_of_;         // by gradient
  absl::flat_hash_map<Symbol, OpId> writer_;  // of a gradient: the last op
  absl::flat_hash_set<Symbol> parts_;         // gradients that are added up
  absl::flat_hash_map<OpId, int> roles_;      // to add
  absl::flat_hash_map<OpId, std::vector<Pair>> pairs_;
};

}  // namespace

absl::StatusOr<bool> MarkGradients(Program* program) { return Marker(program).Mark(); }

}  // namespace weft
