#include "absl/strings/str_cat.h"
#include "executor/nccl_communicator.h"

namespace weft {
namespace {

class NoRings : public CommunicatorGroup {
 public:
  explicit NoRings(int nranks) : nranks_(nranks) {}
  int nranks() const override { return nranks_; }
  absl::StatusOr<Communicator*> Get(RingKey ring, int /*rank*/) override {
    return absl::UnavailableError(absl::StrCat(ToString(ring), ": built without NCCL"));
  }
  void Abort(int /*rank*/, const absl::Status& /*status*/) override {}

 private:
  const int nranks_;
};

}  // namespace

std::unique_ptr<CommunicatorGroup> NewNcclGroup(NcclGroupOptions options) {
  return std::make_unique<NoRings>(options.nranks);
}

}  // namespace weft
