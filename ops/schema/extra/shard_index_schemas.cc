// Indices of a sharded table.
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {

void AddShardIndexSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("shard_index", "X -> Out")
                   .Attr("ignore_value", -1)
                   .RequiredAttr("index_num", 1)
                   .RequiredAttr("nshards", 1)
                   .RequiredAttr("shard_id", 0)
                   .Infer(OutputsLike("X"))
                   .Batch({batch::Lookup("X")})
                   .Pir("(input:X)"));
}

}  // namespace weft
