// Operators of embeddings, normalizations, attention and dropout.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/formats/pt2/translator.h"

namespace weft::pt2 {

// --- Embeddings

absl::Status Translator::Embedding(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string weight, Var(node, "weight"));
  WEFT_ASSIGN_OR_RETURN(const std::string indices, Var(node, "indices"));
  // Of padding, PyTorch changes the gradient alone, and Paddle the result.
  Add("lookup_table_v2", {{"Ids", {indices}}, {"W", {weight}}},
      {{"Out", {Output(node.outputs[0])}}})
      .Long("padding_idx", -1);
  return absl::OkStatus();
}

absl::Status Translator::EmbeddingGrad(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const bool divides, node.Bool("scale_grad_by_freq", false));
  if (divides) return node.ArgumentError("scale_grad_by_freq", "false");
  WEFT_ASSIGN_OR_RETURN(const int64_t padding, node.Int("padding_idx", -1));
  WEFT_ASSIGN_OR_RETURN(const std::string ids, node.Tensor("indices"));
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("grad_output"));
  const std::string indices = VarOf(ids);
  const auto param = param_of_part_.find(node.outputs[0]);
  std::string weight;  // of which the shape counts
  if (param != param_of_part_.end()) {
    weight = param->second;
  } else {
    WEFT_ASSIGN_OR_RETURN(weight, LikeOutput(node));
  }
  const TensorMeta& table = MetaOf(node.outputs[0]);
  if (table.dims.size() != 2) return node.Error("expected the gradient of a table, of two axes");
  const std::string gradient = VarOf(value);
  const std::string out = padding < 0 ? Output(node.outputs[0]) : Temporary("all", table);
  Add("lookup_table_v2_grad", {{"Ids", {indices}}, {"Out@GRAD", {gradient}}, {"W", {weight}}},
      {{"W@GRAD", {out}}})
      .Long("padding_idx", -1);
  if (padding < 0) return absl::OkStatus();
  // The row of padding, times 0.
  const int64_t rows = table.dims[0];
  const TensorMeta row = {table.dtype, {1, rows}}, column = {table.dtype, {rows, 1}};
  const std::string index = Temporary("padding", {pb::VarType::INT64, {1}});
  const std::string chosen = Temporary("chosen", row), factor = Temporary("factor", row);
  const std::string factors = Temporary("factors", column);
  Add("fill_constant", {}, {{"Out", {index}}})
      .Longs("shape", {1})
      .Int("dtype", pb::VarType::INT64)
      .Float("value", static_cast<double>(padding))
      .Text("str_value", absl::StrCat(padding));
  Add("one_hot_v2", {{"X", {index}}}, {{"Out", {chosen}}})
      .Int("depth", rows)
      .Int("dtype", table.dtype);
  Add("scale", {{"X", {chosen}}}, {{"Out", {factor}}})
      .Float("scale", -1)
      .Float("bias", 1)
      .Bool("bias_after_scale", true);
  Add("reshape2", {{"X", {factor}}}, {{"Out", {factors}}}).Ints("shape", column.dims);
  Add("elementwise_mul", {{"X", {out}}, {"Y", {factors}}}, {{"Out", {Output(node.outputs[0])}}})
      .Int("axis", -1);
  return absl::OkStatus();
}

// --- Normalizations

namespace {

// Of the rows that are normalized, one number each.
TensorMeta RowsOf(const TensorMeta& meta) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < meta.dims.size(); ++i) {
    rows = rows < 0 || meta.dims[i] < 0 ? -1 : rows * meta.dims[i];
  }
  return {pb::VarType::FP32, {rows}};
}

}  // namespace

Slots Translator::NormGradOutputs(const Node& node) {
  constexpr absl::string_view kSlots[] = {"X@GRAD", "Scale@GRAD", "Bias@GRAD"};
  Slots outputs;
  for (size_t i = 0; i < 3; ++i) {
    if (!node.outputs[i].empty()) outputs.push_back({kSlots[i], {Output(node.outputs[i])}});
  }
  return outputs;
}

// Over the last axis. PyTorch keeps the inverse of the deviation, Paddle the variance.
absl::Status Translator::LayerNorm(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const auto shape, node.Ints("normalized_shape", absl::nullopt));
  if (shape.size() != 1) return node.ArgumentError("normalized_shape", "the size of the last axis");
  WEFT_ASSIGN_OR_RETURN(const double epsilon, node.Number("eps"));
  WEFT_ASSIGN_OR_RETURN(const std::string input, node.Tensor("input"));
  const TensorMeta& meta = MetaOf(input);
  if (meta.dtype != pb::VarType::FP32 || meta.dims.empty()) {
    return node.ArgumentError("input", "fp32, of one axis or more");
  }
  Slots inputs;
  for (const auto& [slot, argument] : {std::make_pair("Bias", "bias"), {"Scale", "weight"}}) {
    if (!node.Has(argument)) continue;
    WEFT_ASSIGN_OR_RETURN(const std::string var, Var(node, argument));
    inputs.push_back({slot, {var}});
  }
  inputs.push_back({"X", {VarOf(input)}});
  Slots outputs;
  outputs.push_back({"Mean", {Output(node.outputs[1], RowsOf(meta))}});
  outputs.push_back({"Variance", {Output(node.outputs[2], RowsOf(meta))}});
  outputs.push_back({"Y", {Output(node.outputs[0])}});
  Add("layer_norm", inputs, outputs)
      .Float("epsilon", epsilon)
      .Int("begin_norm_axis", static_cast<int64_t>(meta.dims.size()) - 1);
  return absl::OkStatus();
}

absl::Status Translator::LayerNormGrad(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const std::string grad, Var(node, "grad_out"));
  WEFT_ASSIGN_OR_RETURN(const std::string input, node.Tensor("input"));
  WEFT_ASSIGN_OR_RETURN(const std::string mean, Var(node, "mean"));
  WEFT_ASSIGN_OR_RETURN(const std::string variance, Var(node, "rstd"));
  WEFT_ASSIGN_OR_RETURN(const std::string of_variance, node.Tensor("rstd"));
  const Node* const norm = makers_.Of(of_variance);
  if (norm == nullptr || norm->target != "aten.native_layer_norm.default") {
    return node.Error("expected the gradient of a native_layer_norm");
  }
  WEFT_ASSIGN_OR_RETURN(const double epsilon, norm->Number("eps"));
  Slots inputs;
  for (const auto& [slot, argument] : {std::make_pair("Bias", "bias"), {"Scale", "weight"}}) {
    if (!node.Has(argument)) continue;
    WEFT_ASSIGN_OR_RETURN(const std::string var, Var(node, argument));
    inputs.push_back({slot, {var}});
  }
  inputs.insert(
      inputs.end(),
      {{"Mean", {mean}}, {"Variance", {variance}}, {"X", {VarOf(input)}}, {"Y@GRAD", {grad}}});
  Add("layer_norm_grad", inputs, NormGradOutputs(node))
      .Float("epsilon", epsilon)
      .Int("begin_norm_axis", static_cast<int64_t>(MetaOf(input).dims.size()) - 1);
  return absl::OkStatus();
}

absl::Status Translator::GroupNorm(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const int64_t groups, node.Int("group"));
  WEFT_ASSIGN_OR_RETURN(const double epsilon, node.Number("eps"));
  Slots inputs;
  for (const auto& [slot, argument] :
       {std::make_pair("Bias", "bias"), {"Scale", "weight"}, {"X", "input"}}) {
    WEFT_ASSIGN_OR_RETURN(const std::string var, Var(node, argument));
    inputs.push_back({slot, {var}});
  }
  Add("group_norm", inputs,
      {{"Mean", {Output(node.outputs[1])}},
       {"Variance", {Output(node.outputs[2])}},
       {"Y", {Output(node.outputs[0])}}})
      .Float("epsilon", epsilon)
      .Int("groups", groups);
  return absl::OkStatus();
}

absl::Status Translator::GroupNormGrad(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const std::string deviation, node.Tensor("rstd"));
  const Node* const norm = makers_.Of(deviation);
  if (norm == nullptr || norm->target != "aten.native_group_norm.default") {
    return node.Error("expected the gradient of a native_group_norm");
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t groups, norm->Int("group"));
  WEFT_ASSIGN_OR_RETURN(const double epsilon, norm->Number("eps"));
  WEFT_ASSIGN_OR_RETURN(const std::string bias, Var(*norm, "bias"));
  Slots inputs = {{"Bias", {bias}}};
  for (const auto& [slot, argument] : {std::make_pair("Mean", "mean"),
                                       {"Scale", "weight"},
                                       {"Variance", "rstd"},
                                       {"X", "input"}}) {
    WEFT_ASSIGN_OR_RETURN(const std::string var, Var(node, argument));
    inputs.push_back({slot, {var}});
  }
  WEFT_ASSIGN_OR_RETURN(const std::string grad, Var(node, "grad_out"));
  inputs.insert(inputs.end(), {{"Y", {VarOf(norm->outputs[0])}}, {"Y@GRAD", {grad}}});
  Add("group_norm_grad", inputs, NormGradOutputs(node))
      .Float("epsilon", epsilon)
      .Int("groups", groups);
  return absl::OkStatus();
}

// Writes the running statistics, which are buffers, where PyTorch makes new ones that the step
// leaves in the buffers.
absl::Status Translator::BatchNorm(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const bool trains, node.Bool("training", absl::nullopt));
  if (!trains) return node.ArgumentError("training", "true");
  WEFT_ASSIGN_OR_RETURN(const double momentum, node.Number("momentum"));
  WEFT_ASSIGN_OR_RETURN(const double epsilon, node.Number("eps"));
  Slots inputs;
  for (const auto& [slot, argument] : {std::make_pair("Bias", "bias"), {"Scale", "weight"}}) {
    WEFT_ASSIGN_OR_RETURN(const std::string var, Var(node, argument));
    inputs.push_back({slot, {var}});
  }
  const auto running = {std::make_pair("running_mean", size_t{3}), {"running_var", size_t{4}}};
  std::vector<std::string> buffers;
  for (const auto& [argument, output] : running) {
    WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor(argument));
    const std::string var = VarOf(value);
    const auto left = graph_.mutations.find(var);
    if (left == graph_.mutations.end() ||
        makers_.Origin(left->second) != makers_.Origin(node.outputs[output]) ||
        readers_[makers_.Origin(value)].size() != 1) {
      return node.ArgumentError(
          argument,
          "a buffer that this normalization alone reads, and that the step leaves with "
          "its new value");
    }
    written_.insert(var);
    vars_[makers_.Origin(node.outputs[output])] = var;
    buffers.push_back(var);
  }
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "input"));
  inputs.insert(inputs.end(), {{"Mean", {buffers[0]}}, {"Variance", {buffers[1]}}, {"X", {x}}});
  Add("batch_norm", inputs,
      {{"MeanOut", {buffers[0]}},
       {"SavedMean", {Output(node.outputs[1])}},
       {"SavedVariance", {Output(node.outputs[2])}},
       {"VarianceOut", {buffers[1]}},
       {"Y", {Output(node.outputs[0])}}})
      .Float("momentum", 1 - momentum)
      .Float("epsilon", epsilon)
      .Bool("unbiased_variance", true);
  return absl::OkStatus();
}

absl::Status Translator::BatchNormGrad(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const bool trains, node.Bool("train", absl::nullopt));
  if (!trains) return node.ArgumentError("train", "true");
  WEFT_ASSIGN_OR_RETURN(const double epsilon, node.Number("eps"));
  WEFT_ASSIGN_OR_RETURN(const std::string deviation, node.Tensor("save_invstd"));
  const Node* const norm = makers_.Of(deviation);
  if (norm == nullptr || norm->target != "aten._native_batch_norm_legit_functional.default") {
    return node.Error("expected the gradient of a batch norm of the step");
  }
  // The gradient does not need it; analyses find the op by it.
  WEFT_ASSIGN_OR_RETURN(const double momentum, norm->Number("momentum"));
  Slots inputs;
  for (const auto& [slot, argument] : {std::make_pair("SavedMean", "save_mean"),
                                       {"SavedVariance", "save_invstd"},
                                       {"Scale", "weight"},
                                       {"X", "input"},
                                       {"Y@GRAD", "grad_out"}}) {
    WEFT_ASSIGN_OR_RETURN(const std::string var, Var(node, argument));
    inputs.push_back({slot, {var}});
  }
  Add("batch_norm_grad", inputs, NormGradOutputs(node))
      .Float("momentum", 1 - momentum)
      .Float("epsilon", epsilon);
  return absl::OkStatus();
}

// --- Attention: softmax(factor query keyᵀ + mask) value, [batch, heads, length, size]

absl::StatusOr<Translator::AttentionTerms> Translator::TermsOf(const Node& node) {
  AttentionTerms terms;
  WEFT_ASSIGN_OR_RETURN(const double dropout, node.Number("dropout_p", 0));
  if (dropout != 0) return node.ArgumentError("dropout_p", "0");
  WEFT_ASSIGN_OR_RETURN(terms.is_causal, node.Bool("is_causal", false));
  WEFT_ASSIGN_OR_RETURN(terms.query, node.Tensor("query"));
  WEFT_ASSIGN_OR_RETURN(terms.key, node.Tensor("key"));
  WEFT_ASSIGN_OR_RETURN(terms.value, node.Tensor("value"));
  const TensorMeta &query = MetaOf(terms.query), &key = MetaOf(terms.key);
  if (query.dims.size() != 4 || key.dims.size() != 4 || query.dims[3] <= 0 ||
      query.dims[1] != key.dims[1]) {
    return node.Error(
        "expected query, key and value of as many heads, [batch, heads, length, size]");
  }
  WEFT_ASSIGN_OR_RETURN(terms.factor, node.Number("scale", 1 / std::sqrt(query.dims[3])));
  terms.scores = query;
  terms.scores.dims[3] = key.dims[2];
  terms.scores.sizes[3] = key.sizes[2];
  return terms;
}

// Zero up to the diagonal, and so low beyond that the exponential is 0.
absl::StatusOr<std::string> Translator::CausalMask(const Node& node, int64_t length) {
  std::string& mask = causal_masks_[length];
  if (!mask.empty()) return mask;
  if (length <= 0) return node.Error("expected a sequence of a known length");
  const TensorMeta meta = {pb::VarType::FP32, {length, length}};
  const std::string all = Temporary("low", meta);
  Add("fill_constant", {}, {{"Out", {all}}})
      .Longs("shape", meta.dims)
      .Int("dtype", meta.dtype)
      .Float("value", -1e30)
      .Text("str_value", "-1e30");
  mask = Temporary("mask", meta);
  Add("tril_triu", {{"X", {all}}}, {{"Out", {mask}}}).Int("diagonal", 1).Bool("lower", false);
  return mask;
}

absl::Status Translator::Attention(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const AttentionTerms terms, TermsOf(node));
  if (terms.scores.dtype != pb::VarType::FP32) return node.ArgumentError("query", "fp32");
  const std::string products = Temporary("products", terms.scores);
  std::string scores = Temporary("scores", terms.scores);
  Add("matmul_v2", {{"X", {VarOf(terms.query)}}, {"Y", {VarOf(terms.key)}}}, {{"Out", {products}}})
      .Bool("trans_x", false)
      .Bool("trans_y", true);
  WEFT_RETURN_IF_ERROR(MultiplyBy(node, products, "query", terms.factor, 0, scores));
  std::vector<std::string> masks;
  if (terms.is_causal) {
    if (terms.scores.dims[2] != terms.scores.dims[3]) {
      return node.ArgumentError("is_causal", "false where query and key differ in length");
    }
    WEFT_ASSIGN_OR_RETURN(masks.emplace_back(), CausalMask(node, terms.scores.dims[2]));
  }
  if (node.Has("attn_mask")) {
    WEFT_ASSIGN_OR_RETURN(masks.emplace_back(), Var(node, "attn_mask"));
  }
  for (const std::string& mask : masks) {
    const std::string masked = Temporary("masked", terms.scores);
    Add("elementwise_add", {{"X", {scores}}, {"Y", {mask}}}, {{"Out", {masked}}}).Int("axis", -1);
    scores = masked;
  }
  const std::string probabilities = Temporary("probabilities", terms.scores);
  Add("softmax", {{"X", {scores}}}, {{"Out", {probabilities}}}).Int("axis", -1);
  Add("matmul_v2", {{"X", {probabilities}}, {"Y", {VarOf(terms.value)}}},
      {{"Out", {Output(node.outputs[0])}}})
      .Bool("trans_x", false)
      .Bool("trans_y", false);
  probabilities_[node.outputs[1]] = probabilities;
  return absl::OkStatus();
}

absl::Status Translator::AttentionGrad(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const AttentionTerms terms, TermsOf(node));
  WEFT_ASSIGN_OR_RETURN(const std::string kept, node.Tensor("logsumexp"));
  const auto found = probabilities_.find(makers_.Origin(kept));
  if (found == probabilities_.end()) return node.Error("expected the gradient of an attention");
  WEFT_ASSIGN_OR_RETURN(const std::string grad, Var(node, "grad_out"));
  const auto output = [&](size_t i, const std::string& like) {
    return node.outputs[i].empty() ? Temporary(absl::StrCat("unused_", i), MetaOf(like))
                                   : Output(node.outputs[i]);
  };
  const std::string& probabilities = found->second;
  const std::string of_probabilities = Temporary("probabilities", terms.scores);
  const std::string of_scores = Temporary("scores", terms.scores);
  const std::string of_products = Temporary("products", terms.scores);
  Add("matmul_v2_grad", {{"Out@GRAD", {grad}}, {"X", {probabilities}}, {"Y", {VarOf(terms.value)}}},
      {{"X@GRAD", {of_probabilities}}, {"Y@GRAD", {output(2, terms.value)}}})
      .Bool("trans_x", false)
      .Bool("trans_y", false);
  Add("softmax_grad", {{"Out", {probabilities}}, {"Out@GRAD", {of_probabilities}}},
      {{"X@GRAD", {of_scores}}})
      .Int("axis", -1);
  WEFT_RETURN_IF_ERROR(MultiplyBy(node, of_scores, "query", terms.factor, 0, of_products));
  Add("matmul_v2_grad",
      {{"Out@GRAD", {of_products}}, {"X", {VarOf(terms.query)}}, {"Y", {VarOf(terms.key)}}},
      {{"X@GRAD", {output(0, terms.query)}}, {"Y@GRAD", {output(1, terms.key)}}})
      .Bool("trans_x", false)
      .Bool("trans_y", true);
  return absl::OkStatus();
}

// --- Dropout, of other numbers than PyTorch draws

absl::Status Translator::Dropout(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const double p, node.Number("p"));
  WEFT_ASSIGN_OR_RETURN(const bool trains, node.Bool("train", true));
  if (!trains || p < 0 || p >= 1) return node.Error("expected training, with 0 <= p < 1");
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "input"));
  const TensorMeta mask = {pb::VarType::UINT8, MetaOf(node.outputs[0]).dims};
  Add("dropout", {{"X", {x}}},
      {{"Mask", {Output(node.outputs[1], mask)}}, {"Out", {Output(node.outputs[0])}}})
      .Float("dropout_prob", p)
      .Text("dropout_implementation", "upscale_in_train")
      .Bool("is_test", false);
  return absl::OkStatus();
}

absl::Status Translator::DropoutGrad(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const double scale, node.Number("scale"));
  WEFT_ASSIGN_OR_RETURN(const std::string grad, Var(node, "grad_output"));
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("mask"));
  const Node* const dropout = makers_.Of(value);
  if (dropout == nullptr || dropout->target != "aten.native_dropout.default") {
    return node.Error("expected the gradient of a native_dropout");
  }
  WEFT_ASSIGN_OR_RETURN(const double p, dropout->Number("p"));
  if (std::abs(scale * (1 - p) - 1) > 1e-12) return node.ArgumentError("scale", "1 / (1 - p)");
  Add("dropout_grad", {{"Mask", {VarOf(value)}}, {"Out@GRAD", {grad}}},
      {{"X@GRAD", {Output(node.outputs[0])}}})
      .Float("dropout_prob", p)
      .Text("dropout_implementation", "upscale_in_train")
      .Bool("is_test", false);
  return absl::OkStatus();
}

}  // namespace weft::pt2
