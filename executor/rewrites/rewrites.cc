#include "executor/rewrites/rewrites.h"

#include "executor/rewrites/channels_last.h"
#include "executor/rewrites/fuse_post_ops.h"
#include "executor/rewrites/implied_waits.h"
#include "executor/rewrites/merge_updates.h"
#include "executor/rewrites/updates_from_zero.h"

namespace weft {

void RewritePlan(const KernelTable& kernels, const RewriteOptions& options, Plan* plan) {
  KeepChannelsLast(kernels, options.accessed, plan);
  if (options.fuses_ops) {
    FusePostOps(options.accessed, plan);
    StartUpdatesFromZero(options.accessed, plan);
    MergeUpdates(plan);
  }
  RemoveImpliedWaits(plan);
}

}  // namespace weft
