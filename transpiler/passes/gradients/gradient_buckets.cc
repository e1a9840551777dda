#include "transpiler/passes/gradients/gradient_buckets.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/schema/tensor_type.h"
#include "transpiler/buckets/bucket_planner.h"
#include "transpiler/buckets/optimal_plan.h"
#include "transpiler/passes/support/op_queries.h"
#include "transpiler/passes/support/rings.h"

namespace weft {
namespace {

constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();

TensorType TypeOf(const Program& program, const Gradient& gradient) {
  return DeclaredType(program, gradient.grad).value_or(TensorType{DType::kFloat32, {-1}});
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

// The group of a gradient's parameter; null: all ranks.
const RankGroup* GroupOf(const Program& program, const Gradient& gradient,
                         const ParamAttrsByName& params) {
  if (params.empty()) return nullptr;
  return FindGroup(params, std::string(program.name(gradient.param)));
}

absl::optional<RankGroup> ToOptional(const RankGroup* group) {
  return group == nullptr ? absl::nullopt : absl::make_optional(*group);
}

// Fills the buckets of the gradients of one block, one group of ranks and one device of updates.
class BlockFiller {
 public:
  BlockFiller(const Program& program, const std::vector<Gradient>& gradients,
              const BucketPolicy& policy, const BucketInputs& inputs,
              const std::vector<absl::optional<double>>& ready, const GradientWrites& writes,
              FilledBuckets* filled)
      : program_(program),
        gradients_(gradients),
        policy_(policy),
        inputs_(inputs),
        ready_(ready),
        writes_(writes),
        filled_(*filled) {}

  // In the order of completion.
  absl::Status Fill(const std::vector<size_t>& gradients, bool is_undivided) {
    block_ = gradients_[gradients[0]].block;
    group_ = GroupOf(program_, gradients_[gradients[0]], inputs_.param_attrs);
    uint32_t first_use = kNever;  // of the gradients in buckets that are open
    for (size_t i : gradients) {
      const TensorType type = TypeOf(program_, gradients_[i]);
      const std::string why_alone =
          WhyAlone(gradients_[i], type, writes_.begins_at[i], writes_.holds_several[i]);
      if (!why_alone.empty()) {
        filled_.buckets.push_back(
            {{static_cast<int>(i)}, block_, OpId(), why_alone, "", ToOptional(group_)});
        continue;
      }
      BucketGradient candidate;
      candidate.dtype = type.dtype;
      candidate.elements = NumElements(type.dims);
      candidate.bytes = candidate.elements * static_cast<int64_t>(SizeOf(type.dtype));
      const auto attrs = inputs_.param_attrs.find(std::string(program_.name(gradients_[i].param)));
      if (attrs != inputs_.param_attrs.end()) candidate.comm_fusion = attrs->second.comm_fusion;
      // Gradients that are used before this one is complete must be reduced before that.
      candidate.starts_anew = first_use <= CompletedAt(program_, gradients_[i]);
      if (candidate.starts_anew) first_use = kNever;
      first_use = std::min(first_use, UsedAt(program_, gradients_[i]));
      members_.push_back(i);
      candidates_.push_back(candidate);
    }
    if (is_undivided && !members_.empty()) {
      Bucket bucket;
      bucket.members.resize(members_.size());
      std::iota(bucket.members.begin(), bucket.members.end(), 0);
      AddBucket(bucket);
      return absl::OkStatus();
    }
    WEFT_ASSIGN_OR_RETURN(const BucketPlan plan, Plan());
    filled_.warnings.insert(filled_.warnings.end(), plan.warnings.begin(), plan.warnings.end());
    for (const Bucket& bucket : plan.buckets) AddBucket(bucket);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<BucketPlan> Plan() {
    if (policy_.is_optimal()) {
      WEFT_ASSIGN_OR_RETURN(
          OptimalPlan optimal,
          PlanOptimalBuckets(candidates_, ReadyOfCandidates(), inputs_.collective, inputs_.nrings));
      return std::move(optimal.plan);
    }
    if (!policy_.by_fusion_id) return PlanBuckets(policy_, candidates_);
    return PlanByParameters();
  }

  // Never falls. Accumulated gradients are complete when their block begins.
  std::vector<double> ReadyOfCandidates() const {
    std::vector<double> ready;
    double latest = 0;
    for (size_t member : members_) {
      latest = std::max(latest, ready_[member].value_or(latest));
      ready.push_back(latest);
    }
    return ready;
  }

  // MindSpore counts parameters in the order of their declaration.
  absl::StatusOr<BucketPlan> PlanByParameters() {
    std::vector<int> order(members_.size());
    std::iota(order.begin(), order.end(), 0);
    const auto declared = [&](int k) {
      return program_.block(0).Resolve(gradients_[members_[k]].param).value();
    };
    absl::c_stable_sort(order, [&](int a, int b) { return declared(a) < declared(b); });
    std::vector<BucketGradient> offered;
    for (int k : order) {
      offered.push_back(candidates_[k]);
      offered.back().starts_anew = false;
    }
    WEFT_ASSIGN_OR_RETURN(BucketPlan plan, PlanBuckets(policy_, offered));
    if (plan.numbers_gradients) {
      indices_.resize(order.size());
      for (size_t i = 0; i < order.size(); ++i) indices_[order[i]] = static_cast<int>(i) + 1;
    }
    for (Bucket& bucket : plan.buckets) {
      for (int& member : bucket.members) member = order[member];
    }
    return plan;
  }

  // Divides the bucket where a member is used before the next one is complete.
  void AddBucket(const Bucket& bucket) {
    std::vector<int> candidates = bucket.members;
    absl::c_sort(candidates);
    uint32_t first_use = kNever;
    bool is_open = false;
    for (int k : candidates) {
      const Gradient& gradient = gradients_[members_[k]];
      if (is_open && first_use <= CompletedAt(program_, gradient)) {
        filled_.buckets.back().why_ended = "a gradient is used before the next one is complete";
        is_open = false;
      }
      if (!is_open) {
        filled_.buckets.push_back(
            {{}, block_, OpId(), "", "", ToOptional(group_), bucket.fusion_id});
        first_use = kNever;
        is_open = true;
      }
      AddMember(members_[k], &filled_.buckets.back());
      if (!indices_.empty()) filled_.buckets.back().indices.push_back(indices_[k]);
      first_use = std::min(first_use, UsedAt(program_, gradient));
    }
    filled_.buckets.back().why_ended = Describe(policy_, bucket);
  }

  void AddMember(size_t i, GradientBucket* bucket) const {
    bucket->gradients.push_back(static_cast<int>(i));
    const OpId begins_at = writes_.begins_at[i];
    if (block_ == 0 &&
        (!bucket->begins_at.valid() ||
         program_.op(begins_at).position() < program_.op(bucket->begins_at).position())) {
      bucket->begins_at = begins_at;
    }
  }

  const Program& program_;
  const std::vector<Gradient>& gradients_;
  const BucketPolicy& policy_;
  const BucketInputs& inputs_;
  const std::vector<absl::optional<double>>& ready_;  // by gradient
  const GradientWrites& writes_;
  FilledBuckets& filled_;
  int block_ = 0;
  const RankGroup* group_ = nullptr;
  std::vector<size_t> members_;  // those that can share a bucket, in the order of completion
  std::vector<BucketGradient> candidates_;  // the same
  std::vector<int> indices_;                // by candidate, from 1 on; empty: it has none
};

}  // namespace

bool ReadsTimes(const BucketPolicy& policy, PassTrait trait) {
  return policy.is_optimal() &&
         (trait == PassTrait::kReadsOpTimes || trait == PassTrait::kReadsCollectiveTimes);
}

absl::StatusOr<FilledBuckets> FillBuckets(const Program& program, const GradientAnalysis& analysis,
                                          const BucketPolicy& policy, const BucketInputs& inputs) {
  const std::vector<Gradient>& gradients = analysis.gradients;
  FilledBuckets filled;
  if (policy.is_none()) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      const RankGroup* group = GroupOf(program, gradients[i], inputs.param_attrs);
      filled.buckets.push_back({{static_cast<int>(i)},
                                gradients[i].block,
                                OpId(),
                                "",
                                "policy none",
                                ToOptional(group)});
    }
    return filled;
  }
  const GradientWrites writes = FindWrites(program, gradients);
  const auto ready = ReadyOfGradients(program, analysis, inputs.ready);
  for (size_t begin = 0, end = 0; begin < gradients.size(); begin = end) {
    // By the index of the group, -1 for all ranks, whether the host updates, and the class.
    std::map<std::tuple<int, bool, int>, std::vector<size_t>> of_group;
    for (; end < gradients.size() && gradients[end].block == gradients[begin].block; ++end) {
      const RankGroup* group = GroupOf(program, gradients[end], inputs.param_attrs);
      const std::string param(program.name(gradients[end].param));
      const auto found = inputs.classes.find(param);
      of_group[{group == nullptr ? -1 : group->index, inputs.updated_on_host.count(param) > 0,
                found == inputs.classes.end() ? 0 : found->second}]
          .push_back(end);
    }
    for (const auto& [group, members] : of_group) {
      WEFT_RETURN_IF_ERROR(BlockFiller(program, gradients, policy, inputs, ready, writes, &filled)
                               .Fill(members, inputs.undivided.count(std::get<2>(group)) > 0));
    }
  }
  std::stable_sort(filled.buckets.begin(), filled.buckets.end(),
                   [](const GradientBucket& a, const GradientBucket& b) {
                     return a.gradients.back() < b.gradients.back();
                   });
  return filled;
}

ReadyTimes FindReadyTimes(const Program& program, const GradientAnalysis& analysis,
                          const std::vector<double>& op_seconds) {
  std::vector<double> ends;
  double now = 0;
  for (double seconds : op_seconds) ends.push_back(now += seconds);
  ReadyTimes ready;
  for (const Gradient& gradient : analysis.gradients) {
    if (gradient.block != 0) continue;
    ready[std::string(program.name(gradient.grad))].push_back(
        ends[program.op(gradient.completed_by).position()]);
  }
  return ready;
}

std::vector<absl::optional<double>> ReadyOfGradients(const Program& program,
                                                     const GradientAnalysis& analysis,
                                                     const ReadyTimes& ready) {
  std::map<absl::string_view, size_t> turns;  // of names: how many gradients came before
  std::vector<absl::optional<double>> times;
  for (const Gradient& gradient : analysis.gradients) {
    times.emplace_back();
    if (gradient.block != 0) continue;
    const absl::string_view name = program.name(gradient.grad);
    const size_t turn = turns[name]++;
    const auto it = ready.find(std::string(name));
    if (it != ready.end() && turn < it->second.size()) times.back() = it->second[turn];
  }
  return times;
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
