#include "transpiler/passes/gradient_buckets.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

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

// Places of the gradients in the root block, counted in ops.
class Places {
 public:
  Places(const Program& program, const std::vector<Gradient>& gradients)
      : of_op_(program.op_id_limit(), kNever),
        begins_at_(gradients.size()),
        holds_several_(gradients.size(), false) {
    uint32_t place = 0;
    for (OpId id : program.block(0).ops()) of_op_[id.value()] = place++;
    FindFirstWrites(program, gradients);
  }

  // Gradients of sub-blocks are complete when the block begins, and used after that.
  uint32_t CompletedAt(const Gradient& gradient) const {
    return gradient.block != 0 ? 0 : of_op_[gradient.completed_by.value()];
  }
  uint32_t UsedAt(const Gradient& gradient) const {
    if (gradient.block != 0 || !gradient.first_use.valid()) return kNever;
    return of_op_[gradient.first_use.value()];
  }
  uint32_t PlaceOf(OpId id) const { return of_op_[id.value()]; }
  // The first op that writes the gradient variable; invalid where that op reads what was there
  // before, or is not one of the root block.
  OpId BeginsAt(size_t gradient) const { return begins_at_[gradient]; }
  // Whether the variable holds several gradients in turn.
  bool HoldsSeveral(size_t gradient) const { return holds_several_[gradient]; }

 private:
  void FindFirstWrites(const Program& program, const std::vector<Gradient>& gradients) {
    constexpr int kNone = -1;
    std::vector<int> gradient_of(program.symbols().size(), kNone);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].block != 0) continue;
      int& first = gradient_of[gradients[i].grad.value()];
      if (first == kNone) {
        first = static_cast<int>(i);
      } else {
        holds_several_[first] = holds_several_[i] = true;
      }
    }
    std::vector<bool> begun(gradients.size(), false);
    for (OpId id : program.block(0).ops()) {
      const Op op = program.op(id);
      for (Symbol symbol : op.output_args()) {
        const int i = gradient_of[symbol.value()];
        if (i == kNone || begun[i]) continue;
        begun[i] = true;
        const absl::Span<const Symbol> reads = op.input_args();
        if (std::find(reads.begin(), reads.end(), symbol) == reads.end()) begins_at_[i] = id;
      }
    }
  }

  std::vector<uint32_t> of_op_;
  std::vector<OpId> begins_at_;      // by gradient
  std::vector<bool> holds_several_;  // by gradient
};

// Why a gradient cannot share a buffer; empty: it can.
std::string WhyAlone(const Gradient& gradient, const TensorType& type, OpId begins_at,
                     bool holds_several) {
  if (type.layout != TensorType::Layout::kDense) return "its rows differ from rank to rank";
  const int64_t elements = NumElements(type.dims);
  if (elements < 0) return absl::StrCat("its shape is not known: ", DimsToString(type.dims));
  if (elements == 0) return "it has no elements";
  // The buffer would be laid out while an earlier gradient is still being reduced or used.
  if (holds_several) return "its variable holds several gradients in turn";
  if (gradient.block == 0 && !begins_at.valid()) {
    return "its first write reads what was there before";
  }
  return "";
}

// Fills buckets with the gradients from `begin` to `end`, which stand in one block.
void FillBlock(const Program& program, const std::vector<Gradient>& gradients,
               const BucketPolicy& policy, const Places& places, size_t begin, size_t end,
               std::vector<GradientBucket>* buckets) {
  const int block = gradients[begin].block;
  std::vector<size_t> members;
  std::vector<BucketCandidate> candidates;
  uint32_t first_use = kNever;  // of what has not been left behind
  for (size_t i = begin; i < end; ++i) {
    const TensorType type = TypeOf(program, gradients[i]);
    const std::string why_alone =
        WhyAlone(gradients[i], type, places.BeginsAt(i), places.HoldsSeveral(i));
    if (!why_alone.empty()) {
      buckets->push_back({{static_cast<int>(i)}, block, OpId(), why_alone});
      continue;
    }
    BucketCandidate candidate;
    candidate.dtype = type.dtype;
    candidate.bytes = NumElements(type.dims) * static_cast<int64_t>(SizeOf(type.dtype));
    // What is used before this gradient is complete must have been reduced by then.
    candidate.starts_anew = first_use <= places.CompletedAt(gradients[i]);
    if (candidate.starts_anew) first_use = kNever;
    first_use = std::min(first_use, places.UsedAt(gradients[i]));
    members.push_back(i);
    candidates.push_back(candidate);
  }
  const std::vector<int> bucket_of = AssignBuckets(policy, candidates);
  const size_t first = buckets->size();
  for (size_t k = 0; k < members.size(); ++k) {
    if (first + bucket_of[k] == buckets->size()) buckets->push_back({{}, block, OpId(), ""});
    GradientBucket& bucket = (*buckets)[first + bucket_of[k]];
    bucket.gradients.push_back(static_cast<int>(members[k]));
    const OpId begins_at = places.BeginsAt(members[k]);
    if (block == 0 && (!bucket.begins_at.valid() ||
                       places.PlaceOf(begins_at) < places.PlaceOf(bucket.begins_at))) {
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
  const Places places(program, gradients);
  for (size_t begin = 0, end = 0; begin < gradients.size(); begin = end) {
    while (end < gradients.size() && gradients[end].block == gradients[begin].block) ++end;
    FillBlock(program, gradients, policy, places, begin, end, &buckets);
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
