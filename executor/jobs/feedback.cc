#include "executor/jobs/feedback.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/base/casts.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft {

FeedbackGate::FeedbackGate(const Feedback& feedback, int64_t begin, ResultQueue* results,
                           JobLink* link)
    : feedback_(feedback), begin_(begin), results_(results), link_(link) {
  if (link_ == nullptr || link_->process() == 0) return;
  link_->Listen(JobLink::Topic::kFeedback,
                [this](int, const std::string& message) { Receive(message); });
}

FeedbackGate::~FeedbackGate() {
  if (link_ != nullptr) link_->Listen(JobLink::Topic::kFeedback, nullptr);
}

int64_t FeedbackGate::SetAt(int64_t step) const {
  return std::max(begin_, step - step % feedback_.every);
}

absl::StatusOr<double> FeedbackGate::ValueAt(int64_t step) {
  const int64_t set_at = SetAt(step);
  const bool decides = link_ == nullptr || link_->process() == 0;
  std::unique_lock<std::mutex> lock(mutex_);
  if (decides && set_at_ < set_at && deciding_ < set_at && status_.ok()) {
    deciding_ = set_at;  // the others wait for this rank
    lock.unlock();
    const absl::Status status = Decide(set_at);
    lock.lock();
    status_.Update(status);
    has_changed_.notify_all();
  }
  has_changed_.wait(lock, [&] { return set_at_ == set_at || !status_.ok(); });
  if (set_at_ != set_at) return status_;
  return value_;
}

absl::Status FeedbackGate::Decide(int64_t step) {
  const absl::Status status = results_->WaitUntil(step);
  if (!status.ok()) return status;
  const double value = feedback_.value_at(step);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    set_at_ = step;
    value_ = value;
  }
  if (link_ == nullptr) return absl::OkStatus();
  const std::string message = absl::StrCat(step, " ", absl::bit_cast<uint64_t>(value));
  for (int p = 1; p < link_->num_processes(); ++p) {
    link_->Send(p, JobLink::Topic::kFeedback, message);
  }
  return absl::OkStatus();
}

void FeedbackGate::Receive(absl::string_view message) {
  const std::vector<absl::string_view> parts = absl::StrSplit(message, ' ');
  int64_t step = 0;
  uint64_t bits = 0;
  std::lock_guard<std::mutex> lock(mutex_);
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &step) && absl::SimpleAtoi(parts[1], &bits)) {
    set_at_ = step;
    value_ = absl::bit_cast<double>(bits);
  } else {
    status_.Update(absl::InternalError(absl::StrCat("process 0: expected a step and the value of ",
                                                    feedback_.variable, ", found ", message)));
  }
  has_changed_.notify_all();
}

void FeedbackGate::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  status_.Update(absl::AbortedError("the run was aborted"));
  has_changed_.notify_all();
}

}  // namespace weft
