// Reports of weft run: during a run, and after it.
#ifndef WEFT_TOOLS_INSPECT_RUN_REPORT_H_
#define WEFT_TOOLS_INSPECT_RUN_REPORT_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "executor/communicators/row_traffic.h"
#include "executor/files/npz.h"
#include "executor/run/result_queue.h"
#include "executor/servers/server_traffic.h"
#include "executor/step/plan_executor.h"
#include "ops/tensor.h"

namespace weft {

// The mean of the elements; NaN for no elements. Integers and booleans count as numbers. Complex
// numbers are not supported: NaN.
double MeanOf(const Tensor& tensor);

// Formats results as lines for readers. Results come by step, and by rank within a step.
class StepLines {
 public:
  // `sums`: the variables of which ranks have partial sums.
  explicit StepLines(int ranks, std::set<std::string> sums = {})
      : ranks_(ranks), sums_(std::move(sums)) {}

  // Returns the lines of the step after the result of its last rank, one per variable:
  //   step 3: mean_0.tmp_0 24.331 (ranks: 24.112 24.55)
  //   step 3: sum_0.tmp_0 48.662 (sum of ranks: 24.112 24.55)
  // The first number is the mean over the ranks, or the sum. For a tensor with several elements it
  // is that of their means, and the line says so. Empty before the last rank.
  std::string Add(const StepResult& result);

  // The first variable as of the last complete step: "loss 0.5". Empty before.
  std::string Last() const;

  // The variables as of the last complete step, and their first numbers in the lines.
  std::vector<std::pair<std::string, double>> Numbers() const;

  // What Totals needs of the steps so far, as text; lines of the same variables go on from there.
  // InvalidArgument for a text that State() does not return.
  std::string State() const;
  absl::Status Restore(absl::string_view state);

  // The change of each variable from the first step to the last.
  std::string Totals(int64_t steps, double seconds) const;

 private:
  struct Course {
    std::string name;
    double first = 0;
    double last = 0;
  };

  const int ranks_;
  const std::set<std::string> sums_;
  std::vector<std::vector<double>> means_;  // of the current step: by variable, by rank
  std::vector<Course> courses_;             // by variable
  int64_t first_step_ = 0;                  // of courses_
};

// "values of a rank: 5 bytes kept between steps, 3 in a step, where at most 2 live at once"; for a
// program on two devices, a line for each.
std::string MemoryLine(const ValueMemory& memory);

// How many steps have run as a CUDA graph, or why none has; empty if that was not asked for.
std::string GraphLine(const GraphUse& use);

// "rows of tables on servers, of rank 0: 900 prefetched, of which 60 changed; 100 pulled;
// 5120 bytes waited for\n"; empty if there were none.
std::string RowsLine(const RowTraffic& rows);
// What each server kept, a line each:
//   server 0: 4096 bytes of parameters, 8192 of optimizer state; pushes took at most 4100 bytes
std::string ServerMemoryLines(absl::Span<const ServerMemory> servers);

// {"step":0,"rank":0,"fetch":{"loss":[2.31]},"ms":1.9} and a newline; elements in row-major order;
// for SelectedRows those of the rows.
std::string MetricsLine(const StepResult& result);

// Such lines of all ranks of a run. Of variables in `sums`, of which ranks have partial sums,
// "fetch" has the sum over the ranks, and "of_rank" what the rank has.
class MetricsLines {
 public:
  MetricsLines(int ranks, std::set<std::string> sums) : ranks_(ranks), sums_(std::move(sums)) {}

  // Returns the line of the result; with sums, those of a step after the result of its last rank.
  std::string Add(const StepResult& result);

 private:
  const int ranks_;
  const std::set<std::string> sums_;
  std::vector<StepResult> step_;  // with sums: of the current one
};

// The step of such a line. InvalidArgument for another line.
absl::StatusOr<int64_t> StepOfMetricsLine(absl::string_view line);

// Whether a path names a file of comma-separated values: it ends with .csv.
bool IsCsv(absl::string_view path);

// Lines of comma-separated values: one of names, "step,loss", then one for each step.
class CsvLines {
 public:
  // Reads a line that an earlier run wrote: the line of the names, which the steps of this run then
  // follow (none: nullopt), or that of a step. InvalidArgument for another line.
  absl::StatusOr<absl::optional<int64_t>> ReadStep(absl::string_view line);

  // The line of a step, after the line of the names if there is none yet. InvalidArgument if that
  // has other names.
  absl::StatusOr<std::string> Add(int64_t step,
                                  const std::vector<std::pair<std::string, double>>& numbers);

 private:
  std::string names_;  // empty: no line so far
};

// Adds fetched arrays under "<step>/<rank>/<variable>"; SelectedRows as two arrays, ".../rows" (the
// row indices, int64) and ".../values".
absl::Status WriteFetched(const StepResult& result, NpzWriter* archive);

// A text file that can be followed while it grows: every line is in the file when Write returns.
// The first line replaces the old content of the path, or follows those of its lines that are kept.
// "-" is standard output. Errors begin with the path.
class LineFile {
 public:
  // Says which lines of the old content are kept; an error is that of the file.
  using Keep = std::function<absl::StatusOr<bool>(absl::string_view line)>;

  // Without `keep`, no lines are kept. A last line without a newline is never kept. Lines are
  // removed atomically. What is no regular file keeps its content.
  explicit LineFile(std::string path, Keep keep = nullptr)
      : path_(std::move(path)), keep_(std::move(keep)), file_(nullptr, Close) {}

  absl::Status Write(absl::string_view line);
  // Creates an empty file if there was no line.
  absl::Status Finish();

 private:
  static int Close(std::FILE* file) { return file == stdout ? 0 : std::fclose(file); }
  absl::Status Open();
  absl::Status RemoveLines() const;

  std::string path_;
  Keep keep_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;  // null until the first line
};

// One line that is overwritten at most ten times a second. Writes nothing if the stream is not a
// terminal.
class ProgressLine {
 public:
  explicit ProgressLine(std::FILE* stream);
  // Behaves as on a terminal, or not.
  ProgressLine(std::FILE* stream, bool is_terminal) : stream_(stream), is_shown_(is_terminal) {}
  ~ProgressLine() { Clear(); }

  // Whether Show would write now: building the line takes time.
  bool IsDue() const;
  void Show(absl::string_view line);
  // Erases the line before other output.
  void Clear();

 private:
  std::FILE* const stream_;
  const bool is_shown_;
  bool is_visible_ = false;
  std::chrono::steady_clock::time_point next_;
};

// "[=====>              ]  25% step 25/100  loss 0.1234  4567 samples/s". A `samples_per_s` of 0 is
// left out.
std::string FormatProgress(int64_t done, int64_t all, absl::string_view what, double samples_per_s);

}  // namespace weft

#endif  // WEFT_TOOLS_INSPECT_RUN_REPORT_H_
