#include "absl/strings/str_cat.h"
#include "executor/nccl_communicator.h"

namespace weft {
namespace {

class NoRings : public CommunicatorGroup {
 public:
  absl::StatusOr<Communicator*> Get(const RingKey& ring, int /*rank*/) override {
    return absl::UnavailableError(absl::StrCat(ToString(ring), ": built without NCCL"));
  }
  void Abort(const absl::Status& /*status*/) override {}
};

}  // namespace

// By value, for the function with NCCL, which keeps the options.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
absl::StatusOr<std::unique_ptr<CommunicatorGroup>> NewNcclGroup(GroupOptions /*options*/) {
  return std::make_unique<NoRings>();
}

}  // namespace weft
