// Layers and losses that Paddle 1 has ops for, and later versions compose of others.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// [rows, 1] for a tensor of rows.
TensorType OneOfEachRow(const TensorType& x) { return {x.dtype, {x.dims[0], 1}}; }

absl::Status CheckIsMatrix(const InferContext& context, const char* slot, const TensorType& x) {
  return x.dims.size() == 2 ? absl::OkStatus() : context.InputError(slot, "a matrix");
}

absl::Status InferSmoothL1(InferContext& context, const TensorType& x) {
  if (x.dims.size() < 2) return context.InputError("X", "two dimensions or more");
  for (const char* slot : {"Y", "InsideWeight", "OutsideWeight"}) {
    WEFT_RETURN_IF_ERROR(CheckDims(context, slot, x.dims));
  }
  context.SetOutput("Diff", x);
  context.SetOutput("Out", OneOfEachRow(x));
  return absl::OkStatus();
}

absl::Status InferSmoothL1Grad(InferContext& context, const TensorType& diff) {
  WEFT_RETURN_IF_ERROR(CheckElements(context, "Out@GRAD", diff.dims[0]));
  context.SetOutput("X@GRAD", diff);
  context.SetOutput("Y@GRAD", diff);
  return absl::OkStatus();
}

// A class for each row of X.
absl::Status InferBprLoss(InferContext& context, const TensorType& x) {
  WEFT_RETURN_IF_ERROR(CheckIsMatrix(context, "X", x));
  if (x.dims[1] == 1) return context.InputError("X", "two columns or more");
  WEFT_RETURN_IF_ERROR(CheckElements(context, "Label", x.dims[0]));
  context.SetOutput("Y", OneOfEachRow(x));
  return absl::OkStatus();
}

// Y has as many rows as X, or one.
absl::Status InferCosSim(InferContext& context, const TensorType& x, const TensorType& y) {
  WEFT_RETURN_IF_ERROR(CheckIsMatrix(context, "X", x));
  if (y.dims.size() != 2 || !DimFits(x.dims[1], y.dims[1]) ||
      !(y.dims[0] == 1 || DimFits(x.dims[0], y.dims[0]))) {
    return context.InputError("Y", absl::StrCat("one row or as many as X, of ", x.dims[1]));
  }
  context.SetOutput("Out", OneOfEachRow(x));
  context.SetOutput("XNorm", OneOfEachRow(x));
  context.SetOutput("YNorm", OneOfEachRow(y));
  return absl::OkStatus();
}

absl::Status InferLstmUnit(InferContext& context, const TensorType& x, const TensorType& c) {
  WEFT_RETURN_IF_ERROR(CheckIsMatrix(context, "C_prev", c));
  WEFT_RETURN_IF_ERROR(CheckDims(context, "X", {c.dims[0], MulDim(4, c.dims[1])}));
  context.SetOutput("C", {x.dtype, c.dims});
  context.SetOutput("H", {x.dtype, c.dims});
  return absl::OkStatus();
}

// Activations by number: identity, sigmoid, tanh, relu.
absl::Status InferGruUnit(InferContext& context, const TensorType& h) {
  WEFT_RETURN_IF_ERROR(CheckIsMatrix(context, "HiddenPrev", h));
  const Dims gates = {h.dims[0], MulDim(3, h.dims[1])};
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Input", gates));
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Weight", {h.dims[1], gates[1]}));
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Bias", {1, gates[1]}));
  context.SetOutput("Gate", {h.dtype, gates});
  context.SetOutput("ResetHiddenPrev", h);
  context.SetOutput("Hidden", h);
  return absl::OkStatus();
}

absl::Status InferExpandAs(InferContext& context, const TensorType& x, const TensorType& to) {
  bool fits = x.dims.size() == to.dims.size();
  for (size_t d = 0; fits && d < x.dims.size(); ++d) {
    fits = x.dims[d] == -1 || to.dims[d] == -1 || (x.dims[d] > 0 && to.dims[d] % x.dims[d] == 0);
  }
  if (!fits) {
    return context.InputError("target_tensor",
                              absl::StrCat("multiples of dimensions ", DimsToString(x.dims)));
  }
  context.SetOutput("Out", {x.dtype, to.dims});
  return absl::OkStatus();
}

// Emission is [sequences, steps, tags]; Transition has rows for the first and the last tag, then
// those from tag to tag.
absl::Status CheckChain(const InferContext& context, const TensorType& emission) {
  if (emission.dims.size() != 3) {
    return context.InputError("Emission", "[sequences, steps, tags], with an input Length");
  }
  if (!context.HasInput("Length")) {
    return absl::InvalidArgumentError("input Length: expected lengths of padded sequences");
  }
  const int64_t tags = emission.dims[2];
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Transition", {AddDim(tags, tags < 0 ? 0 : 2), tags}));
  WEFT_RETURN_IF_ERROR(CheckElements(context, "Length", emission.dims[0]));
  return CheckElements(context, "Label", MulDim(emission.dims[0], emission.dims[1]));
}

absl::Status InferLinearChainCrf(InferContext& context, const TensorType& emission) {
  if (!context.HasInput("Length")) return absl::OkStatus();  // by level-of-detail offsets
  WEFT_RETURN_IF_ERROR(CheckChain(context, emission));
  const int64_t tags = emission.dims[2];
  context.SetOutput("Alpha", emission);
  context.SetOutput("EmissionExps", emission);
  context.SetOutput("TransitionExps", {emission.dtype, {AddDim(tags, tags < 0 ? 0 : 2), tags}});
  context.SetOutput("LogLikelihood", OneOfEachRow(emission));
  return absl::OkStatus();
}

absl::Status InferCrfDecoding(InferContext& context, const TensorType& emission) {
  if (!context.HasInput("Length")) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckChain(context, emission));
  context.SetOutput("ViterbiPath", {DType::kInt64, {emission.dims[0], emission.dims[1]}});
  return absl::OkStatus();
}

// paddings: above, below, to the left and to the right.
absl::Status InferPad2d(InferContext& context, const TensorType& x) {
  if (HasAttrInput(context)) return absl::OkStatus();
  const std::vector<int64_t> paddings = context.attrs().Ints("paddings");
  if (x.dims.size() != 4) return context.InputError("X", "four dimensions");
  if (paddings.size() != 4) {
    return context.AttrError("paddings", "four numbers", DimsToString(paddings));
  }
  const std::string& mode = context.attrs().String("mode");
  const size_t first = context.attrs().String("data_format") == "NHWC" ? 1 : 2;
  TensorType out = x;
  for (size_t s = 0; s < 2; ++s) {
    const int64_t before = paddings[2 * s], after = paddings[2 * s + 1];
    int64_t& dim = out.dims[first + s];
    const bool is_small = mode == "reflect" && dim != -1 && std::max(before, after) >= dim;
    if (before < 0 || after < 0 || is_small || (mode == "edge" && dim == 0)) {
      return context.AttrError("paddings", absl::StrCat("paddings of ", DimsToString(x.dims)),
                               DimsToString(paddings));
    }
    if (dim != -1) dim += before + after;
  }
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

absl::Status InferDiag(InferContext& context, const TensorType& x) {
  if (x.dims.size() != 1) return context.InputError("Diagonal", "one dimension");
  context.SetOutput("Out", {x.dtype, {x.dims[0], x.dims[0]}});
  return absl::OkStatus();
}

// Counts of right and wrong elements by class, to which earlier ones are added.
absl::Status InferMeanIou(InferContext& context) {
  const int64_t classes = context.attrs().Int("num_classes");
  for (const char* slot : {"InCorrects", "InWrongs"}) {
    for (size_t i = 0; i < context.NumInputs(slot); ++i) {
      WEFT_RETURN_IF_ERROR(CheckElements(context, slot, classes, i));
    }
  }
  context.SetOutput("OutMeanIou", {DType::kFloat32, {1}});
  context.SetOutput("OutWrong", {DType::kInt32, {classes}});
  context.SetOutput("OutCorrect", {DType::kInt32, {classes}});
  return absl::OkStatus();
}

void LinearChainCrf(BatchContext& context) {
  batch::Rows({"Emission", "Label", "Length"})(context);
  context.Set("TransitionExps", context.In("Transition"));
}

void AddLosses(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("smooth_l1_loss", "InsideWeight?, OutsideWeight?, X, Y -> Diff~, Out")
                  .Attr("sigma", 1.0f)
                  .Infer(IfKnown("X", InferSmoothL1))
                  .Batch({batch::Rows({"X", "Y", "InsideWeight", "OutsideWeight"})}),
              {{"Diff", "InsideWeight", "OutsideWeight"}, {"Out"}, {"X", "Y"}},
              IfKnown("Diff", InferSmoothL1Grad));
  AddWithGrad(schemas,
              OpSchema("margin_rank_loss", "Label, X1, X2 -> Activated~, Out")
                  .Attr("margin", 0.0f)
                  .Infer(InOrder({SameType("Label", "X1"), SameType("Label", "X2"),
                                  Like("Label", {"Activated", "Out"})}))
                  .Batch({batch::Elementwise}),
              {{"Activated", "Label"}, {"Out"}, {"X1", "X2"}}, OutputsLike("Label", {"Out@GRAD"}));
  AddWithGrad(schemas,
              OpSchema("bpr_loss", "Label, X -> Y")
                  .Infer(IfKnown("X", InferBprLoss))
                  .Batch({batch::Rows({"X", "Label"})}),
              {{"Label", "X"}, {"Y"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("teacher_student_sigmoid_loss", "Label, X -> Y")
                  .Attr("soft_max_lower_bound", -15.0f)
                  .Attr("soft_max_up_bound", 15.0f)
                  .Infer(InOrder({SameType("X", "Label"), Like("X", {"Y"})}))
                  .Batch({batch::Elementwise}),
              {{"Label", "X"}, {"Y"}, {"X"}});
  AddWithGrad(schemas,
              OpSchema("cos_sim", "X, Y -> Out, XNorm~, YNorm~")
                  .Infer(InOrder({SameDType("X", "Y"), IfKnown("X", "Y", InferCosSim)}))
                  .Batch({batch::Rows({"X", "Y"})}),
              {{"Out", "X", "XNorm", "Y", "YNorm"}, {"Out"}, {"X", "Y"}}, GradsLikeInputs());
}

void AddChains(OpSchemaTable* schemas) {
  AddWithGrad(
      schemas,
      OpSchema("linear_chain_crf",
               "Emission, Label, Length?, Transition -> Alpha~, EmissionExps~, "
               "LogLikelihood, TransitionExps~")
          .Infer(IfKnown("Emission", InferLinearChainCrf))
          .Batch({LinearChainCrf}),
      {{"Alpha", "Emission", "EmissionExps", "Label", "Length", "Transition", "TransitionExps"},
       {"LogLikelihood"},
       {"Emission", "Transition"}},
      GradsLikeInputs());
  schemas->Add(OpSchema("crf_decoding", "Emission, Label?, Length?, Transition -> ViterbiPath")
                   .Infer(IfKnown("Emission", InferCrfDecoding))
                   .Batch({batch::Rows({"Emission", "Label", "Length"})}));
}

}  // namespace

void AddPaddle1Schemas(OpSchemaTable* schemas) {
  AddLosses(schemas);
  AddChains(schemas);
  AddWithGrad(schemas,
              OpSchema("lstm_unit", "C_prev, X -> C, H")
                  .Attr("forget_bias", 0.0f)
                  .Infer(InOrder({SameDType("X", "C_prev"), IfKnown("X", "C_prev", InferLstmUnit)}))
                  .Batch({batch::Rows({"X", "C_prev"})}),
              {{"C", "C_prev", "X"}, {"C", "H"}, {"C_prev", "X"}}, GradsLikeInputs());
  AddWithGrad(
      schemas,
      OpSchema("gru_unit", "Bias?, HiddenPrev, Input, Weight -> Gate~, Hidden, ResetHiddenPrev~")
          .Attr("activation", 2, range::Between(0, 3))
          .Attr("gate_activation", 1, range::Between(0, 3))
          .Attr("origin_mode", false)
          .Infer(InOrder({SameDType("HiddenPrev", "Input"), IfKnown("HiddenPrev", InferGruUnit)}))
          .Batch({batch::Rows({"Input", "HiddenPrev"})}),
      {{"Bias", "Gate", "HiddenPrev", "Input", "ResetHiddenPrev", "Weight"},
       {"Hidden"},
       {"Bias", "HiddenPrev", "Input", "Weight"}},
      GradsLikeInputs());
  AddWithGrad(schemas,
              OpSchema("pad2d", "Paddings{paddings}, X -> Out")
                  .Attr("data_format", "NCHW", range::OneOf({"NCHW", "NHWC"}))
                  .Attr("mode", "constant", range::OneOf({"constant", "reflect", "edge"}))
                  .Attr("pad_value", 0.0f)
                  .Attr("paddings", Ints{0, 0, 0, 0})
                  .Infer(IfKnown("X", InferPad2d))
                  .Batch({batch::Rows({"X"})}),
              {{"X"}, {"Out"}, {"X"}}, GradsLikeInputs());
  AddWithGrad(schemas,
              OpSchema("soft_relu", "X -> Out")
                  .Attr("threshold", 40.0f)
                  .With(Trait::kElementwise, Trait::kRowSplittable)
                  .Infer(OutputsLike("X")),
              {{"Out"}, {"Out"}, {"X"}, /*optional=*/false}, OutputsLike("Out", {"Out@GRAD"}));
  schemas->Add(OpSchema("diag", "Diagonal -> Out")
                   .Infer(IfKnown("Diagonal", InferDiag))
                   .Batch(batch::Unrelated(batch::kNotNeeded)));
  schemas->Add(OpSchema("mean_iou",
                        "InCorrects*?, InMeanIou*?, InWrongs*?, Labels, Predictions -> "
                        "OutCorrect, OutMeanIou, OutWrong")
                   .RequiredAttr("num_classes", 0, range::AtLeast(1))
                   .Infer(InferMeanIou)
                   .Batch(batch::Unrelated(batch::kWholeResult)));
  AddWithGrad(schemas,
              OpSchema("expand_as", "X, target_tensor -> Out~")
                  .Infer(IfKnown("X", "target_tensor", InferExpandAs))
                  .Batch({batch::Rows({"X", "target_tensor"})}),
              {{"X", "target_tensor"}, {"Out"}, {"X"}}, GradsLikeInputs());
}

}  // namespace weft
