#include "ops/analysis/values/undone_moves.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/types/optional.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

// The attribute as an axis of `rank` dimensions; none if there is no such axis.
absl::optional<size_t> AxisOf(const Op& op, size_t rank) {
  int64_t axis = op.IntAttr("axis").value_or(0);
  if (axis < 0) axis += static_cast<int64_t>(rank);
  if (axis < 0 || axis >= static_cast<int64_t>(rank)) return absl::nullopt;
  return static_cast<size_t>(axis);
}

}  // namespace

UndoneMoves::Dims UndoneMoves::DimsOf(Symbol name) const {
  const absl::optional<TensorType> type = memory_.TypeOf(name);
  if (!type.has_value() || type->kind != TensorType::Kind::kDense) return {};
  if (absl::c_any_of(type->dims, [](int64_t dim) { return dim < 0; })) return {};
  return Dims(type->dims.begin(), type->dims.end());
}

void UndoneMoves::Record(const Op& op, Algebra algebra, absl::Span<const ExprId> operands,
                         ExprId out) {
  const absl::Span<const Symbol> x = op.Input("X");
  if (x.empty() || x.size() != operands.size()) return;
  Dims first = DimsOf(x[0]);
  if (first.empty()) return;
  if (algebra == Algebra::kReshape) {
    if (x.size() == 1) reshaped_.try_emplace(out, Reshaped{operands[0], std::move(first)});
    return;
  }
  const absl::optional<size_t> axis = AxisOf(op, first.size());
  if (algebra != Algebra::kConcat || !axis.has_value() || concatenations_.contains(out)) return;
  Concatenation made{*axis, {}, {operands.begin(), operands.end()}};
  for (Symbol part : x) {
    const Dims dims = DimsOf(part);
    if (dims.size() != first.size()) return;
    made.sizes.push_back(dims[*axis]);
  }
  concatenations_.emplace(out, std::move(made));
}

void UndoneMoves::RecordSplit(const Op& op, ExprId whole, std::vector<ExprId> parts) {
  const absl::optional<int64_t> axis = op.IntAttr("axis");
  if (!axis.has_value() || op.Output("Out").size() != parts.size()) return;
  const ExprId first = parts[0];
  splits_.try_emplace(first, Split{*axis, whole, std::move(parts)});
}

ExprId UndoneMoves::JoinedBy(const Op& op, absl::Span<const ExprId> parts) const {
  const auto found = parts.empty() ? splits_.end() : splits_.find(parts[0]);
  if (found == splits_.end() || op.Input("X").size() != parts.size()) return ExprId();
  const bool joins_all =
      op.IntAttr("axis") == found->second.axis && parts == absl::MakeConstSpan(found->second.parts);
  return joins_all ? found->second.whole : ExprId();
}

void UndoneMoves::RecordStack(const Op& op, absl::Span<const ExprId> operands, ExprId out) {
  const absl::Span<const Symbol> x = op.Input("X");
  if (x.size() != operands.size() || x.size() != op.input_args().size()) return;
  for (Symbol one : x) {
    const absl::optional<TensorType> type = memory_.TypeOf(one);
    if (!type.has_value() || NumElements(type->dims) != 1) return;
  }
  stacked_.try_emplace(out, operands.begin(), operands.end());
}

std::vector<ExprId> UndoneMoves::Undo(const Op& op, Algebra algebra, ExprId in) const {
  const absl::Span<const Symbol> out = op.Output("Out");
  if (algebra == Algebra::kReshape) {
    const auto found = reshaped_.find(in);
    if (found == reshaped_.end() || out.size() != 1) return {};
    // The attribute of a reshape; a 0 or a -1 is no size.
    if (op.IntsAttr("shape") != found->second.dims || absl::c_linear_search(found->second.dims, 0))
      return {};
    const absl::Span<const Symbol> outputs = op.output_args();
    std::vector<ExprId> exprs(outputs.size());
    exprs[absl::c_find(outputs, out[0]) - outputs.begin()] = found->second.before;
    return exprs;
  }
  const auto found = concatenations_.find(in);
  if (algebra != Algebra::kSplitEqual || found == concatenations_.end()) return {};
  const Concatenation& made = found->second;
  if (out.size() != made.parts.size() || out.size() != op.output_args().size()) return {};
  if (AxisOf(op, DimsOf(op.input_args()[0]).size()) != made.axis) return {};
  const Dims sections = op.IntsAttr("sections").value_or(Dims());
  // Without sections, the parts are equal.
  const bool agrees =
      sections.empty() ? absl::c_all_of(made.sizes, [&](int64_t n) { return n == made.sizes[0]; })
                       : sections == made.sizes;
  return agrees ? made.parts : std::vector<ExprId>();
}

}  // namespace weft
