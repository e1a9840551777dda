// Collectives between ranks that are threads of one process.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_LOCAL_COMMUNICATOR_H_
#define WEFT_EXECUTOR_COMMUNICATORS_LOCAL_COMMUNICATOR_H_

#include <memory>

#include "executor/communicators/communicator.h"

namespace weft {

// Ranks rendezvous at every call of a ring and work on each other's buffers
// (executor/communicators/ring_communicator.h). Each reduces its part of the elements for all
// ranks, so only results are copied; of small ones, each reduces all. Sums are left folds in rank
// order: bit-identical on every rank and in every run. The times of the options count from the
// arrival of the waiting rank; its stream calls `warn`.
//
// An all-reduce of B bytes over n ranks reads n*B and writes n*B bytes, with n threads and two
// rendezvous (one for small calls).
std::unique_ptr<CommunicatorGroup> NewLocalGroup(GroupOptions options);

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_LOCAL_COMMUNICATOR_H_
