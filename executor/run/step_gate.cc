#include "executor/run/step_gate.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/wait_briefly.h"

namespace weft {

namespace {

// Messages on topic kStop. Numbers follow "begun " and "end ".
constexpr absl::string_view kAsk = "ask", kFreeze = "freeze", kBegun = "begun ", kEnd = "end ";

}  // namespace

StepGate::StepGate(int64_t begin, int64_t end, std::function<bool()> stops, JobLink* link,
                   std::function<void()> on_asked)
    : stops_(std::move(stops)),
      on_asked_(std::move(on_asked)),
      link_(link),
      end_(end),
      next_(begin) {
  if (link_ == nullptr) return;
  link_->Listen(JobLink::Topic::kStop,
                [this](int process, const std::string& message) { Receive(process, message); });
}

StepGate::~StepGate() {
  if (link_ != nullptr) link_->Listen(JobLink::Topic::kStop, nullptr);
}

void StepGate::AskToStop() {
  std::lock_guard<std::mutex> lock(mutex_);
  AskWhetherToStop();
}

void StepGate::AskWhetherToStop() {
  if (has_asked_ || !stops_ || !stops_()) return;
  has_asked_ = true;
  if (link_ == nullptr) {
    end_ = std::min(end_, next_);
  } else {
    link_->Send(0, JobLink::Topic::kStop, std::string(kAsk));
  }
}

bool StepGate::Begins(int64_t step) {
  std::unique_lock<std::mutex> lock = LockBriefly(&mutex_);
  AskWhetherToStop();
  is_decided_.wait(lock, [&] { return !is_frozen_ || is_stopped_; });
  if (is_stopped_ || step >= end_) return false;
  next_ = std::max(next_, step + 1);
  return true;
}

void StepGate::Receive(int /*process*/, absl::string_view message) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto send_all = [&](const std::string& text) {
    for (int p = 0; p < link_->num_processes(); ++p) link_->Send(p, JobLink::Topic::kStop, text);
  };
  int64_t number = 0;
  if (message == kAsk) {
    if (!has_begun_to_ask_) send_all(std::string(kFreeze));
    has_begun_to_ask_ = true;
  } else if (message == kFreeze) {
    is_frozen_ = true;
    if (on_asked_) on_asked_();
    link_->Send(0, JobLink::Topic::kStop, absl::StrCat(kBegun, next_));
  } else if (absl::ConsumePrefix(&message, kBegun) && absl::SimpleAtoi(message, &number)) {
    last_answer_ = std::max(last_answer_, number);
    if (++num_answers_ == link_->num_processes()) send_all(absl::StrCat(kEnd, last_answer_));
  } else if (absl::ConsumePrefix(&message, kEnd) && absl::SimpleAtoi(message, &number)) {
    end_ = std::min(end_, number);
    is_frozen_ = false;
    is_decided_.notify_all();
  }
}

void StepGate::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  is_stopped_ = true;
  is_decided_.notify_all();
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
    std::vector<RankState> states(states_.size());
    states.swap(states_);
    if (is_stopped_) return absl::AbortedError("the run was aborted");
    is_in_use_ = true;
    lock.unlock();  // `use` may wait for other processes
    absl::Status status;
    {
      const auto relock = absl::MakeCleanup([&] {  // also if `use` throws
        lock.lock();
        is_in_use_ = false;
        has_passed_.notify_all();
      });
      status = use_(std::move(states));
    }
    status_ = std::move(status);
    ++num_passed_;
    return status_;
  }
  const int64_t before = num_passed_;
  // The states may be in the memory of this rank.
  has_passed_.wait(lock, [&] { return num_passed_ > before || (is_stopped_ && !is_in_use_); });
  return num_passed_ > before ? status_ : absl::AbortedError("the run was aborted");
}

void StateGate::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  is_stopped_ = true;
  has_passed_.notify_all();
}

}  // namespace weft
