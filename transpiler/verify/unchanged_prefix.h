// How far a rewritten program is the original with communication put between its ops.
#ifndef WEFT_TRANSPILER_VERIFY_UNCHANGED_PREFIX_H_
#define WEFT_TRANSPILER_VERIFY_UNCHANGED_PREFIX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/analysis/rank_values.h"
#include "proto/program.h"

namespace weft {

// The beginning of a rewritten program in which every op of the original is where it was, byte for
// byte. The ops between them change values in two ways only, in place: they sum over ranks what is
// linear in the gradient of the loss, or equal on all ranks, and they divide by the number of
// ranks. Within the prefix, every variable of the original holds its value in the original, times a
// power of the number of ranks (RankValue::unscaled_sums), as long as it is not distorted: that
// needs no expressions to be compared. The walk over the program shows what is reduced, and what
// divides; this object observes it.
//
// Most rewrites leave most of a program alone: gradient all-reduce all of it, LocalSGD all in front
// of its averages.
//
// What it saves was not measured apart. By docs/benchmarks.md, 1,000,000 ops: equivalence adds 0.46
// s to the other layers for gradient all-reduce, which the prefix covers. The same check of
// all-gather, which it does not cover, takes 3.5 s in all.
class UnchangedPrefix : public RankObserver {
 public:
  // O(ops + bytes of ops); less where `program` is a copy of `original` that was rewritten, whose
  // ops are where they were in memory.
  UnchangedPrefix(const Program& original, const Program& program);

  // Where it ends: ops of the root block before.
  size_t original_ops() const { return original_ops_; }
  size_t program_ops() const { return program_ops_; }

  void Restart() override { is_valid_ = true; }
  void OnCollective(const Op& op, Symbol variable, const RankValue& in) override;
  void OnScale(const Op& op, bool divides) override;
  void OnOpaqueBlock(const Op& op) override;

  // Whether the walk has shown nothing that contradicts the prefix.
  bool IsValid() const { return is_valid_; }

  // By OpId: the ops that were kept, for RankValuesOptions::original_ops.
  const std::vector<bool>& kept() const { return kept_; }

 private:
  enum class State : uint8_t { kAfter, kKept, kInserted };

  std::vector<State> state_;  // by OpId of the rewritten program
  std::vector<bool> kept_;
  size_t original_ops_ = 0;
  size_t program_ops_ = 0;
  bool is_valid_ = true;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_UNCHANGED_PREFIX_H_
