// Tensors made from attributes or indices, or in the shape of another tensor.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/filled_values.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Like X, of the element type of attribute dtype unless that is -1.
absl::Status InferFilledLike(InferContext& context, const TensorType& x) {
  TensorType out = {x.dtype, x.dims};
  if (context.attrs().Has("dtype") && context.attrs().Int("dtype") != -1) {
    WEFT_ASSIGN_OR_RETURN(out.dtype, DTypeFromAttr(context, "dtype"));
  }
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

// Attribute shape, with one dimension of Input in it.
absl::Status InferBatchSizeLike(InferContext& context, const TensorType& input) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeFromAttr(context, "dtype"));
  const OpAttrs& attrs = context.attrs();
  const std::vector<int64_t> shape = attrs.Ints("shape");
  const int64_t from = attrs.Int("input_dim_idx"), to = attrs.Int("output_dim_idx");
  if (from < 0 || from >= static_cast<int64_t>(input.dims.size())) {
    return context.AttrError("input_dim_idx", "a dimension of Input", absl::StrCat(from));
  }
  if (to < 0 || to >= static_cast<int64_t>(shape.size())) {
    return context.AttrError("output_dim_idx", "a dimension of shape", absl::StrCat(to));
  }
  Dims dims(shape.begin(), shape.end());
  dims[to] = input.dims[from];
  WEFT_RETURN_IF_ERROR(CheckShapeAttr(context, dims));
  context.SetOutput("Out", {dtype, dims});
  return absl::OkStatus();
}

// Y has one dimension more than X, of size maxlen. If that is -1, the longest sequence gives it.
absl::Status InferSequenceMask(InferContext& context, const TensorType& x) {
  TensorType out = {DType::kInt64, x.dims};
  WEFT_ASSIGN_OR_RETURN(out.dtype, DTypeFromAttr(context, "out_dtype"));
  const int64_t length = context.attrs().Int("maxlen");
  out.dims.push_back(HasAttrInput(context) ? -1 : std::max<int64_t>(length, -1));
  context.SetOutput("Y", out);
  return absl::OkStatus();
}

absl::Status InferShape(InferContext& context, const TensorType& input) {
  context.SetOutput("Out", {DType::kInt32, {static_cast<int64_t>(input.dims.size())}});
  return absl::OkStatus();
}

absl::Status InferSize(InferContext& context) {
  context.SetOutput("Out", {DType::kInt64, {}});
  return absl::OkStatus();
}

absl::Status InferRange(InferContext& context, const TensorType& start) {
  context.SetOutput("Out", {start.dtype, {-1}});
  return absl::OkStatus();
}

absl::Status InferFillConstant(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeFromAttr(context, "dtype"));
  if (!context.HasInput("ValueTensor")) {
    WEFT_RETURN_IF_ERROR(ReadFilledValue(context.attrs(), dtype).status());
  }
  return InferFromShapeAttr(context);
}

// The attribute that holds numbers of this element type, in programs of Paddle 2; null: none does.
const char* ValuesAttr(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "bool_values";
    case DType::kInt32:
      return "int32_values";
    case DType::kInt64:
      return "int64_values";
    case DType::kFloat32:
      return "fp32_values";
    case DType::kFloat64:
      return "fp64_values";
    default:
      return nullptr;
  }
}

absl::Status InferAssignValue(InferContext& context) {
  WEFT_RETURN_IF_ERROR(InferFromShapeAttr(context));
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeFromAttr(context, "dtype"));
  const char* const of_type = ValuesAttr(dtype);
  size_t found = attrs.Scalars("values").size();
  if (found == 0 && of_type != nullptr) {
    found = IsFloating(dtype) ? attrs.Floats(of_type).size() : attrs.Ints(of_type).size();
  } else if (found == 0) {
    return absl::OkStatus();  // the element type is what no kernel takes
  }
  const std::vector<int64_t> numbers = attrs.Ints("shape");
  const Dims shape(numbers.begin(), numbers.end());
  if (NumElements(shape) == static_cast<int64_t>(found)) return absl::OkStatus();
  return context.AttrError("shape", absl::StrCat("one of ", found, " elements"),
                           DimsToString(shape));
}

absl::Status InferEye(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeFromAttr(context, "dtype"));
  const int64_t rows = context.attrs().Int("num_rows");
  const int64_t columns = context.attrs().Int("num_columns");
  context.SetOutput("Out", {dtype, {rows, columns == -1 ? rows : columns}});
  return absl::OkStatus();
}

absl::Status InferLinspace(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeFromAttr(context, "dtype"));
  context.SetOutput("Out", {dtype, {-1}});
  return absl::OkStatus();
}

// --- Indices as one-hot vectors -----------------------------------------------------------------

// `first_dims`: those of the result before the classes.
absl::Status InferClasses(InferContext& context, Dims first_dims) {
  if (HasAttrInput(context)) return absl::OkStatus();
  TensorType out = {DType::kFloat32, std::move(first_dims)};
  WEFT_ASSIGN_OR_RETURN(out.dtype, DTypeFromAttr(context, "dtype"));
  out.dims.push_back(context.attrs().Int("depth"));
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

absl::Status InferOneHotV2(InferContext& context, const TensorType& x) {
  return InferClasses(context, x.dims);
}

// The last dimension of X is 1.
absl::Status InferOneHot(InferContext& context, const TensorType& x) {
  if (x.dims.empty() || !DimFits(x.dims.back(), 1)) {
    return context.InputError("X", "a last dimension of 1");
  }
  return InferClasses(context, Dims(x.dims.begin(), x.dims.end() - 1));
}

}  // namespace

void AddCreationSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("fill_any_like", "X -> Out")
                   .Attr("dtype", -1)
                   .Attr("value", 0.0f)
                   .Infer(IfKnown("X", InferFilledLike))
                   .Algebra(Algebra::kFill)
                   .Batch({batch::Like, Powers::kAny})
                   .Pir("full_like(x, @value)"));
  schemas->Add(OpSchema("fill_zeros_like", "X -> Out")
                   .Infer(IfKnown("X", InferFilledLike))
                   .Algebra(Algebra::kZeros)
                   .Batch({batch::Like, Powers::kAny}));
  schemas->Add(OpSchema("fill_constant_batch_size_like", "Input -> Out")
                   .Attr("dtype", kFp32)
                   .Attr("force_cpu", false)
                   .Attr("input_dim_idx", 0)
                   .Attr("output_dim_idx", 0)
                   .RequiredAttr("shape", Ints{})
                   .Attr("value", 0.0f)
                   .Infer(IfKnown("Input", InferBatchSizeLike))
                   .Batch({batch::BatchSizeLike, Powers::kAny})
                   .Pir("full_batch_size_like(input)"));
  schemas->Add(OpSchema("gaussian_random_batch_size_like", "Input -> Out")
                   .Attr("dtype", kFp32)
                   .Attr("input_dim_idx", 0)
                   .Attr("mean", 0.0f)
                   .Attr("output_dim_idx", 0)
                   .Attr("seed", 0)
                   .RequiredAttr("shape", Ints{})
                   .Attr("std", 1.0f)
                   .With(Trait::kSideEffect)
                   .Infer(IfKnown("Input", InferBatchSizeLike))
                   .Batch({batch::Draw(batch::BatchSizeLike), Powers::kOwn}));
  schemas->Add(OpSchema("uniform_random_batch_size_like", "Input -> Out")
                   .Attr("diag_num", 0)
                   .Attr("diag_step", 0)
                   .Attr("diag_val", 1.0f)
                   .Attr("dtype", kFp32)
                   .Attr("input_dim_idx", 0)
                   .Attr("max", 1.0f)
                   .Attr("min", -1.0f)
                   .Attr("output_dim_idx", 0)
                   .Attr("seed", 0)
                   .RequiredAttr("shape", Ints{})
                   .With(Trait::kSideEffect)
                   .Infer(InOrder({IfKnown("Input", InferBatchSizeLike), CheckUniform}))
                   .Batch({batch::Draw(batch::BatchSizeLike), Powers::kOwn}));
  schemas->Add(OpSchema("sequence_mask", "MaxLenTensor{maxlen}, X -> Y")
                   .Attr("maxlen", -1)
                   .Attr("out_dtype", kInt64)
                   .Infer(IfKnown("X", InferSequenceMask))
                   .Batch({batch::SequenceMask, Powers::kNone, /*time_major=*/"", "MaxLenTensor"})
                   .Pir("(x, max_len:@maxlen/tensor) -> y"));
  schemas->Add(OpSchema("shape", "Input -> Out~")  // Paddle 1 may declare another type
                   .Infer(IfKnown("Input", InferShape))
                   .Batch({batch::ShapeOf, Powers::kOwn}));
  schemas->Add(OpSchema("size", "Input -> Out")
                   .Infer(InferSize)
                   .Batch({batch::ElementCount, Powers::kOwn})
                   .Pir("numel -> size:Out"));
  schemas->Add(OpSchema("range", "End, Start, Step -> Out")
                   .Infer(IfKnown("Start", InferRange))
                   .Algebra(Algebra::kConstant)
                   .Batch(batch::Unrelated(batch::kNoBatch))
                   .Pir("arange(start, end, step) {dtype=}"));
  schemas->Add(
      OpSchema("fill_constant",
               "ShapeTensor{shape}, ShapeTensorList*{shape}, ValueTensor{str_value} -> Out")
          .Attr("dtype", kFp32)
          .Attr("force_cpu", false)
          .Attr("place_type", -1)
          .Attr("shape", Longs{})
          .Attr("str_value", "")
          .Attr("value", 0.0f)
          .Infer(InferFillConstant)
          .Algebra(Algebra::kConstant)
          .Batch({batch::FillConstant, Powers::kOwn})
          // The importer adds values of full.
          .Pir("full {value=}")
          .Pir("full_with_tensor(@value, shape:ShapeTensor!)"));
  schemas->Add(OpSchema("empty", "ShapeTensor{shape}, ShapeTensorList*{shape} -> Out")
                   .Attr("dtype", kFp32)
                   .Attr("shape", Longs{})
                   .Infer(InferFromShapeAttr)
                   .Batch({batch::FillConstant, Powers::kOwn})
                   .Pir("(@shape/tensor)"));
  schemas->Add(OpSchema("assign_value", "-> Out")
                   .Attr("bool_values", Ints{})
                   .Attr("dtype", kFp32)
                   .Attr("fp32_values", Floats{})
                   .Attr("fp64_values", std::vector<double>{})
                   .Attr("int32_values", Ints{})
                   .Attr("int64_values", Longs{})
                   .RequiredAttr("shape", Ints{})
                   .AttrSincePaddle3("values", std::vector<Scalar>{})
                   .Infer(InferAssignValue)
                   .Algebra(Algebra::kConstant)
                   .Batch(batch::Unrelated(batch::kNoBatch))
                   .Pir("assign_value_(output:-) {values=}")
                   .Pir("{values=}"));
  schemas->Add(OpSchema("eye", "-> Out")
                   .Attr("dtype", kFp32)
                   .Attr("num_columns", int64_t{-1}, range::Between(-1, kMaxElements))
                   .RequiredAttr("num_rows", int64_t{0}, range::Between(0, kMaxElements))
                   .Infer(InferEye)
                   .Algebra(Algebra::kConstant)
                   .Batch(batch::Unrelated(batch::kNoBatch))
                   .Pir("(@num_rows, @num_columns)"));
  schemas->Add(OpSchema("linspace", "Num, Start, Stop -> Out")
                   .Attr("dtype", kFp32)
                   .Infer(InferLinspace)
                   .Algebra(Algebra::kConstant)
                   .Batch(batch::Unrelated(batch::kNoBatch))
                   .Pir("(start, stop, number:Num)"));
  schemas->Add(OpSchema("one_hot_v2", "X, depth_tensor{depth} -> Out")
                   .Attr("allow_out_of_range", false)
                   .Attr("depth", -1, range::AtLeast(1))
                   .Attr("dtype", kFp32)
                   .Infer(IfKnown("X", InferOneHotV2))
                   .Batch({batch::Lookup("X")})
                   .Pir("one_hot(x, num_classes:@depth)"));
  schemas->Add(OpSchema("one_hot", "X, depth_tensor{depth} -> Out")
                   .Attr("allow_out_of_range", false)
                   .Attr("depth", -1, range::AtLeast(1))
                   .Attr("dtype", kFp32)
                   .Infer(IfKnown("X", InferOneHot))
                   .Batch({batch::NotLast("X")}));
}

}  // namespace weft
