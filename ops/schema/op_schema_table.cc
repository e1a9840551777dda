// The table of all schemas. Not in op_schema.cc, because the families, which it calls, use
// inference contexts, and those use OpSchema.
#include "ops/schema/extra/families.h"
#include "ops/schema/families.h"
#include "ops/schema/op_schema.h"

namespace weft {
namespace {

// Never destroyed: pointers to schemas are kept until the process ends.
const OpSchemaTable& Table() {
  static const OpSchemaTable* const table = [] {
    auto* all = new OpSchemaTable;
    AddCoreSchemas(all);
    AddExtraSchemas(all);  // derives some from those of the core
    return all;
  }();
  return *table;
}

}  // namespace

const OpSchema* FindOpSchema(absl::string_view type) { return Table().Find(type); }

std::vector<const OpSchema*> AllOpSchemas() { return Table().All(); }

}  // namespace weft
