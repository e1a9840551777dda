#include "transpiler/passes/builtin_passes.h"

#include "transpiler/passes/averaging/local_sgd.h"
#include "transpiler/passes/compat/grad_reduce.h"
#include "transpiler/passes/compat/partial_averaging.h"
#include "transpiler/passes/compat/periodic_broadcast.h"
#include "transpiler/passes/compat/sparsify_gradients.h"
#include "transpiler/passes/devices/embedding_offload.h"
#include "transpiler/passes/devices/hetero_partition.h"
#include "transpiler/passes/devices/optimizer_offload.h"
#include "transpiler/passes/gradients/dense_gradients.h"
#include "transpiler/passes/gradients/exact_loss.h"
#include "transpiler/passes/gradients/gather_gradients.h"
#include "transpiler/passes/gradients/grad_all_reduce.h"
#include "transpiler/passes/gradients/power_sgd.h"
#include "transpiler/passes/gradients/reduce_statistics.h"
#include "transpiler/passes/gradients/scale_loss_grad.h"
#include "transpiler/passes/gradients/sync_batch_norm.h"
#include "transpiler/passes/lowering/lower_to_target.h"
#include "transpiler/passes/lowering/sync_elimination.h"
#include "transpiler/passes/paddle/paddle_all_gather.h"
#include "transpiler/passes/paddle/paddle_comm_init.h"
#include "transpiler/passes/paddle/paddle_grad_all_reduce.h"
#include "transpiler/passes/paddle/paddle_local_sgd.h"
#include "transpiler/passes/paddle/paddle_multi_thread_fuse.h"
#include "transpiler/passes/paddle/paddle_single_process_fuse.h"
#include "transpiler/passes/paddle/paddle_single_process_scale.h"
#include "transpiler/passes/servers/parameter_server.h"
#include "transpiler/passes/setup/broadcast_params.h"
#include "transpiler/passes/setup/comm_init.h"
#include "transpiler/passes/sharding/shard_updates.h"
#include "transpiler/passes/updates/grad_accumulate.h"
#include "transpiler/passes/updates/param_options.h"
#include "transpiler/passes/updates/set_optimizer.h"

namespace weft {

PassRegistry BuiltinPasses() {
  PassRegistry registry;
  registry.Add<BroadcastParams>();
  registry.Add<CommInit>();
  registry.Add<DenseGradients>();
  registry.Add<EmbeddingOffload>();
  registry.Add<ExactLoss>();
  registry.Add<GatherGradients>();
  registry.Add<GradAccumulate>();
  registry.Add<GradAllReduce>();
  registry.Add<GradReduce>();
  registry.Add<HeteroPartition>();
  registry.Add<LocalSgd>();
  registry.Add<LowerToTarget>();
  registry.Add<OptimizerOffload>();
  registry.Add<PaddleAllGather>();
  registry.Add<PaddleCommInit>();
  registry.Add<PaddleGradAllReduce>();
  registry.Add<PaddleLocalSgd>();
  registry.Add<PaddleMultiThreadFuse>();
  registry.Add<PaddleSingleProcessFuse>();
  registry.Add<PaddleSingleProcessScale>();
  registry.Add<ParamOptions>();
  registry.Add<ParameterServer>();
  registry.Add<PartialAveraging>();
  registry.Add<PeriodicBroadcast>();
  registry.Add<PowerSgd>();
  registry.Add<ReduceStatistics>();
  registry.Add<ScaleLossGrad>();
  registry.Add<SetOptimizer>();
  registry.Add<ShardUpdates>();
  registry.Add<SparsifyGradients>();
  registry.Add<SyncBatchNorm>();
  registry.Add<SyncElimination>();
  return registry;
}

}  // namespace weft
