// Losses that use a few rows of a table of class weights per example: checks of class indices, and
// the common part of their gradients.
#ifndef WEFT_OPS_CPU_EXTRA_CLASS_WEIGHTS_H_
#define WEFT_OPS_CPU_EXTRA_CLASS_WEIGHTS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/op_kernel.h"
#include "ops/tensor.h"

namespace weft {

// The elements from `first` on, of an int32 or int64 tensor.
absl::Status CopyNumbers(absl::string_view slot, const Tensor& from, int64_t first, int64_t count,
                         int64_t* to);

// InvalidArgument unless features are [examples, width], weights [rows, width], and of one type.
// Inference does not check this for kernels for rows.
absl::Status CheckOperands(const Tensor& features, const Tensor& weights);

// InvalidArgument unless each element of an int64 tensor is in [0, rows).
absl::Status CheckNumbers(absl::string_view slot, const Tensor& numbers, int64_t rows);

// One product weights[row]·features[example] + bias[row] of the forward op, and its gradient.
template <typename T>
struct ClassUse {
  int64_t example, row;
  T grad;
};

enum class WeightGrad { kDense, kRows };

// The gradients of features [examples, width], weights [rows, width] and bias, resized here: sums
// over `uses` in their order. The gradient of the weights has all rows, or the used rows in
// ascending order. Null skips a gradient; without a bias its gradient is null.
template <typename T>
absl::Status SetClassGrads(const std::vector<ClassUse<T>>& uses, const Tensor& features,
                           const Tensor& weights, const Tensor* bias, WeightGrad weight_grad,
                           Tensor* dfeatures, Tensor* dweights, Tensor* dbias) {
  const int64_t width = features.dim(1);
  const auto make_zeros = [&](Tensor* to, const Dims& dims) {
    if (to == nullptr) return;
    to->Resize(features.dtype(), dims);
    std::fill_n(to->data<T>(), to->size(), T(0));
  };
  make_zeros(dfeatures, features.dims());
  if (bias == nullptr) dbias = nullptr;
  if (dbias != nullptr) make_zeros(dbias, bias->dims());
  std::vector<int64_t> rows;
  if (weight_grad == WeightGrad::kDense) {
    make_zeros(dweights, weights.dims());
  } else if (dweights != nullptr) {
    rows.reserve(uses.size());
    for (const ClassUse<T>& use : uses) rows.push_back(use.row);
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    dweights->ResizeRows(features.dtype(), weights.dims(), static_cast<int64_t>(rows.size()));
    std::copy(rows.begin(), rows.end(), dweights->mutable_rows().begin());
    std::fill_n(dweights->data<T>(), dweights->size(), T(0));
  }
  for (const ClassUse<T>& use : uses) {
    const T* x = features.data<T>() + use.example * width;
    const T* w = weights.data<T>() + use.row * width;
    if (dbias != nullptr) dbias->data<T>()[use.row] += use.grad;
    if (dfeatures != nullptr) {
      T* to = dfeatures->data<T>() + use.example * width;
      for (int64_t k = 0; k < width; ++k) to[k] += use.grad * w[k];
    }
    if (dweights == nullptr) continue;
    const int64_t at = weight_grad == WeightGrad::kDense
                           ? use.row
                           : std::lower_bound(rows.begin(), rows.end(), use.row) - rows.begin();
    T* to = dweights->data<T>() + at * width;
    for (int64_t k = 0; k < width; ++k) to[k] += use.grad * x[k];
  }
  return absl::OkStatus();
}

// The kernel of a gradient op. Grad reads the slots and runs a step. Attribute is_sparse selects a
// dense or a row-sparse gradient of the weights.
template <typename Grad, WeightGrad weight_grad>
absl::StatusOr<Kernel> MakeClassGrad(const KernelSpec& spec) {
  if (spec.attrs.Bool("is_sparse") != (weight_grad == WeightGrad::kRows)) {
    return absl::UnimplementedError(
        spec.attrs.Bool("is_sparse")
            ? "attribute is_sparse: true, but the gradient of the weights is declared dense"
            : "attribute is_sparse: false, but the gradient of the weights is declared "
              "SelectedRows");
  }
  OpKernel op(spec);
  const Grad grad(spec, &op);
  const auto step = [grad](const KernelContext& ctx) { return grad.Run(ctx, weight_grad); };
  if (weight_grad == WeightGrad::kDense) return op.Supports(Floats(grad.input())).Make(step);
  return op.MakeForRows([step](const KernelContext& ctx) -> absl::Status {
    for (const Tensor* input : ctx.inputs) {
      if (input == nullptr) continue;
      const bool is_output =
          std::find(ctx.outputs.begin(), ctx.outputs.end(), input) != ctx.outputs.end();
      if (input->is_rows() || is_output) {
        return absl::UnimplementedError(
            "the gradient of the weights: expected the only SelectedRows, and no input");
      }
    }
    return step(ctx);
  });
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_EXTRA_CLASS_WEIGHTS_H_
