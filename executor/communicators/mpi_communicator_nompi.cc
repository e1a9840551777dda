#include "executor/communicators/mpi_communicator.h"

namespace weft {

// By value, for the function with MPI, which keeps the options.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewMpiGroup(GroupOptions /*options*/) {
  return absl::UnimplementedError("this build has no MPI: install libopenmpi-dev and build again");
}

}  // namespace weft
