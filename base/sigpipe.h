// SIGPIPE of libraries that write to connections without MSG_NOSIGNAL.
#ifndef WEFT_BASE_SIGPIPE_H_
#define WEFT_BASE_SIGPIPE_H_

#include <signal.h>

namespace weft {

// Blocks SIGPIPE in this thread for its lifetime: a write to a connection whose other end has gone
// fails with EPIPE, and the signal neither ends the process nor stays pending afterwards. Threads
// started meanwhile block it forever. The handlers of the process stay as they are.
class SigpipeBlock {
 public:
  SigpipeBlock();
  ~SigpipeBlock();
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;

 private:
  sigset_t before_;   // what the thread blocked
  bool was_pending_;  // the signal is someone else's then
};

}  // namespace weft

#endif  // WEFT_BASE_SIGPIPE_H_
