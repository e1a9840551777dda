#include "executor/communicators/gloo_communicator.h"

namespace weft {

// By value, for the function with Gloo, which keeps the options.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewGlooGroup(GroupOptions /*options*/) {
  return absl::UnimplementedError("this build has no Gloo: install libgloo-dev and build again");
}

}  // namespace weft
