#include "executor/step_gate.h"

#include <algorithm>

namespace weft {

bool StepGate::Begins(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!is_stopped_ && stops_ && stops_()) {
    is_stopped_ = true;
    end_ = std::min(end_, next_);
  }
  if (step >= end_) return false;
  next_ = std::max(next_, step + 1);
  return true;
}

int64_t StepGate::end() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return end_;
}

absl::Status StateGate::Pass(int rank, RankState state) {
  std::unique_lock<std::mutex> lock(mutex_);
  states_[rank] = std::move(state);
  if (++num_waiting_ == states_.size()) {
    num_waiting_ = 0;
    ++num_passed_;
    std::vector<RankState> states(states_.size());
    states.swap(states_);
    status_ = absl::ResourceExhaustedError("out of memory");  // if `use` throws
    status_ = is_stopped_ ? absl::AbortedError("the run was aborted") : use_(std::move(states));
    has_passed_.notify_all();
    return status_;
  }
  const int64_t before = num_passed_;
  has_passed_.wait(lock, [&] { return num_passed_ > before || is_stopped_; });
  return num_passed_ > before ? status_ : absl::AbortedError("the run was aborted");
}

void StateGate::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  is_stopped_ = true;
  has_passed_.notify_all();
}

}  // namespace weft
