// Links between processes that are killed, stopped, or end.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/jobs/job_link.h"
#include "executor/jobs/job_link_internal.h"
#include "executor/jobs/job_link_testing.h"
#include "executor/jobs/process_state.h"

namespace weft::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Far above what it takes, about one second, so that a loaded machine does not matter.
constexpr std::chrono::seconds kBound(8);

void Sleep(double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); }

double Random(double max) {
  static std::mt19937 rng(11);
  return std::uniform_real_distribution<double>(0, max)(rng);
}

// Child processes that say lines. Forked by a process that has no other threads.
class Children {
 public:
  using Say = std::function<void(const std::string&)>;

  Children(int n, const std::function<void(int process, const Say&)>& body) {
    for (int p = 0; p < n; ++p) {
      int ends[2];
      if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
      std::cout.flush();
      const pid_t pid = fork();
      if (pid == 0) {
        const rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        const Say say = [&](const std::string& line) {
          const std::string bytes = line + "\n";
          if (write(ends[1], bytes.data(), bytes.size()) < 0) _exit(1);
        };
        body(p, say);
        _exit(0);
      }
      close(ends[1]);
      pids_.push_back(pid);
      pipes_.push_back(ends[0]);
      buffers_.emplace_back();
    }
  }
  ~Children() {
    for (size_t p = 0; p < pids_.size(); ++p) {
      close(pipes_[p]);
      if (pids_[p] == 0) continue;
      kill(pids_[p], SIGKILL);
      waitpid(pids_[p], nullptr, 0);
    }
  }

  int size() const { return static_cast<int>(pids_.size()); }
  pid_t pid(int process) const { return pids_[process]; }
  void Signal(int process, int signal) { kill(pids_[process], signal); }

  // Waits for the end of a process. Returns whether it was in order.
  bool Ends(int process) {
    EXPECT_EQ(Read(process), "(has ended)");
    int status = -1;
    waitpid(pids_[process], &status, 0);
    pids_[process] = 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  // The next line of a process; if there is none, why.
  std::string Read(int process) {
    std::string& buffer = buffers_[process];
    for (;;) {
      const size_t end = buffer.find('\n');
      if (end != std::string::npos) {
        std::string line = buffer.substr(0, end);
        buffer.erase(0, end + 1);
        return line;
      }
      pollfd ready = {pipes_[process], POLLIN, 0};
      if (poll(&ready, 1, 60000) == 0) return "(has said nothing for a minute)";
      char bytes[4096];
      const ssize_t size = read(pipes_[process], bytes, sizeof(bytes));
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) return "(has ended)";
      buffer.append(bytes, size);
    }
  }

 private:
  std::vector<pid_t> pids_;
  std::vector<int> pipes_;
  std::vector<std::string> buffers_;
};

JobLinkOptions Options(int process, int n, const std::string& address) {
  JobLinkOptions options;
  options.token = kTestToken;
  options.process = process;
  options.num_processes = n;
  options.address = address;
  return options;
}

// Gathers until something fails; says "joined" and "failed: ...".
void Gather(const JobLinkOptions& options, const ProcessIdentity& self, const Children::Say& say) {
  auto link = NewJobLinkAs(options, self);
  if (!link.ok()) return say("failed: " + link.status().ToString());
  say("joined");
  for (;;) {
    const absl::Status status = (*link)->AllGather("x").status();
    if (!status.ok()) return say("failed: " + status.ToString());
    Sleep(0.002);
  }
}

void ExpectAllJoin(Children* children) {
  for (int p = 0; p < children->size(); ++p) ASSERT_EQ(children->Read(p), "joined");
}

// All but the victim fail, and say the same of it.
void ExpectOthersBlame(Children* children, int victim, const std::string& what,
                       Clock::time_point since) {
  const std::string blame =
      absl::StrCat("process ", victim, " (rank ", victim, ", pid ", children->pid(victim),
                   " on host ", ThisProcess().hostname, ") ", what);
  for (int p = 0; p < children->size(); ++p) {
    if (p == victim) continue;
    EXPECT_EQ(children->Read(p), "failed: UNAVAILABLE: " + blame);
    EXPECT_TRUE(children->Ends(p));
  }
  const auto time = Clock::now() - since;
  EXPECT_LT(time, kBound);
  std::cout << what << ": after " << std::chrono::duration<double>(time).count() << " s"
            << std::endl;
}

TEST(JobLinkProcessTest, AKilledProcessTakesTheOthersDown) {
  for (int round = 0; round < 8; ++round) {
    const int victim = round % 4;
    const std::string address = NewTestAddress();
    Children children(4, [&](int p, const Children::Say& say) {
      Gather(Options(p, 4, address), ThisProcess(), say);
    });
    ExpectAllJoin(&children);
    Sleep(Random(0.1));
    const Clock::time_point since = Clock::now();
    children.Signal(victim, SIGKILL);
    ExpectOthersBlame(&children, victim, "was killed or has ended", since);
  }
}

TEST(JobLinkProcessTest, AStoppedProcessTakesTheOthersDown) {
  for (int round = 0; round < 4; ++round) {
    const int victim = round % 2 * 2;
    const std::string address = NewTestAddress();
    Children children(3, [&](int p, const Children::Say& say) {
      Gather(Options(p, 3, address), ThisProcess(), say);
    });
    ExpectAllJoin(&children);
    Sleep(Random(0.1));
    const Clock::time_point since = Clock::now();
    children.Signal(victim, SIGSTOP);
    ExpectOthersBlame(&children, victim, "is stopped", since);
    // When it goes on, it learns that the others did not wait.
    children.Signal(victim, SIGCONT);
    EXPECT_THAT(children.Read(victim), StartsWith("failed: "));
  }
}

// Joins, and ends by itself.
void Work(const JobLinkOptions& options, const Children::Say& say,
          const std::function<void(JobLink*)>& end) {
  auto link = NewJobLink(options);
  if (!link.ok()) return say("failed: " + link.status().ToString());
  say("joined");
  Sleep(0.05);
  end(link->get());
}

TEST(JobLinkProcessTest, AProcessThatEndsTakesTheOthersDown) {
  const std::vector<std::pair<std::string, std::function<void(JobLink*)>>> ends = {
      {"was killed or has ended", [](JobLink*) { _exit(3); }},
      {"was killed or has ended", [](JobLink*) { exit(0); }},
      {"was killed or has ended", [](JobLink*) { std::abort(); }},
      {"was killed or has ended",
       [](JobLink*) { std::thread([] { throw std::runtime_error("in a rank"); }).join(); }},
      {"has ended", [](JobLink*) {}},  // the link ends first
  };
  for (int victim : {0, 1}) {
    for (const auto& [what, end] : ends) {
      const std::string address = NewTestAddress();
      Children children(3, [&, &end = end](int p, const Children::Say& say) {
        if (p == victim) {
          if (freopen("/dev/null", "w", stderr) == nullptr) return;
          return Work(Options(p, 3, address), say, end);
        }
        Gather(Options(p, 3, address), ThisProcess(), say);
      });
      ExpectAllJoin(&children);
      ExpectOthersBlame(&children, victim, what, Clock::now());
    }
  }
}

TEST(JobLinkProcessTest, AKilledProcessIsNoticedThoughAChildHoldsItsConnection) {
  for (int victim : {0, 1}) {
    const std::string address = NewTestAddress();
    Children children(2, [&](int p, const Children::Say& say) {
      if (p != victim) return Gather(Options(p, 2, address), ThisProcess(), say);
      auto link = NewJobLink(Options(p, 2, address));
      if (!link.ok()) return say("failed: " + link.status().ToString());
      const pid_t child = fork();
      if (child == 0) {
        for (;;) pause();
      }
      say("joined");
      say(absl::StrCat(child));
      for (;;) pause();
    });
    ExpectAllJoin(&children);
    const pid_t child = std::stoi(children.Read(victim));
    const Clock::time_point since = Clock::now();
    children.Signal(victim, SIGKILL);
    ExpectOthersBlame(&children, victim, "was killed or has ended", since);
    kill(child, SIGKILL);
  }
}

TEST(JobLinkProcessTest, AStoppedProcessOfAnotherHostIsLost) {
  for (int victim : {0, 1, 2}) {
    const std::string address = NewTestAddress();
    const std::vector<std::string> hosts = {"a", "b", "c"};
    Children children(3, [&](int p, const Children::Say& say) {
      JobLinkOptions options = Options(p, 3, address);
      options.lost_after_s = 2;
      ProcessIdentity self = ThisProcess();
      self.host = hosts[p];
      Gather(options, self, say);
    });
    ExpectAllJoin(&children);
    const Clock::time_point since = Clock::now();
    children.Signal(victim, SIGSTOP);
    ExpectOthersBlame(&children, victim, "has sent nothing for 2 s", since);
  }
}

TEST(JobLinkProcessTest, AProcessThatHasFinishedMayBeKilled) {
  const std::string address = NewTestAddress();
  Children children(3, [&](int p, const Children::Say& say) {
    Work(Options(p, 3, address), say, [&](JobLink* link) {
      if (p != 1) Sleep(3);
      say(link->Finish().ToString());
    });
  });
  ExpectAllJoin(&children);
  Sleep(1);
  children.Signal(1, SIGKILL);
  for (int p : {0, 2}) EXPECT_EQ(children.Read(p), "OK");
}

TEST(JobLinkProcessTest, AJobThatIsSuspendedGoesOn) {
  const std::string address = NewTestAddress();
  Children children(3, [&](int p, const Children::Say& say) {
    JobLinkOptions options = Options(p, 3, address);
    options.lost_after_s = 2;
    ProcessIdentity self = ThisProcess();
    if (p == 2) self.host = "elsewhere";
    Work(options, say, [&](JobLink* link) {
      for (int i = 0; i < 500; ++i) {
        const absl::Status status = link->AllGather("x").status();
        if (!status.ok()) return say("failed: " + status.ToString());
        Sleep(0.005);
      }
      say(link->Finish().ToString());
    });
  });
  ExpectAllJoin(&children);
  for (int p = 0; p < 3; ++p) children.Signal(p, SIGSTOP);
  Sleep(3.5);
  for (int p = 0; p < 3; ++p) children.Signal(p, SIGCONT);
  for (int p = 0; p < 3; ++p) {
    EXPECT_EQ(children.Read(p), "OK");
    EXPECT_TRUE(children.Ends(p));
  }
}

TEST(JobLinkProcessTest, AProcessThatIsMerelyBusyIsNotStopped) {
  const std::string address = NewTestAddress();
  Children children(2, [&](int p, const Children::Say& say) {
    Work(Options(p, 2, address), say, [&](JobLink* link) {
      if (p == 1) {
        // More threads than processors, and at the lowest priority.
        setpriority(PRIO_PROCESS, 0, 19);
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; ++i) {
          threads.emplace_back([end = Clock::now() + std::chrono::seconds(3)] {
            while (Clock::now() < end) {
            }
          });
        }
        for (std::thread& thread : threads) thread.join();
      }
      say(link->Finish().ToString());
    });
  });
  ExpectAllJoin(&children);
  for (int p = 0; p < 2; ++p) EXPECT_EQ(children.Read(p), "OK");
}

TEST(JobLinkProcessTest, AProcessThatDiesWhileTheyMeetTakesTheOthersDown) {
  for (int round = 0; round < 8; ++round) {
    const int victim = round % 3;
    const int signal = round % 4 == 3 ? SIGSTOP : SIGKILL;
    const std::string address = NewTestAddress();
    Children children(3, [&](int p, const Children::Say& say) {
      JobLinkOptions options = Options(p, 3, address);
      options.connect_timeout_s = 2;
      Gather(options, ThisProcess(), say);
    });
    Sleep(Random(0.01));
    children.Signal(victim, signal);
    for (int p = 0; p < 3; ++p) {
      if (p == victim) continue;
      std::string line = children.Read(p);
      if (line == "joined") line = children.Read(p);
      EXPECT_THAT(
          line, AllOf(StartsWith("failed: "),
                      AnyOf(HasSubstr(absl::StrCat("process ", victim)), HasSubstr("process 0 "))));
    }
  }
}

}  // namespace
}  // namespace weft::testing
