// The trace of a run, as a file that Perfetto and chrome://tracing open.
#ifndef WEFT_TOOLS_INSPECT_CHROME_TRACE_H_
#define WEFT_TOOLS_INSPECT_CHROME_TRACE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "base/file.h"
#include "executor/jobs/job_link.h"
#include "executor/run/runner.h"
#include "proto/program.h"

namespace weft {

// One row per rank (a process) and stream (a thread of it), and above them a row of steps. Events:
//   an op       named by its type; its category is its role; arguments: step, op (its name), bytes
//               (of its inputs; for a collective, what the rank passes to it), inputs, outputs
//   a wait      "wait for ring 0", category "wait", on the stream that waits; argument: step. An
//               arrow (a flow) leads to it from the op that it waits for, if that was in this step.
//   a prefetch  "rows of embedding_0.w_0", category "prefetch", of a worker of parameter servers:
//   from when
//               a step asked for rows that the next one needs until they had come. As several may
//               overlap, they are asynchronous events. Arguments: step (which needs them), rows,
//               changed (of them, sent again).
//   a step      "step 3", category "step", from the first to the last event of the rank's streams
// Times are microseconds since Create. Written step by step, in the JSON object format of
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace Event
// Format"). Finish writes the file atomically. Errors begin with the path.
//
// With several processes, process 0 writes the events of all. Their clock is that of process 0: the
// same on one host; elsewhere, the clocks are compared once, in Create, to about the time that a
// message takes.
class ChromeTrace {
 public:
  using Clock = std::chrono::steady_clock;

  // All processes of the link call it, and Finish. `link` may be null. `main` is the program that
  // runs, and outlives this.
  static absl::StatusOr<std::unique_ptr<ChromeTrace>> Create(const std::string& path,
                                                             const Program* main, JobLink* link);
  ~ChromeTrace();

  // A step of a rank of this process; one call at a time.
  absl::Status Add(const StepTrace& trace);
  // Waits for the events of other processes.
  absl::Status Finish();

 private:
  ChromeTrace(std::string path, const Program* main, JobLink* link)
      : path_(std::move(path)), main_(*main), link_(link) {}
  absl::Status Start();
  std::string EventsOf(const StepTrace& trace);
  std::string Event(const char* phase, int rank, size_t row, Clock::time_point time,
                    const std::string& more) const;
  std::string OpEvent(const StepTrace& trace, size_t stream, const OpSpan& span) const;
  void AddWait(const StepTrace& trace, size_t stream, const WaitSpan& wait,
               std::vector<std::string>* events);
  void AddPrefetch(const StepTrace& trace, const PrefetchSpan& prefetch,
                   std::vector<std::string>* events);
  std::string StepEvent(const StepTrace& trace) const;
  int64_t NewId(int rank);
  static std::string Duration(Clock::time_point begin, Clock::time_point end);
  absl::Status Write(const std::string& events);
  absl::Status WaitForOthers();

  const std::string path_;
  const Program& main_;
  JobLink* const link_;
  Clock::time_point start_;
  // By rank of this process, from when on its rows have names: the arrows and prefetches so far.
  std::map<int, int64_t> num_ids_;
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

#endif  // WEFT_TOOLS_INSPECT_CHROME_TRACE_H_
