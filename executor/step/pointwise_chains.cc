#include "executor/step/pointwise_chains.h"

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"

namespace weft {
namespace {

// Smaller values stay in the second-level cache from one op to the next.
constexpr int64_t kMinSize = 8 * kPointwisePart;

class ChainFinder {
 public:
  ChainFinder(const Plan& plan, const std::vector<bool>& in_block, const StepTypes& types,
              absl::Span<const BoundKernel> kernels)
      : plan_(plan), in_block_(in_block), types_(types), kernels_(kernels) {}

  std::vector<PointwiseChain> Find() {
    std::vector<PointwiseChain> chains;
    const int size = static_cast<int>(plan_.instructions.size());
    for (int begin = 0, end; begin < size; begin = end) {
      end = begin + 1;
      const Dims* const dims = DimsAt(begin);
      if (dims == nullptr || NumElements(*dims) < kMinSize) continue;
      used_.clear();
      Use(begin);
      while (end < size && Continues(end, *dims)) Use(end++);
      if (end - begin > 1) chains.push_back({begin, end, NumElements(*dims)});
    }
    return chains;
  }

 private:
  const Plan::PlanOp& OpAt(int i) const { return plan_.ops[plan_.instructions[i].index]; }

  // The dimensions of all arguments of a pointwise op; null for another instruction.
  const Dims* DimsAt(int i) const {
    const Plan::Instruction& instruction = plan_.instructions[i];
    if (instruction.kind != Plan::Instruction::Kind::kRunOp || instruction.stream != 0 ||
        in_block_[i] || !types_.is_static[instruction.index]) {
      return nullptr;
    }
    const BoundKernel& kernel = kernels_[instruction.index];
    if (!kernel.kernel().is_pointwise || kernel.has_temporaries()) return nullptr;
    const Plan::PlanOp& op = OpAt(i);
    const Dims* like = nullptr;
    for (const std::vector<int>* variables : {&op.inputs, &op.outputs}) {
      for (int v : *variables) {
        if (v < 0) continue;
        const Dims& dims = types_.variables[v]->dims;
        if (like != nullptr && dims != *like) return nullptr;
        like = &dims;
      }
    }
    return like;
  }

  void Use(int i) {
    const Plan::PlanOp& op = OpAt(i);
    used_.insert(op.inputs.begin(), op.inputs.end());
    used_.insert(op.outputs.begin(), op.outputs.end());
  }

  bool Continues(int i, const Dims& dims) const {
    const Dims* const its = DimsAt(i);
    return its != nullptr && NumElements(*its) == NumElements(dims) &&
           absl::c_any_of(OpAt(i).inputs, [&](int v) { return v >= 0 && used_.contains(v); });
  }

  const Plan& plan_;
  const std::vector<bool>& in_block_;
  const StepTypes& types_;
  const absl::Span<const BoundKernel> kernels_;
  absl::flat_hash_set<int> used_;
};

}  // namespace

std::vector<PointwiseChain> FindPointwiseChains(const Plan& plan, const std::vector<bool>& in_block,
                                                const StepTypes& types,
                                                absl::Span<const BoundKernel> kernels) {
  return ChainFinder(plan, in_block, types, kernels).Find();
}

}  // namespace weft
