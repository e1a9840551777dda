// Which process this is, and whether another process of the same host still runs.
#ifndef WEFT_EXECUTOR_JOBS_PROCESS_STATE_H_
#define WEFT_EXECUTOR_JOBS_PROCESS_STATE_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace weft {

struct ProcessIdentity {
  // Equal in processes that see each other's process numbers, and in no others: the boot of the
  // system, and the namespace of process numbers. Empty if the system does not say.
  std::string host;
  std::string hostname;  // for messages
  int64_t pid = 0;
  // When it started, in ticks since the boot: tells it from a later process of the same number.
  uint64_t start_time = 0;
};

ProcessIdentity ThisProcess();

enum class ProcessState {
  kRunning,  // or waiting, however long
  kStopped,  // by SIGSTOP, by a terminal, by a debugger
  kGone,     // its main thread has ended or is about to; another process may have its number
  kUnknown,  // the system does not say
};

// The processes of a job look so often for those that are stopped, or gone and silent. Who is found
// so that often in a row is lost. Looks, rather than time: a job that is stopped as a whole may go
// on.
inline constexpr std::chrono::milliseconds kLookForStoppedEvery{200};
inline constexpr int kMaxStoppedLooks = 5;

// Whether a process of this host is stopped. False if the system does not say.
bool IsStopped(int64_t pid);

// The state of a process whose `host` is that of ThisProcess().
ProcessState StateOf(const ProcessIdentity& process);

}  // namespace weft

#endif  // WEFT_EXECUTOR_JOBS_PROCESS_STATE_H_
