#include "tools/job/stop_signals.h"

#include <signal.h>

#include <atomic>

#include "base/file.h"

namespace weft {
namespace {

std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

void Record(int signal) {
  if (first_signal.exchange(signal) == 0) return;
  RemoveTemporaryFiles();
  ::signal(signal, SIG_DFL);
  raise(signal);  // delivered when the handler returns
}

}  // namespace

void CatchStopSignals() {
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction action;
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = Record;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

int StopSignal() { return first_signal.load(std::memory_order_relaxed); }

}  // namespace weft
