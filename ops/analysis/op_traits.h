// Traits of the ops of one program, looked up by number instead of by name.
#ifndef WEFT_OPS_ANALYSIS_OP_TRAITS_H_
#define WEFT_OPS_ANALYSIS_OP_TRAITS_H_

#include <vector>

#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

// Schemas by signature. A program with a million ops has a hundred signatures. Ops that are new
// since construction are looked up too. Not thread-safe.
class OpTraits {
 public:
  explicit OpTraits(const Program& program) : by_signature_(program.num_signatures()) {}

  // The schema of an op's type; nullptr for an unregistered op.
  const OpSchema* SchemaOf(const Op& op);

  // Whether the op has the trait. An unregistered op has none: ask IsRegistered where that matters.
  bool Has(const Op& op, Trait trait) {
    const OpSchema* schema = SchemaOf(op);
    return schema != nullptr && schema->Has(trait);
  }
  bool IsRegistered(const Op& op) { return SchemaOf(op) != nullptr; }

 private:
  struct Entry {
    bool looked_up = false;
    const OpSchema* schema = nullptr;
  };
  std::vector<Entry> by_signature_;  // by Op::signature_id
};

// Whether some op of any block has the trait. O(ops).
bool AnyHas(const Program& program, Trait trait);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_OP_TRAITS_H_
