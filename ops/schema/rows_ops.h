// What ops make of SelectedRows (RowsRule). An op of an unregistered type has no schema.
#ifndef WEFT_OPS_SCHEMA_ROWS_OPS_H_
#define WEFT_OPS_SCHEMA_ROWS_OPS_H_

#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

inline RowsRule RowsRuleOf(const OpSchema* schema) {
  return schema == nullptr ? RowsRule::kAsDense : schema->rows();
}

// Of the rule kUpdatesAlone, by its type or by an attribute.
inline bool UpdatesRowsAlone(const Op& op, const OpSchema* schema) {
  return op.BoolAttr("lazy_mode").value_or(false) || RowsRuleOf(schema) == RowsRule::kUpdatesAlone;
}

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_ROWS_OPS_H_
