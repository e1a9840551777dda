// Binary operations with broadcasting: arithmetic, comparison, logic.
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The dimensions of `X op Y`; none where a type is not known, an error where they do not fit.
absl::StatusOr<absl::optional<Dims>> ResultDims(const InferContext& context) {
  const TensorType* x = context.Input("X");
  const TensorType* y = context.Input("Y");
  if (x == nullptr || y == nullptr) return absl::optional<Dims>();
  // The logical operations have no axis: they align at the right.
  const int64_t axis = context.attrs().Has("axis") ? context.attrs().Int("axis") : -1;
  absl::optional<Dims> dims = BroadcastDims(x->dims, y->dims, axis);
  if (!dims.has_value()) {
    return context.InputError("Y", absl::StrCat("dimensions that broadcast with ",
                                                DimsToString(x->dims), " of X at axis ", axis));
  }
  return dims;
}

absl::Status InferResult(InferContext& context, absl::optional<DType> dtype) {
  const absl::StatusOr<absl::optional<Dims>> dims = ResultDims(context);
  if (!dims.ok()) return dims.status();
  if (!dims->has_value()) return absl::OkStatus();
  TensorType out = *context.Input("X");
  out.dims = **dims;
  if (dtype.has_value()) out.dtype = *dtype;
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

OpSchema::InferFn ArithmeticResult() {
  return InOrder({SameDType("X", "Y"),
                  [](InferContext& context) { return InferResult(context, absl::nullopt); }});
}

OpSchema::InferFn BooleanResult() {
  return InOrder({SameDType("X", "Y"),
                  [](InferContext& context) { return InferResult(context, DType::kBool); }});
}

// That of the result and the result itself, where it is read.
absl::Status CheckResultGrad(InferContext& context) {
  const absl::StatusOr<absl::optional<Dims>> dims = ResultDims(context);
  if (!dims.ok()) return dims.status();
  if (!dims->has_value()) return absl::OkStatus();
  for (const char* slot : {"Out@GRAD", "Out"}) {
    const TensorType* type = context.Input(slot);
    if (type == nullptr || DimsFit(type->dims, **dims)) continue;
    return context.InputError(slot,
                              absl::StrCat("dimensions ", DimsToString(**dims), " of X with Y"));
  }
  return absl::OkStatus();
}

OpSchema Arithmetic(OpSchema schema) {
  return std::move(schema)
      .In("X")
      .In("Y")
      .Out("Out")
      .Attr("axis", -1)
      .With(Trait::kElementwise)
      .With(Trait::kRowSplittable)
      .Infer(ArithmeticResult());
}

OpSchema Arithmetic(const char* type) { return Arithmetic(OpSchema(type)); }

// With the switches of Paddle's CPU back end: passes of the paddle dialect insert it.
OpSchema ElementwiseSub() {
  return Arithmetic(OpSchema("elementwise_sub")
                        .Attr("Scale_out", 1.0f)
                        .Attr("Scale_x", 1.0f)
                        .Attr("Scale_y", 1.0f)
                        .Attr("mkldnn_data_type", "float32")
                        .Attr("use_mkldnn", false)
                        .Attr("use_quantizer", false))
      .With(Trait::kLinear);
}

// Sums the gradient over dimensions along which X or Y was repeated, so it is not elementwise.
OpSchema ArithmeticGrad(OpSchema schema) {
  return std::move(schema)
      .In("Out@GRAD")
      .In("X")
      .In("Y")
      .Out("X@GRAD", OpSchema::kOptional)
      .Out("Y@GRAD", OpSchema::kOptional)
      .Attr("axis", -1)
      .Infer(InOrder({SameDType("X", "Y"), CheckResultGrad, GradsLikeInputs()}));
}

absl::Status InferAllClose(InferContext& context) {
  context.SetOutput("Out", {DType::kBool, {}});
  return absl::OkStatus();
}

absl::Status InferIsClose(InferContext& context) {
  const TensorType* input = context.Input("Input");
  if (input != nullptr) context.SetOutput("Out", {DType::kBool, input->dims});
  return absl::OkStatus();
}

// Tolerances are numbers as text.
OpSchema Closeness(const char* type, OpSchema::InferFn infer) {
  return OpSchema(type)
      .AttrIn("Atol", {"atol"})
      .In("Input")
      .In("Other")
      .AttrIn("Rtol", {"rtol"})
      .Out("Out")
      .Attr("atol", "1e-8")
      .Attr("equal_nan", false)
      .Attr("rtol", "1e-5")
      .Infer(InOrder({SameType("Input", "Other"), std::move(infer)}));
}

// Of X and Y, broadcast, without attributes.
OpSchema Plain(const char* type, OpSchema::InferFn infer) {
  return OpSchema(type)
      .In("X")
      .In("Y")
      .Out("Out")
      .With(Trait::kElementwise)
      .With(Trait::kRowSplittable)
      .Infer(std::move(infer));
}
OpSchema Bitwise(const char* type) { return Plain(type, ArithmeticResult()); }
OpSchema Logical(const char* type) { return Plain(type, BooleanResult()); }

OpSchema Comparison(const char* type) {
  return OpSchema(type)
      .In("X")
      .In("Y")
      .Out("Out")
      .Attr("axis", -1)
      .Attr("force_cpu", false)
      .With(Trait::kElementwise)
      .With(Trait::kRowSplittable)
      .Infer(BooleanResult());
}

// Weight broadcasts with X and Y.
absl::Status InferLerp(InferContext& context) {
  const absl::StatusOr<absl::optional<Dims>> dims = ResultDims(context);
  if (!dims.ok()) return dims.status();
  const TensorType* weight = context.Input("Weight");
  if (weight == nullptr || !dims->has_value()) return absl::OkStatus();
  const absl::optional<Dims> all = BroadcastDims(**dims, weight->dims);
  if (!all.has_value()) {
    return context.InputError(
        "Weight", absl::StrCat("dimensions that broadcast with ", DimsToString(**dims)));
  }
  context.SetOutput("Out", {weight->dtype, *all});
  return absl::OkStatus();
}

absl::Status InferLogicalNot(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  context.SetOutput("Out", {DType::kBool, x->dims, x->kind});
  return absl::OkStatus();
}

}  // namespace

void AddElementwiseSchemas(OpSchemaTable* schemas) {
  schemas->Add(Arithmetic("elementwise_add").With(Trait::kLinear));
  schemas->Add(ElementwiseSub());
  schemas->Add(Arithmetic("elementwise_mul"));
  schemas->Add(Arithmetic("elementwise_div"));
  schemas->Add(Arithmetic("elementwise_max"));
  schemas->Add(Arithmetic("elementwise_min"));
  schemas->Add(Arithmetic("elementwise_fmax"));
  schemas->Add(Arithmetic("elementwise_fmin"));
  schemas->Add(Arithmetic("elementwise_mod"));
  schemas->Add(Arithmetic("elementwise_pow"));

  schemas->Add(Arithmetic("elementwise_floordiv"));
  schemas->Add(Arithmetic("grad_add"));
  schemas->Add(OpSchema("minus").In("X").In("Y").Out("Out").Infer(
      InOrder({SameType("X", "Y"), ArithmeticResult()})));

  schemas->Add(ArithmeticGrad(OpSchema("elementwise_pow_grad")));
  schemas->Add(ArithmeticGrad(OpSchema("elementwise_add_grad")));
  schemas->Add(ArithmeticGrad(OpSchema("elementwise_sub_grad")));
  schemas->Add(ArithmeticGrad(OpSchema("elementwise_mul_grad")));
  schemas->Add(ArithmeticGrad(OpSchema("elementwise_div_grad").In("Out")));
  schemas->Add(ArithmeticGrad(OpSchema("elementwise_max_grad")));
  schemas->Add(ArithmeticGrad(OpSchema("elementwise_min_grad")));
  schemas->Add(ArithmeticGrad(OpSchema("elementwise_fmax_grad")));
  schemas->Add(ArithmeticGrad(OpSchema("elementwise_fmin_grad")));
  AddWithGrad(schemas,
              OpSchema("lerp").In("Weight").In("X").In("Y").Out("Out").Infer(
                  InOrder({SameDType("X", "Y"), SameDType("X", "Weight"), InferLerp})),
              {{"Out", "Weight", "X", "Y"}, {"Out"}, {"X", "Y"}});

  schemas->Add(Comparison("equal"));
  schemas->Add(Comparison("not_equal"));
  schemas->Add(Comparison("less_than"));
  schemas->Add(Comparison("less_equal"));
  schemas->Add(Comparison("greater_than"));
  schemas->Add(Comparison("greater_equal"));

  schemas->Add(Logical("logical_and"));
  schemas->Add(Logical("logical_or"));
  schemas->Add(Logical("logical_xor"));
  schemas->Add(OpSchema("logical_not")
                   .In("X")
                   .Out("Out")
                   .With(Trait::kElementwise)
                   .With(Trait::kRowSplittable)
                   .Infer(InferLogicalNot));

  schemas->Add(Closeness("allclose", InferAllClose));
  schemas->Add(Closeness("isclose", InferIsClose));
  schemas->Add(Bitwise("bitwise_and"));
  schemas->Add(Bitwise("bitwise_or"));
  schemas->Add(Bitwise("bitwise_xor"));
  schemas->Add(OpSchema("bitwise_not")
                   .In("X")
                   .Out("Out")
                   .With(Trait::kElementwise)
                   .With(Trait::kRowSplittable)
                   .Infer(OutputsLike("X")));
  AddWithGrad(schemas,
              OpSchema("atan2").In("X1").In("X2").Out("Out").Infer(
                  InOrder({SameType("X1", "X2"), OutputsLike("X1")})),
              {{"X1", "X2"}, {"Out"}, {"X1", "X2"}});
}

}  // namespace weft
