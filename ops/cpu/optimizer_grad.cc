#include "ops/cpu/optimizer_grad.h"

#include <algorithm>

#include "base/status_macros.h"
#include "ops/cpu/rows.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

template <typename Half>
void Convert(const Tensor& from, Tensor* to) {
  const Half* values = from.data<Half>();
  to->Resize(DType::kFloat32, from.dims());
  std::copy(values, values + from.size(), to->data<float>());
}

// Whether a binary search for rows[i], as if rows were sorted, finds it.
bool SearchFinds(absl::Span<const int64_t> rows, size_t i) {
  size_t begin = 0, end = rows.size();
  while (begin < end) {
    const size_t middle = (begin + end - 1) / 2;
    if (rows[middle] == rows[i]) return true;
    if (rows[middle] < rows[i]) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return false;
}

// The rows, with -1, which does not count, in place of those that a search misses.
std::vector<int64_t> FoundRows(absl::Span<const int64_t> rows) {
  std::vector<int64_t> result(rows.begin(), rows.end()), sorted = result;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return result;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!SearchFinds(rows, i)) result[i] = -1;
  }
  return result;
}

}  // namespace

absl::Status OptimizerGrad::Read(const Tensor& grad, const Tensor& param) {
  const Tensor* values = &grad;
  if (param.dtype() == DType::kFloat32 && grad.dtype() == DType::kFloat16) {
    Convert<Float16>(grad, &converted_);
    values = &converted_;
  } else if (param.dtype() == DType::kFloat32 && grad.dtype() == DType::kBFloat16) {
    Convert<BFloat16>(grad, &converted_);
    values = &converted_;
  }
  WEFT_RETURN_IF_ERROR(CheckDType("Grad", *values, param.dtype()));
  if (kind_ == Kind::kDense) {
    dense_ = values;
    return CheckSize("Grad", grad, param.size());
  }
  WEFT_RETURN_IF_ERROR(CheckRowsOf("Grad", grad, grad.dtype(), param.dims()));
  if (kind_ == Kind::kSearchedRows) {
    return merger_.Merge(FoundRows(grad.rows()), *values, grad.TallDims(), &merged_);
  }
  return merger_.Merge(grad.rows(), *values, grad.TallDims(), &merged_);
}

}  // namespace weft
