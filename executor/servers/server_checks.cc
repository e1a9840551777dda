#include "executor/servers/server_checks.h"

#include <iterator>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/plan/run_checks.h"

namespace weft {
namespace {

using Kind = ServerMessage::Kind;

std::string TypeText(const Tensor& tensor) {
  if (!tensor.is_rows()) return ToString(TensorType{tensor.dtype(), tensor.dims()});
  return ToString(TensorType{tensor.dtype(), tensor.TallDims(), TensorType::Kind::kSelectedRows});
}

absl::Status Expected(const std::string& expected, const std::string& found) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", expected, ", found ", found));
}

absl::Status CheckRows(absl::Span<const int64_t> rows, int64_t num_rows, bool may_be_none = false) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < num_rows && (rows[i] >= 0 || may_be_none)) continue;
    return Expected(absl::StrCat("rows in [0, ", num_rows, ")"),
                    absl::StrCat(rows[i], " at position ", i));
  }
  return absl::OkStatus();
}

// Equal but for dimensions of 1: a rate may be a scalar, or a vector of one element.
bool HasShape(const Dims& dims, const Dims& declared) {
  if (absl::c_any_of(declared, [](int64_t dim) { return dim < 0; })) {
    return FitsDeclared(dims, declared);
  }
  const auto without_ones = [](const Dims& all) {
    std::vector<int64_t> kept;
    absl::c_copy_if(all, std::back_inserter(kept), [](int64_t dim) { return dim != 1; });
    return kept;
  };
  return without_ones(dims) == without_ones(declared);
}

absl::Status CheckGrad(const Tensor& grad, const ServedKey& served,
                       const ExpectedMessages& expected) {
  const bool are_rows = expected.grad.kind == TensorType::Kind::kSelectedRows;
  if (grad.is_rows() != are_rows || grad.dtype() != expected.grad.dtype ||
      !(are_rows ? grad.TallDims() == expected.grad.dims
                 : HasShape(grad.dims(), expected.grad.dims))) {
    return Expected(ToString(expected.grad), TypeText(grad));
  }
  if (!are_rows) return absl::OkStatus();
  // A row of a gradient that a server gets whole may be none, below 0 (RowMerger).
  return CheckRows(grad.rows(), expected.num_rows, /*may_be_none=*/!served.by_rows);
}

absl::Status CheckPush(const ServerMessage& push, const ServedKey& served,
                       const ExpectedMessages& expected) {
  const bool may_have_no_rows = expected.grad.kind == TensorType::Kind::kSelectedRows;
  if (push.has_no_rows && !may_have_no_rows) return Expected("a gradient", "none");
  const size_t first = push.has_no_rows ? 0 : 1;
  if (push.tensors.size() != first + expected.others.size()) {
    return Expected(absl::StrCat(first + expected.others.size(),
                                 " tensors: ", first == 0 ? "" : "the gradient and ",
                                 "what the optimizer reads besides, such as the learning rate"),
                    absl::StrCat(push.tensors.size()));
  }
  if (!push.has_no_rows) {
    WEFT_RETURN_IF_ERROR(Annotate("gradient", CheckGrad(push.tensors[0], served, expected)));
  }
  for (size_t i = 0; i < expected.others.size(); ++i) {
    const Tensor& other = push.tensors[first + i];
    const absl::optional<TensorType>& type = expected.others[i];
    if (!type.has_value()) continue;
    if (!other.is_rows() && other.dtype() == type->dtype && HasShape(other.dims(), type->dims)) {
      continue;
    }
    return Annotate(absl::StrCat("value ", i, " besides the gradient"),
                    Expected(ToString(*type), TypeText(other)));
  }
  return absl::OkStatus();
}

absl::Status CheckPull(const ServerMessage& pull, const ServedKey& served,
                       const ExpectedMessages& expected) {
  const size_t count = served.by_rows ? 1 : 0;
  if (pull.tensors.size() != count || (pull.kind == Kind::kPrefetch && !served.by_rows)) {
    return Expected(served.by_rows ? "the numbers of rows" : "a pull of the whole",
                    absl::StrCat(pull.tensors.size(), " tensors"));
  }
  if (!served.by_rows) return absl::OkStatus();
  const Tensor& rows = pull.tensors[0];
  if (rows.is_rows() || rows.dtype() != DType::kInt64 || rows.rank() != 1) {
    return Expected("the numbers of rows, int64[-1]", TypeText(rows));
  }
  return CheckRows(absl::MakeConstSpan(rows.data<int64_t>(), rows.size()), expected.num_rows);
}

absl::Status WithHint(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), kServerProgramsHint));
}

}  // namespace

absl::Status CheckMessage(const ServerMessage& message, int64_t next_step, const ServedKey& served,
                          const ExpectedMessages& expected) {
  const char* const kind = message.kind == Kind::kPush       ? "push"
                           : message.kind == Kind::kPull     ? "pull"
                           : message.kind == Kind::kPrefetch ? "prefetch"
                                                             : nullptr;
  const std::string what =
      absl::StrCat(kind == nullptr ? "message" : kind, " of key ", message.key, " (", served.param,
                   ") from rank ", message.from, ", step ", message.step);
  if (message.from < 0 || message.from >= expected.num_workers) {
    return Annotate(what, Expected("a worker", "another rank"));
  }
  if (kind == nullptr) return Annotate(what, Expected("what workers send", "another kind"));
  if (message.kind != Kind::kPush) {
    return WithHint(Annotate(what, CheckPull(message, served, expected)));
  }
  if (message.step != next_step) {
    return WithHint(Annotate(
        what,
        Expected(absl::StrCat("one push in a step, the next in step ", next_step), "another")));
  }
  return WithHint(Annotate(what, CheckPush(message, served, expected)));
}

}  // namespace weft
