// Ops that are not collectives but compute from the examples of all ranks.
#ifndef WEFT_OPS_SCHEMA_ACROSS_RANKS_H_
#define WEFT_OPS_SCHEMA_ACROSS_RANKS_H_

#include "absl/strings/string_view.h"
#include "ops/schema/op_attrs.h"

namespace weft {

inline constexpr absl::string_view kAcrossRanksTypes[] = {"sync_batch_norm",
                                                          "sync_batch_norm_grad"};
inline bool IsAcrossRanksType(absl::string_view type) {
  return type == kAcrossRanksTypes[0] || type == kAcrossRanksTypes[1];
}

// Whether the op takes moments over the batches of all ranks. sync_batch_norm and its gradient do,
// unless they normalize by running moments. On one rank they equal batch_norm. On several ranks, an
// op of type NAME_sums computes sums of the rank's part, the sums of all ranks are gathered, and
// the op reads them as Sums (executor/plan/plan.cc).
inline bool ComputesAcrossRanks(absl::string_view type, const OpAttrs& attrs) {
  if (!IsAcrossRanksType(type)) return false;
  const bool is_test = attrs.Bool("is_test") && !attrs.Bool("trainable_statistics");
  return !is_test && !attrs.Bool("use_global_stats");
}

// The op that computes the same on one device: batch_norm for sync_batch_norm, and so on; for other
// ops `type`.
inline absl::string_view TypeOnOneDevice(absl::string_view type) {
  if (IsAcrossRanksType(type)) type.remove_prefix(kAcrossRanksTypes[0].find("batch"));
  return type;
}

inline bool IsBatchNorm(absl::string_view type) {
  return TypeOnOneDevice(type) == TypeOnOneDevice(kAcrossRanksTypes[0]);
}
// Whether the op is one of these gradients, or that of the op on one device.
inline bool IsBatchNormGradient(absl::string_view type) {
  return TypeOnOneDevice(type) == TypeOnOneDevice(kAcrossRanksTypes[1]);
}

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_ACROSS_RANKS_H_
