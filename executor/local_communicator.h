// Collectives between ranks that are threads of one process.
#ifndef WEFT_EXECUTOR_LOCAL_COMMUNICATOR_H_
#define WEFT_EXECUTOR_LOCAL_COMMUNICATOR_H_

#include <functional>
#include <memory>
#include <string>

#include "executor/communicator.h"

namespace weft {

struct LocalGroupOptions {
  int nranks = 1;
  // A rank that does not arrive is told of after so long, once per call, ...
  double warn_after_s = 60;
  // ... and is an error on all ranks that wait after so long. Both count from the arrival of the
  // rank that waits.
  double timeout_s = 600;
  // Called from a stream that waits; may be empty.
  std::function<void(const std::string&)> warn;
};

// Ranks meet at every call of a ring and work on each other's buffers: each reduces its part of the
// elements for all (small ones are done by the rank that arrives last), so nothing is copied but
// results. Sums are left folds in rank order: bit-identical on every rank and from run to run.
//
// An all-reduce of B bytes over n ranks reads n*B and writes n*B bytes, by n threads, with two
// meetings (one where it is small).
std::unique_ptr<CommunicatorGroup> NewLocalGroup(LocalGroupOptions options);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOCAL_COMMUNICATOR_H_
