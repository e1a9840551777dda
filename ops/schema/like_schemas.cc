// Tensors made after the shape of another one, and questions to every element.
#include <algorithm>

#include "absl/strings/str_cat.h"
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

absl::Status InferQuestion(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x != nullptr) context.SetOutput("Out", {DType::kBool, x->dims});
  return absl::OkStatus();
}

// One answer for all elements.
absl::Status InferAnyQuestion(InferContext& context) {
  context.SetOutput("Out", {DType::kBool, {1}});
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

// Rows of X, as a dense tensor: how many is not known.
absl::Status InferRowValues(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr || x->dims.empty()) return absl::OkStatus();
  TensorType out = {x->dtype, x->dims};
  out.dims[0] = -1;
  context.SetOutput("Out", out);
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

}  // namespace

void AddLikeSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("assert")
                   .In("Cond")
                   .In("Data", OpSchema::kOptional | OpSchema::kDuplicable)
                   .Attr("summarize", int64_t{-1})
                   .With(Trait::kSideEffect));
  schemas->Add(OpSchema("print")
                   .In("In")
                   .Out("Out")
                   .Attr("first_n", -1)
                   .Attr("is_forward", true)
                   .Attr("message", "")
                   .Attr("print_phase", "BOTH")
                   .Attr("print_tensor_layout", true)
                   .Attr("print_tensor_lod", true)
                   .Attr("print_tensor_name", true)
                   .Attr("print_tensor_shape", true)
                   .Attr("print_tensor_type", true)
                   .Attr("summarize", 20)
                   .With(Trait::kLinear)
                   .With(Trait::kSideEffect)
                   .Infer(OutputsLike("In")));
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
  for (const char* type : {"isfinite_v2", "isinf_v2", "isnan_v2"}) {
    schemas->Add(OpSchema(type).In("X").Out("Out").Infer(InferQuestion));
  }
  for (const char* type : {"isfinite", "isinf", "isnan"}) {
    schemas->Add(OpSchema(type).In("X").Out("Out").Infer(InferAnyQuestion));
  }
  schemas->Add(OpSchema("sequence_mask")
                   .AttrIn("MaxLenTensor", {"maxlen"})
                   .In("X")
                   .Out("Y")
                   .Attr("maxlen", -1)
                   .Attr("out_dtype", static_cast<int>(DType::kInt64))
                   .Infer(InferSequenceMask));
  schemas->Add(OpSchema("merge_selected_rows").In("X").Out("Out").Infer(OutputsLike("X")));
  schemas->Add(OpSchema("get_tensor_from_selected_rows").In("X").Out("Out").Infer(InferRowValues));
  schemas->Add(OpSchema("shape").In("Input").Out("Out").Infer(InferShape));
  schemas->Add(OpSchema("size").In("Input").Out("Out").Infer(InferSize));
  schemas->Add(OpSchema("range").In("End").In("Start").In("Step").Out("Out").Infer(InferRange));
  schemas->Add(OpSchema("clip_grad")
                   .AttrIn("Max", {"max"})
                   .AttrIn("Min", {"min"})
                   .In("Out@GRAD")
                   .In("X")
                   .Out("X@GRAD")
                   .RequiredAttr("max", 0.0f)
                   .RequiredAttr("min", 0.0f)
                   .Infer(InOrder({SameType("X", "Out@GRAD"), OutputsLike("X")})));
}

}  // namespace weft
