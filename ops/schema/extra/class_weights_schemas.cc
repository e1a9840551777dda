// Losses over many classes that compute only some of them: drawn ones, or those along a path of a
// tree.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// `features`, [examples, features], and the weights, which have a row for each class or node.
absl::Status CheckFeatures(const InferContext& context, const char* features, const char* weights) {
  const TensorType* x = context.Input(features);
  const TensorType* w = context.Input(weights);
  if (x != nullptr && x->dims.size() != 2) {
    return context.InputError(features, "[examples, features]");
  }
  const int64_t width = x == nullptr ? -1 : x->dims[1];
  if (w != nullptr && !DimsFit(w->dims, {-1, width})) {
    return context.InputError(weights, absl::StrCat("rows of ", width, " features"));
  }
  if (w == nullptr) return absl::OkStatus();
  return CheckElements(context, "Bias", w->dims[0]);
}

// If attribute is_sparse is set, the gradient of the weights is row-sparse.
OpSchema::InferFn WithSparseGrad(OpSchema::InferFn dense, const char* weights) {
  const auto set_sparse = [weights](InferContext& context, const TensorType& w) {
    if (!context.attrs().Bool("is_sparse")) return absl::OkStatus();
    context.SetOutput(absl::StrCat(weights, "@GRAD"),
                      {w.dtype, w.dims, TensorType::Kind::kSelectedRows});
    return absl::OkStatus();
  };
  return InOrder({std::move(dense), IfKnown(weights, set_sparse)});
}

// --- nce -----------------------------------------------------------------------------------------

// For every example its labels, then the classes that were drawn.
absl::Status InferNce(InferContext& context) {
  const OpAttrs& attrs = context.attrs();
  const int64_t classes = attrs.Int("num_total_classes");
  const int64_t sampler = attrs.Int("sampler"), drawn = attrs.Int("num_neg_samples");
  if (sampler < 0 || sampler > 2) {
    return context.AttrError("sampler", "0 (uniform), 1 (log-uniform) or 2 (custom)",
                             absl::StrCat(sampler));
  }
  if (sampler == 1 && context.attrs().Int("num_total_classes") == 1) {
    return context.AttrError("num_total_classes", "2 or more", "1");
  }
  const size_t given = attrs.Ints("custom_neg_classes").size();
  if (given > 0 && given != static_cast<size_t>(drawn)) {
    return context.AttrError("custom_neg_classes", absl::StrCat(drawn, " classes"),
                             absl::StrCat(given));
  }
  WEFT_RETURN_IF_ERROR(CheckFeatures(context, "Input", "Weight"));
  const TensorType* weight = context.Input("Weight");
  if (weight != nullptr && !DimFits(weight->dims[0], classes)) {
    return context.InputError("Weight", absl::StrCat(classes, " rows, one for each class"));
  }
  for (const char* slot : {"CustomDistAlias", "CustomDistAliasProbs", "CustomDistProbs"}) {
    WEFT_RETURN_IF_ERROR(CheckElements(context, slot, classes));
    if (sampler == 2 && !context.HasInput(slot)) {
      return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": missing"));
    }
  }
  const TensorType* input = context.Input("Input");
  const TensorType* label = context.Input("Label");
  if (input == nullptr || label == nullptr) return absl::OkStatus();
  const int64_t examples = input->dims[0];
  if (label->dims.empty() || label->dims.size() > 2 || !DimFits(label->dims[0], examples)) {
    return context.InputError("Label", absl::StrCat("[", examples, ", labels]"));
  }
  WEFT_RETURN_IF_ERROR(CheckElements(context, "SampleWeight", examples));
  const int64_t labels = label->dims.size() == 2 ? label->dims[1] : 1;
  const Dims samples = {examples, AddDim(labels, drawn)};
  context.SetOutput("Cost", {input->dtype, {examples, 1}});
  context.SetOutput("SampleLabels", {DType::kInt64, samples});
  context.SetOutput("SampleLogits", {input->dtype, samples});
  return absl::OkStatus();
}

void AddNce(OpSchemaTable* schemas) {
  OpSchema::InferFn infer = InOrder({SameDType("Input", "Weight"), SameDType("Input", "Bias"),
                                     SameDType("Input", "SampleWeight"), InferNce});
  AddWithGrad(
      schemas,
      OpSchema("nce",
               "Bias?, CustomDistAlias?, CustomDistAliasProbs?, CustomDistProbs?, Input, Label, "
               "SampleWeight?, Weight -> Cost, SampleLabels~, SampleLogits~")
          .Attr("custom_neg_classes", Ints{})
          .Attr("is_sparse", false)
          .Attr("is_test", false)
          .Attr("num_neg_samples", 10, range::AtLeast(0))
          .RequiredAttr("num_total_classes", 1, range::AtLeast(1))
          .Attr("sampler", 0)
          .Attr("seed", 0)
          .With(Trait::kSideEffect)
          .Infer(infer)
          .Batch({batch::DrawBy(batch::Rows({"Input", "Label", "SampleWeight"})), Powers::kOwn}),
      {{"Bias", "CustomDistAlias", "CustomDistAliasProbs", "CustomDistProbs", "Input", "Label",
        "SampleLabels", "SampleLogits", "SampleWeight", "Weight"},
       {"Cost"},
       {"Bias", "Input", "Weight"}},
      WithSparseGrad(GradOf(infer), "Weight"));
}

// --- hierarchical_sigmoid ------------------------------------------------------------------------

// W has a row for each inner node: num_classes - 1 of the default tree, any number of a custom one.
// PreOut stays unset: Paddle's programs declare it without dims.
absl::Status InferHierarchicalSigmoid(InferContext& context) {
  WEFT_RETURN_IF_ERROR(CheckFeatures(context, "X", "W"));
  const int64_t classes = context.attrs().Int("num_classes");
  const bool is_custom = context.HasInput("PathTable");
  if (is_custom != context.HasInput("PathCode")) {
    return absl::InvalidArgumentError(
        "inputs PathTable and PathCode: expected both or none, found one");
  }
  if (!is_custom && classes < 2) {
    return context.AttrError("num_classes", "at least 2", absl::StrCat(classes));
  }
  const TensorType* w = context.Input("W");
  if (w != nullptr && !is_custom && !DimFits(w->dims[0], classes - 1)) {
    return context.InputError("W", absl::StrCat(classes - 1, " rows, one for each inner node"));
  }
  if (w != nullptr) context.SetOutput("W_Out", *w);
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckElements(context, "Label", x->dims[0]));
  const TensorType* table = context.Input("PathTable");
  if (table != nullptr && !DimsFit(table->dims, {x->dims[0], -1})) {
    return context.InputError("PathTable", absl::StrCat("[", x->dims[0], ", longest path]"));
  }
  context.SetOutput("Out", {x->dtype, {x->dims[0], 1}});
  return absl::OkStatus();
}

void AddHierarchicalSigmoid(OpSchemaTable* schemas) {
  OpSchema::InferFn infer = InOrder({SameDType("X", "W"), SameDType("X", "Bias"),
                                     SameDims("PathTable", "PathCode"), InferHierarchicalSigmoid});
  AddWithGrad(
      schemas,
      OpSchema("hierarchical_sigmoid",
               "Bias?, Label, PathCode?, PathTable?, W, X -> Out, PreOut~, W_Out?!")
          .Attr("is_sparse", false)
          .Attr("num_classes", 2)
          .Infer(infer)
          .Batch({batch::Rows({"X", "Label", "PathTable", "PathCode"})})
          // The gradient of a sparse W is dense in PIR.
          .Pir("hsigmoid_loss(x, label, w, bias, path:PathTable, code:PathCode) -> out, pre_out, "
               "w_out:- {is_sparse=}",
               "(x, w, label, path:PathTable, code:PathCode, bias, pre_out, out_grad)"),
      {{"Bias", "Label", "PathCode", "PathTable", "PreOut", "W", "X"}, {"Out"}, {"Bias", "W", "X"}},
      WithSparseGrad(GradOf(infer), "W"));
}

// --- sample_logits -------------------------------------------------------------------------------

// For every row of Logits its labels, then num_samples classes. LogitsDim and LabelsDim keep the
// dimensions of Logits and Labels, before a 0.
absl::Status InferSampleLogits(InferContext& context, const TensorType& logits) {
  const TensorType* labels = context.Input("Labels");
  if (logits.dims.size() != 2) return context.InputError("Logits", "[rows, classes]");
  if (labels == nullptr) return absl::OkStatus();
  if (!DimsFit(labels->dims, {logits.dims[0], -1})) {
    return context.InputError("Labels", absl::StrCat("[", logits.dims[0], ", labels]"));
  }
  const Dims samples = {logits.dims[0],
                        AddDim(labels->dims[1], context.attrs().Int("num_samples"))};
  const bool is_custom = context.attrs().Bool("use_customized_samples");
  for (const char* slot : {"CustomizedSamples", "CustomizedProbabilities"}) {
    WEFT_RETURN_IF_ERROR(CheckDims(context, slot, samples));
    if (is_custom && !context.HasInput(slot)) {
      return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": missing"));
    }
  }
  const auto with_zero = [](TensorType type) {
    type.dims.push_back(0);
    return type;
  };
  context.SetOutput("LogitsDim", with_zero(logits));
  context.SetOutput("LabelsDim", with_zero(*labels));
  context.SetOutput("Probabilities", {logits.dtype, samples});
  context.SetOutput("SampledLogits", {logits.dtype, samples});
  context.SetOutput("Samples", {DType::kInt64, samples});
  context.SetOutput("SampledLabels", {DType::kInt64, labels->dims});
  return absl::OkStatus();
}

absl::Status InferSampleLogitsGrad(InferContext& context, const TensorType& dims,
                                   const TensorType& dout) {
  if (dims.dims.size() != 3) return context.InputError("LogitsDim", "dimensions of a matrix and 0");
  const TensorType logits{dout.dtype, {dims.dims[0], dims.dims[1]}};
  WEFT_RETURN_IF_ERROR(CheckDims(context, "Samples", dout.dims));
  context.SetOutput("Logits@GRAD", logits);
  return absl::OkStatus();
}

void SampleLogits(BatchContext& context) {
  const auto rows =
      batch::Rows({"CustomizedProbabilities", "CustomizedSamples", "Labels", "Logits"});
  if (!context.attrs().Bool("use_customized_samples")) return batch::DrawBy(rows)(context);
  if (context.OthersAreSame({})) return context.SetAll(BatchRelation::Replicated());
  rows(context);
}

void AddSampleLogits(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("sample_logits",
                       "CustomizedProbabilities?, CustomizedSamples?, Labels, Logits -> "
                       "LabelsDim~, LogitsDim~, Probabilities~, SampledLabels, SampledLogits, "
                       "Samples~")
                  .RequiredAttr("num_samples", 1, range::AtLeast(0))
                  .Attr("remove_accidental_hits", true)
                  .Attr("seed", 0)
                  .Attr("uniq", true)
                  .Attr("use_customized_samples", false)
                  .With(Trait::kSideEffect)
                  .Infer(InOrder({SameDType("Logits", "CustomizedProbabilities"),
                                  IfKnown("Logits", InferSampleLogits)}))
                  .Batch({SampleLogits, Powers::kOwn}),
              {{"LabelsDim", "LogitsDim", "Samples"}, {"SampledLogits"}, {"Logits"}},
              IfKnown("LogitsDim", "SampledLogits@GRAD", InferSampleLogitsGrad));
}

}  // namespace

void AddClassWeightsSchemas(OpSchemaTable* schemas) {
  AddNce(schemas);
  AddHierarchicalSigmoid(schemas);
  AddSampleLogits(schemas);
}

}  // namespace weft
