// Hands messages and the first failure to those who listen, on one thread.
#ifndef WEFT_EXECUTOR_JOBS_JOB_DISPATCHER_H_
#define WEFT_EXECUTOR_JOBS_JOB_DISPATCHER_H_

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "executor/jobs/job_link.h"

namespace weft {

// A slow handler delays handlers only. Thread-safe.
class JobDispatcher {
 public:
  JobDispatcher() : thread_([this] { Run(); }) {}
  ~JobDispatcher() { Stop(); }

  // Calls no handler any more. Waits for the one that runs.
  void Stop();

  // See JobLink.
  void Listen(JobLink::Topic topic, JobLink::Handler handler);
  void OnFailure(std::function<void(const absl::Status&)> handler);

  void Deliver(int process, JobLink::Topic topic, std::string message);
  // The first counts. It overtakes messages that wait.
  void Fail(const absl::Status& failure);

  // Waits until all messages that have come, and that somebody listens to, are handled. Returns
  // whether they are. True at once on the thread of the handlers.
  bool WaitUntilIdle(std::chrono::steady_clock::time_point deadline);

 private:
  struct Message {
    uint64_t number;  // in order of arrival
    int process;
    std::string text;
  };
  struct Listener {
    std::shared_ptr<const JobLink::Handler> handler;
    std::deque<Message> messages;
  };
  static constexpr int kNothing = -1;
  static constexpr int kFailure = JobLink::kNumTopics;  // as if it were a topic

  void Run();
  // The topic of the message to handle next.
  int Next() const;
  // Waits until the handler of the topic that runs now, if any, has returned.
  void WaitFor(int topic, std::unique_lock<std::mutex>* lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Listener, JobLink::kNumTopics> listeners_;
  std::shared_ptr<const std::function<void(const absl::Status&)>> on_failure_;
  absl::Status failure_;
  bool is_failure_told_ = false;  // to on_failure_
  uint64_t num_messages_ = 0;
  uint64_t num_runs_ = 0;   // of handlers
  int running_ = kNothing;  // the topic whose handler runs
  bool is_ending_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_JOBS_JOB_DISPATCHER_H_
