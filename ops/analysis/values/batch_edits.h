// Finds the collectives with which values of a program become those of one device.
#ifndef WEFT_OPS_ANALYSIS_VALUES_BATCH_EDITS_H_
#define WEFT_OPS_ANALYSIS_VALUES_BATCH_EDITS_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/values/batch_flow.h"

namespace weft {

// All assume that the relations of `options` hold, ignore its edits, and change nothing for values
// that no edits help. O(arguments) for each of a few hundred walks at most.

// The edits after which losses that are no mean and no sum over the batch are one, and conditions
// on values of the batch hold on every rank as on one device.
//
// A mean over the batch that is no linear part of the loss, such as m in sqrt(m), is averaged over
// the ranks. Its gradient needs no collective: all ranks have the same, which is that of one
// device. A sum that no gradient flows through, such as the d in n / d of a weighted mean, is
// summed. If the number of ranks is known, d is also divided by it, so that n / d is a mean;
// otherwise, or where only that helps, n / d is a sum over the batch. An op that decides a
// condition reads means and sums over the ranks, as in FindStateEdits. If there is none of these, a
// mean, or a value that all ranks have, is divided by the number of ranks where it is added to a
// sum, so that the loss is a sum over the batch (FindSumTerms in sum_terms.h).
BatchEdits FindLossEdits(const ProgramFacts& program, BatchFlowOptions options);

// The edits after which losses that compare samples with each other (contrastive losses) are those
// of one device: ops of the forward pass read the samples of all ranks, along their first
// dimension, and numbers of samples as sums. Every rank computes what follows as one device does.
// The gradient of gathered samples is the same on all ranks, so that its sum over the ranks,
// scattered, is n times that of the rank's own samples, as a mean over the ranks needs it. None
// without a number of ranks.
BatchEdits FindSampleEdits(const ProgramFacts& program, BatchFlowOptions options);

// The edits after which persistable variables that forward ops compute from the batch (running
// means, counts, metrics) have the value of one device: ops read means and sums over the ranks, and
// the samples of all ranks, instead of their own. Only ops whose outputs have no gradient; samples
// are gathered only for what no gradient and no update depends on, other than through a state.
BatchEdits FindStateEdits(const ProgramFacts& program, BatchFlowOptions options);

// The program as options of transpile would make it, for messages that name them. Each flow is
// found when it is asked for, and kept.
class WhatIfFlows {
 public:
  enum Option : uint8_t { kExactLoss, kGatherNegatives, kStatistics };

  // `options` must outlive this object.
  WhatIfFlows(const ProgramFacts& program, const BatchFlowOptions& options)
      : program_(program), options_(options) {}

  // The option, with the number of ranks if it needs that, if the flow is then as wanted:
  // "option:exact_loss option:nranks 4". Else empty.
  std::string OptionsFor(Option option, absl::FunctionRef<bool(const BatchFlow&)> is_wanted);

 private:
  // Null: the option would change nothing.
  const BatchFlow* With(Option option, bool knows_ranks);

  const ProgramFacts program_;
  const BatchFlowOptions& options_;
  // By option, and whether the number of ranks is known. None inside: the option changes nothing.
  absl::optional<absl::optional<BatchFlow>> flows_[3][2];
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_VALUES_BATCH_EDITS_H_
