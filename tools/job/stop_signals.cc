#include "tools/job/stop_signals.h"

#include <signal.h>

#include <atomic>

#include "base/file.h"

namespace weft {
namespace {

std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

void Record(int signal) {
  const int before = first_signal.exchange(signal);
  // A launcher that is killed closes the pipe first, and then the system sends SIGTERM.
  if (before == 0 || before == SIGPIPE) return;
  RemoveTemporaryFiles();
  ::signal(signal, SIG_DFL);
  raise(signal);  // delivered when the handler returns
}

void RecordPipe(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
}

}  // namespace

void CatchStopSignals() {
  for (const int signal : {SIGINT, SIGPIPE, SIGTERM}) {
    struct sigaction action;
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = signal == SIGPIPE ? RecordPipe : Record;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

int StopSignal() { return first_signal.load(std::memory_order_relaxed); }

}  // namespace weft
