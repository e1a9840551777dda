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
  // A late rank is reported after this time, once per call.
  double warn_after_s = 60;
  // After this time, all ranks that wait fail. Both times count from the arrival of the waiting
  // rank.
  double timeout_s = 600;
  // Called from a stream that waits; may be empty.
  std::function<void(const std::string&)> warn;
};

// Ranks rendezvous at every call of a ring and work on each other's buffers. Each reduces its part
// of the elements for all ranks (the last rank to arrive reduces small ones), so only results are
// copied. Sums are left folds in rank order: bit-identical on every rank and in every run.
//
// An all-reduce of B bytes over n ranks reads n*B and writes n*B bytes, with n threads and two
// rendezvous (one for small calls).
std::unique_ptr<CommunicatorGroup> NewLocalGroup(LocalGroupOptions options);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOCAL_COMMUNICATOR_H_
