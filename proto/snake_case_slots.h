// The slots of optimizers that Paddle has since version 3. Its files write them in snake case
// (`beta2_pow`), those of all other optimizers in camel case (`Beta2Pow`), as passes, schemas and
// kernels expect. So an index and single decoded ops hold `Beta2Pow`, the bytes of a program
// `beta2_pow`.
#ifndef WEFT_PROTO_SNAKE_CASE_SLOTS_H_
#define WEFT_PROTO_SNAKE_CASE_SLOTS_H_

#include "absl/strings/string_view.h"
#include "proto/framework.pb.h"

namespace weft {

namespace pb = ::paddle::framework::proto;

bool HasSnakeCaseSlots(absl::string_view type);

// The slot of such an op as schemas name it; itself, if it is not in snake case.
absl::string_view CamelCaseSlot(absl::string_view slot);

// Rename the slots of the op, if it is such an op.
void ToCamelCaseSlots(pb::OpDesc* op);
void ToSnakeCaseSlots(pb::OpDesc* op);

}  // namespace weft

#endif  // WEFT_PROTO_SNAKE_CASE_SLOTS_H_
