#include "tools/numeric/data.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "tools/numeric/data_limits.h"

namespace weft {
namespace {

// The value of an unknown dimension of data other than the batch.
constexpr int64_t kOtherDim = 4;

// `is_split`: each rank gets a part.
absl::Status ChooseDims(bool is_split, int nranks, int64_t batch, Dims* dims) {
  const bool is_any = !dims->empty() && dims->front() == -1;
  if (!is_split && is_any) {
    return absl::FailedPreconditionError(
        "it is read and nothing writes it, but it is not marked as data (need_check_feed), so it "
        "is unknown whether ranks share it");
  }
  if (is_split && !is_any && nranks > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("expected a first dimension of -1, found ", DimsToString(*dims),
                     ": one rank cannot take the batches of ", nranks));
  }
  if (is_any) dims->front() = batch;
  std::replace(dims->begin(), dims->end(), int64_t{-1}, kOtherDim);
  return absl::OkStatus();
}

int64_t RowAt(NumericData::Order order, int64_t row, int64_t rows) {
  switch (order) {
    case NumericData::Order::kAsMade:
      return row;
    case NumericData::Order::kReversed:
      return rows - 1 - row;
    case NumericData::Order::kEvenOnesFirst:
      return row < (rows + 1) / 2 ? 2 * row : 2 * (row - (rows + 1) / 2) + 1;
  }
  return row;
}

}  // namespace

bool IsTensorOfRoot(const Plan& plan, size_t v) {
  const Plan::Variable& variable = plan.variables()[v];
  return plan.FindVariable(variable.name) == static_cast<int>(v) && variable.declared.has_value() &&
         variable.declared->kind == TensorType::Kind::kDense;
}

absl::StatusOr<NumericData> NumericData::Of(const Program& program, const Plan& plan, int nranks,
                                            int64_t batch, ElementBudget* budget) {
  NumericData data;
  const DataLimits limits(program);
  for (size_t v = 0; v < plan.variables().size(); ++v) {
    const Plan::Variable& variable = plan.variables()[v];
    if (variable.first_reader < 0 || !IsTensorOfRoot(plan, v)) continue;
    if (variable.persistable && !variable.is_feed) continue;
    Feed feed{variable.name, *variable.declared, variable.is_feed, limits.Of(variable.name)};
    WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("data variable ", variable.name),
                                  ChooseDims(variable.is_feed, nranks, batch, &feed.type.dims)));
    WEFT_RETURN_IF_ERROR(budget->Take(variable.name, feed.type.dims));
    data.feeds_.push_back(std::move(feed));
  }
  return data;
}

FeedSource NumericData::Source(Order order) const {
  FeedSource source;
  for (const Feed& feed : feeds_) source.variables.push_back(feed.name);
  source.read = [this, order](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    std::vector<Tensor> tensors;
    for (const Feed& feed : feeds_) {
      WEFT_ASSIGN_OR_RETURN(Tensor tensor, Make(feed, step, order));
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  };
  return source;
}

absl::StatusOr<Tensor> NumericData::Make(const Feed& feed, int64_t step, Order order) {
  const uint64_t hash = MixBits(HashOfName(feed.name) + step);
  // Integers without a known limit are 0 or 1.
  const bool is_limited = feed.limit.has_value() || !IsFloating(feed.type.dtype);
  const uint64_t limit = feed.limit.value_or(2);
  const int64_t rows = feed.is_split && !feed.type.dims.empty() ? feed.type.dims[0] : 1;
  const int64_t row_size = std::max<int64_t>(1, NumElements(feed.type.dims) / rows);
  return MakeTensor(feed.name, feed.type, [=](int64_t i) {
    const int64_t row = RowAt(order, i / row_size, rows);
    const uint64_t random = MixBits(hash + row * row_size + i % row_size);
    return is_limited ? static_cast<double>(random % limit) : SmallNumber(random);
  });
}

}  // namespace weft
