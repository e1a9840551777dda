#include "executor/jobs/job_link_testing.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft::testing {
namespace {

// Calls bind or connect with the address, "unix:NAME".
int WithAddress(int (*call)(int, const sockaddr*, socklen_t), int fd, const std::string& address) {
  const std::string name = address.substr(std::strlen("unix:"));
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), to.sun_path + 1);
  return call(fd, reinterpret_cast<const sockaddr*>(&to),
              offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

int NewSocket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); }

}  // namespace

std::string NewTestAddress() {
  static std::atomic<int> count{0};
  return absl::StrCat("unix:weft-test-", getpid(), "-", count++, "-", std::random_device()());
}

std::vector<std::unique_ptr<JobLink>> MakeLinks(int n, JobLinkOptions options) {
  options.address = NewTestAddress();
  options.num_processes = n;
  options.token = kTestToken;
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

LinkRelay::LinkRelay(const std::string& address)
    : address_(NewTestAddress()), listener_(NewSocket()) {
  if (WithAddress(bind, listener_, address_) != 0 || listen(listener_, 1) != 0) {
    std::cerr << "cannot listen at " << address_ << std::endl;
    std::abort();
  }
  accepts_ = std::thread([this, address] { Accept(address); });
}

LinkRelay::~LinkRelay() {
  is_stopped_ = true;
  shutdown(listener_, SHUT_RDWR);
  accepts_.join();
  for (int fd : sockets_) shutdown(fd, SHUT_RDWR);
  for (std::thread& pump : pumps_) pump.join();
  for (int fd : sockets_) close(fd);
  close(listener_);
}

void LinkRelay::Accept(const std::string& to) {
  for (;;) {
    const int near = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (near < 0) return;
    const int far = NewSocket();
    sockets_.insert(sockets_.end(), {near, far});
    while (WithAddress(connect, far, to) != 0) {  // process 0 does not listen yet
      if (is_stopped_) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    pumps_.emplace_back([this, near, far] { Pump(near, far, [](int64_t) {}); });
    pumps_.emplace_back([this, near, far] {
      Pump(far, near, [this](int64_t bytes) { received_bytes_ += bytes; });
    });
  }
}

void LinkRelay::Pump(int from, int to, const std::function<void(int64_t)>& count) {
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t bytes = recv(from, buffer.data(), buffer.size(), 0);
    if (bytes <= 0) break;
    count(bytes);
    for (ssize_t sent = 0; sent < bytes;) {
      const ssize_t more = send(to, buffer.data() + sent, bytes - sent, MSG_NOSIGNAL);
      if (more < 0) return;
      sent += more;
    }
  }
  shutdown(to, SHUT_WR);
}

}  // namespace weft::testing
