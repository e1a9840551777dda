#include "ops/analysis/op_traits.h"

namespace weft {

const OpSchema* OpTraits::SchemaOf(const Op& op) {
  const uint32_t type = op.type_symbol().value();
  if (type >= by_type_.size()) by_type_.resize(type + 1);
  Entry& entry = by_type_[type];
  if (!entry.looked_up) entry = {true, FindOpSchema(op.type())};
  return entry.schema;
}

}  // namespace weft
