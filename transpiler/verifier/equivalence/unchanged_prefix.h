// The part of a rewritten program in which only communication was inserted.
#ifndef WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_UNCHANGED_PREFIX_H_
#define WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_UNCHANGED_PREFIX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/program.h"

namespace weft {

// The beginning of a rewritten program in which the ops of the original follow each other byte for
// byte. Inserted ops only change values in place, in two ways: they sum over ranks values that are
// linear in the gradient of the loss or replicated, and they divide by the number of ranks. So
// every variable of the original holds its original value times a power of the number of ranks
// (RankValue::unscaled_sums), and no expressions are needed to compare it. The walk over
// the program tells what is reduced and what divides.
//
// The prefix covers all ops of the original after a gradient all-reduce, and all ops before the
// averages of LocalSGD. For 1,000,000 ops, equivalence adds 0.46 s to the other layers for gradient
// all-reduce. The same check takes 3.5 s for all-gather, which the prefix does not cover
// (docs/benchmarks.md).
class UnchangedPrefix {
 public:
  // O(ops + bytes of ops); O(ops) if `program` is a rewritten copy of `original`, which shares
  // bytes.
  UnchangedPrefix(const Program& original, const ProgramFacts& facts);

  // The number of root ops in the prefix.
  size_t original_ops() const { return original_ops_; }
  size_t program_ops() const { return program_ops_; }

  // Whether inserted ops do only that. `values`: of the same program. O(events).
  bool IsConfirmedBy(const RankValues& values) const;

  // By OpId: the ops of the original, also after the prefix, for RankValuesOptions::original_ops.
  const std::vector<bool>& kept() const { return kept_; }

 private:
  void Find(const Program& original, const ProgramFacts& facts);
  void FindKeptAfter(const Program& original);
  bool Confirms(const RankExchange& exchange) const;
  bool Confirms(const RankScale& scale) const;

  enum class State : uint8_t { kAfter, kKept, kInserted };

  const Program& program_;
  std::vector<State> state_;  // by OpId of the rewritten program
  std::vector<bool> kept_;
  size_t original_ops_ = 0;
  size_t program_ops_ = 0;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_EQUIVALENCE_UNCHANGED_PREFIX_H_
