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
  WEFT_ASSIGN_OR_RETURN(const std::string weight, LikeTable(node));  // of which the shape counts
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

// The parameter of which output 0 is the gradient, or else what has its shape, which alone counts.
absl::StatusOr<std::string> Translator::LikeTable(const Node& node) const {
  const auto param = param_of_part_.find(node.outputs[0]);
  return param == param_of_part_.end() ? LikeOutput(node) : param->second;
}

// Bags of one size: indices in rows, where PyTorch has all of them in one, and counts the
// beginnings of bags.
absl::Status Translator::EmbeddingBag(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string indices, node.Tensor("indices"));
  WEFT_ASSIGN_OR_RETURN(const std::string offsets, node.Tensor("offsets"));
  const Node* const view = makers_.Of(indices);
  const Node* const range = makers_.Of(offsets);
  const bool is_view = view != nullptr && (view->target == "aten.view.default" ||
                                           view->target == "aten._unsafe_view.default");
  const bool is_range = range != nullptr && range->target == "aten.arange.start_step";
  const absl::Status error =
      node.Error("expected bags of one size: indices of two axes, without offsets");
  if (!is_view || !is_range) return error;
  WEFT_ASSIGN_OR_RETURN(const std::string rows, view->Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(const int64_t start, range->Int("start", 0));
  WEFT_ASSIGN_OR_RETURN(const int64_t step, range->Int("step", 1));
  WEFT_ASSIGN_OR_RETURN(const bool has_end, node.Bool("include_last_offset", false));
  const TensorMeta& ids = MetaOf(rows);
  const TensorMeta& out = MetaOf(node.outputs[0]);
  if (ids.dims.size() != 2 || out.dims.size() != 2 || ids.dims[1] != step || start != 0 ||
      has_end || out.sizes[0] != ids.sizes[0]) {
    return error;
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t mode, node.Int("mode", 0));
  WEFT_ASSIGN_OR_RETURN(const int64_t padding, node.Int("padding_idx", -1));
  if (mode != 0 && mode != 1) return node.ArgumentError("mode", "0 or 1: sum or mean");
  if (padding >= 0) return node.ArgumentError("padding_idx", "none");
  if (node.Has("per_sample_weights")) return node.ArgumentError("per_sample_weights", "none");
  WEFT_ASSIGN_OR_RETURN(const std::string weight, Var(node, "weight"));
  TensorMeta found = out;
  found.dims.insert(found.dims.begin() + 1, step);
  found.sizes.insert(found.sizes.begin() + 1, ids.sizes[1]);
  const Bag bag = {VarOf(rows), Temporary("rows", found), found,
                   mode == 0 ? "reduce_sum" : "reduce_mean"};
  Add("lookup_table_v2", {{"Ids", {bag.ids}}, {"W", {weight}}}, {{"Out", {bag.rows}}})
      .Long("padding_idx", -1);
  Add(bag.reduction, {{"X", {bag.rows}}}, {{"Out", {Output(node.outputs[0])}}})
      .Ints("dim", {1})
      .Bool("keep_dim", false)
      .Bool("reduce_all", false);
  bags_[node.outputs[1]] = bag;
  return absl::OkStatus();
}

absl::Status Translator::EmbeddingBagGrad(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string key, node.Tensor("offset2bag"));
  const auto found = bags_.find(makers_.Origin(key));
  if (found == bags_.end()) return node.Error("expected the gradient of an embedding bag");
  for (const char* option : {"sparse", "scale_grad_by_freq"}) {
    WEFT_ASSIGN_OR_RETURN(const bool is_set, node.Bool(option, false));
    if (is_set) return node.ArgumentError(option, "false");
  }
  const Bag& bag = found->second;
  WEFT_ASSIGN_OR_RETURN(const std::string gradient, Var(node, "grad"));
  WEFT_ASSIGN_OR_RETURN(const std::string weight, LikeTable(node));
  const std::string of_rows = Temporary("rows", bag.meta);
  Add(absl::StrCat(bag.reduction, "_grad"), {{"Out@GRAD", {gradient}}, {"X", {bag.rows}}},
      {{"X@GRAD", {of_rows}}})
      .Ints("dim", {1})
      .Bool("keep_dim", false)
      .Bool("reduce_all", false);
  Add("lookup_table_v2_grad", {{"Ids", {bag.ids}}, {"Out@GRAD", {of_rows}}, {"W", {weight}}},
      {{"W@GRAD", {Output(node.outputs[0])}}})
      .Long("padding_idx", -1);
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
  return {meta.dtype, {rows}};
}

}  // namespace

// They compute in fp32; PyTorch gives them inputs of lower precision beside parameters of fp32.
absl::StatusOr<Slots> Translator::NormInputs(
    const Node& node, std::vector<std::pair<absl::string_view, absl::string_view>> arguments) {
  Slots inputs;
  for (const auto& [slot, argument] : arguments) {
    if (!node.Has(argument)) continue;
    WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor(argument));
    inputs.push_back({slot, {InFloat(value)}});
  }
  return inputs;
}

// Of outputs 0 to 2 those that there are; FinishOutputs must follow.
Slots Translator::NormGradOutputs(const Node& node) {
  constexpr absl::string_view kSlots[] = {"X@GRAD", "Scale@GRAD", "Bias@GRAD"};
  Slots outputs;
  for (size_t i = 0; i < 3; ++i) {
    if (node.outputs[i].empty()) continue;
    outputs.push_back({kSlots[i], {FloatOutput(node, i, node.outputs[i])}});
  }
  return outputs;
}

// Of half precision in some files, although PyTorch, too, has them in fp32.
std::string Translator::Statistics(const Node& node, size_t i, TensorMeta meta) {
  meta.dtype = AtLeastFloat(meta.dtype);
  return converted_[{node.outputs[i], meta.dtype}] = Output(node.outputs[i], meta);
}

void Translator::FinishOutputs(const Node& node, const Slots& outputs) {
  auto output = outputs.begin();
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].empty()) FinishOutput(node, i, (output++)->second[0]);
  }
}

absl::StatusOr<const Node*> Translator::NormOf(const Node& node, absl::string_view argument,
                                               absl::string_view target) const {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor(argument));
  const Node* const norm = makers_.Of(value);
  if (norm != nullptr && norm->target == target) return norm;
  return node.Error(absl::StrCat("expected the gradient of an ", target));
}

// Over the last axis. PyTorch keeps the inverse of the deviation, Paddle the variance.
absl::Status Translator::LayerNorm(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const auto shape, node.Ints("normalized_shape", absl::nullopt));
  if (shape.size() != 1) return node.ArgumentError("normalized_shape", "the size of the last axis");
  WEFT_ASSIGN_OR_RETURN(const double epsilon, node.Number("eps"));
  WEFT_ASSIGN_OR_RETURN(const std::string input, node.Tensor("input"));
  const TensorMeta& meta = MetaOf(input);
  if (AtLeastFloat(meta.dtype) != pb::VarType::FP32 || meta.dims.empty()) {
    return node.ArgumentError("input", "fp32 or bf16, of one axis or more");
  }
  WEFT_ASSIGN_OR_RETURN(const Slots inputs,
                        NormInputs(node, {{"Bias", "bias"}, {"Scale", "weight"}, {"X", "input"}}));
  const std::string out = FloatOutput(node, 0, node.outputs[0]);
  Add("layer_norm", inputs,
      {{"Mean", {Statistics(node, 1, RowsOf(meta))}},
       {"Variance", {Statistics(node, 2, RowsOf(meta))}},
       {"Y", {out}}})
      .Float("epsilon", epsilon)
      .Int("begin_norm_axis", static_cast<int64_t>(meta.dims.size()) - 1);
  FinishOutput(node, 0, out);
  return absl::OkStatus();
}

absl::Status Translator::LayerNormGrad(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const Node* const norm,
                        NormOf(node, "rstd", "aten.native_layer_norm.default"));
  WEFT_ASSIGN_OR_RETURN(const double epsilon, norm->Number("eps"));
  WEFT_ASSIGN_OR_RETURN(const Slots inputs, NormInputs(node, {{"Bias", "bias"},
                                                              {"Scale", "weight"},
                                                              {"Mean", "mean"},
                                                              {"Variance", "rstd"},
                                                              {"X", "input"},
                                                              {"Y@GRAD", "grad_out"}}));
  WEFT_ASSIGN_OR_RETURN(const std::string input, node.Tensor("input"));
  const Slots outputs = NormGradOutputs(node);
  Add("layer_norm_grad", inputs, outputs)
      .Float("epsilon", epsilon)
      .Int("begin_norm_axis", static_cast<int64_t>(MetaOf(input).dims.size()) - 1);
  FinishOutputs(node, outputs);
  return absl::OkStatus();
}

absl::Status Translator::GroupNorm(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const int64_t groups, node.Int("group"));
  WEFT_ASSIGN_OR_RETURN(const double epsilon, node.Number("eps"));
  WEFT_ASSIGN_OR_RETURN(const Slots inputs,
                        NormInputs(node, {{"Bias", "bias"}, {"Scale", "weight"}, {"X", "input"}}));
  const std::string out = FloatOutput(node, 0, node.outputs[0]);
  Add("group_norm", inputs,
      {{"Mean", {Statistics(node, 1, MetaOf(node.outputs[1]))}},
       {"Variance", {Statistics(node, 2, MetaOf(node.outputs[2]))}},
       {"Y", {out}}})
      .Float("epsilon", epsilon)
      .Int("groups", groups);
  FinishOutput(node, 0, out);
  return absl::OkStatus();
}

absl::Status Translator::GroupNormGrad(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const Node* const norm,
                        NormOf(node, "rstd", "aten.native_group_norm.default"));
  WEFT_ASSIGN_OR_RETURN(const int64_t groups, norm->Int("group"));
  WEFT_ASSIGN_OR_RETURN(const double epsilon, norm->Number("eps"));
  WEFT_ASSIGN_OR_RETURN(Slots inputs, NormInputs(*norm, {{"Bias", "bias"}}));
  WEFT_ASSIGN_OR_RETURN(const Slots others, NormInputs(node, {{"Mean", "mean"},
                                                              {"Scale", "weight"},
                                                              {"Variance", "rstd"},
                                                              {"X", "input"},
                                                              {"Y@GRAD", "grad_out"}}));
  inputs.insert(inputs.end(), others.begin(), others.end());
  inputs.push_back({"Y", {InFloat(norm->outputs[0])}});
  const Slots outputs = NormGradOutputs(node);
  Add("group_norm_grad", inputs, outputs).Float("epsilon", epsilon).Int("groups", groups);
  FinishOutputs(node, outputs);
  return absl::OkStatus();
}

// Writes the running statistics, which are buffers, where PyTorch makes new ones that the step
// leaves in the buffers.
absl::Status Translator::BatchNorm(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const bool trains, node.Bool("training", absl::nullopt));
  if (!trains) return node.ArgumentError("training", "true");
  WEFT_ASSIGN_OR_RETURN(const double momentum, node.Number("momentum"));
  WEFT_ASSIGN_OR_RETURN(const double epsilon, node.Number("eps"));
  const auto running = {std::make_pair("running_mean", size_t{3}), {"running_var", size_t{4}}};
  std::vector<std::string> buffers;
  for (const auto& [argument, output] : running) {
    WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor(argument));
    const std::string var = VarOf(value);
    const auto left = graph_.mutations.find(var);
    const std::string updated = makers_.Origin(node.outputs[output]);
    const bool is_last = left != graph_.mutations.end() && makers_.Origin(left->second) == updated;
    // Micro-batches share the buffers: each one's normalization reads what the one before left.
    const auto next = readers_.find(updated);
    const bool has_next = next != readers_.end() && next->second.size() == 1 &&
                          next->second[0]->target == node.target;
    if (left == graph_.mutations.end() || is_last == has_next ||
        readers_[makers_.Origin(value)].size() != 1) {
      return node.ArgumentError(
          argument,
          "a buffer that this normalization alone reads, and that the step leaves with "
          "its new value");
    }
    written_.insert(var);
    vars_[updated] = var;
    buffers.push_back(var);
  }
  WEFT_ASSIGN_OR_RETURN(Slots inputs,
                        NormInputs(node, {{"Bias", "bias"}, {"Scale", "weight"}, {"X", "input"}}));
  inputs.insert(inputs.end(), {{"Mean", {buffers[0]}}, {"Variance", {buffers[1]}}});
  const std::string out = FloatOutput(node, 0, node.outputs[0]);
  Add("batch_norm", inputs,
      {{"MeanOut", {buffers[0]}},
       {"SavedMean", {Statistics(node, 1, MetaOf(node.outputs[1]))}},
       {"SavedVariance", {Statistics(node, 2, MetaOf(node.outputs[2]))}},
       {"VarianceOut", {buffers[1]}},
       {"Y", {out}}})
      .Float("momentum", 1 - momentum)
      .Float("epsilon", epsilon)
      .Bool("unbiased_variance", true);
  FinishOutput(node, 0, out);
  return absl::OkStatus();
}

absl::Status Translator::BatchNormGrad(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const bool trains, node.Bool("train", absl::nullopt));
  if (!trains) return node.ArgumentError("train", "true");
  WEFT_ASSIGN_OR_RETURN(const double epsilon, node.Number("eps"));
  WEFT_ASSIGN_OR_RETURN(
      const Node* const norm,
      NormOf(node, "save_invstd", "aten._native_batch_norm_legit_functional.default"));
  // The gradient needs neither momentum nor bias; analyses find the op by these.
  WEFT_ASSIGN_OR_RETURN(const double momentum, norm->Number("momentum"));
  WEFT_ASSIGN_OR_RETURN(Slots inputs, NormInputs(*norm, {{"Bias", "bias"}}));
  WEFT_ASSIGN_OR_RETURN(const Slots others, NormInputs(node, {{"SavedMean", "save_mean"},
                                                              {"SavedVariance", "save_invstd"},
                                                              {"Scale", "weight"},
                                                              {"X", "input"},
                                                              {"Y@GRAD", "grad_out"}}));
  inputs.insert(inputs.end(), others.begin(), others.end());
  const Slots outputs = NormGradOutputs(node);
  Add("batch_norm_grad", inputs, outputs).Float("momentum", 1 - momentum).Float("epsilon", epsilon);
  FinishOutputs(node, outputs);
  return absl::OkStatus();
}

// --- Attention: softmax(factor query keyᵀ + mask) value, [batch, heads, length, size]
// As PyTorch does, all of it is computed in fp32.

// Of the shape of a value, before FinishOutput.
std::string Translator::FloatOutput(const Node& node, size_t i, const std::string& like) {
  const std::string& value = node.outputs[i];
  TensorMeta meta = MetaOf(like);
  const pb::VarType::Type dtype = AtLeastFloat(meta.dtype);
  if (!value.empty() && meta.dtype == dtype) return Output(value);
  meta.dtype = dtype;
  return Temporary(absl::StrCat("output_", i), meta);
}

void Translator::FinishOutput(const Node& node, size_t i, const std::string& var) {
  const std::string& value = node.outputs[i];
  if (value.empty()) return;
  const pb::VarType::Type dtype = MetaOf(value).dtype, from = AtLeastFloat(dtype);
  if (from != dtype) Cast(var, from, Output(value), dtype);
}

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
  if (query.dtype != pb::VarType::FP32 && query.dtype != pb::VarType::BF16) {
    return node.ArgumentError("query", "fp32 or bf16");
  }
  terms.scores = query;
  terms.scores.dtype = pb::VarType::FP32;
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
  const std::string products = Temporary("products", terms.scores);
  std::string scores = Temporary("scores", terms.scores);
  Add("matmul_v2", {{"X", {InFloat(terms.query)}}, {"Y", {InFloat(terms.key)}}},
      {{"Out", {products}}})
      .Bool("trans_x", false)
      .Bool("trans_y", true);
  WEFT_RETURN_IF_ERROR(MultiplyBy(node, products, terms.factor, 0, scores));
  std::vector<std::string> masks;
  if (terms.is_causal) {
    if (terms.scores.dims[2] != terms.scores.dims[3]) {
      return node.ArgumentError("is_causal", "false where query and key differ in length");
    }
    WEFT_ASSIGN_OR_RETURN(masks.emplace_back(), CausalMask(node, terms.scores.dims[2]));
  }
  if (node.Has("attn_mask")) {
    WEFT_ASSIGN_OR_RETURN(const std::string mask, node.Tensor("attn_mask"));
    masks.push_back(InFloat(mask));
  }
  for (const std::string& mask : masks) {
    const std::string masked = Temporary("masked", terms.scores);
    Add("elementwise_add", {{"X", {scores}}, {"Y", {mask}}}, {{"Out", {masked}}}).Int("axis", -1);
    scores = masked;
  }
  const std::string probabilities = Temporary("probabilities", terms.scores);
  Add("softmax", {{"X", {scores}}}, {{"Out", {probabilities}}}).Int("axis", -1);
  const std::string value = InFloat(terms.value), out = FloatOutput(node, 0, node.outputs[0]);
  Add("matmul_v2", {{"X", {probabilities}}, {"Y", {value}}}, {{"Out", {out}}})
      .Bool("trans_x", false)
      .Bool("trans_y", false);
  FinishOutput(node, 0, out);
  probabilities_[node.outputs[1]] = probabilities;
  return absl::OkStatus();
}

absl::Status Translator::AttentionGrad(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const AttentionTerms terms, TermsOf(node));
  WEFT_ASSIGN_OR_RETURN(const std::string kept, node.Tensor("logsumexp"));
  const auto found = probabilities_.find(makers_.Origin(kept));
  if (found == probabilities_.end()) return node.Error("expected the gradient of an attention");
  WEFT_ASSIGN_OR_RETURN(const std::string of_out, node.Tensor("grad_out"));
  const std::string grad = InFloat(of_out), value = InFloat(terms.value);
  const std::string query = InFloat(terms.query), key = InFloat(terms.key);
  const std::string of_query = FloatOutput(node, 0, terms.query);
  const std::string of_key = FloatOutput(node, 1, terms.key);
  const std::string of_value = FloatOutput(node, 2, terms.value);
  const std::string& probabilities = found->second;
  const std::string of_probabilities = Temporary("probabilities", terms.scores);
  const std::string of_scores = Temporary("scores", terms.scores);
  const std::string of_products = Temporary("products", terms.scores);
  Add("matmul_v2_grad", {{"Out@GRAD", {grad}}, {"X", {probabilities}}, {"Y", {value}}},
      {{"X@GRAD", {of_probabilities}}, {"Y@GRAD", {of_value}}})
      .Bool("trans_x", false)
      .Bool("trans_y", false);
  Add("softmax_grad", {{"Out", {probabilities}}, {"Out@GRAD", {of_probabilities}}},
      {{"X@GRAD", {of_scores}}})
      .Int("axis", -1);
  WEFT_RETURN_IF_ERROR(MultiplyBy(node, of_scores, terms.factor, 0, of_products));
  Add("matmul_v2_grad", {{"Out@GRAD", {of_products}}, {"X", {query}}, {"Y", {key}}},
      {{"X@GRAD", {of_query}}, {"Y@GRAD", {of_key}}})
      .Bool("trans_x", false)
      .Bool("trans_y", true);
  FinishOutput(node, 0, of_query);
  FinishOutput(node, 1, of_key);
  FinishOutput(node, 2, of_value);
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
