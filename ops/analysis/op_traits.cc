#include "ops/analysis/op_traits.h"

namespace weft {

const OpSchema* OpTraits::SchemaOf(const Op& op) {
  const uint32_t layout = op.layout_id();
  if (layout >= by_layout_.size()) by_layout_.resize(layout + 1);
  Entry& entry = by_layout_[layout];
  if (!entry.looked_up) entry = {true, FindOpSchema(op.type())};
  return entry.schema;
}

}  // namespace weft
