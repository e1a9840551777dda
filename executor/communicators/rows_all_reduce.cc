#include "executor/communicators/rows_all_reduce.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {
namespace {

// Gathers `count` elements of every rank into `all`. Those of this rank are already in their
// position.
absl::Status AllGatherInPlace(const CollectiveCall& call, Communicator* communicator, DType dtype,
                              int64_t count, void* all) {
  CollectiveCall gather = call;
  gather.desc = CollectiveDesc();
  gather.desc.kind = CollectiveKind::kAllGather;
  gather.desc.dtype = dtype;
  gather.desc.count = count;
  gather.dims = {count};
  char* own = static_cast<char*>(all) + communicator->rank() * count * SizeOf(dtype);
  return communicator->Run(gather, own, all);
}

template <typename T>
void Divide(int nranks, Tensor* tensor) {
  T* values = tensor->data<T>();
  for (int64_t i = 0; i < tensor->size(); ++i) values[i] /= static_cast<T>(nranks);
}

}  // namespace

absl::Status RowsAllReduce::CheckAlike(const CollectiveCall& call, int nranks) const {
  const auto describe = [&](int rank) {
    const auto dtype = static_cast<DType>(FieldOf(rank, kElementType));
    return absl::StrCat("rank ", rank, " has rows of ", FieldOf(rank, kRowSize), " ",
                        DTypeName(dtype), ", height ", FieldOf(rank, kHeight));
  };
  for (int rank = 1; rank < nranks; ++rank) {
    for (const Field field : {kHeight, kRowSize, kElementType}) {
      if (FieldOf(rank, field) == FieldOf(0, field)) continue;
      return absl::InvalidArgumentError(absl::StrCat("X: SelectedRows of different tensors in ",
                                                     call.variable, ": ", describe(0), ", ",
                                                     describe(rank)));
    }
  }
  return absl::OkStatus();
}

template <typename Index>
absl::Status RowsAllReduce::GatherNumbers(const CollectiveCall& call, Communicator* communicator,
                                          absl::Span<const int64_t> own, int64_t most,
                                          std::vector<Index>* gathered) {
  gathered->assign(communicator->nranks() * most, Index(-1));
  std::transform(own.begin(), own.end(), gathered->begin() + communicator->rank() * most,
                 [](int64_t row) { return static_cast<Index>(row); });
  return AllGatherInPlace(call, communicator, DTypeOf<Index>::value, most, gathered->data());
}

absl::Status RowsAllReduce::Run(const CollectiveCall& call, Communicator* communicator,
                                const Tensor& in, Tensor* out) {
  if (!in.memory()->IsHost()) {  // the host reads and writes elements here
    return absl::UnimplementedError(
        absl::StrCat("X: expected SelectedRows in the memory of the host in ", call.variable,
                     ", found SelectedRows in the memory of a device"));
  }
  const int rank = communicator->rank(), nranks = communicator->nranks();
  fields_.resize(int64_t{nranks} * kNumFields);
  int64_t* own_fields = &fields_[int64_t{rank} * kNumFields];
  own_fields[kCount] = in.dim(0);
  own_fields[kHeight] = in.height();
  own_fields[kRowSize] = in.row_size();
  own_fields[kElementType] = static_cast<int64_t>(in.dtype());
  WEFT_RETURN_IF_ERROR(
      AllGatherInPlace(call, communicator, DType::kInt64, kNumFields, fields_.data()));
  WEFT_RETURN_IF_ERROR(CheckAlike(call, nranks));

  int64_t most = 0;
  for (int r = 0; r < nranks; ++r) most = std::max(most, FieldOf(r, kCount));
  const Dims tall_dims = in.TallDims();
  Dims gathered_dims = tall_dims;
  gathered_dims[0] = nranks * most;
  values_.Resize(in.dtype(), gathered_dims);
  numbers_.clear();
  if (most > 0) {
    const int64_t count = most * in.row_size();
    std::memcpy(static_cast<char*>(values_.raw()) + rank * count * SizeOf(in.dtype()), in.raw(),
                in.bytes());
    const bool are_short = in.height() - 1 <= std::numeric_limits<int32_t>::max();
    WEFT_RETURN_IF_ERROR(are_short
                             ? GatherNumbers(call, communicator, in.rows(), most, &short_numbers_)
                             : GatherNumbers(call, communicator, in.rows(), most, &numbers_));
    if (are_short) numbers_.assign(short_numbers_.begin(), short_numbers_.end());
    WEFT_RETURN_IF_ERROR(AllGatherInPlace(call, communicator, in.dtype(), count, values_.raw()));
  }
  WEFT_RETURN_IF_ERROR(merger_.Merge(numbers_, values_, tall_dims, out));
  if (call.desc.reduction == Reduction::kAvg) {
    out->dtype() == DType::kFloat32 ? Divide<float>(nranks, out) : Divide<double>(nranks, out);
  }
  return absl::OkStatus();
}

}  // namespace weft
