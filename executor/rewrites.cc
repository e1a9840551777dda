#include "executor/rewrites.h"

#include "executor/channels_last.h"
#include "executor/fuse_post_ops.h"
#include "executor/implied_waits.h"
#include "executor/merge_updates.h"
#include "executor/updates_from_zero.h"

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
