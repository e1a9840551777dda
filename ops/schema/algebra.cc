#include "ops/schema/algebra.h"

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

constexpr char kSumType[] = "sum";

// Unregistered types that are known to draw.
constexpr absl::string_view kDraws[] = {
    "binomial",
    "dirichlet",
    "exponential",
    "flash_attn",
    "flash_attn_qkvpacked",
    "flash_attn_unpadded",
    "flash_attn_varlen_qkvpacked",
    "flashmask_attention",
    "fused_dot_product_attention",
    "gaussian",
    "gaussian_inplace",
    "generate_proposal_labels",
    "graph_khop_sampler",
    "graph_sample_neighbors",
    "memory_efficient_attention",
    "random",
    "retinanet_target_assign",
    "rpn_target_assign",
    "standard_gamma",
    "uniform",
    "uniform_inplace",
    "weighted_sample_neighbors",
};

// Of a type without a schema, but for its name.
Algebra OfUnregistered(absl::string_view type) {
  if (type == "arange") return Algebra::kConstant;
  if (type == "fill_zeros_like2") return Algebra::kZeros;
  return absl::c_linear_search(kDraws, type) ? Algebra::kRandom : Algebra::kNone;
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
  if (schema != nullptr && schema->algebra().has_value()) return *schema->algebra();
  if (absl::StrContains(type, '.')) return InDialect(type);
  if (absl::EndsWith(type, "_grad")) return Algebra::kBackward;
  if (schema == nullptr) return OfUnregistered(type);
  // An op with other side effects counts as random: no two of its runs are alike.
  const bool is_plain = !schema->Has(Trait::kSideEffect) || schema->Has(Trait::kRingSetup) ||
                        schema->Has(Trait::kBranch) || schema->Has(Trait::kLoop);
  return is_plain ? Algebra::kNone : Algebra::kRandom;
}

const OpSchema& SumSchema() {
  static const OpSchema& schema = *FindOpSchema(kSumType);
  return schema;
}

}  // namespace weft
