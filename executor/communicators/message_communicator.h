// One rank's end of a ring of ranks that exchange messages.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_MESSAGE_COMMUNICATOR_H_
#define WEFT_EXECUTOR_COMMUNICATORS_MESSAGE_COMMUNICATOR_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "executor/communicators/communicator.h"
#include "executor/communicators/message_collectives.h"

namespace weft {

// The calls that ranks of the run are in, as far as known.
using FindPositions = std::function<std::map<int, std::string>(const std::vector<int>& ranks)>;

class MessageRingEnd : public Communicator {
 public:
  // No call succeeds any more. The first error counts.
  virtual void Break(const absl::Status& status) = 0;
  // The call that the rank is in: "ring 1, all-reduce #3 of x (fp32[4])"; empty: none.
  virtual std::string Position() const = 0;
};

// For NewMessageGroup. `rank` and `nranks` are of the ring; no transport for one rank. `options`
// must outlive the end.
std::unique_ptr<MessageRingEnd> NewMessageRingEnd(RingKey key, int rank, int nranks,
                                                  const GroupOptions& options,
                                                  FindPositions find_positions,
                                                  std::unique_ptr<Transport> transport);

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_MESSAGE_COMMUNICATOR_H_
