#include "base/sigpipe.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "gtest/gtest.h"

namespace weft {
namespace {

// Writes to a connection whose other end is closed, and returns errno.
int WriteInVain() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return -1;
  close(ends[1]);
  const int error = write(ends[0], "x", 1) < 0 ? errno : 0;
  close(ends[0]);
  return error;
}

bool IsBlocked() {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return sigismember(&blocked, SIGPIPE) == 1;
}

TEST(SigpipeBlockTest, WriteFailsAndTheProcessLives) {
  {
    const SigpipeBlock block;
    EXPECT_TRUE(IsBlocked());
    EXPECT_EQ(WriteInVain(), EPIPE);
    const SigpipeBlock inner;
    EXPECT_EQ(WriteInVain(), EPIPE);
  }
  EXPECT_FALSE(IsBlocked());
}

TEST(SigpipeBlockTest, ThreadsStartedMeanwhileBlockIt) {
  std::thread thread;
  {
    const SigpipeBlock block;
    thread = std::thread([] { EXPECT_EQ(WriteInVain(), EPIPE); });
  }
  thread.join();
}

TEST(SigpipeBlockTest, SignalOfOthersStaysPending) {
  sigset_t sigpipe, pending;
  sigemptyset(&sigpipe);
  sigaddset(&sigpipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &sigpipe, nullptr);
  pthread_kill(pthread_self(), SIGPIPE);
  { const SigpipeBlock block; }
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 1);
  int signal = 0;
  sigwait(&sigpipe, &signal);
  pthread_sigmask(SIG_UNBLOCK, &sigpipe, nullptr);
}

TEST(SigpipeBlockDeathTest, WithoutItTheProcessEnds) {
  EXPECT_EXIT(WriteInVain(), ::testing::KilledBySignal(SIGPIPE), "");
}

}  // namespace
}  // namespace weft
