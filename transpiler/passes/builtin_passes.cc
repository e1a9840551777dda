#include "transpiler/passes/builtin_passes.h"

#include "transpiler/passes/broadcast_params.h"
#include "transpiler/passes/comm_init.h"
#include "transpiler/passes/dense_gradients.h"
#include "transpiler/passes/embedding_offload.h"
#include "transpiler/passes/exact_loss.h"
#include "transpiler/passes/gather_gradients.h"
#include "transpiler/passes/grad_accumulate.h"
#include "transpiler/passes/grad_all_reduce.h"
#include "transpiler/passes/grad_reduce.h"
#include "transpiler/passes/hetero_partition.h"
#include "transpiler/passes/local_sgd.h"
#include "transpiler/passes/optimizer_offload.h"
#include "transpiler/passes/paddle/paddle_all_gather.h"
#include "transpiler/passes/paddle/paddle_comm_init.h"
#include "transpiler/passes/paddle/paddle_grad_all_reduce.h"
#include "transpiler/passes/paddle/paddle_local_sgd.h"
#include "transpiler/passes/paddle/paddle_multi_thread_fuse.h"
#include "transpiler/passes/paddle/paddle_single_process_fuse.h"
#include "transpiler/passes/paddle/paddle_single_process_scale.h"
#include "transpiler/passes/param_options.h"
#include "transpiler/passes/parameter_server.h"
#include "transpiler/passes/partial_averaging.h"
#include "transpiler/passes/periodic_broadcast.h"
#include "transpiler/passes/reduce_statistics.h"
#include "transpiler/passes/registered_ops.h"
#include "transpiler/passes/scale_loss_grad.h"
#include "transpiler/passes/set_optimizer.h"
#include "transpiler/passes/sparsify_gradients.h"
#include "transpiler/passes/sync_elimination.h"

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
  registry.Add<ReduceStatistics>();
  registry.Add<RegisteredOps>();
  registry.Add<ScaleLossGrad>();
  registry.Add<SetOptimizer>();
  registry.Add<SparsifyGradients>();
  registry.Add<SyncElimination>();
  return registry;
}

}  // namespace weft
