#include "ops/analysis/op_traits.h"

namespace weft {

const OpSchema* OpTraits::SchemaOf(const Op& op) {
  const uint32_t layout = op.layout_id();
  if (layout >= by_layout_.size()) by_layout_.resize(layout + 1);
  Entry& entry = by_layout_[layout];
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
