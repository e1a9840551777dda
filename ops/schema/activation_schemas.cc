// Functions of one tensor, element by element, and their gradients. A new one is a row of the
// table; its formulas are a row in ops/cpu/activation.cc.
#include <utility>
#include <vector>

#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// What a gradient is computed from, besides that of the output.
enum class GradReads { kNothing, kX, kOut, kBoth };

struct Row {
  const char* type;
  GradReads grad_reads;
  std::vector<std::pair<const char*, AttrValue>> attrs;
};

OpSchema WithAttrs(OpSchema schema, const Row& row) {
  for (const auto& attr : row.attrs) {
    std::move(schema).Attr(attr.first, attr.second);
  }
  return std::move(schema).With(Trait::kElementwise).With(Trait::kRowSplittable);
}

OpSchema Forward(const Row& row) {
  return WithAttrs(OpSchema(row.type), row).In("X").Out("Out").Infer(OutputsLike("X"));
}

OpSchema Grad(const Row& row) {
  const bool reads_out = row.grad_reads == GradReads::kOut || row.grad_reads == GradReads::kBoth;
  const bool reads_x = row.grad_reads == GradReads::kX || row.grad_reads == GradReads::kBoth;
  OpSchema schema = WithAttrs(OpSchema(std::string(row.type) + "_grad"), row);
  if (reads_out) std::move(schema).In("Out");
  std::move(schema).In("Out@GRAD");
  if (reads_x) std::move(schema).In("X");
  std::vector<OpSchema::InferFn> checks;
  if (reads_x) checks.push_back(SameType("X", "Out@GRAD"));
  if (reads_out) checks.push_back(SameType("Out", "Out@GRAD"));
  checks.push_back(OutputsLike(reads_x ? "X" : reads_out ? "Out" : "Out@GRAD"));
  return std::move(schema).Out("X@GRAD").Infer(InOrder(std::move(checks)));
}

std::vector<Row> Rows() {
  constexpr GradReads kNothing = GradReads::kNothing, kX = GradReads::kX, kOut = GradReads::kOut;
  constexpr GradReads kBoth = GradReads::kBoth;
  return {
      {"abs", kX, {}},
      {"acos", kX, {}},
      {"acosh", kX, {}},
      {"asin", kX, {}},
      {"asinh", kX, {}},
      {"atan", kX, {}},
      {"atanh", kX, {}},
      {"brelu", kX, {{"t_max", 24.0f}, {"t_min", 0.0f}}},
      {"ceil", kNothing, {}},
      {"celu", kX, {{"alpha", 1.0f}}},
      {"cos", kX, {}},
      {"cosh", kX, {}},
      {"digamma", kX, {}},
      {"elu", kBoth, {{"alpha", 1.0f}}},
      {"erf", kX, {}},
      {"erfinv", kOut, {}},
      {"exp", kOut, {}},
      {"expm1", kOut, {}},
      {"floor", kNothing, {}},
      {"gelu", kX, {{"approximate", false}}},
      {"hard_shrink", kX, {{"threshold", 0.5f}}},
      {"hard_sigmoid", kOut, {{"offset", 0.5f}, {"slope", 0.2f}}},
      {"hard_swish", kX, {{"offset", 3.0f}, {"scale", 6.0f}, {"threshold", 6.0f}}},
      {"leaky_relu", kX, {{"alpha", 0.02f}}},
      {"lgamma", kX, {}},
      {"log", kX, {}},
      {"log10", kX, {}},
      {"log1p", kX, {}},
      {"log2", kX, {}},
      {"logit", kX, {{"eps", 1e-6f}}},
      {"logsigmoid", kX, {}},
      {"mish", kX, {{"threshold", 20.0f}}},
      {"pow", kX, {{"factor", 1.0f}}},
      {"reciprocal", kOut, {}},
      {"relu", kOut, {}},
      {"relu6", kOut, {{"threshold", 6.0f}}},
      {"round", kNothing, {}},
      {"rsqrt", kOut, {}},
      {"selu", kOut, {{"alpha", 1.6732632f}, {"scale", 1.050701f}}},
      {"sigmoid", kOut, {}},
      {"silu", kBoth, {}},
      {"sin", kX, {}},
      {"sinh", kX, {}},
      {"softplus", kX, {{"beta", 1.0f}, {"threshold", 20.0f}}},
      {"softshrink", kX, {{"lambda", 0.5f}}},
      {"softsign", kX, {}},
      {"sqrt", kOut, {}},
      {"square", kX, {}},
      {"stanh", kX, {{"scale_a", 0.67f}, {"scale_b", 1.7159f}}},
      {"swish", kX, {{"beta", 1.0f}}},
      {"tan", kX, {}},
      {"tanh", kOut, {}},
      {"tanh_shrink", kX, {}},
      {"thresholded_relu", kX, {{"threshold", 1.0f}}},
      {"trunc", kNothing, {}},
  };
}

}  // namespace

void AddActivationSchemas(OpSchemaTable* schemas) {
  for (const Row& row : Rows()) {
    schemas->Add(Forward(row));
    schemas->Add(Grad(row));
  }
  // Its gradient is a scale by 0.
  schemas->Add(Forward({"sign", GradReads::kNothing, {}}));
}

}  // namespace weft
