// Tensors made from attributes, or after the shape of another one.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Like X, of the type of attribute dtype unless that is -1.
absl::Status InferFilledLike(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  TensorType out = {x->dtype, x->dims};
  if (context.attrs().Has("dtype") && context.attrs().Int("dtype") != -1) {
    const int64_t number = context.attrs().Int("dtype");
    const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(number));
    if (!dtype.has_value()) {
      return context.AttrError("dtype", "the number of an element type", absl::StrCat(number));
    }
    out.dtype = *dtype;
  }
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

// Attribute shape, with one dimension of Input in it.
absl::Status InferBatchSizeLike(InferContext& context) {
  const TensorType* input = context.Input("Input");
  const OpAttrs& attrs = context.attrs();
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(attrs.Int("dtype")));
  if (input == nullptr) return absl::OkStatus();
  if (!dtype.has_value()) {
    return context.AttrError("dtype", "the number of an element type",
                             absl::StrCat(attrs.Int("dtype")));
  }
  const std::vector<int64_t> shape = attrs.Ints("shape");
  const int64_t from = attrs.Int("input_dim_idx"), to = attrs.Int("output_dim_idx");
  if (from < 0 || from >= static_cast<int64_t>(input->dims.size())) {
    return context.AttrError("input_dim_idx", "a dimension of Input", absl::StrCat(from));
  }
  if (to < 0 || to >= static_cast<int64_t>(shape.size())) {
    return context.AttrError("output_dim_idx", "a dimension of shape", absl::StrCat(to));
  }
  Dims dims(shape.begin(), shape.end());
  dims[to] = input->dims[from];
  for (int64_t dim : dims) {
    if (dim < -1 || dim > kMaxElements) {
      return context.AttrError("shape", "dimensions", DimsToString(shape));
    }
  }
  context.SetOutput("Out", {*dtype, dims});
  return absl::OkStatus();
}

// Y is X with a dimension more: of maxlen, or as many as the longest sequence has elements.
absl::Status InferSequenceMask(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const OpAttrs& attrs = context.attrs();
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(attrs.Int("out_dtype")));
  if (!dtype.has_value()) {
    return context.AttrError("out_dtype", "the number of an element type",
                             absl::StrCat(attrs.Int("out_dtype")));
  }
  TensorType out = {*dtype, x->dims};
  out.dims.push_back(HasAttrInput(context) ? -1 : std::max<int64_t>(attrs.Int("maxlen"), -1));
  context.SetOutput("Y", out);
  return absl::OkStatus();
}

absl::Status InferShape(InferContext& context) {
  const TensorType* x = context.Input("Input");
  if (x != nullptr) {
    context.SetOutput("Out", {DType::kInt32, {static_cast<int64_t>(x->dims.size())}});
  }
  return absl::OkStatus();
}

absl::Status InferSize(InferContext& context) {
  context.SetOutput("Out", {DType::kInt64, {}});
  return absl::OkStatus();
}

absl::Status InferRange(InferContext& context) {
  const TensorType* start = context.Input("Start");
  if (start != nullptr) context.SetOutput("Out", {start->dtype, {-1}});
  return absl::OkStatus();
}

// Element type number 5 of the format.
const int kFp32 = static_cast<int>(DType::kFloat32);

absl::Status InferFromAttributes(InferContext& context) {
  const int64_t number = context.attrs().Int("dtype");
  const absl::optional<DType> dtype =
      number == static_cast<int>(number) ? DTypeFromProto(static_cast<int>(number)) : absl::nullopt;
  if (!dtype.has_value()) {
    return context.AttrError("dtype", "the number of an element type", absl::StrCat(number));
  }
  // A shape that is computed is not known here.
  if (HasAttrInput(context)) {
    return absl::OkStatus();
  }
  const std::vector<int64_t> shape = context.attrs().Ints("shape");
  for (int64_t dim : shape) {
    if (dim < -1 || dim > kMaxElements) {
      return context.AttrError("shape", "dimensions", DimsToString(shape));
    }
  }
  context.SetOutput("Out", {*dtype, Dims(shape.begin(), shape.end())});
  return absl::OkStatus();
}

absl::Status InferEye(InferContext& context) {
  const OpAttrs& attrs = context.attrs();
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(attrs.Int("dtype")));
  if (!dtype.has_value()) {
    return context.AttrError("dtype", "the number of an element type",
                             absl::StrCat(attrs.Int("dtype")));
  }
  const int64_t rows = attrs.Int("num_rows"), columns = attrs.Int("num_columns");
  if (rows < 0 || rows > kMaxElements) {
    return context.AttrError("num_rows", "0 or more", absl::StrCat(rows));
  }
  if (columns < -1 || columns > kMaxElements) {
    return context.AttrError("num_columns", "-1 or more", absl::StrCat(columns));
  }
  context.SetOutput("Out", {*dtype, {rows, columns == -1 ? rows : columns}});
  return absl::OkStatus();
}

absl::Status InferLinspace(InferContext& context) {
  const int64_t number = context.attrs().Int("dtype");
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(number));
  if (!dtype.has_value()) {
    return context.AttrError("dtype", "the number of an element type", absl::StrCat(number));
  }
  context.SetOutput("Out", {*dtype, {-1}});
  return absl::OkStatus();
}

}  // namespace

void AddCreationSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("fill_any_like")
                   .In("X")
                   .Out("Out")
                   .Attr("dtype", -1)
                   .Attr("value", 0.0f)
                   .Infer(InferFilledLike));
  schemas->Add(OpSchema("fill_zeros_like").In("X").Out("Out").Infer(InferFilledLike));
  schemas->Add(OpSchema("fill_constant_batch_size_like")
                   .In("Input")
                   .Out("Out")
                   .Attr("dtype", static_cast<int>(DType::kFloat32))
                   .Attr("force_cpu", false)
                   .Attr("input_dim_idx", 0)
                   .Attr("output_dim_idx", 0)
                   .RequiredAttr("shape", Ints{})
                   .Attr("value", 0.0f)
                   .Infer(InferBatchSizeLike));
  schemas->Add(OpSchema("sequence_mask")
                   .AttrIn("MaxLenTensor", {"maxlen"})
                   .In("X")
                   .Out("Y")
                   .Attr("maxlen", -1)
                   .Attr("out_dtype", static_cast<int>(DType::kInt64))
                   .Infer(InferSequenceMask));
  schemas->Add(OpSchema("shape").In("Input").Out("Out").Infer(InferShape));
  schemas->Add(OpSchema("size").In("Input").Out("Out").Infer(InferSize));
  schemas->Add(OpSchema("range").In("End").In("Start").In("Step").Out("Out").Infer(InferRange));
  schemas->Add(OpSchema("fill_constant")
                   .AttrIn("ShapeTensor", {"shape"})
                   .AttrIn("ShapeTensorList", {"shape"}, OpSchema::kDuplicable)
                   .AttrIn("ValueTensor", {"str_value"})
                   .Out("Out")
                   .Attr("dtype", kFp32)
                   .Attr("force_cpu", false)
                   .Attr("place_type", -1)
                   .Attr("shape", Longs{})
                   .Attr("str_value", "")
                   .Attr("value", 0.0f)
                   .Infer(InferFromAttributes));
  schemas->Add(OpSchema("assign_value")
                   .Out("Out")
                   .Attr("bool_values", Ints{})
                   .Attr("dtype", kFp32)
                   .Attr("fp32_values", std::vector<float>{})
                   .Attr("fp64_values", std::vector<double>{})
                   .Attr("int32_values", Ints{})
                   .Attr("int64_values", Longs{})
                   .RequiredAttr("shape", Ints{})
                   .Infer(InferFromAttributes));
  schemas->Add(OpSchema("eye")
                   .Out("Out")
                   .Attr("dtype", kFp32)
                   .Attr("num_columns", int64_t{-1})
                   .RequiredAttr("num_rows", int64_t{0})
                   .Infer(InferEye));
  schemas->Add(OpSchema("linspace")
                   .In("Num")
                   .In("Start")
                   .In("Stop")
                   .Out("Out")
                   .Attr("dtype", kFp32)
                   .Infer(InferLinspace));
}

}  // namespace weft
