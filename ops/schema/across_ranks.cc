#include "ops/schema/across_ranks.h"

namespace weft {

bool ComputesAcrossRanks(absl::string_view type, const OpAttrs& attrs) {
  if (type != "sync_batch_norm" && type != "sync_batch_norm_grad") return false;
  const bool is_test = attrs.Bool("is_test") && !attrs.Bool("trainable_statistics");
  return !is_test && !attrs.Bool("use_global_stats");
}

}  // namespace weft
