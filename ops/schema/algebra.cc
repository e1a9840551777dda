#include "ops/schema/algebra.h"

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

constexpr char kSumType[] = "sum";

const absl::flat_hash_map<absl::string_view, Algebra>& Table() {
  static const auto* const table = new absl::flat_hash_map<absl::string_view, Algebra>({
      {"arange", Algebra::kConstant},
      {"assign", Algebra::kCopy},
      {"assign_value", Algebra::kConstant},
      {"binomial", Algebra::kRandom},
      {"cast", Algebra::kCast},
      {"concat", Algebra::kConcat},
      // The gradients of counts and summaries come from the samples, not from the loss.
      {"cvm_grad", Algebra::kNone},
      {"data_norm_grad", Algebra::kNone},
      {"dirichlet", Algebra::kRandom},
      {"dropout", Algebra::kRandom},
      {"elementwise_add", Algebra::kAdd},
      {"elementwise_div", Algebra::kDivide},
      {"elementwise_floordiv", Algebra::kFloorDivide},
      {"elementwise_max", Algebra::kMaximum},
      {"elementwise_min", Algebra::kMinimum},
      {"elementwise_mod", Algebra::kModulo},
      {"elementwise_mul", Algebra::kMultiply},
      {"elementwise_sub", Algebra::kSubtract},
      {"equal", Algebra::kEqual},
      {"eye", Algebra::kConstant},
      {"exponential", Algebra::kRandom},
      {"fill_any_like", Algebra::kFill},
      {"fill_constant", Algebra::kConstant},
      {"fill_zeros_like", Algebra::kZeros},
      {"fill_zeros_like2", Algebra::kZeros},
      {"flash_attn", Algebra::kRandom},
      {"flash_attn_qkvpacked", Algebra::kRandom},
      {"flash_attn_unpadded", Algebra::kRandom},
      {"flash_attn_varlen_qkvpacked", Algebra::kRandom},
      {"flashmask_attention", Algebra::kRandom},
      {"flatten", Algebra::kReshape},
      {"flatten2", Algebra::kReshape},
      {"flatten_contiguous_range", Algebra::kReshape},
      {"fractional_max_pool2d", Algebra::kRandom},
      {"fractional_max_pool3d", Algebra::kRandom},
      {"fused_dot_product_attention", Algebra::kRandom},
      {"gaussian", Algebra::kRandom},
      {"gaussian_inplace", Algebra::kRandom},
      {"gaussian_random", Algebra::kRandom},
      {"generate_proposal_labels", Algebra::kRandom},
      {"graph_khop_sampler", Algebra::kRandom},
      {"graph_sample_neighbors", Algebra::kRandom},
      {"greater_equal", Algebra::kGreaterEqual},
      {"greater_than", Algebra::kGreater},
      {"increment", Algebra::kIncrement},
      {"less_equal", Algebra::kLessEqual},
      {"less_than", Algebra::kLess},
      {"linspace", Algebra::kConstant},
      {"logical_and", Algebra::kAnd},
      {"logical_not", Algebra::kNot},
      {"logical_or", Algebra::kOr},
      {"logical_xor", Algebra::kXor},
      {"memcpy", Algebra::kCopy},
      {"memcpy_d2h", Algebra::kCopy},
      {"memcpy_h2d", Algebra::kCopy},
      {"memory_efficient_attention", Algebra::kRandom},
      {"merge_selected_rows", Algebra::kCopy},
      {"not_equal", Algebra::kNotEqual},
      {"print", Algebra::kCopy},
      {"randint", Algebra::kRandom},
      {"random", Algebra::kRandom},
      {"randperm", Algebra::kRandom},
      {"range", Algebra::kConstant},
      {"read_from_array", Algebra::kMove},
      {"reshape", Algebra::kReshape},
      {"reshape2", Algebra::kReshape},
      {"retinanet_target_assign", Algebra::kRandom},
      {"rpn_target_assign", Algebra::kRandom},
      {"scale", Algebra::kScale},
      {"select_input", Algebra::kMove},
      {"select_output", Algebra::kMove},
      {"sparsify_threshold", Algebra::kSparsify},
      {"sparsify_topk", Algebra::kSparsify},
      {"split", Algebra::kSplitEqual},
      {"squeeze", Algebra::kReshape},
      {"squeeze2", Algebra::kReshape},
      {"standard_gamma", Algebra::kRandom},
      {kSumType, Algebra::kSum},
      {"tensor_array_to_tensor", Algebra::kMove},
      {"truncated_gaussian_random", Algebra::kRandom},
      {"uniform", Algebra::kRandom},
      {"uniform_inplace", Algebra::kRandom},
      {"uniform_random", Algebra::kRandom},
      {"unsqueeze", Algebra::kReshape},
      {"unsqueeze2", Algebra::kReshape},
      {"weighted_sample_neighbors", Algebra::kRandom},
      {"write_to_array", Algebra::kMove},
  });
  return *table;
}

// Of "pd_op.exponential_", as Paddle 3 names an op that is not translated: what is known of
// "exponential", except for what takes slots.
Algebra InDialect(absl::string_view type) {
  type = absl::StripSuffix(type.substr(type.find('.') + 1), "_");
  const Algebra algebra = AlgebraOf(type, FindOpSchema(type));
  const bool takes_slots = algebra != Algebra::kRandom && algebra != Algebra::kBackward;
  return takes_slots ? Algebra::kNone : algebra;
}

// Attention draws for its dropout only.
bool DropsNothing(const Op& op) {
  if (op.BoolAttr("is_test").value_or(false)) return true;
  constexpr const char* kParts[] = {"dropout", "dropout_p", "dropout_probability"};
  return absl::c_any_of(
      kParts, [&](const char* name) { return op.HasAttr(name) && op.FloatAttr(name) == 0.0; });
}

bool HasSeed(const Op& op) {
  const OpSignature& signature = op.signature();
  const auto names_seed = [&](const auto& part) {
    return absl::StrContains(absl::AsciiStrToLower(op.program().name(part.name)), "seed");
  };
  return absl::c_any_of(signature.attrs, names_seed) ||
         absl::c_any_of(signature.inputs, names_seed) ||
         absl::c_any_of(signature.outputs, names_seed);
}

}  // namespace

Algebra AlgebraOf(const Op& op, const OpSchema* schema) {
  const Algebra algebra = AlgebraOf(op.type(), schema);
  if (schema != nullptr) return algebra;
  if (algebra == Algebra::kRandom) return DropsNothing(op) ? Algebra::kNone : algebra;
  return algebra == Algebra::kNone && HasSeed(op) ? Algebra::kRandom : algebra;
}

Algebra AlgebraOf(absl::string_view type, const OpSchema* schema) {
  const auto entry = Table().find(type);
  if (entry != Table().end()) return entry->second;
  if (absl::StrContains(type, '.')) return InDialect(type);
  if (absl::EndsWith(type, "_grad")) return Algebra::kBackward;
  // An op with other side effects counts as random: no two of its runs are alike.
  const bool is_plain = schema == nullptr || !schema->Has(Trait::kSideEffect) ||
                        schema->Has(Trait::kRingSetup) || schema->Has(Trait::kBranch) ||
                        schema->Has(Trait::kLoop);
  return is_plain ? Algebra::kNone : Algebra::kRandom;
}

const OpSchema& SumSchema() {
  static const OpSchema& schema = *FindOpSchema(kSumType);
  return schema;
}

}  // namespace weft
