// Gradients that are no gradients: what the rows of a batch add to statistics.
#ifndef WEFT_OPS_SCHEMA_ROW_SUMS_H_
#define WEFT_OPS_SCHEMA_ROW_SUMS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/program.h"

namespace weft {

// Some outputs of an op, which depend on some inputs alone.
struct RowSums {
  absl::Span<const absl::string_view> outputs;
  absl::Span<const absl::string_view> common;  // inputs that all rows have in common
  // An input with the rows over which the outputs are sums; empty: the outputs are functions of
  // `common`.
  absl::string_view rows;
  // The sums are divided by a number of rows.
  bool are_divided = false;
};

// Without outputs for other ops than data_norm and its gradient. Source: Paddle's data_norm_op.cc.
RowSums RowSumsOf(const Op& op);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_ROW_SUMS_H_
