// Sums that all ranks give, as batch_norm over their batches needs them
// (ops/schema/across_ranks.h).
#ifndef WEFT_OPS_SUMS_OF_RANKS_H_
#define WEFT_OPS_SUMS_OF_RANKS_H_

#include <cstdint>
#include <utility>

#include "ops/op_kernel.h"

namespace weft {

// Rank by rank 2 C + 1 numbers of fp64: one of each channel, another one of each channel, and the
// number of elements of a channel.
class SumsOfRanks {
 public:
  // `sums`: in host memory; must outlive this object.
  SumsOfRanks(const Tensor& sums, int64_t channels)
      : sums_(sums.data<double>()),
        channels_(channels),
        ranks_(static_cast<int>(sums.size() / (2 * channels + 1))) {
    for (int r = 0; r < ranks_; ++r) count_ += count(r);
  }

  int ranks() const { return ranks_; }
  // Of a rank, number 0 or 1 of a channel.
  double at(int rank, int number, int64_t channel) const {
    return sums_[rank * (2 * channels_ + 1) + number * channels_ + channel];
  }
  // The number of elements of a channel, of a rank or of all.
  double count(int rank) const { return at(rank, 2, 0); }
  double count() const { return count_; }

 private:
  const double* sums_;
  int64_t channels_;
  int ranks_;
  double count_ = 0;
};

// A kernel for elements of the type of X, with Sums in fp64 or without.
template <typename Step>
absl::StatusOr<Kernel> MakeStep(OpKernel& op, In x, In sums, Step step) {
  if (!sums) return op.Make(Floats(x), std::move(step));
  return op.Supports(Floats(x)).Make([x, step = std::move(step)](const KernelContext& ctx) mutable {
    return ForElementType<float, double>("input X", x(ctx), [&](auto tag) {
      return CallForStatus(step, ctx, typename decltype(tag)::type());
    });
  });
}

}  // namespace weft

#endif  // WEFT_OPS_SUMS_OF_RANKS_H_
