#include "ops/schema/infer_functions.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "proto/op_role.h"

namespace weft {

// --- Whole inference functions -------------------------------------------------------------------

OpSchema::InferFn OutputsLike(std::string slot) {
  return [slot = std::move(slot)](InferContext& context) {
    for (const SlotSchema& output : context.schema().outputs()) {
      for (size_t i = 0; i < context.NumOutputs(output.name); ++i) {
        const TensorType* type = context.Input(slot, i);
        if (type != nullptr) context.SetOutput(output.name, i, *type);
      }
    }
    return absl::OkStatus();
  };
}

OpSchema::InferFn GradsLikeInputs() {
  return [](InferContext& context) {
    for (const SlotSchema& output : context.schema().outputs()) {
      absl::string_view input = output.name;
      if (!absl::ConsumeSuffix(&input, kGradSuffix)) continue;
      for (size_t i = 0; i < context.NumOutputs(output.name); ++i) {
        const TensorType* type = context.Input(input, i);
        if (type != nullptr) context.SetOutput(output.name, i, *type);
      }
    }
    return absl::OkStatus();
  };
}

OpSchema::InferFn GradOf(OpSchema::InferFn forward) {
  return [forward = std::move(forward)](InferContext& context) -> absl::Status {
    InferContext::Slots inputs, outputs;
    InferContext::Types types;
    for (const SlotSchema& slot : context.schema().inputs()) {
      const size_t count = context.NumInputs(slot.name);
      absl::string_view name = slot.name;
      if (absl::ConsumeSuffix(&name, kGradSuffix)) {
        outputs.push_back({name, 0, std::max<size_t>(count, 1)});
        continue;
      }
      inputs.push_back({slot.name, types.size(), count});
      for (size_t i = 0; i < count; ++i) {
        const TensorType* type = context.Input(slot.name, i);
        types.push_back(type == nullptr ? absl::nullopt : absl::make_optional(*type));
      }
    }
    // What may be an output that is read, too.
    for (const InferContext::Slot& slot : inputs) outputs.push_back({slot.name, 0, slot.count});
    size_t num_outputs = 0;
    for (InferContext::Slot& slot : outputs) {
      slot.first = num_outputs;
      num_outputs += slot.count;
    }
    InferContext op(context.schema(), context.attrs(), inputs, types, outputs, num_outputs);
    WEFT_RETURN_IF_ERROR(forward(op));
    for (const SlotSchema& slot : context.schema().inputs()) {
      const absl::string_view output = absl::StripSuffix(slot.name, kGradSuffix);
      for (size_t i = 0; i < context.NumInputs(slot.name); ++i) {
        const TensorType* expected = op.Output(output, i);
        const TensorType* found = context.Input(slot.name, i);
        if (expected == nullptr || found == nullptr) continue;
        // Before version 2.5 Paddle gave scalars the dimensions [1].
        const bool is_scalar = expected->dims.empty() && NumElements(found->dims) == 1;
        const bool fits = DimsFit(found->dims, expected->dims) || is_scalar;
        if (fits && found->dtype == expected->dtype) continue;
        return context.InputError(slot.name, i, ToString(*expected));
      }
    }
    return GradsLikeInputs()(context);
  };
}

OpSchema GradSchema(const OpSchema& op, std::string type, const GradSlots& grad,
                    OpSchema::InferFn infer) {
  OpSchema schema(std::move(type));
  const auto flags = [](const SlotSchema& slot) {
    return (slot.optional ? OpSchema::kOptional : 0) |
           (slot.duplicable ? OpSchema::kDuplicable : 0);
  };
  // In alphabetical order, as Paddle writes them.
  std::map<std::string, int> inputs;
  std::map<std::string, std::vector<std::string>> attrs_of;
  for (const SlotSchema& slot : op.inputs()) {
    if (slot.attrs.empty()) continue;
    inputs[slot.name] = flags(slot);
    attrs_of[slot.name] = slot.attrs;
  }
  for (const std::string& name : grad.reads) {
    const SlotSchema* input = op.FindInput(name);
    inputs[name] = flags(input != nullptr ? *input : *op.FindOutput(name));
  }
  for (const std::string& name : grad.of_outputs) {
    inputs[absl::StrCat(name, kGradSuffix)] = flags(*op.FindOutput(name));
  }
  for (const auto& [name, flag] : inputs) {
    const auto it = attrs_of.find(name);
    if (it == attrs_of.end()) {
      std::move(schema).In(name, flag);
    } else {
      std::move(schema).AttrIn(name, it->second, flag);
    }
  }
  for (const std::string& name : grad.of_inputs) {
    std::move(schema).Out(absl::StrCat(name, kGradSuffix),
                          flags(*op.FindInput(name)) | OpSchema::kOptional);
  }
  for (const AttrSchema& attr : op.attrs()) {
    if (attr.required) {
      std::move(schema).RequiredAttr(attr.name, attr.default_value);
    } else {
      std::move(schema).Attr(attr.name, attr.default_value);
    }
  }
  std::move(schema).Infer(std::move(infer));
  return schema;
}

void AddWithGrad(OpSchemaTable* schemas, OpSchema op, const GradSlots& grad) {
  schemas->Add(GradSchema(op, absl::StrCat(op.type(), "_grad"), grad, GradOf(op.infer())));
  schemas->Add(std::move(op));
}

bool HasAttrInput(const InferContext& context) {
  const std::vector<SlotSchema>& slots = context.schema().inputs();
  return std::any_of(slots.begin(), slots.end(), [&](const SlotSchema& slot) {
    return !slot.attrs.empty() && context.HasInput(slot.name);
  });
}

OpSchema::InferFn SameDType(std::string a, std::string b) {
  return [a = std::move(a), b = std::move(b)](InferContext& context) {
    const TensorType* x = context.Input(a);
    const TensorType* y = context.Input(b);
    if (x == nullptr || y == nullptr || x->dtype == y->dtype) return absl::OkStatus();
    return context.InputError(b, absl::StrCat(DTypeName(x->dtype), " as ", a, " is"));
  };
}

OpSchema::InferFn SameDims(std::string a, std::string b) {
  return [a = std::move(a), b = std::move(b)](InferContext& context) {
    const TensorType* x = context.Input(a);
    const TensorType* y = context.Input(b);
    if (x == nullptr || y == nullptr || DimsFit(x->dims, y->dims)) return absl::OkStatus();
    return context.InputError(b, absl::StrCat("dimensions ", DimsToString(x->dims), " of ", a));
  };
}

OpSchema::InferFn SameType(std::string a, std::string b) {
  return InOrder({SameDType(a, b), SameDims(a, b)});
}

OpSchema::InferFn InOrder(std::vector<OpSchema::InferFn> functions) {
  return [functions = std::move(functions)](InferContext& context) {
    for (const OpSchema::InferFn& function : functions) {
      WEFT_RETURN_IF_ERROR(function(context));
    }
    return absl::OkStatus();
  };
}

// --- Dimensions ----------------------------------------------------------------------------------

bool DimFits(int64_t a, int64_t b) { return a == b || a == -1 || b == -1; }

bool DimsFit(absl::Span<const int64_t> a, absl::Span<const int64_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), DimFits);
}

int64_t AddDim(int64_t a, int64_t b) {
  if (a == -1 || b == -1) return -1;
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return kMaxElements;
  return std::min(sum, kMaxElements);
}

int64_t MulDim(int64_t a, int64_t b) {
  if (a == -1 || b == -1) return -1;
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return kMaxElements;
  return std::min(product, kMaxElements);
}

int64_t Product(absl::Span<const int64_t> dims) {
  int64_t product = 1;
  for (int64_t dim : dims) product = MulDim(product, dim);
  return product;
}

absl::optional<Dims> BroadcastDims(const Dims& x, const Dims& y, int64_t axis) {
  if (x.size() < y.size()) return BroadcastDims(y, x, axis);
  const auto missing = static_cast<int64_t>(x.size() - y.size());
  if (axis < 0) axis += missing + 1;
  if (axis < 0 || axis > missing) return absl::nullopt;
  Dims result = x;
  for (size_t i = 0; i < y.size(); ++i) {
    int64_t& a = result[axis + i];
    const int64_t b = y[i];
    if (a == b || b == 1) continue;
    if (a == 1 || a == -1) {
      a = b;
    } else if (b != -1) {
      return absl::nullopt;
    }
  }
  return result;
}

absl::StatusOr<int> ResolveAxis(const InferContext& context, absl::string_view attr, int64_t value,
                                size_t rank) {
  const auto r = static_cast<int64_t>(rank);
  if (value < -r || value >= r) {
    return context.AttrError(attr, absl::StrCat("an axis of ", rank, " dimensions"),
                             absl::StrCat(value));
  }
  return static_cast<int>(value < 0 ? value + r : value);
}

absl::Status InferGradFromXShape(InferContext& context) {
  const TensorType* xshape = context.Input("XShape");
  const TensorType* grad = context.Input("Out@GRAD");
  if (!context.HasInput("XShape")) return absl::InvalidArgumentError("input XShape: missing");
  if (xshape == nullptr || grad == nullptr) return absl::OkStatus();
  if (xshape->dims.empty()) return context.InputError("XShape", "at least one dimension");
  const Dims dims(xshape->dims.begin() + 1, xshape->dims.end());
  if (!DimFits(Product(dims), Product(grad->dims))) {
    return context.InputError("Out@GRAD",
                              absl::StrCat("as many elements as ", DimsToString(dims), " of X"));
  }
  context.SetOutput("X@GRAD", {grad->dtype, dims});
  return absl::OkStatus();
}

TensorType ToXShape(const TensorType& type) {
  TensorType xshape = type;
  xshape.dims.insert(xshape.dims.begin(), 0);
  return xshape;
}

absl::StatusOr<int> AxisFromAttr(const InferContext& context, absl::string_view attr,
                                 const Dims& dims) {
  const int64_t value = context.attrs().Int(attr);
  if (dims.empty() && (value == 0 || value == -1)) return 0;
  return ResolveAxis(context, attr, value, dims.size());
}

OpSchema::InferFn LikeXAlongAxis(const char* attr) {
  return [=](InferContext& context) -> absl::Status {
    const TensorType* x = context.Input("X");
    if (x == nullptr) return absl::OkStatus();
    if (context.attrs().Has("flatten") && context.attrs().Bool("flatten")) {
      context.SetOutput("Out", {x->dtype, {Product(x->dims)}});
      return absl::OkStatus();
    }
    WEFT_RETURN_IF_ERROR(AxisFromAttr(context, attr, x->dims).status());
    context.SetOutput("Out", *x);
    return absl::OkStatus();
  };
}

}  // namespace weft
