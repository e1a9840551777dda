// Ops for which only the elements of rows matter, not which rows of a tensor these are.
#ifndef WEFT_OPS_SCHEMA_ROWS_OPS_H_
#define WEFT_OPS_SCHEMA_ROWS_OPS_H_

#include "absl/strings/string_view.h"

namespace weft {

// Out: the elements of the rows of X, which is SelectedRows.
inline bool TakesRows(absl::string_view type) { return type == "get_tensor_from_selected_rows"; }
// Out does not change if zeros are added to the elements of X.
inline bool IgnoresZeros(absl::string_view type) { return type == "squared_l2_norm"; }

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_ROWS_OPS_H_
