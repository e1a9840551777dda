#include "ops/schema/work.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/strip.h"

namespace weft {

WorkKind WorkOf(absl::string_view op_type) {
  static const auto* const kinds = new absl::flat_hash_map<absl::string_view, WorkKind>{
      {"mul", WorkKind::kProduct},
      {"matmul", WorkKind::kProduct},
      {"matmul_v2", WorkKind::kProduct},
      {"bmm", WorkKind::kProduct},
      {"mv", WorkKind::kProduct},
      {"conv2d", WorkKind::kConvolution},
      {"depthwise_conv2d", WorkKind::kConvolution},
      {"conv2d_transpose", WorkKind::kTransposedConvolution},
      {"depthwise_conv2d_transpose", WorkKind::kTransposedConvolution},
      {"conv3d", WorkKind::kConvolution},
      {"conv3d_transpose", WorkKind::kTransposedConvolution},
  };
  absl::ConsumeSuffix(&op_type, "_grad");
  const auto it = kinds->find(op_type);
  return it == kinds->end() ? WorkKind::kElements : it->second;
}

}  // namespace weft
