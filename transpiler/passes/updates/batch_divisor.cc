#include "transpiler/passes/updates/batch_divisor.h"

#include <algorithm>
#include <cstddef>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "ops/analysis/training/losses.h"
#include "ops/analysis/values/batch_edits.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/schema/algebra.h"
#include "ops/schema/batch_relation.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {
namespace {

class DivisorFinder {
 public:
  DivisorFinder(const Program& main, const FeedLayouts& feeds) : main_(main), facts_(main) {
    options_.setting.feeds = feeds;
    options_.extent = BatchFlowOptions::Extent::kToLosses;
    for (const Op& op : AllOps(main_)) {
      for (Symbol name : op.output_args()) {
        const VarId var = main_.block(op.block()).Resolve(name);
        if (var.valid()) writers_[var].push_back(op.id());
      }
    }
  }

  absl::StatusOr<absl::optional<BatchDivisor>> Find() {
    const BatchFlow flow = BatchFlow::Of(facts_, options_);
    const std::vector<Symbol>& losses = facts_.Get(FindLosses);
    const auto is_mean = [&](Symbol loss) {
      const BatchRelation relation = RelationOf(flow, loss);
      return relation.IsSame() || relation == BatchRelation::Partial();
    };
    const auto other = std::find_if_not(losses.begin(), losses.end(), is_mean);
    if (other == losses.end()) return absl::optional<BatchDivisor>();
    loss_ = *other;
    if (RelationOf(flow, loss_) == BatchRelation::PartialSum()) {
      return Refuse("a sum over the batch", "leave out average: the sum of the gradients is exact");
    }
    if (losses.size() > 1) return Refuse("one of several losses", kOrAccept);
    return FindInLoss();
  }

 private:
  static constexpr char kOrAccept[] =
      "write it as one quotient of a sum over the batch and a number of the batch, or accept the "
      "difference (exact_loss=false)";

  absl::Status Refuse(absl::string_view found, absl::string_view next) const {
    return absl::FailedPreconditionError(
        absl::StrCat("exact_loss: loss ", main_.name(loss_),
                     ": expected a sum over the batch that is divided by a number of the batch, "
                     "found ",
                     found, "; ", next));
  }

  BatchRelation RelationOf(const BatchFlow& flow, Symbol name) const {
    const VarId var = main_.block(0).Resolve(name);
    return var.valid() ? flow.AtEnd(var).relation : BatchRelation::Unrelated();
  }
  BatchRelation LossWith(const BatchEdits& edits) {
    options_.edits = edits;
    return RelationOf(BatchFlow::Of(facts_, options_), loss_);
  }

  absl::StatusOr<absl::optional<BatchDivisor>> FindInLoss() {
    BatchEdits edits = FindLossEdits(facts_, options_);
    const bool is_of_one = edits.inputs.empty() && edits.reductions.size() == 1;
    // For ranks, the mean of a sum would do as well.
    if (is_of_one) edits.reductions.begin()->second = Reduction::kSum;
    if (!is_of_one || LossWith(edits) != BatchRelation::PartialSum()) {
      return Refuse("another function of the batch", kOrAccept);
    }
    BatchDivisor found;
    found.count = edits.reductions.begin()->first;
    WEFT_RETURN_IF_ERROR(FollowCount(&found));
    // With an n-th part of the divisor, the loss is n times what it was: every term is divided by
    // it once.
    for (const auto& [op, input] : divisions_) edits.inputs[op][input] = BatchInputEdit::kDivide;
    if (LossWith(edits) != BatchRelation::Partial()) {
      return Refuse(absl::StrCat("terms that ", main_.var(found.divisor).name(),
                                 " does not divide, or divides twice"),
                    kOrAccept);
    }
    WEFT_RETURN_IF_ERROR(FindSeed(&found));
    return absl::make_optional(std::move(found));
  }

  // What is computed from the count alone, and what is divided by it.
  absl::Status FollowCount(BatchDivisor* found) {
    absl::flat_hash_set<VarId> followed = {found->count};
    std::vector<OpId> ops;
    const auto follows = [&](Symbol name) {
      return followed.contains(main_.block(0).FindVar(name));
    };
    for (OpId id : main_.block(0).ops()) {
      const Op op = main_.op(id);
      if ((op.role() & (kRoleBackward | kRoleOptimize)) != 0) continue;
      if (absl::c_none_of(op.input_args(), follows)) continue;
      const absl::Span<const Symbol> divisor = op.Input("Y");
      const bool divides = AlgebraOf(op, FindOpSchema(op.type())) == Algebra::kDivide;
      if (divides && divisor.size() == 1 && follows(divisor[0]) && !follows(op.Input("X")[0])) {
        const absl::Span<const Symbol> in = op.input_args();
        const auto place = absl::c_find(in, divisor[0]) - in.begin();
        divisions_.emplace_back(id, static_cast<size_t>(place));
        const VarId var = main_.block(0).FindVar(divisor[0]);
        if (found->divisor.valid() && found->divisor != var) {
          return Refuse(absl::StrCat("two divisors, ", main_.var(found->divisor).name(), " and ",
                                     main_.name(divisor[0])),
                        kOrAccept);
        }
        found->divisor = var;
        continue;
      }
      const auto is_known = [&](Symbol name) { return follows(name) || IsConstant(name); };
      const bool is_function = op.SubBlocks().empty() && !HasSideEffect(op) &&
                               absl::c_all_of(op.input_args(), is_known) &&
                               absl::c_all_of(op.output_args(), [&](Symbol name) {
                                 return IsWrittenOnce(main_.block(0).FindVar(name));
                               });
      if (!is_function) continue;
      ops.push_back(id);
      for (Symbol name : op.output_args()) followed.insert(main_.block(0).FindVar(name));
    }
    if (!found->divisor.valid() || !IsWrittenOnce(found->count)) {
      return Refuse("another function of the batch", kOrAccept);
    }
    absl::flat_hash_set<VarId> needed = {found->divisor};
    for (auto id = ops.rbegin(); id != ops.rend(); ++id) {
      const Op op = main_.op(*id);
      const auto is_needed = [&](Symbol name) {
        return needed.contains(main_.block(0).FindVar(name));
      };
      if (absl::c_none_of(op.output_args(), is_needed)) continue;
      found->ops.insert(found->ops.begin(), *id);
      for (Symbol name : op.input_args()) needed.insert(main_.block(0).FindVar(name));
    }
    return absl::OkStatus();
  }

  static bool HasSideEffect(const Op& op) {
    const OpSchema* const schema = FindOpSchema(op.type());
    return schema == nullptr || schema->Has(Trait::kSideEffect) || schema->Has(Trait::kCollective);
  }
  bool IsWrittenOnce(VarId var) const {
    const auto writers = writers_.find(var);
    return writers != writers_.end() && writers->second.size() == 1;
  }
  bool IsConstant(Symbol name) const {
    const VarId var = main_.block(0).FindVar(name);
    if (!IsWrittenOnce(var)) return false;
    const Op writer = main_.op(writers_.at(var)[0]);
    return writer.input_args().empty() &&
           AlgebraOf(writer, FindOpSchema(writer.type())) == Algebra::kConstant;
  }

  absl::Status FindSeed(BatchDivisor* found) const {
    for (OpId id : main_.block(0).ops()) {
      const Op op = main_.op(id);
      if (op.role() != (kRoleBackward | kRoleLoss) || !op.input_args().empty()) continue;
      if (found->seed.valid()) return Refuse("several backward passes", kOrAccept);
      found->seed = id;
    }
    if (!found->seed.valid()) return Refuse("no op that fills its gradient", kOrAccept);
    const absl::optional<TensorType> of_loss =
        DeclaredType(main_.var(main_.block(0).FindVar(main_.op(found->seed).output_args()[0])));
    const absl::optional<TensorType> type = DeclaredType(main_.var(found->divisor));
    const absl::optional<TensorType> count = DeclaredType(main_.var(found->count));
    const bool fits = of_loss.has_value() && type == of_loss && count.has_value() &&
                      type->dtype == DType::kFloat32 && NumElements(type->dims) == 1 &&
                      NumElements(count->dims) == 1 && SizeOf(count->dtype) >= 4;
    if (fits) return absl::OkStatus();
    return Refuse(absl::StrCat("divisor ", main_.var(found->divisor).name(),
                               " of another type than the loss"),
                  kOrAccept);
  }

  const Program& main_;
  const ProgramFacts facts_;
  BatchFlowOptions options_;
  Symbol loss_;
  absl::flat_hash_map<VarId, std::vector<OpId>> writers_;
  std::vector<std::pair<OpId, size_t>> divisions_;  // with the place of the divisor
};

}  // namespace

absl::StatusOr<absl::optional<BatchDivisor>> FindBatchDivisor(const Program& main,
                                                              const FeedLayouts& feeds) {
  return DivisorFinder(main, feeds).Find();
}

}  // namespace weft
