// The op_role (proto/op_role.h) of each op of a training program in PIR, which does not say it.
#ifndef WEFT_PROTO_FORMATS_PIR_ROLES_H_
#define WEFT_PROTO_FORMATS_PIR_ROLES_H_

#include <cstdint>
#include <vector>

#include "proto/formats/pir/document.h"
#include "proto/formats/pir/training.h"

namespace weft::pir {

// Sets training->roles, whose ops of losses and of their gradients have theirs, as training.h says.
// `first_seed`: the first op that fills the gradient of a loss. `depends_on_loss`: by value, on
// such a gradient. O(operands).
void AssignRoles(const Document& document, uint32_t first_seed,
                 const std::vector<bool>& depends_on_loss, Training* training);

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_ROLES_H_
