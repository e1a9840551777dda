// The trace of a run, as a file that Perfetto and chrome://tracing open.
#ifndef WEFT_TOOLS_CHROME_TRACE_H_
#define WEFT_TOOLS_CHROME_TRACE_H_

#include <chrono>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "executor/runner.h"

namespace weft {

// One row per rank (a process) and stream (a thread of it), and one event per op, named by its
// type, with step, position and variables as arguments. Times are microseconds since Create.
// Written step by step, in the JSON object format of
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace Event
// Format"). Finish writes the file atomically. Errors begin with the path.
class ChromeTrace {
 public:
  static absl::StatusOr<ChromeTrace> Create(const std::string& path);

  absl::Status Add(const StepTrace& trace);
  absl::Status Finish();

 private:
  ChromeTrace(std::string path, AtomicFile file)
      : path_(std::move(path)), file_(std::move(file)), start_(std::chrono::steady_clock::now()) {}
  void Append(const std::string& event, std::string* text);

  std::string path_;
  AtomicFile file_;
  std::chrono::steady_clock::time_point start_;
  bool has_events_ = false;
  std::set<int> named_;  // ranks whose rows have names
};

}  // namespace weft

#endif  // WEFT_TOOLS_CHROME_TRACE_H_
