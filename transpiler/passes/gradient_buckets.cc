#include "transpiler/passes/gradient_buckets.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();

TensorType TypeOf(const Program& program, const Gradient& gradient) {
  const absl::optional<TensorType> type =
      DeclaredType(program.var(program.block(0).Resolve(gradient.grad)));
  return type.value_or(TensorType{DType::kFloat32, {-1}});
}

// Positions of the ops that complete and first use a gradient. A gradient of a sub-block is
// complete when the block begins.
uint32_t CompletedAt(const Program& program, const Gradient& gradient) {
  return gradient.block != 0 ? 0 : program.op(gradient.completed_by).position();
}
uint32_t UsedAt(const Program& program, const Gradient& gradient) {
  if (gradient.block != 0 || !gradient.first_use.valid()) return kNever;
  return program.op(gradient.first_use).position();
}

// By gradient.
struct GradientWrites {
  // The first op that writes the variable; invalid if that op reads the old value or is in a
  // sub-block.
  std::vector<OpId> begins_at;
  // Whether the variable holds several gradients in turn.
  std::vector<bool> holds_several;
};

GradientWrites FindWrites(const Program& program, const std::vector<Gradient>& gradients) {
  GradientWrites writes;
  writes.begins_at.resize(gradients.size());
  writes.holds_several.resize(gradients.size(), false);
  constexpr int kNone = -1;
  std::vector<int> gradient_of(program.symbols().size(), kNone);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].block != 0) continue;
    int& first = gradient_of[gradients[i].grad.value()];
    if (first == kNone) {
      first = static_cast<int>(i);
    } else {
      writes.holds_several[first] = writes.holds_several[i] = true;
    }
  }
  std::vector<bool> begun(gradients.size(), false);
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    for (Symbol symbol : op.output_args()) {
      const int i = gradient_of[symbol.value()];
      if (i == kNone || begun[i]) continue;
      begun[i] = true;
      if (!absl::c_linear_search(op.input_args(), symbol)) writes.begins_at[i] = id;
    }
  }
  return writes;
}

// Why a gradient cannot share a buffer; empty if it can.
std::string WhyAlone(const Gradient& gradient, const TensorType& type, OpId begins_at,
                     bool holds_several) {
  if (type.kind != TensorType::Kind::kDense) return "its rows differ from rank to rank";
  const int64_t elements = NumElements(type.dims);
  if (elements < 0) return absl::StrCat("its shape is unknown: ", DimsToString(type.dims));
  if (elements == 0) return "it has no elements";
  // coalesce_tensor would move the variable while its earlier gradient is reduced or used.
  if (holds_several) return "its variable holds several gradients in turn";
  if (gradient.block == 0 && !begins_at.valid()) {
    return "its first write reads the old value";
  }
  return "";
}

// Appends the buckets of gradients `begin` .. `end` - 1, which are of one block.
void FillBlock(const Program& program, const std::vector<Gradient>& gradients,
               const BucketPolicy& policy, const GradientWrites& writes, size_t begin, size_t end,
               std::vector<GradientBucket>* buckets) {
  const int block = gradients[begin].block;
  std::vector<size_t> members;
  std::vector<BucketCandidate> candidates;
  uint32_t first_use = kNever;  // of the gradients in buckets that are open
  for (size_t i = begin; i < end; ++i) {
    const TensorType type = TypeOf(program, gradients[i]);
    const std::string why_alone =
        WhyAlone(gradients[i], type, writes.begins_at[i], writes.holds_several[i]);
    if (!why_alone.empty()) {
      buckets->push_back({{static_cast<int>(i)}, block, OpId(), why_alone});
      continue;
    }
    BucketCandidate candidate;
    candidate.dtype = type.dtype;
    candidate.bytes = NumElements(type.dims) * static_cast<int64_t>(SizeOf(type.dtype));
    // Gradients that are used before this one is complete must be reduced before that.
    candidate.starts_anew = first_use <= CompletedAt(program, gradients[i]);
    if (candidate.starts_anew) first_use = kNever;
    first_use = std::min(first_use, UsedAt(program, gradients[i]));
    members.push_back(i);
    candidates.push_back(candidate);
  }
  const std::vector<int> bucket_of = AssignBuckets(policy, candidates);
  const size_t first = buckets->size();
  for (size_t k = 0; k < members.size(); ++k) {
    if (first + bucket_of[k] == buckets->size()) buckets->push_back({{}, block, OpId(), ""});
    GradientBucket& bucket = (*buckets)[first + bucket_of[k]];
    bucket.gradients.push_back(static_cast<int>(members[k]));
    const OpId begins_at = writes.begins_at[members[k]];
    if (block == 0 && (!bucket.begins_at.valid() || program.op(begins_at).position() <
                                                        program.op(bucket.begins_at).position())) {
      bucket.begins_at = begins_at;
    }
  }
}

}  // namespace

std::vector<GradientBucket> FillBuckets(const Program& program, const GradientAnalysis& analysis,
                                        const BucketPolicy& policy) {
  const std::vector<Gradient>& gradients = analysis.gradients;
  std::vector<GradientBucket> buckets;
  if (policy.kind == BucketPolicy::Kind::kNone) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      buckets.push_back({{static_cast<int>(i)}, gradients[i].block, OpId(), ""});
    }
    return buckets;
  }
  const GradientWrites writes = FindWrites(program, gradients);
  for (size_t begin = 0, end = 0; begin < gradients.size(); begin = end) {
    while (end < gradients.size() && gradients[end].block == gradients[begin].block) ++end;
    FillBlock(program, gradients, policy, writes, begin, end, &buckets);
  }
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const GradientBucket& a, const GradientBucket& b) {
                     return a.gradients.back() < b.gradients.back();
                   });
  return buckets;
}

FusedTensors TensorsOf(const Program& program, const GradientAnalysis& analysis,
                       const GradientBucket& bucket) {
  FusedTensors tensors;
  for (int i : bucket.gradients) {
    const TensorType type = TypeOf(program, analysis.gradients[i]);
    tensors.dtype = type.dtype;
    tensors.names.emplace_back(program.name(analysis.gradients[i].grad));
    tensors.dims.push_back(type.dims);
  }
  return tensors;
}

}  // namespace weft
