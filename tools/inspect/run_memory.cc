#include "tools/inspect/run_memory.h"

#include <algorithm>
#include <vector>

#include "ops/analysis/core/communication.h"
#include "ops/analysis/training/num_ranks.h"
#include "ops/kernel.h"
#include "ops/schema/communication_ops.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

// So many ranks that all groups are ranks of the run.
int RanksOfGroups(const Program& program) {
  int most = 1;
  for (const Op& op : AllOps(program)) {
    const absl::StatusOr<std::vector<int>> ranks = GroupRanksOf(op);
    if (ranks.ok() && !ranks->empty()) most = std::max(most, ranks->back() + 1);
  }
  return most;
}

// Ranks with messages, up to the last one that this program names; 0: it has none.
int RanksOfPeers(const Program& program) {
  int most = 0;
  for (const Op& op : AllOps(program)) {
    if (!FindMessageOp(op.type()).has_value()) continue;
    most = std::max(most, static_cast<int>(op.IntAttr("peer").value_or(0)) + 1);
  }
  return most;
}

}  // namespace

absl::StatusOr<MemoryEstimate> PredictRunMemory(const Program& program, int64_t batch) {
  PlanOptions options;
  options.kernels = &CpuKernels();
  options.nranks = std::max(FindNumRanks(program, nullptr).value_or(1), RanksOfGroups(program));
  const int peers = RanksOfPeers(program);
  if (peers > 0) {  // the program of one rank, which is none of these
    options.nranks = std::max(options.nranks, peers + 1);
    options.rank = options.nranks - 1;
  }
  return EstimateMemory(program, options, batch);
}

}  // namespace weft
