// What a test program says about a model: the values of its metrics over all batches.
#ifndef WEFT_TOOLS_CMD_EVALUATION_H_
#define WEFT_TOOLS_CMD_EVALUATION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/run/result_queue.h"
#include "ops/tensor.h"
#include "proto/feed_layout.h"
#include "proto/program.h"

namespace weft {

// Of files that Paddle 3 saves for inference.
inline constexpr absl::string_view kPirFetchType = "pd_op.fetch";

// How the values of a variable in several batches make its value over all of them.
enum class MetricKind {
  kMean,      // of the batch: their mean, weighted by samples
  kSum,       // over the batch: their sum
  kElements,  // one per sample: the mean of all elements
  kSame,      // does not depend on the batch: the last
  kCounts,    // an area under a curve: that of the counts of all batches
  kOther,     // none of these: their mean, weighted by samples, which may be another value
};

struct Metric {
  std::string name;
  MetricKind kind = MetricKind::kOther;
  std::string positives, negatives;  // of kCounts: the variables that count
  bool is_loss = false;
};

struct Metrics {
  std::vector<Metric> all;
  // Persistable variables in which the program counts, such as those of kCounts. They begin at
  // zero: training has counted other batches.
  std::vector<std::string> counts;
  // Of kCounts, those that begin anew in each batch: fetched after all metrics.
  std::vector<std::string> batch_counts;
  // Other persistable variables that a batch leaves with values of its own.
  std::vector<std::string> states;
};

// The metrics of a test program: `names`, or if there are none, the losses, and the numbers in
// floating point that the root block computes and no op reads. Areas under the curve of the last
// few batches alone are left out.
//
// FailedPrecondition if an op updates parameters. InvalidArgument for an unknown name, for an area
// under the curve of the last few batches, and if there is no metric.
absl::StatusOr<Metrics> FindMetrics(const Program& program, const std::vector<std::string>& names,
                                    const FeedLayouts& layouts);

// The values of metrics over batches. The order in which batches are added does not matter.
class Evaluation {
 public:
  explicit Evaluation(const Metrics& metrics)
      : metrics_(metrics.all), batch_counts_(metrics.batch_counts) {}

  // Adds a batch: StepResult::step is its number, and the values are those of the metrics, and of
  // Metrics::batch_counts, in order. It weighs as many samples as it has; if no data are split, 1.
  void Add(const StepResult& batch);
  // Adds the counts of some of the batches; other variables are ignored.
  void AddCounts(const std::map<std::string, Tensor>& variables);

  struct Total {
    Metric metric;
    double value = 0;      // NaN: no elements, or complex numbers
    int64_t elements = 0;  // of kElements
  };
  std::vector<Total> Totals() const;
  int64_t batches() const { return static_cast<int64_t>(batches_.size()); }
  int64_t samples() const;

 private:
  struct Value {
    double mean;
    int64_t elements;
  };
  struct Batch {
    int64_t samples;
    std::vector<Value> values;  // by metric
  };
  void AddCount(const std::string& name, const Tensor& counts);
  double TotalOf(size_t metric, int64_t* elements) const;
  double AreaOf(const Metric& metric) const;

  std::vector<Metric> metrics_;
  std::vector<std::string> batch_counts_;
  std::map<int64_t, Batch> batches_;  // by number
  std::map<std::string, std::vector<int64_t>> counts_;
};

// "mean_0.tmp_0: 0.5132 (mean over the samples)" and a newline.
std::string TotalLine(const Evaluation::Total& total);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_EVALUATION_H_
