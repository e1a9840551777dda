#include "executor/jobs/job_dispatcher.h"

#include <utility>

namespace weft {

void JobDispatcher::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void JobDispatcher::Listen(JobLink::Topic topic, JobLink::Handler handler) {
  std::unique_lock<std::mutex> lock(mutex_);
  auto& current = listeners_[static_cast<int>(topic)].handler;
  current = handler ? std::make_shared<const JobLink::Handler>(std::move(handler)) : nullptr;
  changed_.notify_all();
  WaitFor(static_cast<int>(topic), &lock);
}

void JobDispatcher::OnFailure(std::function<void(const absl::Status&)> handler) {
  std::unique_lock<std::mutex> lock(mutex_);
  on_failure_ =
      handler ? std::make_shared<const std::function<void(const absl::Status&)>>(std::move(handler))
              : nullptr;
  is_failure_told_ = false;
  changed_.notify_all();
  WaitFor(kFailure, &lock);
}

void JobDispatcher::Deliver(int process, JobLink::Topic topic, std::string message) {
  std::lock_guard<std::mutex> lock(mutex_);
  listeners_[static_cast<int>(topic)].messages.push_back(
      {num_messages_++, process, std::move(message)});
  changed_.notify_all();
}

void JobDispatcher::Fail(const absl::Status& failure) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.ok()) failure_ = failure;
  changed_.notify_all();
}

bool JobDispatcher::WaitUntilIdle(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (std::this_thread::get_id() == thread_.get_id()) return true;
  return changed_.wait_until(lock, deadline,
                             [&] { return running_ == kNothing && Next() == kNothing; });
}

int JobDispatcher::Next() const {
  if (!failure_.ok() && on_failure_ != nullptr && !is_failure_told_) return kFailure;
  int next = kNothing;
  for (int topic = 0; topic < JobLink::kNumTopics; ++topic) {
    const Listener& listener = listeners_[topic];
    if (listener.handler == nullptr || listener.messages.empty()) continue;
    if (next == kNothing ||
        listener.messages.front().number < listeners_[next].messages.front().number) {
      next = topic;
    }
  }
  return next;
}

void JobDispatcher::WaitFor(int topic, std::unique_lock<std::mutex>* lock) {
  // A handler that replaces itself does not wait for its own end.
  if (std::this_thread::get_id() == thread_.get_id()) return;
  const uint64_t runs = num_runs_;
  changed_.wait(*lock, [&] { return running_ != topic || num_runs_ > runs; });
}

void JobDispatcher::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_ending_ || Next() != kNothing; });
    if (is_ending_) return;
    running_ = Next();
    ++num_runs_;
    if (running_ == kFailure) {
      is_failure_told_ = true;
      // The handlers end with the copies, on this thread, before it says that they do not run.
      auto handler = on_failure_;
      const absl::Status failure = failure_;
      lock.unlock();
      (*handler)(failure);
      handler.reset();
      lock.lock();
    } else {
      Listener& listener = listeners_[running_];
      Message message = std::move(listener.messages.front());
      listener.messages.pop_front();
      auto handler = listener.handler;
      lock.unlock();
      (*handler)(message.process, std::move(message.text));
      handler.reset();
      lock.lock();
    }
    running_ = kNothing;
    changed_.notify_all();
  }
}

}  // namespace weft
