#include "executor/servers/served_rows.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace weft {
namespace {

size_t RowBytes(const Tensor& table) { return table.bytes() / std::max<int64_t>(table.dim(0), 1); }

}  // namespace

Tensor RowsOf(const Tensor& table, const Tensor& numbers) {
  Dims dims = table.dims();
  dims[0] = numbers.size();
  const size_t row_bytes = RowBytes(table);
  Tensor rows;
  rows.Resize(table.dtype(), dims);
  for (int64_t i = 0; i < numbers.size(); ++i) {
    std::memcpy(static_cast<char*>(rows.raw()) + i * row_bytes,
                static_cast<const char*>(table.raw()) + numbers.data<int64_t>()[i] * row_bytes,
                row_bytes);
  }
  return rows;
}

std::vector<Tensor> ChangesOf(const Tensor& table, const PrefetchedRows& prefetched) {
  const Tensor& numbers = prefetched.prefetch.tensors[0];
  const size_t row_bytes = RowBytes(table);
  std::vector<int64_t> changed;
  for (int64_t i = 0; i < numbers.size(); ++i) {
    const int64_t row = numbers.data<int64_t>()[i];
    if (std::memcmp(static_cast<const char*>(prefetched.sent.raw()) + i * row_bytes,
                    static_cast<const char*>(table.raw()) + row * row_bytes, row_bytes) != 0) {
      changed.push_back(i);
    }
  }
  if (changed.empty()) return {};
  std::vector<Tensor> changes(1);
  Tensor of_table;
  for (Tensor* tensor : {&changes[0], &of_table}) {
    tensor->Resize(DType::kInt64, {static_cast<int64_t>(changed.size())});
  }
  for (size_t i = 0; i < changed.size(); ++i) {
    changes[0].data<int64_t>()[i] = changed[i];
    of_table.data<int64_t>()[i] = numbers.data<int64_t>()[changed[i]];
  }
  changes.push_back(RowsOf(table, of_table));
  return changes;
}

}  // namespace weft
