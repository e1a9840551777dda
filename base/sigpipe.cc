#include "base/sigpipe.h"

#include <pthread.h>
#include <time.h>

namespace weft {
namespace {

sigset_t OnlySigpipe() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

bool IsPending() {
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

SigpipeBlock::SigpipeBlock() : was_pending_(IsPending()) {
  const sigset_t sigpipe = OnlySigpipe();
  pthread_sigmask(SIG_BLOCK, &sigpipe, &before_);
}

SigpipeBlock::~SigpipeBlock() {
  if (!was_pending_ && IsPending()) {
    const sigset_t sigpipe = OnlySigpipe();
    const timespec now{0, 0};
    sigtimedwait(&sigpipe, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace weft
