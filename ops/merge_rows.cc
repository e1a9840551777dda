#include "ops/merge_rows.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

using Order = std::vector<std::pair<int64_t, int64_t>>;

// Merges neighbouring runs that are sorted until one is left, if there are few.
void Sort(Order* order) {
  std::vector<size_t> ends;  // of the runs
  for (size_t i = 1; i <= order->size(); ++i) {
    if (i == order->size() || (*order)[i] < (*order)[i - 1]) ends.push_back(i);
  }
  constexpr size_t kManyRuns = 256;
  if (ends.size() > kManyRuns) return std::sort(order->begin(), order->end());
  while (ends.size() > 1) {
    std::vector<size_t> merged;
    size_t begin = 0;
    for (size_t run = 0; run < ends.size(); run += 2) {
      const size_t end = ends[std::min(run + 1, ends.size() - 1)];
      std::inplace_merge(order->begin() + begin, order->begin() + ends[run], order->begin() + end);
      merged.push_back(begin = end);
    }
    ends = std::move(merged);
  }
}

// `order` is sorted.
template <typename T>
void AddUp(const Order& order, const Tensor& values, Tensor* out) {
  const int64_t width = out->row_size();
  const T* from = values.data<T>();
  T* to = out->data<T>();
  int64_t last = -1;  // the current row of `out`
  for (size_t i = 0; i < order.size(); ++i) {
    const auto [number, position] = order[i];
    const T* row = from + position * width;
    if (i == 0 || number != order[i - 1].first) {
      ++last;
      out->mutable_rows()[last] = number;
      std::copy_n(row, width, to + last * width);
    } else {
      for (int64_t k = 0; k < width; ++k) to[last * width + k] += row[k];
    }
  }
}

// Sorted.
void FindOrder(absl::Span<const int64_t> rows, Order* order) {
  order->clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= 0) order->emplace_back(rows[i], static_cast<int64_t>(i));
  }
  Sort(order);
}

}  // namespace

RowGroups GroupRows(absl::Span<const int64_t> rows) {
  Order order;
  FindOrder(rows, &order);
  RowGroups groups;
  for (const auto& [row, position] : order) {
    if (groups.rows.empty() || groups.rows.back() != row) {
      groups.rows.push_back(row);
      groups.begins.push_back(static_cast<int64_t>(groups.positions.size()));
    }
    groups.positions.push_back(position);
  }
  groups.begins.push_back(static_cast<int64_t>(groups.positions.size()));
  return groups;
}

absl::Status RowMerger::Merge(absl::Span<const int64_t> rows, const Tensor& values,
                              const Dims& tall_dims, Tensor* out) {
  assert(static_cast<int64_t>(rows.size()) == values.dim(0) && out != &values);
  if (values.dtype() != DType::kFloat32 && values.dtype() != DType::kFloat64) {
    return absl::UnimplementedError(
        absl::StrCat("rows of ", DTypeName(values.dtype()), ": only fp32 and fp64 are added up"));
  }
  FindOrder(rows, &order_);
  int64_t distinct = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    if (i == 0 || order_[i].first != order_[i - 1].first) ++distinct;
  }
  out->ResizeRows(values.dtype(), tall_dims, distinct);
  if (values.dtype() == DType::kFloat32) {
    AddUp<float>(order_, values, out);
  } else {
    AddUp<double>(order_, values, out);
  }
  return absl::OkStatus();
}

absl::Status RowMerger::Merge(const Tensor& rows, Tensor* out) {
  return Merge(rows.rows(), rows, rows.TallDims(), out);
}

}  // namespace weft
