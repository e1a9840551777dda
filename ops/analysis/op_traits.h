// Traits of the ops of one program, looked up by number instead of by name.
#ifndef WEFT_OPS_ANALYSIS_OP_TRAITS_H_
#define WEFT_OPS_ANALYSIS_OP_TRAITS_H_

#include <vector>

#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

// Schemas by op-type symbol. A program with a million ops has a hundred types. Ops of types that
// are new since construction are looked up too. Not thread-safe.
class OpTraits {
 public:
  explicit OpTraits(const Program& program) : program_(program) {}

  // The schema of an op's type; nullptr where the type is not known.
  const OpSchema* SchemaOf(const Op& op);

  // Whether the op has the trait. An op of unknown type has none: ask IsKnown where that matters.
  bool Has(const Op& op, Trait trait) {
    const OpSchema* schema = SchemaOf(op);
    return schema != nullptr && schema->Has(trait);
  }
  bool IsKnown(const Op& op) { return SchemaOf(op) != nullptr; }

 private:
  struct Entry {
    bool looked_up = false;
    const OpSchema* schema = nullptr;
  };
  const Program& program_;
  std::vector<Entry> by_type_;  // by Symbol
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_OP_TRAITS_H_
