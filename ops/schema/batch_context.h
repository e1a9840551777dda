// One op while its rule along the batch runs (ops/schema/batch_rules.h).
#ifndef WEFT_OPS_SCHEMA_BATCH_CONTEXT_H_
#define WEFT_OPS_SCHEMA_BATCH_CONTEXT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/schema/batch_relation.h"
#include "ops/schema/infer_context.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft {

class BatchContext {
 public:
  BatchContext(const Op& op, const OpSchema& schema, const OpAttrs& attrs, const TypeLookup& types,
               absl::Span<const BatchRelation> inputs, bool has_no_negative_sizes,
               BatchOutputs* outputs)
      : op_(op),
        schema_(schema),
        attrs_(attrs),
        types_(types),
        inputs_(inputs),
        has_no_negative_sizes_(has_no_negative_sizes),
        out_(*outputs) {}

  const OpAttrs& attrs() const { return attrs_; }
  absl::Span<const BatchRelation> inputs() const { return inputs_; }
  bool has_no_negative_sizes() const { return has_no_negative_sizes_; }

  // Of the first variable of a slot; replicated if it is empty.
  BatchRelation In(absl::string_view slot) const {
    const absl::Span<const BatchRelation> all = AllIn(slot);
    return all.empty() ? BatchRelation::Replicated() : all[0];
  }
  absl::Span<const BatchRelation> AllIn(absl::string_view slot) const {
    for (const OpSignature::Slot& in : op_.signature().inputs) {
      if (op_.program().name(in.name) == slot) return inputs_.subspan(in.first, in.count);
    }
    return {};
  }
  // Whether all inputs are replicated, those of the slots `except` aside.
  bool OthersAreReplicated(absl::Span<const absl::string_view> except) const {
    return OthersAre(except, &BatchRelation::IsReplicated);
  }
  // The same, without powers.
  bool OthersAreSame(absl::Span<const absl::string_view> except) const {
    return OthersAre(except, &BatchRelation::IsSame);
  }
  bool OthersAre(absl::Span<const absl::string_view> except,
                 bool (BatchRelation::*is)() const) const {
    for (const OpSignature::Slot& in : op_.signature().inputs) {
      if (std::count(except.begin(), except.end(), op_.program().name(in.name)) > 0) continue;
      for (uint32_t i = 0; i < in.count; ++i) {
        if (!(inputs_[in.first + i].*is)()) return false;
      }
    }
    return true;
  }

  // None if they are unknown.
  absl::optional<Dims> InDims(absl::string_view slot) const { return DimsOf(op_.Input(slot)); }
  absl::optional<Dims> OutDims(absl::string_view slot) const { return DimsOf(op_.Output(slot)); }
  absl::optional<Dims> DimsOf(absl::Span<const Symbol> names) const {
    if (names.empty()) return absl::nullopt;
    const absl::optional<TensorType> type = types_(names[0]);
    if (!type.has_value()) return absl::nullopt;
    return type->dims;
  }
  absl::optional<Dims> DimsOfInput(size_t i) const {
    return DimsOf(op_.input_args().subspan(i, 1));
  }
  absl::optional<Dims> DimsOfOutput(size_t i) const {
    return DimsOf(op_.output_args().subspan(i, 1));
  }
  bool IsFloatIn() const {
    const absl::optional<DType> in = DTypeOf(op_.input_args());
    return in.has_value() && IsFloating(*in);
  }
  bool IsFloatOut() const {
    const absl::optional<DType> out = DTypeOf(op_.output_args());
    return out.has_value() && IsFloating(*out);
  }
  // Of a known type.
  bool IsNoFloatOut() const {
    const absl::optional<DType> out = DTypeOf(op_.output_args());
    return out.has_value() && !IsFloating(*out);
  }
  // Whether the op maps integers to integers.
  bool IsInteger() const {
    const absl::optional<DType> in = DTypeOf(op_.input_args()), out = DTypeOf(op_.output_args());
    const auto is_integer = [](absl::optional<DType> type) {
      return type.has_value() && !IsFloating(*type) && *type != DType::kBool;
    };
    return is_integer(in) && is_integer(out);
  }

  void Set(absl::string_view slot, BatchRelation relation) {
    for (const OpSignature::Slot& out : op_.signature().outputs) {
      if (op_.program().name(out.name) != slot) continue;
      for (uint32_t i = 0; i < out.count; ++i) {
        out_.relations[out.first - op_.signature().num_input_args + i] = relation;
      }
    }
  }
  // Of variable i of the slot, if it has one.
  void Set(absl::string_view slot, size_t i, BatchRelation relation) {
    for (const OpSignature::Slot& out : op_.signature().outputs) {
      if (op_.program().name(out.name) != slot || i >= out.count) continue;
      out_.relations[out.first - op_.signature().num_input_args + i] = relation;
    }
  }
  void SetAll(BatchRelation relation) {
    std::fill(out_.relations.begin(), out_.relations.end(), relation);
  }
  void MultiplyAll(int power) {
    for (BatchRelation& out : out_.relations) out = out.Times(power);
  }
  size_t num_outputs() const { return out_.relations.size(); }
  void set_effect(BatchEffect effect) { out_.effect = effect; }

  // Whether an input gives the attribute: its value is unknown.
  bool IsOverridden(absl::string_view attr) const {
    for (const SlotSchema& slot : schema_.inputs()) {
      if (std::count(slot.attrs.begin(), slot.attrs.end(), attr) > 0 &&
          !op_.Input(slot.name).empty()) {
        return true;
      }
    }
    return false;
  }
  // An axis of a tensor with `rank` dimensions, counted from the left; -1 if it has no such axis,
  // or if it is unknown.
  int Axis(absl::string_view attr, size_t rank) const {
    return IsOverridden(attr) ? -1 : Counted(attrs_.Int(attr), rank);
  }
  static int Counted(int64_t axis, size_t rank) {
    const int64_t n = static_cast<int64_t>(rank);
    if (axis < 0) axis += n;
    return axis < 0 || axis >= n ? -1 : static_cast<int>(axis);
  }

 private:
  // Of the first.
  absl::optional<DType> DTypeOf(absl::Span<const Symbol> names) const {
    const absl::optional<TensorType> type = names.empty() ? absl::nullopt : types_(names[0]);
    return type.has_value() ? absl::make_optional(type->dtype) : absl::nullopt;
  }

  const Op& op_;
  const OpSchema& schema_;
  const OpAttrs& attrs_;
  const TypeLookup& types_;
  const absl::Span<const BatchRelation> inputs_;
  const bool has_no_negative_sizes_;
  BatchOutputs& out_;
};

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_BATCH_CONTEXT_H_
