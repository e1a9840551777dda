// Gives every rank its part of what a step is fed with.
#ifndef WEFT_EXECUTOR_FEEDER_H_
#define WEFT_EXECUTOR_FEEDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "executor/plan.h"
#include "ops/tensor.h"

namespace weft {

// What to feed. Empty: nothing.
struct FeedSource {
  // The variables fed at every step.
  std::vector<std::string> variables;
  // Their tensors for the whole batch of a step, in the order of `variables`. Called by one thread
  // at a time; may be asked for a step again.
  std::function<absl::StatusOr<std::vector<Tensor>>(int64_t step)> read;
  // What `read` will give, told without the work and the memory of reading: checked before the
  // first step, for the steps below `num_steps`; later ones are as one of these. May be empty.
  std::function<absl::StatusOr<std::vector<TensorType>>(int64_t step)> types = nullptr;
  int64_t num_steps = 0;
  // Stands before messages about it: the path of a file. May be empty.
  std::string name = "";
};

// Checks a step's batch against the program and cuts it up: a data variable (Plan::Variable::
// is_feed) is split along dimension 0 over the ranks, equally; any other variable is given whole to
// every rank.
class Feeder {
 public:
  // InvalidArgument where the source names a variable that the program does not have or does not
  // declare as a tensor, or lacks a data variable that an op reads (the message lists the program's
  // data variables); and for what Feed finds, as far as the source tells of it before the steps,
  // of which the run has `steps`, from `begin_step` on.
  static absl::StatusOr<std::unique_ptr<Feeder>> Create(const Plan& plan, FeedSource source,
                                                        int nranks, int64_t steps,
                                                        int64_t begin_step = 0);

  // The variables of the plan that are fed.
  const std::vector<int>& variables() const { return variables_; }

  // Copies rank `rank`'s part of a step's batch into tensors[v] for each v of variables().
  // InvalidArgument, naming step and variable, expected and found, where element type, rank or a
  // fixed dimension of what a rank gets differs from the declared ones, rows cannot be split
  // equally, or there are no elements. Thread-safe.
  absl::Status Feed(int64_t step, int rank, absl::Span<Tensor* const> tensors);

  // Rows of the first data variable among these tensors, fed before; 0 where none is fed.
  int64_t samples(absl::Span<Tensor* const> tensors) const;

 private:
  using Batch = std::vector<Tensor>;

  Feeder(FeedSource source, int nranks) : source_(std::move(source)), nranks_(nranks) {}
  absl::Status BindVariables(const Plan& plan);
  absl::StatusOr<std::shared_ptr<const Batch>> Read(int64_t step);
  absl::Status CheckStep(int64_t step, absl::Span<const TensorType> types) const;
  absl::Status Check(const Plan::Variable& variable, const TensorType& whole) const;

  const FeedSource source_;
  const int nranks_;
  std::vector<int> variables_;
  std::vector<Plan::Variable> declarations_;  // by position in source_.variables

  // The last batches read. Ranks run a few steps apart at most where they communicate; where one
  // comes late for a batch, it is read again.
  struct CachedBatch {
    int64_t step = -1;
    std::shared_ptr<const Batch> batch;
  };
  std::mutex mutex_;
  CachedBatch cache_[2];
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_FEEDER_H_
