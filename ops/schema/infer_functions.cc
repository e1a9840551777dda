#include "ops/schema/infer_functions.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "ops/schema/filled_values.h"
#include "ops/schema/slice_range.h"
#include "proto/op_role.h"

namespace weft {

// --- Whole inference functions -------------------------------------------------------------------

OpSchema::InferFn IfKnown(
    const std::string& x,
    const std::function<absl::Status(InferContext&, const TensorType&)>& infer) {
  return [=](InferContext& context) {
    const TensorType* type = context.Input(x);
    return type == nullptr ? absl::OkStatus() : infer(context, *type);
  };
}

OpSchema::InferFn IfKnown(
    const std::string& x, const std::string& y,
    const std::function<absl::Status(InferContext&, const TensorType&, const TensorType&)>& infer) {
  return [=](InferContext& context) {
    const TensorType* a = context.Input(x);
    const TensorType* b = context.Input(y);
    return a == nullptr || b == nullptr ? absl::OkStatus() : infer(context, *a, *b);
  };
}

OpSchema::InferFn OutputsLike(std::string slot, const std::vector<std::string>& others) {
  std::vector<OpSchema::InferFn> steps;
  for (const std::string& other : others) steps.push_back(SameType(slot, other));
  steps.push_back([slot = std::move(slot)](InferContext& context) {
    for (const SlotSchema& output : context.schema().outputs()) {
      for (size_t i = 0; i < context.NumOutputs(output.name); ++i) {
        const TensorType* type = context.Input(slot, i);
        if (type != nullptr) context.SetOutput(output.name, i, *type);
      }
    }
    return absl::OkStatus();
  });
  return InOrder(std::move(steps));
}

OpSchema::InferFn Like(const std::string& slot, std::vector<std::string> outputs) {
  return IfKnown(slot,
                 [outputs = std::move(outputs)](InferContext& context, const TensorType& type) {
                   for (const std::string& output : outputs) context.SetOutput(output, type);
                   return absl::OkStatus();
                 });
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
    // The gradient op may read outputs, too.
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

OpSchema::InferFn SameType(const std::string& a, const std::string& b) {
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

OpSchema::InferFn LikeXAlongAxis(const char* attr) {
  return IfKnown("X", [=](InferContext& context, const TensorType& x) -> absl::Status {
    if (context.attrs().Has("flatten") && context.attrs().Bool("flatten")) {
      context.SetOutput("Out", {x.dtype, {Product(x.dims)}});
      return absl::OkStatus();
    }
    WEFT_RETURN_IF_ERROR(AxisFromAttr(context, attr, x.dims).status());
    context.SetOutput("Out", x);
    return absl::OkStatus();
  });
}

OpSchema::InferFn OutDims(DimsFn dims_of, const char* x_slot) {
  return IfKnown(x_slot, [=](InferContext& context, const TensorType& x) -> absl::Status {
    context.SetOutput("XShape", ToXShape(x));
    for (const SlotSchema& slot : context.schema().inputs()) {
      if (slot.optional && context.HasInput(slot.name)) return absl::OkStatus();
    }
    WEFT_ASSIGN_OR_RETURN(const Dims dims, dims_of(context, x.dims));
    context.SetOutput("Out", {x.dtype, dims});
    return absl::OkStatus();
  });
}

absl::Status InferFromShapeAttr(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeFromAttr(context, "dtype"));
  if (HasAttrInput(context)) return absl::OkStatus();
  const std::vector<int64_t> shape = context.attrs().Ints("shape");
  const Dims dims(shape.begin(), shape.end());
  WEFT_RETURN_IF_ERROR(CheckShapeAttr(context, dims));
  context.SetOutput("Out", {dtype, dims});
  return absl::OkStatus();
}

// --- Gradient ops --------------------------------------------------------------------------------

GradSlots GradOfX() { return {{"X"}, {"Out"}, {"X"}}; }

OpSchema GradSchema(const OpSchema& op, std::string type, const GradSlots& grad,
                    OpSchema::InferFn infer) {
  const auto like = [](const SlotSchema& slot, std::string name) {
    SlotSchema copy;
    copy.name = std::move(name);
    copy.optional = slot.optional;
    copy.duplicable = slot.duplicable;
    copy.attrs = slot.attrs;
    copy.since = slot.since;
    copy.until = slot.until;
    return copy;
  };
  // In alphabetical order, as Paddle writes them.
  std::map<std::string, SlotSchema> inputs;
  const auto add_input = [&](const SlotSchema& slot, const std::string& name) {
    inputs.try_emplace(name, like(slot, name));
  };
  for (const SlotSchema& slot : op.inputs()) {
    if (!slot.attrs.empty()) add_input(slot, slot.name);
  }
  for (std::string name : grad.reads) {
    const bool is_new = absl::EndsWith(name, "+"), is_old = absl::EndsWith(name, "-");
    const bool may_lack = absl::EndsWith(name, "?");
    if (is_new || is_old || may_lack) name.pop_back();
    const SlotSchema* input = op.FindInput(name);
    add_input(input != nullptr ? *input : *op.FindOutput(name), name);
    if (is_new) inputs[name].since = kPaddle2;
    if (is_old) inputs[name].until = kPaddle2;
    if (may_lack) inputs[name].optional = true;
  }
  for (const std::string& name : grad.of_outputs) {
    add_input(*op.FindOutput(name), absl::StrCat(name, kGradSuffix));
  }
  OpSchema schema(std::move(type));
  for (auto& [name, slot] : inputs) std::move(schema).In(std::move(slot));
  for (const std::string& name : grad.of_inputs) {
    SlotSchema slot = like(*op.FindInput(name), absl::StrCat(name, kGradSuffix));
    slot.optional = slot.optional || grad.optional;
    std::move(schema).Out(std::move(slot));
  }
  for (const AttrSchema& attr : op.attrs()) std::move(schema).Attr(attr);
  for (const auto& [name, since] : op.behaviors()) std::move(schema).Since(since, name);
  return std::move(schema)
      .Images(op.image_attr(), op.image_slots(), op.channels_last())
      .Work(op.work())
      .Infer(std::move(infer));
}

void AddWithGrad(OpSchemaTable* schemas, OpSchema op, const GradSlots& grad) {
  OpSchema::InferFn infer_grad = GradOf(op.infer());
  AddWithGrad(schemas, std::move(op), grad, std::move(infer_grad));
}

void AddWithGrad(OpSchemaTable* schemas, OpSchema op, const GradSlots& grad,
                 OpSchema::InferFn infer_grad) {
  schemas->Add(GradSchema(op, absl::StrCat(op.type(), "_grad"), grad, std::move(infer_grad)));
  schemas->Add(std::move(op));
}

// --- Checks --------------------------------------------------------------------------------------

bool IsIndex(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kInt32; }

bool HasAttrInput(const InferContext& context) {
  const std::vector<SlotSchema>& slots = context.schema().inputs();
  return std::any_of(slots.begin(), slots.end(), [&](const SlotSchema& slot) {
    return !slot.attrs.empty() && context.HasInput(slot.name);
  });
}

absl::Status CheckDims(const InferContext& context, absl::string_view slot, const Dims& dims,
                       size_t i) {
  const TensorType* type = context.Input(slot, i);
  if (type == nullptr || DimsFit(type->dims, dims)) return absl::OkStatus();
  return context.InputError(slot, i, absl::StrCat("dimensions ", DimsToString(dims)));
}

absl::Status CheckVectors(const InferContext& context, std::initializer_list<const char*> slots,
                          int64_t size) {
  for (const char* slot : slots) WEFT_RETURN_IF_ERROR(CheckDims(context, slot, {size}));
  return absl::OkStatus();
}

absl::Status CheckElements(const InferContext& context, absl::string_view slot, int64_t elements,
                           size_t i) {
  const TensorType* type = context.Input(slot, i);
  if (type == nullptr || DimFits(Product(type->dims), elements)) return absl::OkStatus();
  return context.InputError(slot, i,
                            elements == 1 ? "one element" : absl::StrCat(elements, " elements"));
}

absl::Status CheckImage(const InferContext& context, const char* slot) {
  const TensorType* x = context.Input(slot);
  if (x == nullptr || x->dims.size() == 4) return absl::OkStatus();
  return context.InputError(slot, "four dimensions (batch, channels, height, width)");
}

absl::Status CheckSameLength(const InferContext& context, const char* attr, size_t length) {
  const size_t found = context.attrs().Ints(attr).size();
  if (found == length) return absl::OkStatus();
  return context.AttrError(attr, absl::StrCat(length, " numbers, one per axis"),
                           absl::StrCat(found));
}

absl::Status CheckUniform(InferContext& context) {
  const TensorType* const out = context.Output("Out");
  const int64_t elements = out == nullptr ? -1 : NumElements(out->dims);
  if (elements < 0 || HasDiagonal(context.attrs(), elements)) return absl::OkStatus();
  return context.AttrError("diag_num",
                           absl::StrCat("as many elements as fit ", DimsToString(out->dims)),
                           absl::StrCat(context.attrs().Int("diag_num"), ", ",
                                        context.attrs().Int("diag_step"), " apart"));
}

absl::Status CheckShapeAttr(const InferContext& context, const Dims& dims) {
  const auto is_dim = [](int64_t dim) { return dim >= -1 && dim <= kMaxElements; };
  if (absl::c_all_of(dims, is_dim)) return absl::OkStatus();
  return context.AttrError("shape", "dimensions", DimsToString(context.attrs().Ints("shape")));
}

absl::StatusOr<DType> DTypeFromAttr(const InferContext& context, const char* attr) {
  const int64_t number = context.attrs().Int(attr);
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(number));
  if (dtype.has_value()) return *dtype;
  return context.AttrError(attr, "the number of an element type", absl::StrCat(number));
}

absl::StatusOr<DType> IndexDTypeFromAttr(const InferContext& context, const char* attr) {
  const int64_t number = context.attrs().Int(attr);
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(number));
  if (dtype.has_value() && IsIndex(*dtype)) return *dtype;
  return context.AttrError(attr, "the number of int32 or int64", absl::StrCat(number));
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

absl::StatusOr<int> ResolveAxis(const InferContext& context, absl::string_view attr, size_t rank) {
  return ResolveAxis(context, attr, context.attrs().Int(attr), rank);
}

absl::StatusOr<int> AxisFromAttr(const InferContext& context, absl::string_view attr,
                                 const Dims& dims) {
  const int64_t value = context.attrs().Int(attr);
  if (dims.empty() && (value == 0 || value == -1)) return 0;
  return ResolveAxis(context, attr, dims.size());
}

bool Repeats(const Dims& from, const Dims& to) {
  const absl::optional<Dims> dims = BroadcastDims(to, from);
  return dims.has_value() && from.size() <= to.size() && DimsFit(*dims, to);
}

OpSchema::InferFn NoOpenEndsOfPaddle2(const char* steps_attr) {
  return [=](InferContext& context) -> absl::Status {
    for (const SlotSchema& slot : context.schema().inputs()) {
      const bool gives = absl::c_linear_search(slot.attrs, absl::string_view("ends")) ||
                         absl::c_linear_search(slot.attrs, absl::string_view(steps_attr));
      if (gives && context.HasInput(slot.name)) return absl::OkStatus();
    }
    const std::vector<int64_t> ends = context.attrs().Ints("ends");
    const std::vector<int64_t> steps = context.attrs().Ints(steps_attr);
    for (size_t i = 0; i < std::min(ends.size(), steps.size()); ++i) {
      if (steps[i] >= 0 || ends[i] != -1 || !context.IsOfPaddle3()) continue;
      return context.AttrError(
          "ends", "no -1 with a negative step: the last element to Paddle 3, an open end to Weft",
          "-1");
    }
    return absl::OkStatus();
  };
}

absl::StatusOr<Dims> SlicedDims(const InferContext& context, const Dims& x, const char* steps_attr,
                                const char* decrease_attr, bool must_be_one) {
  const OpAttrs& attrs = context.attrs();
  const std::vector<int64_t> axes = attrs.Ints("axes");
  const std::vector<int64_t> starts = attrs.Ints("starts"), ends = attrs.Ints("ends");
  WEFT_RETURN_IF_ERROR(CheckSameLength(context, "starts", axes.size()));
  WEFT_RETURN_IF_ERROR(CheckSameLength(context, "ends", axes.size()));
  std::vector<int64_t> steps(axes.size(), 1);
  if (steps_attr != nullptr) {
    WEFT_RETURN_IF_ERROR(CheckSameLength(context, steps_attr, axes.size()));
    steps = attrs.Ints(steps_attr);
  }
  Dims dims = x;
  for (size_t i = 0; i < axes.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axes", axes[i], x.size()));
    if (steps[i] == 0) return context.AttrError(steps_attr, "steps that are not 0", "0");
    if (dims[axis] != -1 && steps[i] < 0 && IsAmbiguousEnd(ends[i], x[axis])) {
      return context.AttrError(
          "ends",
          absl::StrCat("-", x[axis],
                       " or more, or an open end: beyond it, Paddle 2.6 and 3 take others"),
          absl::StrCat(ends[i]));
    }
    if (dims[axis] != -1) dims[axis] = TakeSlice(starts[i], ends[i], steps[i], x[axis]).count;
  }
  std::vector<int64_t> decrease = attrs.Ints(decrease_attr);
  std::vector<bool> is_left_out(x.size(), false);
  for (int64_t value : decrease) {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, decrease_attr, value, x.size()));
    if (must_be_one && dims[axis] != -1 && dims[axis] != 1) {
      return context.AttrError(decrease_attr, "axes of one element", DimsToString(dims));
    }
    is_left_out[axis] = true;
  }
  Dims out;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!is_left_out[d]) out.push_back(dims[d]);
  }
  return out;
}

TensorType ToXShape(const TensorType& type) {
  TensorType xshape = type;
  xshape.dims.insert(xshape.dims.begin(), 0);
  return xshape;
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

}  // namespace weft
