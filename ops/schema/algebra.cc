#include "ops/schema/algebra.h"

#include "absl/strings/match.h"

namespace weft {
namespace {

struct Entry {
  absl::string_view type;
  Algebra algebra;
};

constexpr Entry kTable[] = {
    {"arange", Algebra::kConstant},
    {"assign", Algebra::kCopy},
    {"assign_value", Algebra::kConstant},
    {"cast", Algebra::kCast},
    // Gradients of counts and summaries are those of the samples, whatever the loss is.
    {"cvm_grad", Algebra::kNone},
    {"data_norm_grad", Algebra::kNone},
    {"dropout", Algebra::kRandom},
    {"elementwise_add", Algebra::kAdd},
    {"elementwise_div", Algebra::kDivide},
    {"elementwise_mul", Algebra::kMultiply},
    {"elementwise_sub", Algebra::kSubtract},
    {"eye", Algebra::kConstant},
    {"fill_any_like", Algebra::kFill},
    {"fill_constant", Algebra::kConstant},
    {"fill_zeros_like", Algebra::kZeros},
    {"fill_zeros_like2", Algebra::kZeros},
    {"gaussian_random", Algebra::kRandom},
    {"linspace", Algebra::kConstant},
    {"memcpy", Algebra::kCopy},
    {"print", Algebra::kCopy},
    {"randint", Algebra::kRandom},
    {"randperm", Algebra::kRandom},
    {"range", Algebra::kConstant},
    {"read_from_array", Algebra::kMove},
    {"scale", Algebra::kScale},
    {"select_input", Algebra::kMove},
    {"select_output", Algebra::kMove},
    {"split", Algebra::kSplitEqual},
    {"sum", Algebra::kSum},
    {"tensor_array_to_tensor", Algebra::kMove},
    {"truncated_gaussian_random", Algebra::kRandom},
    {"uniform_random", Algebra::kRandom},
    {"write_to_array", Algebra::kMove},
};

}  // namespace

Algebra AlgebraOf(absl::string_view type, const OpSchema* schema) {
  for (const Entry& entry : kTable) {
    if (entry.type == type) return entry.algebra;
  }
  if (absl::EndsWith(type, "_grad")) return Algebra::kBackward;
  // An op that touches more than its inputs is taken for random: no two runs of it are alike.
  const bool is_plain = schema == nullptr || !schema->Has(Trait::kSideEffect) ||
                        schema->Has(Trait::kRingSetup) || schema->Has(Trait::kBranch) ||
                        schema->Has(Trait::kLoop);
  return is_plain ? Algebra::kNone : Algebra::kRandom;
}

}  // namespace weft
