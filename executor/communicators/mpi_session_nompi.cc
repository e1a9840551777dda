#include "executor/communicators/mpi_session.h"

namespace weft {

bool MpiSession::IsInBuild() { return false; }

absl::StatusOr<std::unique_ptr<MpiSession>> MpiSession::Start() {
  return absl::UnimplementedError("this build has no MPI: install libopenmpi-dev and build again");
}

}  // namespace weft
