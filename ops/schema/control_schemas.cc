// Ops that run blocks.
#include "ops/schema/families.h"

namespace weft {

void AddControlSchemas(OpSchemaTable* schemas) {
  // Input and Out list what the sub-block reads and writes of its surroundings; the types of Out
  // are what they were.
  schemas->Add(OpSchema("conditional_block")
                   .In("Cond", OpSchema::kDuplicable)
                   .In("Input", OpSchema::kDuplicable | OpSchema::kOptional)
                   .Out("Out", OpSchema::kDuplicable)
                   .Out("Scope")
                   .Attr("is_scalar_condition", false)
                   .RequiredAttr("sub_block", BlockRef())
                   .With(Trait::kSideEffect)
                   .With(Trait::kBranch));
}

}  // namespace weft
