// Traits of the ops of one program, looked up by signature instead of by name.
#ifndef WEFT_OPS_ANALYSIS_CORE_OP_TRAITS_H_
#define WEFT_OPS_ANALYSIS_CORE_OP_TRAITS_H_

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/program.h"

namespace weft {

// Schemas by signature. A program with a million ops has a hundred signatures. Of ops that were
// added since construction, too. O(ops) to make.
class OpTraits {
 public:
  explicit OpTraits(const Program& program) : by_signature_(program.num_signatures()) {
    for (const Op& op : AllOps(program)) {
      absl::optional<const OpSchema*>& schema = by_signature_[op.signature_id()];
      if (!schema.has_value()) schema = FindOpSchema(op.type());
    }
  }

  // The schema of an op's type; nullptr for an unregistered op.
  const OpSchema* SchemaOf(const Op& op) const {
    const uint32_t signature = op.signature_id();
    const bool is_known = signature < by_signature_.size() && by_signature_[signature].has_value();
    return is_known ? *by_signature_[signature] : FindOpSchema(op.type());
  }

  // Whether the op has the trait. An unregistered op has none; see IsRegistered.
  bool Has(const Op& op, Trait trait) const {
    const OpSchema* schema = SchemaOf(op);
    return schema != nullptr && schema->Has(trait);
  }
  bool IsRegistered(const Op& op) const { return SchemaOf(op) != nullptr; }

  // Whether an op that the program had at construction has the trait. O(signatures).
  bool AnyHas(Trait trait) const {
    return absl::c_any_of(by_signature_, [&](const absl::optional<const OpSchema*>& schema) {
      return schema.has_value() && *schema != nullptr && (*schema)->Has(trait);
    });
  }

 private:
  std::vector<absl::optional<const OpSchema*>> by_signature_;  // none: no op has it
};

// Whether an op of any block has the trait. O(ops), once.
inline bool AnyHas(const ProgramFacts& facts, Trait trait) {
  return facts.Get<OpTraits>().AnyHas(trait);
}

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_OP_TRAITS_H_
