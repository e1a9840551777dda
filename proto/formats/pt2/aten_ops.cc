// What the operators of PyTorch become. Their arguments, defaults and meaning are those of
// aten/src/ATen/native/native_functions.yaml and tools/autograd/derivatives.yaml.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "proto/formats/pt2/translator.h"

namespace weft::pt2 {
namespace {

bool IsFloat(pb::VarType::Type dtype) {
  return dtype == pb::VarType::FP32 || dtype == pb::VarType::FP64 || dtype == pb::VarType::FP16 ||
         dtype == pb::VarType::BF16;
}

}  // namespace

std::map<std::string, std::string> Translator::Operators() {
  std::map<std::string, std::string> operators;
  for (const auto& [target, rule] : Rules()) operators.emplace(target, rule.op);
  return operators;
}

const std::map<absl::string_view, Translator::OpRule>& Translator::Rules() {
  using T = Translator;
  constexpr Linear kInAll = Linear::kInAll, kInEach = Linear::kInEach, kInFirst = Linear::kInFirst;
  constexpr Linear kNot = Linear::kNot;
  static const auto* const rules = new std::map<absl::string_view, OpRule>{
      {"aten._embedding_bag.default",
       {&T::EmbeddingBag, kNot, "", 4, "aten._embedding_bag_backward.default"}},
      {"aten._embedding_bag_backward.default", {&T::EmbeddingBagGrad, kInFirst}},
      {"_c10d_functional.all_gather_into_tensor.default", {&T::AllGather, kInAll}},
      {"_c10d_functional.all_reduce.default", {&T::AllReduce, kInAll}},
      {"_c10d_functional.all_reduce_coalesced.default", {&T::AllReduce, kInAll, "", kList}},
      {"_c10d_functional.broadcast.default", {&T::Broadcast, kInAll}},
      {"_c10d_functional.reduce_scatter_tensor.default", {&T::ReduceScatter, kInAll}},
      {"aten._log_softmax.default", {&T::Softmax, kNot, "log_softmax"}},
      {"aten._log_softmax_backward_data.default", {&T::SoftmaxGrad, kInFirst, "log_softmax_grad"}},
      {"aten._native_batch_norm_legit_functional.default",
       {&T::BatchNorm, kNot, "", 5, "aten.native_batch_norm_backward.default"}},
      {"aten._safe_softmax.default", {&T::SafeSoftmax}},
      {"aten._scaled_dot_product_flash_attention_for_cpu.default",
       {&T::Attention, kNot, "", 2,
        "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"}},
      {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
       {&T::AttentionGrad, kInFirst, "", 3}},
      {"aten._softmax.default", {&T::Softmax, kNot, "softmax"}},
      {"aten._softmax_backward_data.default", {&T::SoftmaxGrad, kInFirst, "softmax_grad"}},
      {"aten._to_copy.default", {&T::Convert, kInAll}},
      {"aten._unsafe_view.default", {&T::Reshape, kInAll}},
      {"aten.abs.default", {&T::Unary, kNot, "abs"}},
      {"aten.add.Scalar", {&T::AddOrSubtract, kInAll}},
      {"aten.add.Tensor", {&T::AddOrSubtract, kInAll}},
      {"aten.addcdiv.default", {&T::AddProduct, kNot, "elementwise_div"}},
      {"aten.addcmul.default", {&T::AddProduct, kNot, "elementwise_mul"}},
      {"aten.addmm.default", {&T::AddMatrixProduct}},
      {"aten.arange.default", {&T::Range}},
      {"aten.arange.start", {&T::Range}},
      {"aten.arange.start_step", {&T::Range}},
      {"aten.atan.default", {&T::Unary, kNot, "atan"}},
      {"aten.avg_pool2d.default", {&T::AveragePool, kInAll}},
      {"aten.avg_pool2d_backward.default", {&T::AveragePoolGrad, kInFirst}},
      {"aten.binary_cross_entropy_with_logits.default", {&T::BinaryLoss}},
      {"aten.bitwise_and.Tensor", {&T::Logic, kNot, "logical_and"}},
      {"aten.bitwise_not.default", {&T::Logic, kNot, "logical_not"}},
      {"aten.bitwise_or.Tensor", {&T::Logic, kNot, "logical_or"}},
      {"aten.bmm.default", {&T::MatrixProduct, kInEach}},
      {"aten.cat.default", {&T::Join, kInAll, "concat"}},
      {"aten.celu.default", {&T::Activation, kNot, "celu"}},
      {"aten.clamp.default", {&T::Clamp}},
      {"aten.clamp.Tensor", {&T::ClampByTensors}},
      {"aten.clamp_max.default", {&T::Clamp}},
      {"aten.clamp_min.default", {&T::Clamp}},
      {"aten.convolution.default", {&T::Convolution}},
      {"aten.convolution_backward.default", {&T::ConvolutionGrad, kInFirst, "", 3}},
      {"aten.cos.default", {&T::Unary, kNot, "cos"}},
      {"aten.cosh.default", {&T::Unary, kNot, "cosh"}},
      {"aten.div.Scalar", {&T::Divide, kInFirst}},
      {"aten.div.Tensor", {&T::Divide, kInFirst}},
      {"aten.elu.default", {&T::Activation, kNot, "elu"}},
      {"aten.elu_backward.default", {&T::ActivationGrad, kInFirst, "elu_grad"}},
      {"aten.embedding.default", {&T::Embedding}},
      {"aten.embedding_dense_backward.default", {&T::EmbeddingGrad, kInFirst}},
      {"aten.eq.Scalar", {&T::Compare, kNot, "equal"}},
      {"aten.eq.Tensor", {&T::Compare, kNot, "equal"}},
      {"aten.erf.default", {&T::Unary, kNot, "erf"}},
      {"aten.exp.default", {&T::Unary, kNot, "exp"}},
      {"aten.expand.default", {&T::Expand, kInAll}},
      {"aten.expm1.default", {&T::Unary, kNot, "expm1"}},
      {"aten.floor.default", {&T::Unary, kNot, "floor"}},
      {"aten.full.default", {&T::FillShape}},
      {"aten.full_like.default", {&T::Fill}},
      {"aten.gather.default", {&T::Gather, kNot, "gather"}},
      {"aten.ge.Scalar", {&T::Compare, kNot, "greater_equal"}},
      {"aten.ge.Tensor", {&T::Compare, kNot, "greater_equal"}},
      {"aten.gelu.default", {&T::Activation, kNot, "gelu"}},
      {"aten.gelu_backward.default", {&T::ActivationGrad, kInFirst, "gelu_grad"}},
      {"aten.gt.Scalar", {&T::Compare, kNot, "greater_than"}},
      {"aten.gt.Tensor", {&T::Compare, kNot, "greater_than"}},
      {"aten.hardsigmoid.default", {&T::Activation, kNot, "hard_sigmoid"}},
      {"aten.hardsigmoid_backward.default", {&T::ActivationGrad, kInFirst, "hard_sigmoid_grad"}},
      {"aten.hardswish.default", {&T::Activation, kNot, "hard_swish"}},
      {"aten.hardswish_backward.default", {&T::ActivationGrad, kInFirst, "hard_swish_grad"}},
      {"aten.hardtanh.default", {&T::Activation, kNot, "clip"}},
      {"aten.hardtanh_backward.default", {&T::ActivationGrad, kInFirst, "clip_grad"}},
      {"aten.huber_loss.default", {&T::HuberLoss}},
      {"aten.huber_loss_backward.default", {&T::HuberLossGrad, kInFirst}},
      {"aten.le.Scalar", {&T::Compare, kNot, "less_equal"}},
      {"aten.le.Tensor", {&T::Compare, kNot, "less_equal"}},
      {"aten.leaky_relu.default", {&T::Activation, kNot, "leaky_relu"}},
      {"aten.leaky_relu_backward.default", {&T::ActivationGrad, kInFirst, "leaky_relu_grad"}},
      {"aten.lerp.Scalar", {&T::Lerp}},
      {"aten.linalg_vector_norm.default", {&T::Norm}},
      {"aten.log.default", {&T::Unary, kNot, "log"}},
      {"aten.log1p.default", {&T::Unary, kNot, "log1p"}},
      {"aten.log2.default", {&T::Unary, kNot, "log2"}},
      {"aten.log_sigmoid_backward.default", {&T::ActivationGrad, kInFirst, "logsigmoid_grad"}},
      {"aten.log_sigmoid_forward.default",
       {&T::Activation, kNot, "logsigmoid", 2, "aten.log_sigmoid_backward.default"}},
      {"aten.logical_and.default", {&T::Logic, kNot, "logical_and"}},
      {"aten.logical_not.default", {&T::Logic, kNot, "logical_not"}},
      {"aten.logical_or.default", {&T::Logic, kNot, "logical_or"}},
      {"aten.lt.Scalar", {&T::Compare, kNot, "less_than"}},
      {"aten.lt.Tensor", {&T::Compare, kNot, "less_than"}},
      {"aten.masked_fill.Scalar", {&T::MaskedFill, kInFirst}},
      {"aten.max_pool2d_with_indices.default",
       {&T::MaxPool, kNot, "", 2, "aten.max_pool2d_with_indices_backward.default"}},
      {"aten.max_pool2d_with_indices_backward.default", {&T::MaxPoolGrad, kInFirst}},
      {"aten.maximum.default", {&T::Binary, kNot, "elementwise_max"}},
      {"aten.mean.default", {&T::Reduce, kInAll, "reduce_mean"}},
      {"aten.mean.dim", {&T::Reduce, kInAll, "reduce_mean"}},
      {"aten.minimum.default", {&T::Binary, kNot, "elementwise_min"}},
      {"aten.mish.default", {&T::Activation, kNot, "mish"}},
      {"aten.mish_backward.default", {&T::ActivationGrad, kInFirst, "mish_grad"}},
      {"aten.mm.default", {&T::MatrixProduct, kInEach}},
      {"aten.mse_loss.default", {&T::MseLoss}},
      {"aten.mse_loss_backward.default", {&T::MseLossGrad, kInFirst}},
      {"aten.mul.Scalar", {&T::Multiply, kInEach}},
      {"aten.mul.Tensor", {&T::Multiply, kInEach}},
      {"aten.native_batch_norm_backward.default", {&T::BatchNormGrad, kInFirst, "", 3}},
      {"aten.native_dropout.default",
       {&T::Dropout, kNot, "", 2, "aten.native_dropout_backward.default"}},
      {"aten.native_dropout_backward.default", {&T::DropoutGrad, kInFirst}},
      {"aten.native_group_norm.default",
       {&T::GroupNorm, kNot, "", 3, "aten.native_group_norm_backward.default"}},
      {"aten.native_group_norm_backward.default", {&T::GroupNormGrad, kInFirst, "", 3}},
      {"aten.native_layer_norm.default",
       {&T::LayerNorm, kNot, "", 3, "aten.native_layer_norm_backward.default"}},
      {"aten.native_layer_norm_backward.default", {&T::LayerNormGrad, kInFirst, "", 3}},
      {"aten.ne.Scalar", {&T::Compare, kNot, "not_equal"}},
      {"aten.ne.Tensor", {&T::Compare, kNot, "not_equal"}},
      {"aten.neg.default", {&T::Negate, kInAll}},
      {"aten.nll_loss_backward.default", {&T::NllLossGrad, kInFirst}},
      {"aten.nll_loss_forward.default", {&T::NllLoss, kNot, "", 2}},
      {"aten.ones.default", {&T::FillShape}},
      {"aten.ones_like.default", {&T::Fill}},
      {"aten.permute.default", {&T::Permute, kInAll}},
      {"aten.pow.Scalar", {&T::PowerOfNumber}},
      {"aten.pow.Tensor_Scalar", {&T::Power}},
      {"aten.pow.Tensor_Tensor", {&T::Binary, kNot, "elementwise_pow"}},
      {"aten.reciprocal.default", {&T::Unary, kNot, "reciprocal"}},
      {"aten.relu.default", {&T::Unary, kNot, "relu"}},
      {"aten.rsqrt.default", {&T::Unary, kNot, "rsqrt"}},
      {"aten.rsub.Scalar", {&T::ReverseSubtract, kInAll}},
      {"aten.scalar_tensor.default", {&T::ScalarTensor}},
      {"aten.select.int", {&T::Slice, kInAll}},
      {"aten.select_backward.default", {&T::SliceGrad, kInAll}},
      {"aten.sgn.default", {&T::Unary, kNot, "sign"}},
      {"aten.sigmoid.default", {&T::Unary, kNot, "sigmoid"}},
      {"aten.sigmoid_backward.default", {&T::UnaryGrad, kInFirst, "sigmoid_grad"}},
      {"aten.sign.default", {&T::Unary, kNot, "sign"}},
      {"aten.silu.default", {&T::Activation, kNot, "silu"}},
      {"aten.silu_backward.default", {&T::ActivationGrad, kInFirst, "silu_grad"}},
      {"aten.sin.default", {&T::Unary, kNot, "sin"}},
      {"aten.sinh.default", {&T::Unary, kNot, "sinh"}},
      {"aten.slice.Tensor", {&T::Slice, kInAll}},
      {"aten.slice_backward.default", {&T::SliceGrad, kInAll}},
      {"aten.smooth_l1_loss.default", {&T::HuberLoss}},
      {"aten.smooth_l1_loss_backward.default", {&T::HuberLossGrad, kInFirst}},
      {"aten.softplus.default", {&T::Activation, kNot, "softplus"}},
      {"aten.softplus_backward.default", {&T::ActivationGrad, kInFirst, "softplus_grad"}},
      {"aten.split.Tensor", {&T::Split, kInAll, "", kList}},
      {"aten.split_with_sizes.default", {&T::Split, kInAll, "", kList}},
      {"aten.sqrt.default", {&T::Unary, kNot, "sqrt"}},
      {"aten.squeeze.dim", {&T::Reshape, kInAll}},
      {"aten.squeeze.dims", {&T::Reshape, kInAll}},
      {"aten.stack.default", {&T::Join, kInAll, "stack"}},
      {"aten.sub.Scalar", {&T::AddOrSubtract, kInAll}},
      {"aten.sub.Tensor", {&T::AddOrSubtract, kInAll}},
      {"aten.sum.default", {&T::Reduce, kInAll, "reduce_sum"}},
      {"aten.sum.dim_IntList", {&T::Reduce, kInAll, "reduce_sum"}},
      {"aten.t.default", {&T::Transpose2d, kInAll}},
      {"aten.tan.default", {&T::Unary, kNot, "tan"}},
      {"aten.tanh.default", {&T::Unary, kNot, "tanh"}},
      {"aten.tanh_backward.default", {&T::UnaryGrad, kInFirst, "tanh_grad"}},
      {"aten.threshold_backward.default", {&T::ReluGrad, kInFirst}},
      {"aten.transpose.int", {&T::Transpose, kInAll}},
      {"aten.unbind.int", {&T::Unbind, kInAll, "", kList}},
      {"aten.unsqueeze.default", {&T::Reshape, kInAll}},
      {"aten.view.default", {&T::Reshape, kInAll}},
      {"aten.where.ScalarSelf", {&T::WhereNumber, kInAll}},
      {"aten.where.self", {&T::Where, kInAll}},
      {"aten.zeros.default", {&T::FillShape}},
      {"aten.zeros_like.default", {&T::Fill}},
  };
  return *rules;
}

// PyTorch promotes types; Weft's ops have one.
absl::Status Translator::CheckOneType(const Node& node) const {
  WEFT_ASSIGN_OR_RETURN(std::vector<std::string> values, node.Tensors());
  if (!node.outputs.empty() && !node.outputs[0].empty()) values.push_back(node.outputs[0]);
  for (const std::string& value : values) {
    const pb::VarType::Type dtype = MetaOf(value).dtype, first = MetaOf(values[0]).dtype;
    if (dtype == first) continue;
    return node.Error(absl::StrCat("expected tensors of one element type, found ",
                                   pb::VarType::Type_Name(first), " and ",
                                   pb::VarType::Type_Name(dtype), "; convert them in the script"));
  }
  return absl::OkStatus();
}
// --- Elementwise
// -----------------------------------------------------------------------------------

absl::StatusOr<std::string> Translator::Number(const Node& node, absl::string_view suffix,
                                               double value, pb::VarType::Type dtype) {
  if (!IsFloat(dtype) && value != std::floor(value)) {
    return node.Error("expected floating-point tensors");
  }
  const std::string out = Temporary(suffix, {dtype, {}});
  Add("fill_constant", {}, {{"Out", {out}}})
      .Longs("shape", {})
      .Int("dtype", dtype)
      .Float("value", value)
      .Text("str_value", absl::StrFormat("%.17g", value));
  return out;
}

// factor x + bias, in the type of output 0. An integer would be rounded.
absl::Status Translator::MultiplyBy(const Node& node, const std::string& x, double factor,
                                    double bias, const std::string& out) {
  if (!IsFloat(MetaOf(node.outputs[0]).dtype)) return node.Error("expected floating-point tensors");
  Add("scale", {{"X", {x}}}, {{"Out", {out}}})
      .Float("scale", factor)
      .Float("bias", bias)
      .Bool("bias_after_scale", true);
  return absl::OkStatus();
}

// PyTorch promotes operands to the type of the result.
std::string Translator::As(const std::string& value, pb::VarType::Type dtype) {
  TensorMeta meta = MetaOf(value);
  const pb::VarType::Type from = meta.dtype;
  if (from == dtype) return VarOf(value);
  std::string& var = converted_[{makers_.Origin(value), dtype}];
  if (!var.empty()) return var;
  const std::string x = VarOf(value);
  meta.dtype = dtype;
  var = Temporary(x, meta);
  Cast(x, from, var, dtype);
  return var;
}

std::string Translator::InFloat(const std::string& value) {
  return As(value, AtLeastFloat(MetaOf(value).dtype));
}

absl::StatusOr<std::string> Translator::Promoted(const Node& node, absl::string_view argument) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor(argument));
  return As(value, MetaOf(node.outputs[0]).dtype);
}

absl::Status Translator::AddOrSubtract(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const double alpha, node.Number("alpha", 1));
  const bool subtracts = absl::StartsWith(node.target, "aten.sub.");
  WEFT_ASSIGN_OR_RETURN(const std::string x, Promoted(node, "self"));
  const TensorMeta& meta = MetaOf(node.outputs[0]);
  const bool is_number = !node.IsTensor("other");
  std::string y;
  if (is_number) {
    WEFT_ASSIGN_OR_RETURN(const double other, node.Number("other"));
    const double bias = subtracts ? -alpha * other : alpha * other;
    if (IsFloat(meta.dtype)) return MultiplyBy(node, x, 1, bias, Output(node.outputs[0]));
    WEFT_ASSIGN_OR_RETURN(y, Number(node, "other", subtracts ? -bias : bias, meta.dtype));
  } else {
    WEFT_ASSIGN_OR_RETURN(y, Promoted(node, "other"));
  }
  if (!is_number && alpha != 1) {
    WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("other"));
    TensorMeta promoted = MetaOf(value);
    promoted.dtype = meta.dtype;
    const std::string scaled = Temporary("scaled", promoted);
    WEFT_RETURN_IF_ERROR(MultiplyBy(node, y, alpha, 0, scaled));
    y = scaled;
  }
  if (!is_number && !subtracts && alpha == 1) {
    WEFT_ASSIGN_OR_RETURN(const std::string of_x, node.Tensor("self"));
    WEFT_ASSIGN_OR_RETURN(const std::string of_y, node.Tensor("other"));
    const std::vector<Size>&x_sizes = MetaOf(of_x).sizes, &y_sizes = MetaOf(of_y).sizes;
    if (!Follows(of_y) && x_sizes == meta.sizes && y_sizes != meta.sizes) {
      bias_sums_.push_back({x, y, -1, x_sizes, y_sizes});
    }
  }
  Add(subtracts ? "elementwise_sub" : "elementwise_add", {{"X", {x}}, {"Y", {y}}},
      {{"Out", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

absl::Status Translator::ReverseSubtract(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const double alpha, node.Number("alpha", 1));
  WEFT_ASSIGN_OR_RETURN(const double other, node.Number("other"));
  WEFT_ASSIGN_OR_RETURN(const std::string x, Promoted(node, "self"));
  return MultiplyBy(node, x, -alpha, other, Output(node.outputs[0]));
}

absl::Status Translator::Multiply(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string x, Promoted(node, "self"));
  if (!node.IsTensor("other")) {
    WEFT_ASSIGN_OR_RETURN(const double other, node.Number("other"));
    return MultiplyBy(node, x, other, 0, Output(node.outputs[0]));
  }
  WEFT_ASSIGN_OR_RETURN(const bool is_added, AddProductGrad(node, "elementwise_mul_grad"));
  if (is_added) return absl::OkStatus();
  std::string logits, label, gradient;
  WEFT_ASSIGN_OR_RETURN(const bool is_loss, IsBinaryLossGrad(node, &logits, &label, &gradient));
  if (is_loss) {
    if (AreCountsOfMeans(readers_[node.outputs[0]])) return absl::OkStatus();  // DivideByCount
    return AddBinaryLossGrad(node, "reduce_sum_grad", logits, label, gradient);
  }
  WEFT_ASSIGN_OR_RETURN(const std::string y, Promoted(node, "other"));
  Add("elementwise_mul", {{"X", {x}}, {"Y", {y}}}, {{"Out", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

// An op of the forward pass, of the shape of `out`, that reads a value in this way.
const Node* Translator::ReaderOf(const std::string& value, absl::string_view target,
                                 absl::string_view argument, const std::string& out) const {
  const auto readers = readers_.find(makers_.Origin(value));
  if (readers == readers_.end()) return nullptr;
  for (const Node* node : readers->second) {
    if (node->target != target || Follows(node->outputs[0]) ||
        MetaOf(node->outputs[0]).sizes != MetaOf(out).sizes) {
      continue;
    }
    const absl::StatusOr<std::string> read = node->Tensor(argument);
    if (read.ok() && makers_.Origin(*read) == makers_.Origin(value)) return node;
  }
  return nullptr;
}

// Gradients of functions of one input, of which PyTorch makes products and quotients.
absl::StatusOr<bool> Translator::AddPowerGrad(const Node& node, const std::string& gradient,
                                              const std::string& factor, bool divides) {
  const std::string& value = node.outputs[0];
  const pb::VarType::Type dtype = MetaOf(value).dtype;
  const Node* const maker = makers_.Of(factor);
  if (divides) {  // g / x, of log x
    const Node* const log = ReaderOf(factor, "aten.log.default", "self", value);
    if (log == nullptr) return false;
    Slots inputs = {{"Out@GRAD", {As(gradient, dtype)}}, {"X", {As(factor, dtype)}}};
    Add("log_grad", inputs, {{"X@GRAD", {Output(value)}}});
    return true;
  }
  if (maker == nullptr) return false;
  if (maker->target == "aten.exp.default") {
    Slots inputs = {{"Out", {As(factor, dtype)}}, {"Out@GRAD", {As(gradient, dtype)}}};
    Add("exp_grad", inputs, {{"X@GRAD", {Output(value)}}});
    return true;
  }
  // g (n x^(n-1)), of x^n
  const absl::StatusOr<double> exponent = maker->Number("other");
  const absl::StatusOr<std::string> power = maker->Tensor("self");
  if (!absl::StartsWith(maker->target, "aten.mul.") || !exponent.ok() || !power.ok()) return false;
  const Node* const lower = makers_.Of(*power);
  if (lower == nullptr || lower->target != "aten.pow.Tensor_Scalar") return false;
  WEFT_ASSIGN_OR_RETURN(const double less, lower->Number("exponent"));
  WEFT_ASSIGN_OR_RETURN(const std::string x, lower->Tensor("self"));
  const Node* const forward = ReaderOf(x, lower->target, "self", value);
  if (forward == nullptr || less != *exponent - 1) return false;
  Add("pow_grad", {{"Out@GRAD", {As(gradient, dtype)}}, {"X", {As(x, dtype)}}},
      {{"X@GRAD", {Output(value)}}})
      .Float("factor", *exponent);
  return true;
}

absl::optional<std::string> Translator::Repeated(const Node& node, const std::string& gradient) {
  const TensorMeta &from = MetaOf(gradient), &to = MetaOf(node.outputs[0]);
  if (from.sizes == to.sizes) return As(gradient, to.dtype);
  bool is_repeated = from.dims.size() == to.dims.size();
  for (size_t i = 0; is_repeated && i < to.dims.size(); ++i) {
    is_repeated = from.sizes[i] == to.sizes[i] || (from.dims[i] == 1 && to.dims[i] >= 0);
  }
  if (!is_repeated) return absl::nullopt;
  const std::string x = As(gradient, to.dtype), repeated = Temporary("repeated", to);
  Add("expand_v2", {{"X", {x}}}, {{"Out", {repeated}}}).Ints("shape", to.dims);
  return repeated;
}

// The gradient of a product is a product, too, and that of a quotient a quotient: the op for it
// says so to analyses. Of the factor, or dividend, whose gradient it makes it reads the shape
// alone: that of the forward pass, or else any value of its shape.
absl::StatusOr<bool> Translator::AddProductGrad(const Node& node, absl::string_view op) {
  if (!needed_before_updates_.contains(&node)) return false;
  WEFT_ASSIGN_OR_RETURN(std::string gradient, node.Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(std::string factor, node.Tensor("other"));
  const bool divides = op == "elementwise_div_grad";
  if (!divides && Follows(factor)) std::swap(gradient, factor);
  const std::string& value = node.outputs[0];
  const TensorMeta& meta = MetaOf(value);
  const pb::VarType::Type dtype = meta.dtype;
  if (Follows(factor) || !linear_.contains(makers_.Origin(gradient))) return false;
  if (MetaOf(gradient).sizes == meta.sizes) {
    WEFT_ASSIGN_OR_RETURN(const bool is_power, AddPowerGrad(node, gradient, factor, divides));
    if (is_power) return true;
  }
  const absl::optional<std::string> of_out = Repeated(node, gradient);
  if (!of_out.has_value()) return false;
  const char* const target = divides ? "aten.div.Tensor" : "aten.mul.Tensor";
  const Node* const of_y = ReaderOf(factor, target, "other", value);
  const Node* const of_x = divides ? nullptr : ReaderOf(factor, target, "self", value);
  const auto of_shape = [&](const Node* forward, absl::string_view other) {
    const absl::StatusOr<std::string> read =
        forward == nullptr ? absl::StatusOr<std::string>("") : forward->Tensor(other);
    const bool fits = read.ok() && !read->empty() && MetaOf(*read).sizes == meta.sizes;
    return fits ? As(*read, dtype) : "";
  };
  const std::string x = of_shape(of_y, "self"), y = of_shape(of_x, "other");
  const absl::optional<std::string> like = Like(meta);
  if (x.empty() && y.empty() && !like.has_value()) return false;
  Slots inputs = {{"Out@GRAD", {*of_out}}};
  if (divides)
    inputs.insert(inputs.begin(), {"Out", {x.empty() ? *like : As(of_y->outputs[0], dtype)}});
  if (x.empty() && !y.empty()) {
    inputs.insert(inputs.end(), {{"X", {As(factor, dtype)}}, {"Y", {y}}});
  } else {
    inputs.insert(inputs.end(), {{"X", {x.empty() ? *like : x}}, {"Y", {As(factor, dtype)}}});
  }
  Add(op, inputs, {{x.empty() && !y.empty() ? "Y@GRAD" : "X@GRAD", {Output(value)}}})
      .Int("axis", -1);
  return true;
}

absl::Status Translator::Divide(const Node& node) {
  if (!node.Symbol("other").empty()) return DivideByCount(node);
  if (node.Has("rounding_mode")) return node.ArgumentError("rounding_mode", "None");
  WEFT_ASSIGN_OR_RETURN(const std::string x, Promoted(node, "self"));
  if (!node.IsTensor("other")) {
    WEFT_ASSIGN_OR_RETURN(const double other, node.Number("other"));
    return MultiplyBy(node, x, 1 / other, 0, Output(node.outputs[0]));
  }
  if (!IsFloat(MetaOf(node.outputs[0]).dtype)) return node.Error("expected floating-point tensors");
  WEFT_ASSIGN_OR_RETURN(const bool is_added, AddProductGrad(node, "elementwise_div_grad"));
  if (is_added) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::string y, Promoted(node, "other"));
  Add("elementwise_div", {{"X", {x}}, {"Y", {y}}}, {{"Out", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

absl::Status Translator::Negate(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string x, Promoted(node, "self"));
  return MultiplyBy(node, x, -1, 0, Output(node.outputs[0]));
}

absl::Status Translator::PowerOfNumber(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const double base, node.Number("self"));
  WEFT_ASSIGN_OR_RETURN(const std::string exponent, Var(node, "exponent"));
  const TensorMeta& meta = MetaOf(node.outputs[0]);
  WEFT_ASSIGN_OR_RETURN(const std::string x, Number(node, "base", base, meta.dtype));
  Add("elementwise_pow", {{"X", {x}}, {"Y", {exponent}}}, {{"Out", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

absl::Status Translator::Power(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  if (!IsFloat(MetaOf(node.outputs[0]).dtype)) return node.Error("expected floating-point tensors");
  WEFT_ASSIGN_OR_RETURN(const double exponent, node.Number("exponent"));
  WEFT_ASSIGN_OR_RETURN(NewOp op, AddUnary(node, "pow"));
  op.Float("factor", exponent);
  return absl::OkStatus();
}

absl::Status Translator::Binary(const Node& node) {
  if (!IsFloat(MetaOf(node.outputs[0]).dtype)) return node.Error("expected floating-point tensors");
  WEFT_ASSIGN_OR_RETURN(const std::string x, Promoted(node, "self"));
  WEFT_ASSIGN_OR_RETURN(const std::string y,
                        Promoted(node, node.Has("exponent") ? "exponent" : "other"));
  Add(Rules().at(node.target).op, {{"X", {x}}, {"Y", {y}}}, {{"Out", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

// By the larger of self and min, and then the smaller of that and max, or by one of these.
absl::Status Translator::ClampByTensors(const Node& node) {
  if (!IsFloat(MetaOf(node.outputs[0]).dtype)) return node.Error("expected floating-point tensors");
  WEFT_ASSIGN_OR_RETURN(std::string x, Promoted(node, "self"));
  const bool has_max = node.IsTensor("max");
  const std::string& value = node.outputs[0];
  if (node.IsTensor("min")) {
    WEFT_ASSIGN_OR_RETURN(const std::string min, Promoted(node, "min"));
    const std::string out = has_max ? Temporary("raised", MetaOf(value)) : Output(value);
    Add("elementwise_max", {{"X", {x}}, {"Y", {min}}}, {{"Out", {out}}});
    x = out;
  }
  if (!has_max) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::string max, Promoted(node, "max"));
  Add("elementwise_min", {{"X", {x}}, {"Y", {max}}}, {{"Out", {Output(value)}}});
  return absl::OkStatus();
}

absl::Status Translator::Clamp(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  if (!IsFloat(MetaOf(node.outputs[0]).dtype)) return node.Error("expected floating-point tensors");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  WEFT_ASSIGN_OR_RETURN(const double min, node.Number("min", -kInfinity));
  WEFT_ASSIGN_OR_RETURN(const double max, node.Number("max", kInfinity));
  WEFT_ASSIGN_OR_RETURN(NewOp op, AddUnary(node, "clip"));
  op.Float("min", min).Float("max", max);
  return absl::OkStatus();
}

// self + weight (end - self).
absl::Status Translator::Lerp(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const double weight, node.Number("weight"));
  WEFT_ASSIGN_OR_RETURN(const std::string begin, Promoted(node, "self"));
  WEFT_ASSIGN_OR_RETURN(const std::string end, Promoted(node, "end"));
  const TensorMeta& meta = MetaOf(node.outputs[0]);
  const std::string way = Temporary("way", meta), part = Temporary("part", meta);
  Add("elementwise_sub", {{"X", {end}}, {"Y", {begin}}}, {{"Out", {way}}});
  WEFT_RETURN_IF_ERROR(MultiplyBy(node, way, weight, 0, part));
  Add("elementwise_add", {{"X", {begin}}, {"Y", {part}}}, {{"Out", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

// self + value tensor1 tensor2, or the same with a quotient.
absl::Status Translator::AddProduct(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const double value, node.Number("value", 1));
  WEFT_ASSIGN_OR_RETURN(const std::string sum, Promoted(node, "self"));
  WEFT_ASSIGN_OR_RETURN(const std::string x, Promoted(node, "tensor1"));
  WEFT_ASSIGN_OR_RETURN(const std::string y, Promoted(node, "tensor2"));
  const TensorMeta& meta = MetaOf(node.outputs[0]);
  std::string product = Temporary("product", meta);
  Add(Rules().at(node.target).op, {{"X", {x}}, {"Y", {y}}}, {{"Out", {product}}});
  if (value != 1) {
    const std::string scaled = Temporary("scaled", meta);
    WEFT_RETURN_IF_ERROR(MultiplyBy(node, product, value, 0, scaled));
    product = scaled;
  }
  Add("elementwise_add", {{"X", {sum}}, {"Y", {product}}}, {{"Out", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

// To another element type. Where memory lies is not the program's business.
absl::Status Translator::Convert(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  const std::string x = VarOf(value);
  const pb::VarType::Type from = MetaOf(value).dtype, to = MetaOf(node.outputs[0]).dtype;
  if (from == to) {
    vars_[node.outputs[0]] = x;
    return absl::OkStatus();
  }
  Cast(x, from, Output(node.outputs[0]), to);
  return absl::OkStatus();
}

void Translator::Cast(const std::string& x, pb::VarType::Type from, const std::string& out,
                      pb::VarType::Type to) {
  Add("cast", {{"X", {x}}}, {{"Out", {out}}}).Int("in_dtype", from).Int("out_dtype", to);
}

absl::Status Translator::Unary(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  return AddUnary(node, Rules().at(node.target).op).status();
}

namespace {

// A function whose gradient op reads X, its input, or Out, or both.
struct ActivationForm {
  bool reads_x, reads_out;
  // Numbers: attribute, argument, and its default.
  struct Number {
    absl::string_view attr, argument;
    double otherwise;
  };
  std::vector<Number> numbers = {};
};

const ActivationForm& FormOf(absl::string_view op) {
  static const auto* const forms = new std::map<absl::string_view, ActivationForm>{
      {"celu", {true, false, {{"alpha", "alpha", 1}}}},
      {"clip", {true, false, {{"min", "min_val", -1}, {"max", "max_val", 1}}}},
      {"elu", {true, true, {{"alpha", "alpha", 1}}}},
      {"gelu", {true, false}},
      {"hard_sigmoid", {false, true, {{"slope", "", 1.0 / 6}, {"offset", "", 0.5}}}},
      {"hard_swish", {true, false}},
      {"leaky_relu", {true, false, {{"alpha", "negative_slope", 0.01}}}},
      {"logsigmoid", {true, false}},
      {"mish", {true, false}},
      {"selu", {false, true, {{"alpha", "alpha", 1}, {"scale", "scale", 1}}}},
      {"silu", {true, true}},
      {"softplus", {true, false, {{"beta", "beta", 1}, {"threshold", "threshold", 20}}}},
  };
  return forms->at(op);
}

// The function of an activation or of its gradient. PyTorch writes selu as elu with a factor of the
// result, and the gradient of celu as that of elu with a factor of the input.
absl::StatusOr<absl::string_view> FunctionOf(const Node& node, absl::string_view op) {
  op = absl::StripSuffix(op, "_grad");
  if (op != "elu") return op;
  WEFT_ASSIGN_OR_RETURN(const double alpha, node.Number("alpha", 1));
  WEFT_ASSIGN_OR_RETURN(const double scale, node.Number("scale", 1));
  WEFT_ASSIGN_OR_RETURN(const double input_scale, node.Number("input_scale", 1));
  if (scale == 1 && input_scale == 1) return op;
  if (input_scale == 1 && scale > 0 && alpha >= 0) return "selu";
  constexpr double kFp32Rounding = 1e-6;  // PyTorch has 1 / alpha of an fp32 alpha
  if (scale == 1 && std::abs(input_scale * alpha - 1) < kFp32Rounding) return "celu";
  return node.Error(absl::StrCat(
      "expected elu, selu (a positive scale) or celu (an input_scale of 1 / alpha), found alpha ",
      alpha, ", scale ", scale, ", input_scale ", input_scale));
}

absl::Status SetNumbers(const Node& node, absl::string_view op, NewOp added) {
  for (const auto& [attr, argument, otherwise] : FormOf(op).numbers) {
    WEFT_ASSIGN_OR_RETURN(const double number, node.Number(argument, otherwise));
    added.Float(attr, number);
  }
  WEFT_ASSIGN_OR_RETURN(const std::string approximate, node.Text("approximate", "none"));
  if (approximate == "tanh") added.Bool("approximate", true);
  return approximate == "none" || approximate == "tanh"
             ? absl::OkStatus()
             : node.ArgumentError("approximate", "none or tanh");
}

}  // namespace

absl::Status Translator::Activation(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const absl::string_view op, FunctionOf(node, Rules().at(node.target).op));
  WEFT_ASSIGN_OR_RETURN(const NewOp added, AddUnary(node, op));
  return SetNumbers(node, op, added);
}

absl::Status Translator::ActivationGrad(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(absl::string_view op, FunctionOf(node, Rules().at(node.target).op));
  WEFT_ASSIGN_OR_RETURN(const bool is_result, node.Bool("is_result", false));
  WEFT_ASSIGN_OR_RETURN(const bool self_is_result, node.Bool("self_is_result", false));
  if (is_result || self_is_result) return node.Error("expected the gradient by the input");
  const char* const argument = node.Has("self_or_result") ? "self_or_result" : "self";
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor(argument));
  WEFT_ASSIGN_OR_RETURN(const std::string grad, Var(node, "grad_output"));
  // Of the same numbers: elu and selu of one value are nodes of one operator.
  const auto forward_of = [&](absl::string_view target) -> const Node* {
    const auto readers = readers_.find(makers_.Origin(value));
    if (readers == readers_.end()) return nullptr;
    for (const Node* reader : readers->second) {
      const auto is_same = [&](absl::string_view argument) {
        return reader->Number(argument, 1).value_or(0) == node.Number(argument, 1).value_or(0);
      };
      if (reader->target == target && is_same("alpha") && is_same("scale")) return reader;
    }
    return nullptr;
  };
  const Node* const forward = forward_of(absl::StrReplaceAll(node.target, {{"_backward", ""}}));
  // The gradient of celu with alpha 1 is written as that of elu.
  if (op == "elu" && forward == nullptr && forward_of("aten.celu.default") != nullptr) op = "celu";
  const ActivationForm& form = FormOf(op);
  Slots inputs;
  if (form.reads_out) {
    if (forward == nullptr) return node.Error("expected the gradient of a function of the step");
    inputs.push_back({"Out", {VarOf(forward->outputs[0])}});
  }
  inputs.push_back({"Out@GRAD", {grad}});
  if (form.reads_x) inputs.push_back({"X", {VarOf(value)}});
  return SetNumbers(
      node, op, Add(absl::StrCat(op, "_grad"), inputs, {{"X@GRAD", {Output(node.outputs[0])}}}));
}

absl::Status Translator::UnaryGrad(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const std::string out, Var(node, "output"));
  WEFT_ASSIGN_OR_RETURN(const std::string grad, Var(node, "grad_output"));
  Add(Rules().at(node.target).op, {{"Out", {out}}, {"Out@GRAD", {grad}}},
      {{"X@GRAD", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

// The gradient where self, the result of relu, is larger than 0.
absl::Status Translator::ReluGrad(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const double threshold, node.Number("threshold"));
  if (threshold != 0) return node.ArgumentError("threshold", "0, of the gradient of relu");
  WEFT_ASSIGN_OR_RETURN(const std::string out, Var(node, "self"));
  WEFT_ASSIGN_OR_RETURN(const std::string grad, Var(node, "grad_output"));
  Add("relu_grad", {{"Out", {out}}, {"Out@GRAD", {grad}}}, {{"X@GRAD", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

}  // namespace weft::pt2
