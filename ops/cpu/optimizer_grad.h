// The gradient that an update reads: of every element of the parameter, or of some rows.
#ifndef WEFT_OPS_CPU_OPTIMIZER_GRAD_H_
#define WEFT_OPS_CPU_OPTIMIZER_GRAD_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernel.h"
#include "ops/merge_rows.h"
#include "ops/tensor.h"

namespace weft {

// Keeps its buffers from step to step.
class OptimizerGrad {
 public:
  enum class Kind {
    kDense,
    // SelectedRows, with rows of the same index added. The update visits these rows alone,
    kRows,
    // or all rows of the parameter, with zeros as the gradient of the others.
    kRowsAmongAll,
    // The same, but if no row occurs twice, some rows are lost: those that a binary search through
    // the unsorted rows misses.
    kSearchedRows,
  };

  explicit OptimizerGrad(Kind kind) : kind_(kind) {}

  // Whether the gradient is row-sparse and has no rows.
  bool is_empty() const { return kind_ != Kind::kDense && merged_.rows().empty(); }

  // Sets the gradient of a step, which must exist until the update is done. InvalidArgument unless
  // it has the element type of the parameter, or half precision if that is fp32, and the dimensions
  // of the parameter (for a dense one: the size).
  absl::Status Read(const Tensor& grad, const Tensor& param);

  // Calls update(begin, count, g, has_grad) for runs of elements: the gradient of the parameter's
  // element begin + k is g[k], for k < count; zeros if there is none. In ascending order; no
  // element occurs twice.
  template <typename T, typename Update>
  void ForEachRun(const Update& update) const {
    if (kind_ == Kind::kDense) return update(int64_t{0}, dense_->size(), dense_->data<T>(), true);
    const int64_t width = merged_.row_size();
    const T* g = merged_.data<T>();
    if (kind_ == Kind::kRows) {
      for (int64_t row : merged_.rows()) {
        update(row * width, width, g, true);
        g += width;
      }
      return;
    }
    const std::vector<T> zeros(width);
    auto next = merged_.rows().begin();
    for (int64_t row = 0; row < merged_.height(); ++row) {
      const bool has_grad = next != merged_.rows().end() && *next == row;
      update(row * width, width, has_grad ? g : zeros.data(), has_grad);
      if (!has_grad) continue;
      g += width;
      ++next;
    }
  }

 private:
  Kind kind_;
  const Tensor* dense_ = nullptr;
  Tensor converted_;  // from half precision
  RowMerger merger_;
  Tensor merged_;
};

}  // namespace weft

#endif  // WEFT_OPS_CPU_OPTIMIZER_GRAD_H_
