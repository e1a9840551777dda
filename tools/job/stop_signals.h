// SIGINT, SIGTERM and SIGPIPE as requests to stop, for a command that has something to save.
#ifndef WEFT_TOOLS_JOB_STOP_SIGNALS_H_
#define WEFT_TOOLS_JOB_STOP_SIGNALS_H_

namespace weft {

// From this call on, the first SIGINT or SIGTERM is only recorded. The next one ends the process,
// as the first did before (ParseCommandLine). SIGPIPE, of output that nobody reads any more, is
// recorded as long as there is no other; writes fail with EPIPE. Signals that are ignored stay
// ignored.
void CatchStopSignals();

// The signal that has been recorded; 0: none. Thread-safe.
int StopSignal();

}  // namespace weft

#endif  // WEFT_TOOLS_JOB_STOP_SIGNALS_H_
