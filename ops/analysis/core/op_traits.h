// Traits of the ops of one program, looked up by signature instead of by name.
#ifndef WEFT_OPS_ANALYSIS_CORE_OP_TRAITS_H_
#define WEFT_OPS_ANALYSIS_CORE_OP_TRAITS_H_

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/types/optional.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/program.h"

namespace weft {

// Schemas by signature. A program with a million ops has a hundred signatures. Also finds ops that
// were added since construction. Not thread-safe.
class OpTraits {
 public:
  explicit OpTraits(const Program& program) : by_signature_(program.num_signatures()) {}

  // The schema of an op's type; nullptr for an unregistered op.
  const OpSchema* SchemaOf(const Op& op) {
    const uint32_t signature = op.signature_id();
    if (signature >= by_signature_.size()) by_signature_.resize(signature + 1);
    absl::optional<const OpSchema*>& schema = by_signature_[signature];
    if (!schema.has_value()) schema = FindOpSchema(op.type());
    return *schema;
  }

  // Whether the op has the trait. An unregistered op has none; see IsRegistered.
  bool Has(const Op& op, Trait trait) {
    const OpSchema* schema = SchemaOf(op);
    return schema != nullptr && schema->Has(trait);
  }
  bool IsRegistered(const Op& op) { return SchemaOf(op) != nullptr; }

 private:
  std::vector<absl::optional<const OpSchema*>> by_signature_;  // by Op::signature_id
};

// Whether an op of any block has the trait. O(ops).
inline bool AnyHas(const Program& program, Trait trait) {
  OpTraits traits(program);
  return absl::c_any_of(AllOps(program), [&](const Op& op) { return traits.Has(op, trait); });
}

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_OP_TRAITS_H_
