// Operators of layers: products, convolutions, pools, softmax.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/formats/pt2/translator.h"

namespace weft::pt2 {
namespace {

// One number for each of two spatial axes; a single one counts for both.
absl::StatusOr<std::vector<int64_t>> Pair(const Node& node, absl::string_view argument,
                                          std::vector<int64_t> otherwise) {
  WEFT_ASSIGN_OR_RETURN(std::vector<int64_t> pair, node.Ints(argument, otherwise));
  if (pair.empty()) pair = std::move(otherwise);
  if (pair.size() == 1) pair.push_back(pair[0]);
  return pair.size() == 2 ? absl::StatusOr<std::vector<int64_t>>(pair)
                          : node.ArgumentError(argument, "two numbers, for images");
}
}  // namespace

Translator::Operand Translator::ProductOutput(const Node& node, const Operand& like,
                                              bool is_temporary) {
  const std::string& value = node.outputs[0];
  TensorMeta meta = MetaOf(value);
  if (!like.has_rows) {
    return {is_temporary ? Temporary("mm", meta) : Output(value), false, meta};
  }
  TensorMeta rows = like.meta;
  rows.dims.back() = meta.dims.back();
  rows.sizes.back() = meta.sizes.back();
  Operand out = {Temporary(is_temporary ? "mm" : "rows", rows), false, rows, true};
  if (!is_temporary) rows_[value] = out;
  if (!Follows(value)) like_.emplace(KeyOf(rows), out.var);
  return out;
}

absl::StatusOr<Translator::Operand> Translator::MultiplyMatrices(const Node& node,
                                                                 absl::string_view x,
                                                                 absl::string_view y,
                                                                 bool is_temporary) {
  WEFT_ASSIGN_OR_RETURN(const std::string of_x, node.Tensor(x));
  WEFT_ASSIGN_OR_RETURN(const std::string of_y, node.Tensor(y));
  WEFT_ASSIGN_OR_RETURN(Operand a, MatrixOf(node, x));
  WEFT_ASSIGN_OR_RETURN(Operand b, MatrixOf(node, y));
  b = Plain(b, of_y);
  if (a.is_transposed || MetaOf(node.outputs[0]).dims.size() != 2) a = Plain(a, of_x);
  Operand out = ProductOutput(node, a, is_temporary);
  Add("matmul_v2", {{"X", {a.var}}, {"Y", {b.var}}}, {{"Out", {out.var}}})
      .Bool("trans_x", a.is_transposed)
      .Bool("trans_y", b.is_transposed);
  if (!Follows(of_x) && !Follows(of_y)) {
    products_.push_back({a, b, MetaOf(node.outputs[0]).sizes, of_x, of_y});
  }
  return out;
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
  const std::string& value = is_left ? left : right;
  std::vector<Size> sizes = MetaOf(value).sizes;
  if (gradient.is_transposed) std::reverse(sizes.begin(), sizes.end());
  for (const Product& product : products_) {
    const auto& [x, y, out_sizes, of_x_value, of_y_value] = product;
    if (x.is_transposed || sizes != out_sizes) continue;
    // Of Out = X op(Y): X@GRAD = Out@GRAD op(Y)^T; Y@GRAD = X^T Out@GRAD, or its transposed.
    const bool of_x = is_left && !gradient.is_transposed && factor.var == y.var &&
                      factor.is_transposed != y.is_transposed;
    const bool of_y = factor.var == x.var && gradient.is_transposed == y.is_transposed &&
                      is_left == y.is_transposed && factor.is_transposed != y.is_transposed;
    if (!of_x && !of_y) continue;
    // Both have their rows along the same axes.
    Operand grad = gradient;
    if (!x.has_rows) grad = Plain(grad, value);
    const auto has_rows_of = [&x = x](const Operand& other) {
      return other.meta.sizes.size() == x.meta.sizes.size() &&
             std::equal(other.meta.sizes.begin(), other.meta.sizes.end() - 1, x.meta.sizes.begin());
    };
    if (x.has_rows && !(has_rows_of(grad) && MetaOf(node.outputs[0]).dims.size() == 2)) continue;
    const std::string out =
        of_x ? ProductOutput(node, x, /*is_temporary=*/false).var : Output(node.outputs[0]);
    Add("matmul_v2_grad", {{"Out@GRAD", {grad.var}}, {"X", {x.var}}, {"Y", {y.var}}},
        {{of_x ? "X@GRAD" : "Y@GRAD", {out}}})
        .Bool("trans_x", false)
        .Bool("trans_y", y.is_transposed);
    return true;
  }
  return AddBatchFactorGrad(node, left, right);
}

// The same of batches of matrices, whose transposed are values of their own. Where there is no such
// product, one that would have the gradient: its other factor has the shape of the result.
absl::StatusOr<bool> Translator::AddBatchFactorGrad(const Node& node, const std::string& left,
                                                    const std::string& right) {
  const bool is_left = Follows(left);
  const std::string &gradient = is_left ? left : right, &factor = is_left ? right : left;
  const std::string& out = node.outputs[0];
  for (const Product& product : products_) {
    const std::string& of = is_left ? product.of_y : product.of_x;
    if (MetaOf(out).dims.size() != 3 || product.sizes != MetaOf(gradient).sizes ||
        !(IsTransposed(of, factor) || IsTransposed(factor, of))) {
      continue;
    }
    Add("matmul_v2_grad",
        {{"Out@GRAD", {VarOf(gradient)}}, {"X", {product.x.var}}, {"Y", {product.y.var}}},
        {{is_left ? "X@GRAD" : "Y@GRAD", {Output(out)}}})
        .Bool("trans_x", false)
        .Bool("trans_y", false);
    return true;
  }
  const absl::optional<std::string> like = Like(MetaOf(out));
  if (!like.has_value()) return false;
  const std::string of_factor = VarOf(factor), of_out = VarOf(gradient);
  Add("matmul_v2_grad",
      {{"Out@GRAD", {of_out}},
       {"X", {is_left ? *like : of_factor}},
       {"Y", {is_left ? of_factor : *like}}},
      {{is_left ? "X@GRAD" : "Y@GRAD", {Output(out)}}})
      .Bool("trans_x", !is_left)
      .Bool("trans_y", is_left);
  return true;
}

// Whether y has the matrices of x, transposed.
bool Translator::IsTransposed(const std::string& x, const std::string& y) const {
  const Node* const node = makers_.Of(y);
  if (node == nullptr || node->target != "aten.transpose.int") return false;
  const absl::StatusOr<std::string> self = node->Tensor("self");
  const absl::StatusOr<int64_t> a = node->Int("dim0"), b = node->Int("dim1");
  if (!self.ok() || !a.ok() || !b.ok() || makers_.Origin(*self) != makers_.Origin(x)) return false;
  const int64_t rank = MetaOf(y).dims.size();
  const int64_t i = *a < 0 ? *a + rank : *a, j = *b < 0 ? *b + rank : *b;
  return i != j && std::min(i, j) == rank - 2;
}

absl::Status Translator::MatrixProduct(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const bool is_added, AddFactorGrad(node));
  if (is_added) return absl::OkStatus();
  return MultiplyMatrices(node, "self", "mat2", /*is_temporary=*/false).status();
}

absl::Status Translator::AddMatrixProduct(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const double alpha, node.Number("alpha", 1));
  WEFT_ASSIGN_OR_RETURN(const double beta, node.Number("beta", 1));
  if (beta == 0)
    return node.ArgumentError("beta", "another number than 0; take mm for the product");
  WEFT_ASSIGN_OR_RETURN(const Operand product, MultiplyMatrices(node, "mat1", "mat2",
                                                                /*is_temporary=*/true));
  if (alpha == 1 && beta == 1) return AddBias(node, "self", product, -1);
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  const std::string scaled = Temporary("scaled", product.meta),
                    bias = Temporary("bias", MetaOf(value));
  WEFT_RETURN_IF_ERROR(MultiplyBy(node, product.var, alpha, 0, scaled));
  WEFT_RETURN_IF_ERROR(MultiplyBy(node, VarOf(value), beta, 0, bias));
  const std::string out = ProductOutput(node, product, /*is_temporary=*/false).var;
  Add("elementwise_add", {{"X", {scaled}}, {"Y", {bias}}}, {{"Out", {out}}}).Int("axis", -1);
  return absl::OkStatus();
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

absl::StatusOr<absl::string_view> Translator::ConvolutionOp(const Node& node) const {
  WEFT_ASSIGN_OR_RETURN(const std::string input, node.Tensor("input"));
  if (MetaOf(input).dims.size() != 4) {
    return node.Error("expected a convolution of images, [batch, channels, height, width]");
  }
  WEFT_ASSIGN_OR_RETURN(const bool is_transposed, node.Bool("transposed", false));
  return is_transposed ? "conv2d_transpose" : "conv2d";
}

absl::Status Translator::SetConvolution(const Node& node, NewOp op) {
  WEFT_ASSIGN_OR_RETURN(const bool is_transposed, node.Bool("transposed", false));
  WEFT_ASSIGN_OR_RETURN(const auto added, Pair(node, "output_padding", {0, 0}));
  if (is_transposed) op.Ints("output_padding", added);
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
  WEFT_ASSIGN_OR_RETURN(const absl::string_view op, ConvolutionOp(node));
  WEFT_RETURN_IF_ERROR(SetConvolution(
      node, Add(op, {{"Filter", {weight}}, {"Input", {input}}}, {{"Output", {out}}})));
  if (!has_bias) return absl::OkStatus();
  return AddBias(node, "bias", {out, false, MetaOf(value)}, 1);
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
  WEFT_ASSIGN_OR_RETURN(const absl::string_view op, ConvolutionOp(node));
  if (!outputs.empty()) {
    WEFT_RETURN_IF_ERROR(SetConvolution(
        node, Add(absl::StrCat(op, "_grad"),
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

absl::Status Translator::SetAveragePool(const Node& node, NewOp op) {
  WEFT_ASSIGN_OR_RETURN(const bool counts_padding, node.Bool("count_include_pad", true));
  if (node.Has("divisor_override")) return node.ArgumentError("divisor_override", "none");
  op.Text("pooling_type", "avg").Bool("exclusive", !counts_padding);
  return SetPool(node, op);
}

absl::Status Translator::AveragePool(const Node& node) {
  if (MetaOf(node.outputs[0]).dims.size() != 4) {
    return node.Error("expected images, [batch, channels, height, width]");
  }
  WEFT_ASSIGN_OR_RETURN(const NewOp op, AddUnary(node, "pool2d"));
  return SetAveragePool(node, op);
}

absl::Status Translator::AveragePoolGrad(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(const std::string of_grad, node.Tensor("grad_output"));
  const Node* const pool = ReaderOf(value, "aten.avg_pool2d.default", "self", of_grad);
  if (pool == nullptr) return node.Error("expected the gradient of an avg_pool2d of the step");
  return SetAveragePool(node, Add("pool2d_grad",
                                  {{"Out", {VarOf(pool->outputs[0])}},
                                   {"Out@GRAD", {VarOf(of_grad)}},
                                   {"X", {VarOf(value)}}},
                                  {{"X@GRAD", {Output(node.outputs[0])}}}));
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
  return SetPool(
      node, Add("max_pool2d_with_index_grad", {{"Mask", {mask}}, {"Out@GRAD", {grad}}, {"X", {x}}},
                {{"X@GRAD", {Output(node.outputs[0])}}}));
}

// --- Losses
}  // namespace weft::pt2
