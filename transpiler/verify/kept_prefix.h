// How far a rewritten program is the original with communication put between its ops.
#ifndef WEFT_TRANSPILER_VERIFY_KEPT_PREFIX_H_
#define WEFT_TRANSPILER_VERIFY_KEPT_PREFIX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/analysis/rank_values.h"
#include "proto/program.h"

namespace weft {

// The beginning of a rewritten program in which every op of the original is where it was, byte for
// byte, and what stands between changes values in no way but these: what is linear in the gradient
// of the loss, or the same on all ranks, is summed over ranks, and values are divided by their
// number, in place. Up to there, every variable of the original holds what it does in the original,
// times a power of the number of ranks (RankValue::power), as long as it is not distorted: it need
// not be computed again to be compared. What is reduced, and by what is divided, is seen while the
// program is walked, by this observer.
//
// Most rewrites leave most of a program alone, so this is most of it: all, for gradient
// all-reduce; all but what is put behind it, for LocalSGD.
class KeptPrefix : public RankObserver {
 public:
  // O(ops + bytes of ops); less where `program` is a copy of `original` that was rewritten, whose
  // ops are where they were in memory.
  KeptPrefix(const Program& original, const Program& program);

  // Where it ends: ops of the root block before.
  size_t original_ops() const { return original_ops_; }
  size_t program_ops() const { return program_ops_; }

  void Restart() override { holds_ = true; }
  void OnUpdate(const Op& op, const RankValue& param, const RankValue& grad) override {}
  void OnCollective(const Op& op, Symbol variable, const RankValue& in) override;
  void OnScale(const Op& op, bool divides) override;
  void OnBranch(const Op& op, Symbol condition, const RankValue& value) override {}
  void OnOpaqueBlock(const Op& op) override;

  // Whether everything that was told about is as it has to be.
  bool Holds() const { return holds_; }

  // By OpId: the ops that were kept, for RankValuesOptions::original_ops.
  const std::vector<bool>& kept() const { return kept_; }

 private:
  enum class State : uint8_t { kBehind, kKept, kInserted };

  std::vector<State> state_;  // by OpId of the rewritten program
  std::vector<bool> kept_;
  size_t original_ops_ = 0;
  size_t program_ops_ = 0;
  bool holds_ = true;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_KEPT_PREFIX_H_
