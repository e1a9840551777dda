// What the operators of PyTorch become. Their arguments, defaults and meaning are those of
// aten/src/ATen/native/native_functions.yaml and tools/autograd/derivatives.yaml.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "proto/formats/pt2/translator.h"

namespace weft::pt2 {
namespace {

// PyTorch's numbers of reductions.
constexpr int kNone = 0, kMean = 1, kSum = 2;

bool IsFloat(pb::VarType::Type dtype) {
  return dtype == pb::VarType::FP32 || dtype == pb::VarType::FP64 || dtype == pb::VarType::FP16 ||
         dtype == pb::VarType::BF16;
}

// One number for each of two spatial axes; a single one counts for both.
absl::StatusOr<std::vector<int64_t>> Pair(const Node& node, absl::string_view argument,
                                          std::vector<int64_t> otherwise) {
  WEFT_ASSIGN_OR_RETURN(std::vector<int64_t> pair, node.Ints(argument, otherwise));
  if (pair.empty()) pair = std::move(otherwise);
  if (pair.size() == 1) pair.push_back(pair[0]);
  return pair.size() == 2 ? absl::StatusOr<std::vector<int64_t>>(pair)
                          : node.ArgumentError(argument, "two numbers, for images");
}

absl::StatusOr<int> Reduction(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const int64_t number, node.Int("reduction", kMean));
  if (number == kNone || number == kMean || number == kSum) return static_cast<int>(number);
  return node.ArgumentError("reduction", "0, 1 or 2");
}

}  // namespace

const std::map<absl::string_view, Translator::OpRule>& Translator::Rules() {
  using T = Translator;
  constexpr Linear kInAll = Linear::kInAll, kInEach = Linear::kInEach, kInFirst = Linear::kInFirst;
  constexpr Linear kNot = Linear::kNot;
  static const auto* const rules = new std::map<absl::string_view, OpRule>{
      {"aten._log_softmax.default", {&T::Softmax, kNot, "log_softmax"}},
      {"aten._log_softmax_backward_data.default", {&T::SoftmaxGrad, kInFirst, "log_softmax_grad"}},
      {"aten._softmax.default", {&T::Softmax, kNot, "softmax"}},
      {"aten._softmax_backward_data.default", {&T::SoftmaxGrad, kInFirst, "softmax_grad"}},
      {"aten._unsafe_view.default", {&T::Reshape, kInAll}},
      {"aten.abs.default", {&T::Unary, kNot, "abs"}},
      {"aten.add.Tensor", {&T::AddOrSubtract, kInAll}},
      {"aten.addmm.default", {&T::AddMatrixProduct}},
      {"aten.bmm.default", {&T::MatrixProduct, kInEach}},
      {"aten.convolution.default", {&T::Convolution}},
      {"aten.convolution_backward.default", {&T::ConvolutionGrad, kInFirst, "", 3}},
      {"aten.cos.default", {&T::Unary, kNot, "cos"}},
      {"aten.div.Scalar", {&T::Divide, kInFirst}},
      {"aten.div.Tensor", {&T::Divide, kInFirst}},
      {"aten.exp.default", {&T::Unary, kNot, "exp"}},
      {"aten.full_like.default", {&T::Fill}},
      {"aten.log.default", {&T::Unary, kNot, "log"}},
      {"aten.max_pool2d_with_indices.default", {&T::MaxPool, kNot, "", 2}},
      {"aten.max_pool2d_with_indices_backward.default", {&T::MaxPoolGrad, kInFirst}},
      {"aten.mean.default", {&T::Reduce, kInAll, "reduce_mean"}},
      {"aten.mean.dim", {&T::Reduce, kInAll, "reduce_mean"}},
      {"aten.mm.default", {&T::MatrixProduct, kInEach}},
      {"aten.mse_loss.default", {&T::MseLoss}},
      {"aten.mse_loss_backward.default", {&T::MseLossGrad, kInFirst}},
      {"aten.mul.Scalar", {&T::Multiply, kInEach}},
      {"aten.mul.Tensor", {&T::Multiply, kInEach}},
      {"aten.neg.default", {&T::Negate, kInAll}},
      {"aten.nll_loss_backward.default", {&T::NllLossGrad, kInFirst}},
      {"aten.nll_loss_forward.default", {&T::NllLoss, kNot, "", 2}},
      {"aten.ones_like.default", {&T::Fill}},
      {"aten.permute.default", {&T::Permute, kInAll}},
      {"aten.pow.Scalar", {&T::PowerOfNumber}},
      {"aten.reciprocal.default", {&T::Unary, kNot, "reciprocal"}},
      {"aten.relu.default", {&T::Unary, kNot, "relu"}},
      {"aten.rsqrt.default", {&T::Unary, kNot, "rsqrt"}},
      {"aten.rsub.Scalar", {&T::ReverseSubtract, kInAll}},
      {"aten.sigmoid.default", {&T::Unary, kNot, "sigmoid"}},
      {"aten.sigmoid_backward.default", {&T::UnaryGrad, kInFirst, "sigmoid_grad"}},
      {"aten.sin.default", {&T::Unary, kNot, "sin"}},
      {"aten.sqrt.default", {&T::Unary, kNot, "sqrt"}},
      {"aten.squeeze.dim", {&T::Reshape, kInAll}},
      {"aten.squeeze.dims", {&T::Reshape, kInAll}},
      {"aten.sub.Tensor", {&T::AddOrSubtract, kInAll}},
      {"aten.sum.default", {&T::Reduce, kInAll, "reduce_sum"}},
      {"aten.sum.dim_IntList", {&T::Reduce, kInAll, "reduce_sum"}},
      {"aten.t.default", {&T::Transpose2d, kInAll}},
      {"aten.tanh.default", {&T::Unary, kNot, "tanh"}},
      {"aten.tanh_backward.default", {&T::UnaryGrad, kInFirst, "tanh_grad"}},
      {"aten.threshold_backward.default", {&T::ReluGrad, kInFirst}},
      {"aten.unsqueeze.default", {&T::Reshape, kInAll}},
      {"aten.view.default", {&T::Reshape, kInAll}},
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
  if (!IsFloat(dtype)) return node.Error("expected floating-point tensors");
  const std::string out = Temporary(suffix, {dtype, {}});
  Add("fill_constant", {}, {{"Out", {out}}})
      .Longs("shape", {})
      .Int("dtype", dtype)
      .Float("value", value)
      .Text("str_value", absl::StrFormat("%.17g", value));
  return out;
}

// factor x + bias. An integer would be rounded.
absl::Status Translator::MultiplyBy(const Node& node, const std::string& x,
                                    absl::string_view argument, double factor, double bias,
                                    const std::string& out) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor(argument));
  if (!IsFloat(MetaOf(value).dtype)) return node.ArgumentError(argument, "floating-point numbers");
  Add("scale", {{"X", {x}}}, {{"Out", {out}}})
      .Float("scale", factor)
      .Float("bias", bias)
      .Bool("bias_after_scale", true);
  return absl::OkStatus();
}

absl::Status Translator::AddOrSubtract(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const double alpha, node.Number("alpha", 1));
  const bool subtracts = node.target == "aten.sub.Tensor";
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  if (!node.IsTensor("other")) {
    WEFT_ASSIGN_OR_RETURN(const double other, node.Number("other"));
    const double bias = subtracts ? -alpha * other : alpha * other;
    return MultiplyBy(node, x, "self", 1, bias, Output(node.outputs[0]));
  }
  WEFT_ASSIGN_OR_RETURN(std::string y, Var(node, "other"));
  if (alpha != 1) {
    WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("other"));
    const std::string scaled = Temporary("scaled", MetaOf(value));
    WEFT_RETURN_IF_ERROR(MultiplyBy(node, y, "other", alpha, 0, scaled));
    y = scaled;
  }
  Add(subtracts ? "elementwise_sub" : "elementwise_add", {{"X", {x}}, {"Y", {y}}},
      {{"Out", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

absl::Status Translator::ReverseSubtract(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const double alpha, node.Number("alpha", 1));
  WEFT_ASSIGN_OR_RETURN(const double other, node.Number("other"));
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  return MultiplyBy(node, x, "self", -alpha, other, Output(node.outputs[0]));
}

absl::Status Translator::Multiply(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  if (!node.IsTensor("other")) {
    WEFT_ASSIGN_OR_RETURN(const double other, node.Number("other"));
    return MultiplyBy(node, x, "self", other, 0, Output(node.outputs[0]));
  }
  WEFT_ASSIGN_OR_RETURN(const std::string y, Var(node, "other"));
  Add("elementwise_mul", {{"X", {x}}, {"Y", {y}}}, {{"Out", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

absl::Status Translator::Divide(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  if (!node.IsTensor("other")) {
    WEFT_ASSIGN_OR_RETURN(const double other, node.Number("other"));
    return MultiplyBy(node, x, "self", 1 / other, 0, Output(node.outputs[0]));
  }
  WEFT_ASSIGN_OR_RETURN(const std::string y, Var(node, "other"));
  if (!IsFloat(MetaOf(node.outputs[0]).dtype)) return node.Error("expected floating-point tensors");
  Add("elementwise_div", {{"X", {x}}, {"Y", {y}}}, {{"Out", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

absl::Status Translator::Negate(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  return MultiplyBy(node, x, "self", -1, 0, Output(node.outputs[0]));
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

absl::Status Translator::Unary(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  Add(Rules().at(node.target).op, {{"X", {x}}}, {{"Out", {Output(node.outputs[0])}}});
  return absl::OkStatus();
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

// --- Shapes, sums and constants
// --------------------------------------------------------------------

absl::Status Translator::Transpose2d(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  const std::string& x = makers_.Origin(value);
  if (MetaOf(x).dims.size() != 2) {
    vars_[node.outputs[0]] = VarOf(x);  // of a vector, or a number
    return absl::OkStatus();
  }
  transposed_[node.outputs[0]] = x;
  return absl::OkStatus();
}

absl::Status Translator::Permute(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, node.Ints("dims", absl::nullopt));
  Add("transpose2", {{"X", {x}}}, {{"Out", {Output(node.outputs[0])}}}).Ints("axis", dims);
  return absl::OkStatus();
}

// To the shape that the file gives the output; one symbolic size follows from the others.
absl::Status Translator::Reshape(const Node& node) {
  const std::vector<int64_t>& dims = MetaOf(node.outputs[0]).dims;
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  const auto sum = row_sums_.find(makers_.Origin(value));
  if (sum != row_sums_.end() && vars_.find(sum->first) == vars_.end()) {
    if (AddBiasGrad(sum->second, -1, node.outputs[0])) return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  if (std::count(dims.begin(), dims.end(), -1) > 1) {
    return node.Error("expected a shape with one symbolic size at most, the size of the batch");
  }
  Add("reshape2", {{"X", {x}}}, {{"Out", {Output(node.outputs[0])}}}).Ints("shape", dims);
  return absl::OkStatus();
}

absl::Status Translator::Reduce(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, node.Ints("dim", std::vector<int64_t>()));
  WEFT_ASSIGN_OR_RETURN(const bool keeps, node.Bool("keepdim", false));
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  const bool sums_rows = keeps && dims == std::vector<int64_t>{0} &&
                         Rules().at(node.target).op == "reduce_sum" && Follows(value);
  if (sums_rows && !param_of_gradient_.contains(node.outputs[0])) {
    row_sums_[node.outputs[0]] = value;
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  Add(Rules().at(node.target).op, {{"X", {x}}}, {{"Out", {Output(node.outputs[0])}}})
      .Ints("dim", dims.empty() ? std::vector<int64_t>{0} : dims)
      .Bool("keep_dim", keeps)
      .Bool("reduce_all", dims.empty());
  return absl::OkStatus();
}

// The sum of a gradient over all axes but the axis of a bias is the gradient of the bias: the op
// for it says so to analyses. Whatever is added, its gradient is that sum. Prefers the parameter of
// which `out` is the gradient.
bool Translator::AddBiasGrad(const std::string& gradient, int axis, const std::string& out) {
  const auto param = param_of_gradient_.find(out);
  const BiasSum* found = nullptr;
  for (const BiasSum& sum : bias_sums_) {
    if (sum.axis != axis || sum.dims != MetaOf(gradient).dims ||
        sum.bias_dims != MetaOf(out).dims) {
      continue;
    }
    const bool is_preferred = param != param_of_gradient_.end() && param->second == sum.bias;
    if (found == nullptr || is_preferred) found = &sum;
  }
  if (found == nullptr) return false;
  const std::string from = VarOf(gradient);
  Add("elementwise_add_grad", {{"Out@GRAD", {from}}, {"X", {found->x}}, {"Y", {found->bias}}},
      {{"Y@GRAD", {Output(out)}}})
      .Int("axis", axis);
  return true;
}

absl::Status Translator::AddBias(const Node& node, absl::string_view argument, const std::string& x,
                                 int axis) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor(argument));
  const std::string bias = VarOf(value);
  Add("elementwise_add", {{"X", {x}}, {"Y", {bias}}}, {{"Out", {Output(node.outputs[0])}}})
      .Int("axis", axis);
  bias_sums_.push_back({x, bias, axis, MetaOf(node.outputs[0]).dims, MetaOf(value).dims});
  return absl::OkStatus();
}

absl::Status Translator::Fill(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  double value = node.target == "aten.ones_like.default" ? 1 : 0;
  if (node.target == "aten.full_like.default") {
    WEFT_ASSIGN_OR_RETURN(value, node.Number("fill_value"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  Add("fill_any_like", {{"X", {x}}}, {{"Out", {Output(node.outputs[0])}}}).Float("value", value);
  return absl::OkStatus();
}

// --- Layers
// ----------------------------------------------------------------------------------------

absl::Status Translator::MultiplyMatrices(const Node& node, absl::string_view x,
                                          absl::string_view y, const std::string& out) {
  WEFT_ASSIGN_OR_RETURN(const Operand a, MatrixOf(node, x));
  WEFT_ASSIGN_OR_RETURN(const Operand b, MatrixOf(node, y));
  Add("matmul_v2", {{"X", {a.var}}, {"Y", {b.var}}}, {{"Out", {out}}})
      .Bool("trans_x", a.is_transposed)
      .Bool("trans_y", b.is_transposed);
  WEFT_ASSIGN_OR_RETURN(const std::string of_x, node.Tensor(x));
  WEFT_ASSIGN_OR_RETURN(const std::string of_y, node.Tensor(y));
  if (!Follows(of_x) && !Follows(of_y)) {
    products_.push_back({a, b, MetaOf(node.outputs[0]).dims});
  }
  return absl::OkStatus();
}

// A product with the gradient of another product is the gradient of a factor of that: the op for
// it says so to analyses, and computes the same whatever the other factor is.
absl::StatusOr<bool> Translator::AddFactorGrad(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string left, node.Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(const std::string right, node.Tensor("mat2"));
  if (Follows(left) == Follows(right)) return false;
  WEFT_ASSIGN_OR_RETURN(const Operand a, MatrixOf(node, "self"));
  WEFT_ASSIGN_OR_RETURN(const Operand b, MatrixOf(node, "mat2"));
  const bool is_left = Follows(left);
  const Operand &gradient = is_left ? a : b, &factor = is_left ? b : a;
  std::vector<int64_t> dims = MetaOf(is_left ? left : right).dims;  // of the gradient
  if (gradient.is_transposed) std::reverse(dims.begin(), dims.end());
  for (const Product& product : products_) {
    const auto& [x, y, out_dims] = product;
    if (x.is_transposed || dims != out_dims) continue;
    // Of Out = X op(Y): X@GRAD = Out@GRAD op(Y)^T; Y@GRAD = X^T Out@GRAD, or its transposed.
    const bool of_x = is_left && !gradient.is_transposed && factor.var == y.var &&
                      factor.is_transposed != y.is_transposed;
    const bool of_y = factor.var == x.var && gradient.is_transposed == y.is_transposed &&
                      is_left == y.is_transposed && factor.is_transposed != y.is_transposed;
    if (!of_x && !of_y) continue;
    Add("matmul_v2_grad", {{"Out@GRAD", {gradient.var}}, {"X", {x.var}}, {"Y", {y.var}}},
        {{of_x ? "X@GRAD" : "Y@GRAD", {Output(node.outputs[0])}}})
        .Bool("trans_x", false)
        .Bool("trans_y", y.is_transposed);
    return true;
  }
  return false;
}

absl::Status Translator::MatrixProduct(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const bool is_added, AddFactorGrad(node));
  if (is_added) return absl::OkStatus();
  return MultiplyMatrices(node, "self", "mat2", Output(node.outputs[0]));
}

absl::Status Translator::AddMatrixProduct(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  for (const char* factor : {"alpha", "beta"}) {
    WEFT_ASSIGN_OR_RETURN(const double number, node.Number(factor, 1));
    if (number != 1) return node.ArgumentError(factor, "1");
  }
  const std::string product = Temporary("mm", MetaOf(node.outputs[0]));
  WEFT_RETURN_IF_ERROR(MultiplyMatrices(node, "mat1", "mat2", product));
  return AddBias(node, "self", product, -1);
}

absl::Status Translator::Softmax(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, node.Int("dim"));
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  Add(Rules().at(node.target).op, {{"X", {x}}}, {{"Out", {Output(node.outputs[0])}}})
      .Int("axis", axis);
  return absl::OkStatus();
}

absl::Status Translator::SoftmaxGrad(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, node.Int("dim"));
  WEFT_ASSIGN_OR_RETURN(const std::string out, Var(node, "output"));
  WEFT_ASSIGN_OR_RETURN(const std::string grad, Var(node, "grad_output"));
  Add(Rules().at(node.target).op, {{"Out", {out}}, {"Out@GRAD", {grad}}},
      {{"X@GRAD", {Output(node.outputs[0])}}})
      .Int("axis", axis);
  return absl::OkStatus();
}

absl::Status Translator::SetConvolution(const Node& node, NewOp op) {
  WEFT_ASSIGN_OR_RETURN(const bool is_transposed, node.Bool("transposed", false));
  WEFT_ASSIGN_OR_RETURN(const std::string input, node.Tensor("input"));
  if (is_transposed || MetaOf(input).dims.size() != 4) {
    return node.Error(
        "expected a convolution of images, [batch, channels, height, width], that "
        "is not transposed");
  }
  WEFT_ASSIGN_OR_RETURN(const auto strides, Pair(node, "stride", {1, 1}));
  WEFT_ASSIGN_OR_RETURN(const auto paddings, Pair(node, "padding", {0, 0}));
  WEFT_ASSIGN_OR_RETURN(const auto dilations, Pair(node, "dilation", {1, 1}));
  WEFT_ASSIGN_OR_RETURN(const int64_t groups, node.Int("groups", 1));
  op.Ints("strides", strides)
      .Ints("paddings", paddings)
      .Ints("dilations", dilations)
      .Int("groups", groups);
  return absl::OkStatus();
}

absl::Status Translator::Convolution(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  const bool has_bias = node.Has("bias");
  WEFT_ASSIGN_OR_RETURN(const std::string input, Var(node, "input"));
  WEFT_ASSIGN_OR_RETURN(const std::string weight, Var(node, "weight"));
  const std::string& value = node.outputs[0];
  const std::string out = has_bias ? Temporary("conv", MetaOf(value)) : Output(value);
  WEFT_RETURN_IF_ERROR(SetConvolution(
      node, Add("conv2d", {{"Filter", {weight}}, {"Input", {input}}}, {{"Output", {out}}})));
  if (!has_bias) return absl::OkStatus();
  return AddBias(node, "bias", out, 1);
}

// The gradients of input, weight and bias, or some of them.
absl::Status Translator::ConvolutionGrad(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const std::string input, Var(node, "input"));
  WEFT_ASSIGN_OR_RETURN(const std::string weight, Var(node, "weight"));
  WEFT_ASSIGN_OR_RETURN(const std::string grad, Var(node, "grad_output"));
  Slots outputs;
  if (!node.outputs[0].empty()) outputs.push_back({"Input@GRAD", {Output(node.outputs[0])}});
  if (!node.outputs[1].empty()) outputs.push_back({"Filter@GRAD", {Output(node.outputs[1])}});
  if (!outputs.empty()) {
    WEFT_RETURN_IF_ERROR(SetConvolution(
        node, Add("conv2d_grad",
                  {{"Filter", {weight}}, {"Input", {input}}, {"Output@GRAD", {grad}}}, outputs)));
  }
  if (node.outputs[2].empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("grad_output"));
  if (AddBiasGrad(value, 1, node.outputs[2])) return absl::OkStatus();
  Add("reduce_sum", {{"X", {grad}}}, {{"Out", {Output(node.outputs[2])}}})
      .Ints("dim", {0, 2, 3})
      .Bool("keep_dim", false)
      .Bool("reduce_all", false);
  return absl::OkStatus();
}

absl::Status Translator::SetPool(const Node& node, NewOp op) {
  WEFT_ASSIGN_OR_RETURN(const auto size, Pair(node, "kernel_size", {}));
  WEFT_ASSIGN_OR_RETURN(const auto strides, Pair(node, "stride", size));
  WEFT_ASSIGN_OR_RETURN(const auto paddings, Pair(node, "padding", {0, 0}));
  WEFT_ASSIGN_OR_RETURN(const auto dilations, Pair(node, "dilation", {1, 1}));
  WEFT_ASSIGN_OR_RETURN(const bool rounds_up, node.Bool("ceil_mode", false));
  if (dilations != std::vector<int64_t>{1, 1}) return node.ArgumentError("dilation", "1");
  if (rounds_up) return node.ArgumentError("ceil_mode", "false");
  op.Ints("ksize", size).Ints("strides", strides).Ints("paddings", paddings);
  return absl::OkStatus();
}

absl::Status Translator::MaxPool(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  if (MetaOf(node.outputs[0]).dims.size() != 4) {
    return node.Error("expected images, [batch, channels, height, width]");
  }
  const TensorMeta mask{pb::VarType::INT32, MetaOf(node.outputs[1]).dims};
  return SetPool(
      node, Add("max_pool2d_with_index", {{"X", {x}}},
                {{"Mask", {Output(node.outputs[1], mask)}}, {"Out", {Output(node.outputs[0])}}}));
}

absl::Status Translator::MaxPoolGrad(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  WEFT_ASSIGN_OR_RETURN(const std::string mask, Var(node, "indices"));
  WEFT_ASSIGN_OR_RETURN(const std::string grad, Var(node, "grad_output"));
  WEFT_ASSIGN_OR_RETURN(const std::string indices, node.Tensor("indices"));
  const Node* const pool = makers_.Of(indices);
  if (pool == nullptr || pool->target != "aten.max_pool2d_with_indices.default") {
    return node.Error("expected indices of a max_pool2d_with_indices");
  }
  return SetPool(
      node, Add("max_pool2d_with_index_grad", {{"Mask", {mask}}, {"Out@GRAD", {grad}}, {"X", {x}}},
                {{"X@GRAD", {Output(node.outputs[0])}}}));
}

// --- Losses
// ----------------------------------------------------------------------------------------

namespace {

absl::string_view ReductionName(int reduction) {
  return reduction == kNone ? "none" : reduction == kMean ? "mean" : "sum";
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

namespace {

absl::string_view ReductionOp(int reduction) {
  return reduction == kMean ? "reduce_mean" : "reduce_sum";
}

}  // namespace

// (prediction - target)², and its mean or sum.
absl::Status Translator::MseLoss(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const int reduction, Reduction(node));
  WEFT_ASSIGN_OR_RETURN(const auto squares, SquaresOf(node));
  if (reduction == kNone) {
    vars_[node.outputs[0]] = squares.second;
    return absl::OkStatus();
  }
  Add(ReductionOp(reduction), {{"X", {squares.second}}}, {{"Out", {Output(node.outputs[0])}}})
      .Ints("dim", {0})
      .Bool("keep_dim", false)
      .Bool("reduce_all", true);
  return absl::OkStatus();
}

absl::Status Translator::MseLossGrad(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const int reduction, Reduction(node));
  WEFT_ASSIGN_OR_RETURN(const auto squares, SquaresOf(node));
  WEFT_ASSIGN_OR_RETURN(std::string grad, Var(node, "grad_output"));
  if (reduction != kNone) {
    const std::string of_squares = Temporary("squares", MetaOf(node.outputs[0]));
    Add(absl::StrCat(ReductionOp(reduction), "_grad"),
        {{"Out@GRAD", {grad}}, {"X", {squares.second}}}, {{"X@GRAD", {of_squares}}})
        .Ints("dim", {0})
        .Bool("keep_dim", false)
        .Bool("reduce_all", true);
    grad = of_squares;
  }
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

}  // namespace weft::pt2
