// Operators of masks: comparisons, logic, and choices between elements.
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "proto/formats/pt2/translator.h"

namespace weft::pt2 {

// With a tensor or a number.
absl::Status Translator::Compare(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  const pb::VarType::Type dtype = MetaOf(value).dtype;
  const std::string x = VarOf(value);
  std::string y;
  if (node.IsTensor("other")) {
    WEFT_ASSIGN_OR_RETURN(const std::string other, node.Tensor("other"));
    if (MetaOf(other).dtype != dtype) return node.Error("expected tensors of one element type");
    y = VarOf(other);
  } else {
    WEFT_ASSIGN_OR_RETURN(const double number, node.Number("other"));
    if (dtype == pb::VarType::BOOL && number != 0 && number != 1) {
      return node.ArgumentError("other", "0 or 1, as of a mask");
    }
    WEFT_ASSIGN_OR_RETURN(y, Number(node, "other", number, dtype));
  }
  Add(Rules().at(node.target).op, {{"X", {x}}, {"Y", {y}}}, {{"Out", {Output(node.outputs[0])}}})
      .Int("axis", -1);
  return absl::OkStatus();
}

// PyTorch's operators & and ~ of masks are those of bits.
absl::Status Translator::Logic(const Node& node) {
  Slots inputs;
  for (const auto& [slot, argument] : {std::make_pair("X", "self"), {"Y", "other"}}) {
    if (!node.Has(argument)) continue;
    WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor(argument));
    if (MetaOf(value).dtype != pb::VarType::BOOL) return node.ArgumentError(argument, "a mask");
    inputs.push_back({slot, {VarOf(value)}});
  }
  Add(Rules().at(node.target).op, inputs, {{"Out", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

// The number that all elements of a value are, if it is written in the graph.
absl::optional<double> Translator::ConstantOf(const std::string& value) const {
  const Node* const maker = makers_.Of(value);
  if (maker == nullptr) return absl::nullopt;
  if (absl::StartsWith(maker->target, "aten.zeros")) return 0;
  const bool is_full = absl::StartsWith(maker->target, "aten.full");
  if (!is_full && maker->target != "aten.scalar_tensor.default") return absl::nullopt;
  const absl::StatusOr<double> number = maker->Number(is_full ? "fill_value" : "s");
  return number.ok() ? absl::make_optional(*number) : absl::nullopt;
}

// Whether a mask leaves zeros of a gradient, which follows from the gradient of the loss.
absl::StatusOr<bool> Translator::MasksWithZeros(const Node& node) const {
  if (node.target == "aten.masked_fill.Scalar") {
    WEFT_ASSIGN_OR_RETURN(const double value, node.Number("value"));
    return value == 0;
  }
  if (node.target == "aten.where.ScalarSelf") {
    WEFT_ASSIGN_OR_RETURN(const double value, node.Number("self"));
    return value == 0;
  }
  WEFT_ASSIGN_OR_RETURN(const std::string x, node.Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(const std::string y, node.Tensor("other"));
  return (Follows(x) || ConstantOf(x) == 0.0) && (Follows(y) || ConstantOf(y) == 0.0);
}

std::string Translator::Not(const std::string& mask, const TensorMeta& meta) {
  const std::string out = Temporary("not", meta);
  Add("logical_not", {{"X", {mask}}}, {{"Out", {out}}});
  return out;
}

// x, with a number where the mask is set. A gradient becomes 0 there, whatever it is: NaN, too.
absl::Status Translator::AddMaskedFill(const Node& node, const std::string& x,
                                       const std::string& mask, const std::string& number) {
  if (!linear_.contains(node.outputs[0])) {
    Add("masked_fill", {{"mask", {mask}}, {"value", {number}}, {"x", {x}}},
        {{"out", {Output(node.outputs[0])}}});
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const std::string like, LikeOutput(node));
  Add("masked_fill_grad", {{"mask", {mask}}, {"out@GRAD", {x}}, {"value", {number}}, {"x", {like}}},
      {{"x@GRAD", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

absl::Status Translator::MaskedFill(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string x, Promoted(node, "self"));
  WEFT_ASSIGN_OR_RETURN(const std::string mask, Var(node, "mask"));
  WEFT_ASSIGN_OR_RETURN(const double value, node.Number("value"));
  WEFT_ASSIGN_OR_RETURN(const std::string number,
                        Number(node, "value", value, MetaOf(node.outputs[0]).dtype));
  return AddMaskedFill(node, x, mask, number);
}

absl::Status Translator::Where(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string condition, node.Tensor("condition"));
  WEFT_ASSIGN_OR_RETURN(const std::string of_x, node.Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(const std::string of_y, node.Tensor("other"));
  WEFT_ASSIGN_OR_RETURN(std::string x, Promoted(node, "self"));
  WEFT_ASSIGN_OR_RETURN(const std::string y, Promoted(node, "other"));
  const std::string mask = VarOf(condition);
  const TensorMeta &meta = MetaOf(node.outputs[0]), &of_mask = MetaOf(condition);
  const bool is_x_number = MetaOf(of_x).dims.empty(), is_y_number = MetaOf(of_y).dims.empty();
  for (const auto& [value, is_number] : {std::make_pair(of_x, is_x_number), {of_y, is_y_number}}) {
    if (linear_.contains(node.outputs[0]) && is_number && ConstantOf(value) != 0.0) {
      return node.Error("expected tensors, or zeros, in a gradient, found a number");
    }
  }
  if (is_y_number && is_x_number && of_mask.sizes == meta.sizes) {
    const absl::optional<double> number = ConstantOf(of_x);
    if (!number.has_value()) return node.Error("expected a number in the graph, or a tensor");
    const std::string flags = Temporary("flags", meta), all = Temporary("all", meta);
    Cast(mask, of_mask.dtype, flags, meta.dtype);
    Add("fill_any_like", {{"X", {flags}}}, {{"Out", {all}}}).Float("value", *number);
    return AddMaskedFill(node, all, Not(mask, of_mask), y);
  }
  const bool is_of_x = MetaOf(of_x).sizes == meta.sizes, is_of_y = MetaOf(of_y).sizes == meta.sizes;
  const auto is_zero = [&](const std::string& value) {
    return linear_.contains(node.outputs[0]) && ConstantOf(value) == 0.0;
  };
  if (is_of_x && (is_y_number || is_zero(of_y))) {
    WEFT_ASSIGN_OR_RETURN(const std::string number,
                          is_y_number ? y : Number(node, "zero", 0, meta.dtype));
    return AddMaskedFill(node, x, Not(mask, of_mask), number);
  }
  if (is_of_y && (is_x_number || is_zero(of_x))) {
    WEFT_ASSIGN_OR_RETURN(const std::string number,
                          is_x_number ? x : Number(node, "zero", 0, meta.dtype));
    return AddMaskedFill(node, y, mask, number);
  }
  if (!is_of_x || !is_of_y || of_mask.sizes != meta.sizes) {
    return node.Error("expected a condition and tensors of one shape, or numbers");
  }
  Add("where", {{"Condition", {mask}}, {"X", {x}}, {"Y", {y}}},
      {{"Out", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

// A number where the condition holds, and a tensor elsewhere.
absl::Status Translator::WhereNumber(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const double value, node.Number("self"));
  WEFT_ASSIGN_OR_RETURN(const std::string other, node.Tensor("other"));
  WEFT_ASSIGN_OR_RETURN(const std::string y, Promoted(node, "other"));
  WEFT_ASSIGN_OR_RETURN(const std::string mask, Var(node, "condition"));
  const TensorMeta& meta = MetaOf(node.outputs[0]);
  if (MetaOf(other).sizes != meta.sizes) {
    return node.ArgumentError("other", "a tensor of the shape of the result");
  }
  WEFT_ASSIGN_OR_RETURN(const std::string number, Number(node, "self", value, meta.dtype));
  return AddMaskedFill(node, y, mask, number);
}

// Softmax, and zeros where nothing is left to attend to: all along the axis are -infinity.
absl::Status Translator::SafeSoftmax(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, node.Int("dim"));
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  const std::string x = VarOf(value);
  const TensorMeta& meta = MetaOf(value);
  const size_t along = axis < 0 ? axis + meta.dims.size() : axis;
  if (along >= meta.dims.size()) return node.ArgumentError("dim", "an axis");
  TensorMeta each = meta, all = meta;
  each.dtype = all.dtype = pb::VarType::BOOL;
  all.dims[along] = 1;
  const std::string probabilities = Temporary("softmax", meta);
  const std::string is_low = Temporary("low", each), are_low = Temporary("all_low", all);
  WEFT_ASSIGN_OR_RETURN(
      const std::string lowest,
      Number(node, "lowest", -std::numeric_limits<double>::infinity(), meta.dtype));
  WEFT_ASSIGN_OR_RETURN(const std::string zero, Number(node, "zero", 0, meta.dtype));
  Add("softmax", {{"X", {x}}}, {{"Out", {probabilities}}}).Int("axis", axis);
  Add("equal", {{"X", {x}}, {"Y", {lowest}}}, {{"Out", {is_low}}}).Int("axis", -1);
  Add("reduce_all", {{"X", {is_low}}}, {{"Out", {are_low}}})
      .Ints("dim", {static_cast<int64_t>(along)})
      .Bool("keep_dim", true)
      .Bool("reduce_all", false);
  return AddMaskedFill(node, probabilities, are_low, zero);
}

absl::Status Translator::ScalarTensor(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const double value, node.Number("s"));
  WEFT_ASSIGN_OR_RETURN(vars_[node.outputs[0]],
                        Number(node, "number", value, MetaOf(node.outputs[0]).dtype));
  return absl::OkStatus();
}

}  // namespace weft::pt2
