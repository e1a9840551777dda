// The check of an op's slots against its schema.
#ifndef WEFT_OPS_SCHEMA_CHECK_SLOTS_H_
#define WEFT_OPS_SCHEMA_CHECK_SLOTS_H_

#include "absl/status/status.h"
#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

// InvalidArgument, naming the op and the slot, expected and found, where an input that the schema
// asks for is missing or a slot for one variable holds several. Outputs may always be missing: an
// output that nobody wants is left out. Slots that the schema does not name are not looked at.
// Depends on the op's layout only. O(slots).
absl::Status CheckSlots(const Op& op, const OpSchema& schema);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_CHECK_SLOTS_H_
