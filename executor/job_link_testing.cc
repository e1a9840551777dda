#include "executor/job_link_testing.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft::testing {

std::string NewTestAddress() {
  static std::atomic<int> count{0};
  return absl::StrCat("unix:weft-test-", getpid(), "-", count++, "-", std::random_device()());
}

std::vector<std::unique_ptr<JobLink>> MakeLinks(int n, JobLinkOptions options) {
  options.address = NewTestAddress();
  options.num_processes = n;
  std::vector<absl::StatusOr<std::unique_ptr<JobLink>>> results(n);
  std::vector<std::thread> threads;
  for (int p = 0; p < n; ++p) {
    options.process = p;
    threads.emplace_back([options, &result = results[p]] { result = NewJobLink(options); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::unique_ptr<JobLink>> links;
  for (auto& result : results) {
    if (!result.ok()) {
      std::cerr << result.status() << std::endl;
      std::abort();
    }
    links.push_back(*std::move(result));
  }
  return links;
}

}  // namespace weft::testing
