#include "ops/schema/fusion.h"

namespace weft {

PostOpKind AsPostOp(absl::string_view type) {
  if (type == "elementwise_add") return PostOpKind::kAdd;
  if (type == "relu") return PostOpKind::kRelu;
  return PostOpKind::kNone;
}

}  // namespace weft
