// Binary operations with broadcasting: arithmetic, comparison, logic. Tests of single elements.
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_context.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// The dimensions of `X op Y`; an error if they do not fit.
absl::StatusOr<Dims> ResultDims(const InferContext& context, const TensorType& x,
                                const TensorType& y) {
  // The logical operations have no axis: they align at the right.
  const int64_t axis = context.attrs().Has("axis") ? context.attrs().Int("axis") : -1;
  const absl::optional<Dims> dims = BroadcastDims(x.dims, y.dims, axis);
  if (dims.has_value()) return *dims;
  return context.InputError("Y", absl::StrCat("dimensions that broadcast with ",
                                              DimsToString(x.dims), " of X at axis ", axis));
}

// Out has the element type of X if `dtype` is empty.
OpSchema::InferFn Result(absl::optional<DType> dtype = absl::nullopt) {
  const auto infer = [dtype](InferContext& context, const TensorType& x,
                             const TensorType& y) -> absl::Status {
    TensorType out = x;
    WEFT_ASSIGN_OR_RETURN(out.dims, ResultDims(context, x, y));
    out.dtype = dtype.value_or(x.dtype);
    context.SetOutput("Out", out);
    return absl::OkStatus();
  };
  return InOrder({SameDType("X", "Y"), IfKnown("X", "Y", infer)});
}

// Out, if the gradient op reads it, and its gradient have the dimensions of the result.
absl::Status CheckResultGrad(InferContext& context, const TensorType& x, const TensorType& y) {
  WEFT_ASSIGN_OR_RETURN(const Dims dims, ResultDims(context, x, y));
  for (const char* slot : {"Out@GRAD", "Out"}) {
    const TensorType* type = context.Input(slot);
    if (type == nullptr || DimsFit(type->dims, dims)) continue;
    return context.InputError(slot,
                              absl::StrCat("dimensions ", DimsToString(dims), " of X with Y"));
  }
  return absl::OkStatus();
}

// Of X and Y, broadcast.
OpSchema Binary(OpSchema schema, OpSchema::InferFn infer) {
  return std::move(schema)
      .In("X, Y")
      .Out("Out")
      .With(Trait::kElementwise, Trait::kRowSplittable)
      .Infer(std::move(infer));
}
OpSchema Arithmetic(OpSchema schema) {
  return Binary(std::move(schema), Result()).Attr("axis", -1).With(Trait::kBroadcasts);
}

// It sums the gradient over dimensions along which X or Y was repeated, so it is not elementwise.
OpSchema BinaryGrad(OpSchema schema) {
  return std::move(schema)
      .In("Out@GRAD, X, Y")
      .Out("X@GRAD?, Y@GRAD?")
      .With(Trait::kBroadcasts)
      .Infer(InOrder({SameDType("X", "Y"), IfKnown("X", "Y", CheckResultGrad), GradsLikeInputs()}));
}
OpSchema ArithmeticGrad(OpSchema schema) { return BinaryGrad(std::move(schema)).Attr("axis", -1); }

absl::Status InferAllClose(InferContext& context) {
  context.SetOutput("Out", {DType::kBool, {}});
  return absl::OkStatus();
}

absl::Status InferIsClose(InferContext& context, const TensorType& input) {
  context.SetOutput("Out", {DType::kBool, input.dims});
  return absl::OkStatus();
}

// Tolerances are numbers as text, in double precision, unless inputs have them.
absl::Status CheckTolerances(InferContext& context) {
  for (const auto& [attr, slot] : {std::pair("atol", "Atol"), std::pair("rtol", "Rtol")}) {
    double unused;
    const std::string& text = context.attrs().String(attr);
    if (context.HasInput(slot) || absl::SimpleAtod(text, &unused)) continue;
    return context.AttrError(attr, "a number", text);
  }
  return absl::OkStatus();
}

OpSchema Closeness(const char* type, OpSchema::InferFn infer) {
  return OpSchema(type, "Atol{atol}, Input, Other, Rtol{rtol} -> Out")
      .Attr("atol", "1e-8")
      .Attr("equal_nan", false)
      .Attr("rtol", "1e-5")
      .Infer(InOrder({CheckTolerances, SameType("Input", "Other"), std::move(infer)}));
}

// Weight broadcasts with X and Y.
absl::Status InferLerp(InferContext& context, const TensorType& x, const TensorType& y) {
  WEFT_ASSIGN_OR_RETURN(const Dims dims, ResultDims(context, x, y));
  const TensorType* weight = context.Input("Weight");
  if (weight == nullptr) return absl::OkStatus();
  const absl::optional<Dims> all = BroadcastDims(dims, weight->dims);
  if (!all.has_value()) {
    return context.InputError("Weight",
                              absl::StrCat("dimensions that broadcast with ", DimsToString(dims)));
  }
  context.SetOutput("Out", {weight->dtype, *all});
  return absl::OkStatus();
}

absl::Status InferLogicalNot(InferContext& context, const TensorType& x) {
  context.SetOutput("Out", {DType::kBool, x.dims, x.kind});
  return absl::OkStatus();
}

// mask and value broadcast with x.
absl::Status InferMaskedFill(InferContext& context, const TensorType& x) {
  const TensorType *mask = context.Input("mask"), *value = context.Input("value");
  if (mask == nullptr || value == nullptr) return absl::OkStatus();
  absl::optional<Dims> out;
  if (mask->dtype == DType::kBool) out = BroadcastDims(x.dims, mask->dims);
  if (!out.has_value()) {
    return context.InputError("mask", absl::StrCat("bool, of dimensions that broadcast with ",
                                                   DimsToString(x.dims), " of x"));
  }
  const absl::optional<Dims> all = BroadcastDims(*out, value->dims);
  if (!all.has_value()) {
    return context.InputError("value",
                              absl::StrCat("dimensions that broadcast with ", DimsToString(*out)));
  }
  context.SetOutput("out", {x.dtype, *all});
  return absl::OkStatus();
}

// --- Tests of single elements -------------------------------------------------------------------

absl::Status InferEachAnswer(InferContext& context, const TensorType& x) {
  context.SetOutput("Out", {DType::kBool, x.dims});
  return absl::OkStatus();
}

// One answer for all elements.
absl::Status InferOneAnswer(InferContext& context) {
  context.SetOutput("Out", {DType::kBool, {1}});
  return absl::OkStatus();
}

}  // namespace

void AddElementwiseSchemas(OpSchemaTable* schemas) {
  schemas->Add(
      Arithmetic(
          OpSchema("elementwise_add").Algebra(Algebra::kAdd).PostOp(PostOpKind::kAdd).Pir("add"))
          .With(Trait::kLinear));
  // Has the switches of Paddle's CPU back end: passes of the paddle dialect insert it.
  schemas->Add(Arithmetic(OpSchema("elementwise_sub")
                              .Attr("Scale_out", 1.0f)
                              .Attr("Scale_x", 1.0f)
                              .Attr("Scale_y", 1.0f)
                              .Attr("mkldnn_data_type", "float32")
                              .AttrSincePaddle3("onednn_data_type", "")
                              .Attr("use_mkldnn", false)
                              .AttrSincePaddle3("use_onednn", false)
                              .Attr("use_quantizer", false)
                              .Algebra(Algebra::kSubtract)
                              .Pir("subtract"))
                   .With(Trait::kLinear));
  const auto arithmetic = [](const char* type) { return Arithmetic(OpSchema(type)); };
  schemas->Add(arithmetic("elementwise_mul").Algebra(Algebra::kMultiply).Pir("multiply"));
  schemas->Add(arithmetic("elementwise_div").Algebra(Algebra::kDivide).Pir("divide"));
  schemas->Add(arithmetic("elementwise_max").Algebra(Algebra::kMaximum).Pir("maximum"));
  schemas->Add(arithmetic("elementwise_min").Algebra(Algebra::kMinimum).Pir("minimum"));
  schemas->Add(arithmetic("elementwise_mod").Algebra(Algebra::kModulo).Pir("remainder"));
  schemas->Add(
      arithmetic("elementwise_floordiv").Algebra(Algebra::kFloorDivide).Pir("floor_divide"));
  schemas->Add(arithmetic("elementwise_fmax").Pir("fmax"));
  schemas->Add(arithmetic("elementwise_fmin").Pir("fmin"));
  schemas->Add(arithmetic("elementwise_pow").Pir());
  schemas->Add(arithmetic("grad_add"));
  // It aligns at the right, without an attribute.
  schemas->Add(Binary(OpSchema("elementwise_heaviside").Pir("heaviside"), Result())
                   .With(Trait::kBroadcasts));
  schemas->Add(BinaryGrad(OpSchema("elementwise_heaviside_grad")));
  schemas->Add(OpSchema("minus", "X, Y -> Out")
                   .Infer(InOrder({SameType("X", "Y"), Result()}))
                   .Batch({batch::Elementwise, Powers::kTogether}));

  for (const char* type :
       {"elementwise_pow_grad", "elementwise_add_grad", "elementwise_sub_grad",
        "elementwise_mul_grad", "elementwise_max_grad", "elementwise_min_grad",
        "elementwise_fmax_grad", "elementwise_fmin_grad", "elementwise_mod_grad"}) {
    schemas->Add(ArithmeticGrad(OpSchema(type)));
  }
  schemas->Add(ArithmeticGrad(OpSchema("elementwise_div_grad", "Out")));
  AddWithGrad(schemas,
              OpSchema("lerp", "Weight, X, Y -> Out")
                  .Infer(InOrder({SameDType("X", "Y"), SameDType("X", "Weight"),
                                  IfKnown("X", "Y", InferLerp)}))
                  .Batch({batch::Elementwise})
                  .Pir("(x, y, weight)"),
              {{"Out", "Weight", "X", "Y"}, {"Out"}, {"X", "Y"}});

  AddWithGrad(schemas,
              OpSchema("masked_fill", "mask, value, x -> out")
                  .Infer(InOrder({SameDType("x", "value"), IfKnown("x", InferMaskedFill)}))
                  .Batch({batch::Elementwise})
                  .Pir("(x, mask, value)"),
              {{"mask", "value", "x"}, {"out"}, {"value", "x"}});

  const std::pair<const char*, Algebra> comparisons[] = {
      {"equal", Algebra::kEqual},          {"not_equal", Algebra::kNotEqual},
      {"less_than", Algebra::kLess},       {"less_equal", Algebra::kLessEqual},
      {"greater_than", Algebra::kGreater}, {"greater_equal", Algebra::kGreaterEqual}};
  for (const auto& [type, algebra] : comparisons) {
    schemas->Add(Binary(OpSchema(type), Result(DType::kBool))
                     .Attr("axis", -1)
                     .Attr("force_cpu", false)
                     .Algebra(algebra)
                     .Pir());
  }
  const std::pair<const char*, Algebra> logical[] = {
      {"logical_and", Algebra::kAnd}, {"logical_or", Algebra::kOr}, {"logical_xor", Algebra::kXor}};
  for (const auto& [type, algebra] : logical) {
    schemas->Add(Binary(OpSchema(type), Result(DType::kBool)).Algebra(algebra).Pir());
  }
  for (const char* type : {"bitwise_and", "bitwise_or", "bitwise_xor"}) {
    schemas->Add(Binary(OpSchema(type), Result()).Pir());
  }
  schemas->Add(OpSchema("logical_not", "X -> Out")
                   .With(Trait::kElementwise, Trait::kRowSplittable)
                   .Infer(IfKnown("X", InferLogicalNot))
                   .Algebra(Algebra::kNot)
                   .Pir());
  schemas->Add(OpSchema("bitwise_not", "X -> Out")
                   .With(Trait::kElementwise, Trait::kRowSplittable)
                   .Infer(OutputsLike("X"))
                   .Pir());
  schemas->Add(Closeness("allclose", InferAllClose)
                   .Batch(batch::Unrelated(batch::kWholeResult))
                   .Pir("(x:Input, y:Other, @rtol/tensor, @atol/tensor)"));
  schemas->Add(Closeness("isclose", IfKnown("Input", InferIsClose))
                   .Batch(batch::Unrelated(batch::kNotNeeded))
                   .Pir("(x:Input, y:Other, @rtol/tensor, @atol/tensor)"));
  AddWithGrad(schemas,
              OpSchema("atan2", "X1, X2 -> Out")
                  .Infer(InOrder({SameType("X1", "X2"), Like("X1", {"Out"})}))
                  .Batch({batch::Elementwise})
                  .Pir("(x:X1, y:X2)"),
              {{"X1", "X2"}, {"Out"}, {"X1", "X2"}});
  for (const std::string name : {"isfinite", "isinf", "isnan"}) {
    schemas->Add(OpSchema(name + "_v2", "X -> Out")
                     .Infer(IfKnown("X", InferEachAnswer))
                     .Batch({batch::Elementwise})
                     .Pir(name));
    schemas->Add(OpSchema(name, "X -> Out~")  // Paddle 1 declares the type of X
                     .Infer(InferOneAnswer)
                     .Batch(batch::Unrelated(batch::kWholeResult)));
  }
}

}  // namespace weft
