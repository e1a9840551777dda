#include "executor/jobs/process_state.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "gtest/gtest.h"

namespace weft {
namespace {

// The identity of a child process.
ProcessIdentity Fork(const std::function<void()>& body) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t pid = fork();
  if (pid == 0) {
    const ProcessIdentity self = ThisProcess();
    if (write(ends[1], &self.start_time, sizeof(self.start_time)) < 0) _exit(1);
    body();
    _exit(0);
  }
  ProcessIdentity child = ThisProcess();
  child.pid = pid;
  if (read(ends[0], &child.start_time, sizeof(child.start_time)) < 0) std::abort();
  close(ends[0]);
  close(ends[1]);
  return child;
}

// Waits for the state, which must be soon.
bool Becomes(const ProcessIdentity& process, ProcessState state) {
  for (int i = 0; i < 1000 && StateOf(process) != state; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return StateOf(process) == state;
}

void End(const ProcessIdentity& process) {
  kill(static_cast<pid_t>(process.pid), SIGKILL);
  waitpid(static_cast<pid_t>(process.pid), nullptr, 0);
}

TEST(ProcessStateTest, ThisProcessRuns) {
  const ProcessIdentity self = ThisProcess();
  EXPECT_EQ(self.pid, getpid());
  EXPECT_FALSE(self.host.empty());
  EXPECT_FALSE(self.hostname.empty());
  EXPECT_EQ(StateOf(self), ProcessState::kRunning);
}

TEST(ProcessStateTest, SeesStopsAndEnds) {
  const ProcessIdentity child = Fork([] {
    for (;;) pause();
  });
  EXPECT_EQ(StateOf(child), ProcessState::kRunning);
  kill(static_cast<pid_t>(child.pid), SIGSTOP);
  EXPECT_TRUE(Becomes(child, ProcessState::kStopped));
  kill(static_cast<pid_t>(child.pid), SIGCONT);
  EXPECT_TRUE(Becomes(child, ProcessState::kRunning));
  kill(static_cast<pid_t>(child.pid), SIGKILL);
  EXPECT_TRUE(Becomes(child, ProcessState::kGone));  // a zombie
  End(child);
  EXPECT_EQ(StateOf(child), ProcessState::kGone);
}

TEST(ProcessStateTest, AnotherProcessOfTheSameNumberIsNotTheProcess) {
  ProcessIdentity earlier = ThisProcess();
  --earlier.start_time;
  EXPECT_EQ(StateOf(earlier), ProcessState::kGone);
}

TEST(ProcessStateTest, NamesOfProcessesMayHaveSpacesAndParentheses) {
  pthread_setname_np(pthread_self(), "a) R (b");  // children have it, too
  const ProcessIdentity child = Fork([] {
    for (;;) pause();
  });
  kill(static_cast<pid_t>(child.pid), SIGSTOP);
  EXPECT_TRUE(Becomes(child, ProcessState::kStopped));
  End(child);
}

}  // namespace
}  // namespace weft
