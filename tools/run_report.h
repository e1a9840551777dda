// What weft run tells of a run while it goes on, and leaves of it afterwards.
#ifndef WEFT_TOOLS_RUN_REPORT_H_
#define WEFT_TOOLS_RUN_REPORT_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "executor/npz.h"
#include "executor/result_queue.h"
#include "ops/tensor.h"

namespace weft {

// The mean of the elements; NaN of none. Integers and booleans count as numbers. Complex
// numbers are not read: NaN.
double MeanOf(const Tensor& tensor);

// Results as lines for people. They come by step, and by rank within a step.
class StepLines {
 public:
  explicit StepLines(int ranks) : ranks_(ranks) {}

  // Returns the lines of the step once its last rank has come, one for each variable:
  //   step 3: mean_0.tmp_0 24.331 (ranks: 24.112 24.55)
  // The first number is the mean over the ranks; of a tensor with several elements their mean
  // counts, and the line says so. Empty before.
  std::string Add(const StepResult& result);

  // The first variable as of the last step that is complete: "loss 0.5". Empty before.
  std::string Last() const;

  // What became of each variable between the first step and the last.
  std::string Totals(int64_t steps, double seconds) const;

 private:
  struct Course {
    std::string name;
    double first = 0;
    double last = 0;
  };

  const int ranks_;
  std::vector<std::vector<double>> means_;  // of the current step: by variable, by rank
  std::vector<Course> courses_;             // by variable
  int64_t first_step_ = 0;                  // of courses_
};

// {"step":0,"rank":0,"fetch":{"loss":[2.31]},"ms":1.9} and a newline; elements in row-major order;
// of SelectedRows those of the rows.
std::string MetricsLine(const StepResult& result);

// Adds what was fetched under "<step>/<rank>/<variable>"; SelectedRows as two arrays, ".../rows"
// (the row numbers, int64) and ".../values".
absl::Status WriteFetched(const StepResult& result, NpzWriter* archive);

// A text file that grows while somebody follows it: every line is in the file when Write returns.
// What the path named before goes with the first line. "-" is standard output. Errors begin with
// the path.
class LineFile {
 public:
  explicit LineFile(std::string path) : path_(std::move(path)), file_(nullptr, Close) {}

  absl::Status Write(absl::string_view line);
  // Without a line there is an empty file.
  absl::Status Finish();

 private:
  static int Close(std::FILE* file) { return file == stdout ? 0 : std::fclose(file); }
  absl::Status Open();

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;  // null until the first line
};

}  // namespace weft

#endif  // WEFT_TOOLS_RUN_REPORT_H_
