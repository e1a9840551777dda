#include "executor/run/merged_pushes.h"

#include <cstdint>
#include <cstring>

#include "base/status_macros.h"
#include "executor/communicators/local_collective.h"

namespace weft {
namespace {

template <typename T>
void DivideBy(int count, Tensor* tensor) {
  T* values = tensor->data<T>();
  for (int64_t i = 0; i < tensor->size(); ++i) values[i] /= static_cast<T>(count);
}

// Rows of the same index are added in the order of the workers, as an all-reduce does.
absl::Status MergeRows(const Plan::PlanOp& op, const std::vector<ServerMessage>& pushes,
                       RowMerger* merger, Tensor* out) {
  const OpAttrs& attrs = op.kernel_spec.attrs;
  const std::vector<int64_t> shape = attrs.Ints("shape");
  const Dims tall_dims(shape.begin(), shape.end());
  const DType dtype = *DTypeFromProto(static_cast<int>(attrs.Int("dtype")));
  std::vector<int64_t> numbers;
  for (const ServerMessage& push : pushes) {
    if (push.has_no_rows) continue;
    const Tensor& rows = push.tensors[0];
    numbers.insert(numbers.end(), rows.rows().begin(), rows.rows().end());
  }
  Dims dims = tall_dims;
  dims[0] = static_cast<int64_t>(numbers.size());
  Tensor values;
  values.Resize(dtype, dims);
  char* to = static_cast<char*>(values.raw());
  for (const ServerMessage& push : pushes) {
    if (push.has_no_rows || push.tensors[0].bytes() == 0) continue;
    std::memcpy(to, push.tensors[0].raw(), push.tensors[0].bytes());
    to += push.tensors[0].bytes();
  }
  WEFT_RETURN_IF_ERROR(merger->Merge(numbers, values, tall_dims, out));
  if (!attrs.Bool("averages")) return absl::OkStatus();
  const int count = static_cast<int>(pushes.size());
  dtype == DType::kFloat32 ? DivideBy<float>(count, out) : DivideBy<double>(count, out);
  return absl::OkStatus();
}

}  // namespace

absl::Status MergePushes(const Plan::PlanOp& op, const std::vector<ServerMessage>& pushes,
                         RowMerger* merger, Tensor* out) {
  const OpAttrs& attrs = op.kernel_spec.attrs;
  if (attrs.Bool("is_sparse")) return MergeRows(op, pushes, merger, out);
  std::vector<const void*> in;
  const Tensor& first = pushes[0].tensors[0];
  for (const ServerMessage& push : pushes) in.push_back(push.tensors[0].raw());
  CollectiveDesc desc;
  desc.reduction = attrs.Bool("averages") ? Reduction::kAvg : Reduction::kSum;
  desc.dtype = first.dtype();
  desc.count = first.size();
  WEFT_RETURN_IF_ERROR(CheckLocalCollective(desc, static_cast<int>(in.size())));
  out->Resize(first.dtype(), first.dims());
  RunLocalCollectiveFor(desc, in, 0, out->raw());
  return absl::OkStatus();
}

}  // namespace weft
