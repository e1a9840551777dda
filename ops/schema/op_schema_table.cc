// The table of all schemas. Apart from op_schema.cc, because the families use inference contexts,
// and those use OpSchema.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/families.h"
#include "ops/schema/op_schema.h"

namespace weft {
namespace {

class Table : public OpSchemaTable {
 public:
  Table() {
    AddCoreSchemas(this);
    AddExtraSchemas(this);  // makes some from those of the core
  }

  void Add(OpSchema schema) override {
    std::string type = schema.type();
    auto entry = std::make_unique<const OpSchema>(std::move(schema));
    if (!schemas_.emplace(type, std::move(entry)).second) {
      std::fprintf(stderr, "two schemas for op type %s\n", type.c_str());
      std::abort();
    }
  }

  const OpSchema* Find(absl::string_view type) const override {
    const auto it = schemas_.find(type);
    return it == schemas_.end() ? nullptr : it->second.get();
  }

  std::vector<const OpSchema*> All() const {
    std::vector<const OpSchema*> all;
    all.reserve(schemas_.size());
    for (const auto& entry : schemas_) all.push_back(entry.second.get());
    std::sort(all.begin(), all.end(),
              [](const OpSchema* a, const OpSchema* b) { return a->type() < b->type(); });
    return all;
  }

 private:
  absl::flat_hash_map<std::string, std::unique_ptr<const OpSchema>> schemas_;
};

// Never destroyed: pointers to schemas are kept until the process ends.
const Table& GetTable() {
  static const Table* const table = new Table;
  return *table;
}

}  // namespace

const OpSchema* FindOpSchema(absl::string_view type) { return GetTable().Find(type); }

std::vector<const OpSchema*> AllOpSchemas() { return GetTable().All(); }

}  // namespace weft
