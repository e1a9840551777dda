// An engine that computes wrongly, for tests.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_SELF_TEST_TESTING_H_
#define WEFT_EXECUTOR_COMMUNICATORS_SELF_TEST_TESTING_H_

#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "base/status_macros.h"
#include "executor/communicators/communicator.h"

namespace weft::testing {

// Calls of `group`. The last element that a call of the kind and of at least `count` elements
// gives to a rank is too large.
class WrongGroup : public CommunicatorGroup {
 public:
  WrongGroup(std::unique_ptr<CommunicatorGroup> group, CollectiveKind kind, int64_t count)
      : group_(std::move(group)), kind_(kind), count_(count) {}

  absl::StatusOr<Communicator*> Get(const RingKey& ring, int rank) override {
    WEFT_ASSIGN_OR_RETURN(Communicator * inner, group_->Get(ring, rank));
    std::lock_guard<std::mutex> lock(mutex_);
    return &ends_.emplace_back(*this, inner);
  }
  void Abort(const absl::Status& status) override { group_->Abort(status); }

 private:
  class End : public Communicator {
   public:
    End(const WrongGroup& group, Communicator* inner) : group_(group), inner_(*inner) {}
    int rank() const override { return inner_.rank(); }
    int nranks() const override { return inner_.nranks(); }
    absl::Status Run(const CollectiveCall& call, const void* in, void* out) override {
      WEFT_RETURN_IF_ERROR(inner_.Run(call, in, out));
      int64_t results = call.desc.count;
      if (call.desc.kind == CollectiveKind::kAllGather) results *= nranks();
      if (call.desc.kind == CollectiveKind::kReduceScatter) results /= nranks();
      const bool is_wrong = call.desc.kind == group_.kind_ && call.desc.count >= group_.count_;
      if (is_wrong) static_cast<float*>(out)[results - 1] += 1;
      return absl::OkStatus();
    }

   private:
    const WrongGroup& group_;
    Communicator& inner_;
  };

  const std::unique_ptr<CommunicatorGroup> group_;
  const CollectiveKind kind_;
  const int64_t count_;
  std::mutex mutex_;
  std::deque<End> ends_;
};

}  // namespace weft::testing

#endif  // WEFT_EXECUTOR_COMMUNICATORS_SELF_TEST_TESTING_H_
