// Links for tests.
#ifndef WEFT_EXECUTOR_JOBS_JOB_LINK_TESTING_H_
#define WEFT_EXECUTOR_JOBS_JOB_LINK_TESTING_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "executor/jobs/job_link.h"

namespace weft::testing {

// Of no secret.
inline constexpr char kTestToken[] = "0123456789abcdef0123456789abcdef";

// An address at which nobody else of this host listens.
std::string NewTestAddress();

// Links between `n` processes that are threads of this one, by process. The address and the numbers
// of processes in `options` do not matter. Dies if the links cannot be made.
std::vector<std::unique_ptr<JobLink>> MakeLinks(int n, JobLinkOptions options = {});

// Stands between process 0 and another, which takes its address for that of process 0, and counts
// the bytes that this one gets.
class LinkRelay {
 public:
  // `address`: of process 0, from NewTestAddress. Dies if it cannot listen.
  explicit LinkRelay(const std::string& address);
  ~LinkRelay();

  const std::string& address() const { return address_; }
  int64_t received_bytes() const { return received_bytes_; }

 private:
  void Accept(const std::string& to);
  // Calls `count` with the sizes of what it sends on.
  void Pump(int from, int to, const std::function<void(int64_t)>& count);

  const std::string address_;
  std::atomic<int64_t> received_bytes_{0};
  std::atomic<bool> is_stopped_{false};
  const int listener_;
  std::list<std::thread> pumps_;  // of the thread that accepts, until it has ended
  std::vector<int> sockets_;      // likewise
  std::thread accepts_;
};

}  // namespace weft::testing

#endif  // WEFT_EXECUTOR_JOBS_JOB_LINK_TESTING_H_
