// Operators of losses.
#include <algorithm>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/formats/pt2/translator.h"

namespace weft::pt2 {
namespace {

// PyTorch's numbers of reductions.
constexpr int kNone = 0, kMean = 1, kSum = 2;

absl::StatusOr<int> Reduction(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const int64_t number, node.Int("reduction", kMean));
  if (number == kNone || number == kMean || number == kSum) return static_cast<int>(number);
  return node.ArgumentError("reduction", "0, 1 or 2");
}

absl::string_view ReductionName(int reduction) {
  return reduction == kNone ? "none" : reduction == kMean ? "mean" : "sum";
}

absl::string_view ReductionOp(int reduction) {
  return reduction == kMean ? "reduce_mean" : "reduce_sum";
}

}  // namespace

absl::Status Translator::NllLoss(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const int reduction, Reduction(node));
  WEFT_ASSIGN_OR_RETURN(const int64_t ignored, node.Int("ignore_index", -100));
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  WEFT_ASSIGN_OR_RETURN(const std::string label, Var(node, "target"));
  Slots inputs = {{"Label", {label}}};
  if (node.Has("weight")) {
    WEFT_ASSIGN_OR_RETURN(const std::string weight, Var(node, "weight"));
    inputs.push_back({"Weight", {weight}});
  }
  inputs.push_back({"X", {x}});
  Add("nll_loss", inputs,
      {{"Out", {Output(node.outputs[0])}}, {"Total_weight", {Output(node.outputs[1])}}})
      .Text("reduction", ReductionName(reduction))
      .Long("ignore_index", ignored);
  return absl::OkStatus();
}

absl::Status Translator::NllLossGrad(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const int reduction, Reduction(node));
  WEFT_ASSIGN_OR_RETURN(const int64_t ignored, node.Int("ignore_index", -100));
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  WEFT_ASSIGN_OR_RETURN(const std::string label, Var(node, "target"));
  WEFT_ASSIGN_OR_RETURN(const std::string total, Var(node, "total_weight"));
  WEFT_ASSIGN_OR_RETURN(const std::string grad, Var(node, "grad_output"));
  Slots inputs = {{"Label", {label}}, {"Out@GRAD", {grad}}, {"Total_weight", {total}}};
  if (node.Has("weight")) {
    WEFT_ASSIGN_OR_RETURN(const std::string weight, Var(node, "weight"));
    inputs.push_back({"Weight", {weight}});
  }
  inputs.push_back({"X", {x}});
  Add("nll_loss_grad", inputs, {{"X@GRAD", {Output(node.outputs[0])}}})
      .Text("reduction", ReductionName(reduction))
      .Long("ignore_index", ignored);
  return absl::OkStatus();
}

// Their mean or sum, or all of them.
absl::Status Translator::ReduceLoss(const Node& node, int reduction, const std::string& losses) {
  if (reduction == kNone) {
    vars_[node.outputs[0]] = losses;
    return absl::OkStatus();
  }
  Add(ReductionOp(reduction), {{"X", {losses}}}, {{"Out", {Output(node.outputs[0])}}})
      .Ints("dim", {0})
      .Bool("keep_dim", false)
      .Bool("reduce_all", true);
  return absl::OkStatus();
}

// The gradient of the losses, of which `losses` has the shape.
absl::StatusOr<std::string> Translator::GradOfLosses(const Node& node, int reduction,
                                                     const std::string& losses,
                                                     const TensorMeta& meta) {
  WEFT_ASSIGN_OR_RETURN(const std::string grad, Var(node, "grad_output"));
  if (reduction == kNone) return grad;
  const std::string of_losses = Temporary("losses", meta);
  AddGradOfSum(grad, absl::StrCat(ReductionOp(reduction), "_grad"), losses, of_losses);
  return of_losses;
}

// (prediction - target)², and its mean or sum.
absl::Status Translator::MseLoss(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const int reduction, Reduction(node));
  WEFT_ASSIGN_OR_RETURN(const auto squares, SquaresOf(node));
  return ReduceLoss(node, reduction, squares.second);
}

absl::Status Translator::MseLossGrad(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const int reduction, Reduction(node));
  WEFT_ASSIGN_OR_RETURN(const auto squares, SquaresOf(node));
  WEFT_ASSIGN_OR_RETURN(const std::string grad,
                        GradOfLosses(node, reduction, squares.second, MetaOf(node.outputs[0])));
  Add("square_grad", {{"Out@GRAD", {grad}}, {"X", {squares.first}}},
      {{"X@GRAD", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

// The variables of the difference and of its square; the gradient has those of the loss.
absl::StatusOr<std::pair<std::string, std::string>> Translator::SquaresOf(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string prediction, node.Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(const std::string target, node.Tensor("target"));
  const TensorMeta& meta = MetaOf(prediction);
  if (meta.dims != MetaOf(target).dims) {
    return node.Error("expected a target with the shape of the prediction");
  }
  auto& squares = squares_[{makers_.Origin(prediction), makers_.Origin(target)}];
  if (!squares.first.empty()) return squares;
  squares = {Temporary("difference", meta), Temporary("square", meta)};
  Add("elementwise_sub", {{"X", {VarOf(prediction)}}, {"Y", {VarOf(target)}}},
      {{"Out", {squares.first}}});
  Add("square", {{"X", {squares.first}}}, {{"Out", {squares.second}}});
  return squares;
}

// smooth_l1_loss, which is huber_loss / beta, has parameter beta, and huber_loss delta.
absl::StatusOr<double> Translator::HuberDelta(const Node& node) {
  const bool is_smooth = absl::StrContains(node.target, "smooth_l1");
  WEFT_ASSIGN_OR_RETURN(const double delta, node.Number(is_smooth ? "beta" : "delta", 1));
  if (delta > 0 && (!is_smooth || delta == 1)) return delta;
  return is_smooth ? node.ArgumentError("beta", "1; for another, take huber_loss and divide")
                   : node.ArgumentError("delta", "a positive number");
}

absl::Status Translator::HuberLoss(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const int reduction, Reduction(node));
  WEFT_ASSIGN_OR_RETURN(const double delta, HuberDelta(node));
  WEFT_ASSIGN_OR_RETURN(const std::string prediction, node.Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(const std::string target, node.Tensor("target"));
  const TensorMeta& meta = MetaOf(prediction);
  if (meta.dims != MetaOf(target).dims) {
    return node.Error("expected a target with the shape of the prediction");
  }
  const std::string losses = Temporary("losses", meta), residual = Temporary("residual", meta);
  // Residual = Y - X.
  Add("huber_loss", {{"X", {VarOf(prediction)}}, {"Y", {VarOf(target)}}},
      {{"Out", {losses}}, {"Residual", {residual}}})
      .Float("delta", delta);
  residuals_[{makers_.Origin(prediction), makers_.Origin(target)}] = residual;
  return ReduceLoss(node, reduction, losses);
}

absl::Status Translator::HuberLossGrad(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const int reduction, Reduction(node));
  WEFT_ASSIGN_OR_RETURN(const double delta, HuberDelta(node));
  WEFT_ASSIGN_OR_RETURN(const std::string prediction, node.Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(const std::string target, node.Tensor("target"));
  const auto found = residuals_.find({makers_.Origin(prediction), makers_.Origin(target)});
  if (found == residuals_.end()) return node.Error("expected the gradient of a loss of the step");
  WEFT_ASSIGN_OR_RETURN(const std::string grad,
                        GradOfLosses(node, reduction, found->second, MetaOf(node.outputs[0])));
  Add("huber_loss_grad", {{"Out@GRAD", {grad}}, {"Residual", {found->second}}},
      {{"X@GRAD", {Output(node.outputs[0])}}})
      .Float("delta", delta);
  return absl::OkStatus();
}

absl::Status Translator::BinaryLoss(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const int reduction, Reduction(node));
  for (const char* weights : {"weight", "pos_weight"}) {
    if (node.Has(weights)) return node.ArgumentError(weights, "none");
  }
  WEFT_ASSIGN_OR_RETURN(const std::string logits, node.Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(const std::string target, node.Tensor("target"));
  if (MetaOf(logits).dims != MetaOf(target).dims) {
    return node.Error("expected a target with the shape of the logits");
  }
  const std::string losses = Temporary("losses", MetaOf(logits));
  Add("sigmoid_cross_entropy_with_logits", {{"Label", {VarOf(target)}}, {"X", {VarOf(logits)}}},
      {{"Out", {losses}}});
  return ReduceLoss(node, reduction, losses);
}

// (sigmoid(x) - target) times a gradient of one element: PyTorch has no operator for it.
absl::StatusOr<bool> Translator::IsBinaryLossGrad(const Node& node, std::string* x,
                                                  std::string* label, std::string* gradient) const {
  if (node.target != "aten.mul.Tensor" || !node.IsTensor("other")) return false;
  WEFT_ASSIGN_OR_RETURN(const std::string difference, node.Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(*gradient, node.Tensor("other"));
  const Node* const sub = makers_.Of(difference);
  if (Follows(difference) || !linear_.contains(makers_.Origin(*gradient)) ||
      MetaOf(*gradient).NumElements() != Size() || sub == nullptr ||
      sub->target != "aten.sub.Tensor" || !sub->IsTensor("other") || sub->Has("alpha")) {
    return false;
  }
  WEFT_ASSIGN_OR_RETURN(const std::string prediction, sub->Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(*label, sub->Tensor("other"));
  const Node* const sigmoid = makers_.Of(prediction);
  if (sigmoid == nullptr || sigmoid->target != "aten.sigmoid.default" ||
      MetaOf(*label).sizes != MetaOf(prediction).sizes) {
    return false;
  }
  WEFT_ASSIGN_OR_RETURN(*x, sigmoid->Tensor("self"));
  return true;
}

absl::Status Translator::AddBinaryLossGrad(const Node& node, absl::string_view op,
                                           const std::string& x, const std::string& label,
                                           const std::string& gradient) {
  const std::string of_losses = Temporary("losses", MetaOf(x));
  AddGradOfSum(VarOf(gradient), op, VarOf(x), of_losses);
  Add("sigmoid_cross_entropy_with_logits_grad",
      {{"Label", {VarOf(label)}}, {"Out@GRAD", {of_losses}}, {"X", {VarOf(x)}}},
      {{"X@GRAD", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

}  // namespace weft::pt2
