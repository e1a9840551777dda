// Checks the feeds of a step, and gives every rank its part of them.
#ifndef WEFT_EXECUTOR_RUN_FEEDER_H_
#define WEFT_EXECUTOR_RUN_FEEDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "executor/communicators/world.h"
#include "executor/plan/plan.h"
#include "executor/run/batch_reader.h"
#include "ops/tensor.h"
#include "proto/feed_layout.h"
#include "proto/program.h"

namespace weft {

// What to feed. Empty: nothing.
struct FeedSource {
  // The variables fed in every step.
  std::vector<std::string> variables;
  // Returns their tensors for the global batch of a step, in the order of `variables`. One thread
  // at a time calls it, once for every step, in order, up to BatchReader::kMaxBatches steps before
  // the batch is fed; so a run that ends early may have read more.
  std::function<absl::StatusOr<std::vector<Tensor>>(int64_t step)> read;
  // The types that `read` will return, without the cost of reading. They are checked before the
  // first step, for the steps below `num_steps`; later steps repeat these. May be empty.
  std::function<absl::StatusOr<std::vector<TensorType>>(int64_t step)> types = nullptr;
  int64_t num_steps = 0;
  // Whether `read` is called ahead of the steps, or in the step that needs the batch.
  BatchReader::When when = BatchReader::When::kAhead;
  // Prefix of messages about the source: the path of a file. May be empty.
  std::string name = "";
  // How data variables are given to the ranks (FeedLayoutsOf). One that is not named is split along
  // dimension 0. Other variables go whole to every rank.
  FeedLayouts layouts = {};
};

// Checks the batches of a run against the program and splits them equally over the ranks, as
// FeedSource::layouts says. All this happens on a thread of its own, ahead of the steps
// (executor/run/batch_reader.h).
class Feeder {
 public:
  // InvalidArgument if the source names a variable that the program does not have or does not
  // declare as a tensor, or lacks a data variable that an op reads (the message lists the program's
  // data variables); and for the errors of Feed, as far as the source knows types in advance. The
  // run has `steps` steps, from `begin_step` on. Every process of the run reads whole batches.
  static absl::StatusOr<std::unique_ptr<Feeder>> Create(const Plan& plan, FeedSource source,
                                                        const World& world, int64_t steps,
                                                        int64_t begin_step = 0);

  // The variables of the plan that are fed.
  const std::vector<int>& variables() const { return variables_; }

  // Sets tensors[v] for each v of variables() to the part of `rank`, one of this process, of the
  // batch of a step, in memory that nothing shares. Every rank asks for all steps of the run, in
  // order; one that is ahead of another may wait for it. Thread-safe.
  //   InvalidArgument    the element type, the number of dimensions or a fixed dimension of a part
  //                      differs from the declaration, a dimension cannot be split equally, or
  //                      there are no elements; names step and variable, expected and found
  //   ResourceExhausted  no thread reads
  //   Aborted            after Stop
  // or the error of the source, or what that throws.
  absl::Status Feed(int64_t step, int rank, absl::Span<Tensor* const> tensors);

  // What Feed will give to a rank of this process in a later step, copied; none if it is not read
  // yet, or is not of the run. Does not wait. FailedPrecondition if the variable of the plan is not
  // fed. Thread-safe.
  absl::StatusOr<absl::optional<Tensor>> Peek(int64_t step, int rank, int variable);

  // Releases ranks that wait in Feed: the run ends. Thread-safe.
  void Stop() { reader_.Stop(); }

  // Samples of the first variable that is split, among these tensors, which were fed before; 0 if
  // none is.
  int64_t samples(absl::Span<Tensor* const> tensors) const;

 private:
  Feeder(FeedSource source, const World& world, int64_t begin_step, int64_t end_step);
  absl::Status BindVariables(const Plan& plan);
  absl::StatusOr<std::vector<BatchReader::Part>> ReadParts(
      int64_t step, std::vector<BatchReader::Part> spare) const;
  absl::Status CheckStep(int64_t step, absl::Span<const TensorType> types) const;
  absl::Status Check(size_t i, const TensorType& whole) const;

  const FeedSource source_;
  const World world_;
  std::vector<int> variables_;
  // By index in source_.variables.
  std::vector<Plan::Variable> declarations_;
  std::vector<FeedLayout> layouts_;
  BatchReader reader_;  // last: its thread uses all members above
};

// Checks the batches of a run, which Feeder::Create has accepted for the plan of `main`, before it
// reads any. Checks nothing if the source has no types.
//   InvalidArgument    an op cannot take its inputs (rows that differ between variables); names
//                      step and op, and the feeds of a rank. Ops from the first conditional block
//                      or loop on are not checked: their inputs depend on values.
//   ResourceExhausted  a batch, with the parts of the ranks and those read ahead, exceeds the
//                      available memory
// O(steps), and O(ops of the program) for each combination of types.
absl::Status CheckFeeds(const Program& main, const Plan& plan, const FeedSource& source,
                        const World& world, int64_t steps, int64_t begin_step);

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_FEEDER_H_
