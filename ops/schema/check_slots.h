// The check of an op's slots against its schema.
#ifndef WEFT_OPS_SCHEMA_CHECK_SLOTS_H_
#define WEFT_OPS_SCHEMA_CHECK_SLOTS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

// A slot that does not hold as many variables as the schema asks for.
struct SlotViolation {
  const SlotSchema* slot = nullptr;
  bool is_output = false;
  size_t count = 0;  // 0: an input is missing; more: one variable was expected
};

// "input X: expected one variable, found 2"
std::string ToString(const SlotViolation& violation);

// Inputs that the schema asks for and that are missing, and slots for one variable that hold
// several, in the order of the schema. Outputs may always be missing: an output that nobody wants
// is left out. Slots that the schema does not name are not looked at. Depends on the op's signature
// only. O(slots).
std::vector<SlotViolation> SlotViolations(const Op& op, const OpSchema& schema);

// InvalidArgument for the first of them, naming the op.
absl::Status CheckSlots(const Op& op, const OpSchema& schema);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_CHECK_SLOTS_H_
