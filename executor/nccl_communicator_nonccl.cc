#include "executor/nccl_communicator.h"

namespace weft {

absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewNcclGroup(int /*nranks*/) {
  return absl::UnavailableError("built without NCCL");
}

}  // namespace weft
