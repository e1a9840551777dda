#include "ops/analysis/op_traits.h"

namespace weft {

const OpSchema* OpTraits::SchemaOf(const Op& op) {
  const uint32_t signature = op.signature_id();
  if (signature >= by_signature_.size()) by_signature_.resize(signature + 1);
  Entry& entry = by_signature_[signature];
  if (!entry.looked_up) entry = {true, FindOpSchema(op.type())};
  return entry.schema;
}

bool AnyHas(const Program& program, Trait trait) {
  OpTraits traits(program);
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (OpId id : program.block(block).ops()) {
      if (traits.Has(program.op(id), trait)) return true;
    }
  }
  return false;
}

}  // namespace weft
