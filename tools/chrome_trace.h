// The trace of a run, as a file that Perfetto and chrome://tracing open.
#ifndef WEFT_TOOLS_CHROME_TRACE_H_
#define WEFT_TOOLS_CHROME_TRACE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "base/file.h"
#include "executor/job_link.h"
#include "executor/runner.h"

namespace weft {

// One row per rank (a process) and stream (a thread of it), and one event per op, named by its
// type, with step, position and variables as arguments. Times are microseconds since Create.
// Written step by step, in the JSON object format of
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace Event
// Format"). Finish writes the file atomically. Errors begin with the path.
//
// With several processes, process 0 writes the events of all. Their clock is that of process 0: the
// same on one host; elsewhere, the clocks are compared once, in Create, to about the time that a
// message takes.
class ChromeTrace {
 public:
  // All processes of the link call it, and Finish. `link` may be null.
  static absl::StatusOr<std::unique_ptr<ChromeTrace>> Create(const std::string& path,
                                                             JobLink* link);
  ~ChromeTrace();

  // A step of a rank of this process; one call at a time.
  absl::Status Add(const StepTrace& trace);
  // Waits for the events of other processes.
  absl::Status Finish();

 private:
  ChromeTrace(std::string path, JobLink* link) : path_(std::move(path)), link_(link) {}
  absl::Status Start();
  std::string EventsOf(const StepTrace& trace);
  absl::Status Write(const std::string& events);
  absl::Status WaitForOthers();

  const std::string path_;
  JobLink* const link_;
  std::chrono::steady_clock::time_point start_;
  std::set<int> named_;  // ranks whose rows have names
  int64_t num_sent_ = 0;

  // Of process 0.
  std::mutex mutex_;
  std::condition_variable has_received_;
  absl::optional<AtomicFile> file_;
  bool has_events_ = false;
  int64_t num_received_ = 0;
  absl::Status status_;  // of what others have sent
};

}  // namespace weft

#endif  // WEFT_TOOLS_CHROME_TRACE_H_
