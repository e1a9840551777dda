// What ops make of SelectedRows, where that differs from what they make of the dense tensor.
#ifndef WEFT_OPS_SCHEMA_ROWS_OPS_H_
#define WEFT_OPS_SCHEMA_ROWS_OPS_H_

#include "absl/strings/string_view.h"
#include "proto/program.h"

namespace weft {

// Out: X, where rows of one index have become their sum.
inline bool MergesRows(absl::string_view type) { return type == "merge_selected_rows"; }
// Out: a function of X, where rows of one index have become their sum; has one row an index.
inline bool MergesRowsFirst(absl::string_view type) { return type == "clip_by_norm"; }
// Out: the elements of the rows of X, which is SelectedRows.
inline bool TakesRows(absl::string_view type) { return type == "get_tensor_from_selected_rows"; }
// Out does not change if zeros are added to the elements of X.
inline bool IgnoresZeros(absl::string_view type) { return type == "squared_l2_norm"; }
// An update that keeps parameter and states where rows have no gradient. A gradient of zeros would
// change them. Other updates make of rows what they make of the dense tensor.
inline bool UpdatesRowsAlone(const Op& op) {
  return op.BoolAttr("lazy_mode").value_or(false) || op.type() == "ftrl";
}

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_ROWS_OPS_H_
