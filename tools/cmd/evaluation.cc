#include "tools/cmd/evaluation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/optional.h"
#include "base/similar_name.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/training/losses.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/area_under_curve.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "tools/inspect/run_report.h"

namespace weft {
namespace {

// The op of a metric that counts over all batches, or over the last few.
struct Counter {
  Metric metric;
  bool is_windowed = false;
  bool keeps_counts = true;  // from batch to batch
};

// By the variable that it computes.
std::map<std::string, Counter> FindCounters(const Program& program) {
  std::map<std::string, Counter> counters;
  for (const Op& op : BlockOps(program, 0)) {
    const absl::Span<const Symbol> area = op.Output("AUC"), positives = op.Output("StatPosOut"),
                                   negatives = op.Output("StatNegOut");
    if (area.size() != 1 || positives.size() != 1 || negatives.size() != 1) continue;
    const std::string name(program.name(area[0]));
    counters[name] = {{name, MetricKind::kCounts, std::string(program.name(positives[0])),
                       std::string(program.name(negatives[0]))},
                      op.IntAttr("slide_steps").value_or(1) != 0,
                      program.var(program.block(0).FindVar(positives[0])).persistable()};
  }
  return counters;
}

bool IsFloatingPoint(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

// Losses, then what the root block computes of the batch and no op reads: numbers in floating
// point, and areas under the curve. Of a program that has none, such as a model for inference, what
// its ops fetch.
std::vector<std::string> DefaultNames(const Program& program, const BatchFlow& flow,
                                      const std::map<std::string, Counter>& counters) {
  std::vector<std::string> names;
  absl::flat_hash_set<Symbol> is_read;
  for (Symbol loss : FindLosses(program)) {
    names.emplace_back(program.name(loss));
    is_read.insert(loss);
  }
  for (const Op& op : AllOps(program)) {
    for (Symbol in : op.input_args()) is_read.insert(in);
  }
  for (OpId id : program.block(0).ops()) {
    for (Symbol out : program.op(id).output_args()) {
      const VarId var = program.block(0).FindVar(out);
      if (!var.valid() || program.var(var).persistable() || !is_read.insert(out).second) continue;
      const absl::optional<TensorType> type = DeclaredType(program.var(var));
      const auto counter = counters.find(std::string(program.name(out)));
      const bool is_metric = counter != counters.end()
                                 ? !counter->second.is_windowed
                                 : type.has_value() && NumElements(type->dims) == 1 &&
                                       IsFloatingPoint(type->dtype) &&
                                       !flow.AtEnd(var).relation.IsSame();
      if (is_metric) names.emplace_back(program.name(out));
    }
  }
  if (!names.empty()) return names;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    const bool fetches = IsFetch(op.type()) || op.type() == kPirFetchType;
    for (Symbol in : op.input_args()) {
      if (fetches) names.emplace_back(program.name(in));
    }
  }
  return names;
}

MetricKind KindOf(const BatchRelation& relation) {
  if (relation.IsSame()) return MetricKind::kSame;
  if (relation == BatchRelation::Partial()) return MetricKind::kMean;
  if (relation == BatchRelation::PartialSum()) return MetricKind::kSum;
  if (relation.IsSharded() && relation.power == 0) return MetricKind::kElements;
  return MetricKind::kOther;
}

absl::Status CheckIsTest(const Program& program) {
  OpTraits traits(program);
  for (const Op& op : AllOps(program)) {
    if (!traits.Has(op, Trait::kOptimizer)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        op.DebugName(),
        ": updates a parameter; expected a test program: in Paddle, "
        "main.clone(for_test=True) before optimizer.minimize; in PIR, which cannot, the "
        "model built again without dropout (docs/running.md#evaluating)"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Metrics> FindMetrics(const Program& program, const std::vector<std::string>& names,
                                    const FeedLayouts& layouts) {
  WEFT_RETURN_IF_ERROR(CheckIsTest(program));
  const std::map<std::string, Counter> counters = FindCounters(program);
  BatchFlowOptions options;
  options.setting.feeds = layouts;
  options.extent = BatchFlowOptions::Extent::kOneStep;
  const BatchFlow flow = BatchFlow::Of(program, options);

  Metrics metrics;
  const std::vector<Symbol> losses = FindLosses(program);
  for (const std::string& name : names.empty() ? DefaultNames(program, flow, counters) : names) {
    const auto counter = counters.find(name);
    if (counter != counters.end()) {
      if (counter->second.is_windowed) {
        return absl::InvalidArgumentError(
            absl::StrCat("fetch ", name,
                         ": is the area under the curve of the last batches alone; fetch the "
                         "area of all batches"));
      }
      metrics.all.push_back(counter->second.metric);
      continue;
    }
    const VarId var = program.block(0).FindVar(name);
    if (!var.valid()) {
      std::vector<absl::string_view> candidates;
      for (VarId id : program.block(0).vars()) candidates.push_back(program.var(id).name());
      return absl::InvalidArgumentError(absl::StrCat(
          "fetch ", name, ": the program has no such variable", DidYouMean(name, candidates)));
    }
    const bool is_loss = absl::c_linear_search(losses, program.var(var).name_symbol());
    metrics.all.push_back({name, KindOf(flow.AtEnd(var).relation), "", "", is_loss});
  }
  if (metrics.all.empty()) {
    return absl::InvalidArgumentError(
        "the program has no loss and computes no number that no op reads; name what to evaluate "
        "with --fetch");
  }
  absl::flat_hash_set<std::string> is_count;
  for (const auto& [name, counter] : counters) {
    if (!counter.keeps_counts) continue;
    is_count.insert({counter.metric.positives, counter.metric.negatives});
  }
  for (const Metric& metric : metrics.all) {
    if (metric.kind != MetricKind::kCounts || counters.at(metric.name).keeps_counts) continue;
    metrics.batch_counts.insert(metrics.batch_counts.end(), {metric.positives, metric.negatives});
  }
  metrics.counts.assign(is_count.begin(), is_count.end());
  std::sort(metrics.counts.begin(), metrics.counts.end());
  for (const BatchState& state : flow.states()) {
    const std::string name(program.var(state.variable).name());
    if (!is_count.contains(name)) metrics.states.push_back(name);
  }
  return metrics;
}

void Evaluation::Add(const StepResult& batch) {
  Batch& added = batches_[batch.step];
  added.samples = batch.samples;
  for (size_t i = 0; i < metrics_.size(); ++i) {
    const Tensor& value = batch.values[i];
    added.values.push_back({MeanOf(value), value.size()});
  }
  for (size_t i = 0; i < batch_counts_.size(); ++i) {
    AddCount(batch_counts_[i], batch.values[metrics_.size() + i]);
  }
}

void Evaluation::AddCount(const std::string& name, const Tensor& counts) {
  if (counts.dtype() != DType::kInt64) return;
  std::vector<int64_t>& sums = counts_[name];
  sums.resize(counts.size());
  for (int64_t i = 0; i < counts.size(); ++i) sums[i] += counts.data<int64_t>()[i];
}

void Evaluation::AddCounts(const std::map<std::string, Tensor>& variables) {
  for (const Metric& metric : metrics_) {
    if (metric.kind != MetricKind::kCounts) continue;
    for (const std::string& name : {metric.positives, metric.negatives}) {
      const auto found = variables.find(name);
      if (found != variables.end()) AddCount(name, found->second);
    }
  }
}

int64_t Evaluation::samples() const {
  int64_t samples = 0;
  for (const auto& [number, batch] : batches_) samples += batch.samples;
  return samples;
}

double Evaluation::AreaOf(const Metric& metric) const {
  const auto positives = counts_.find(metric.positives), negatives = counts_.find(metric.negatives);
  if (positives == counts_.end() || negatives == counts_.end() ||
      positives->second.size() != negatives->second.size()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return AreaUnderCurve(positives->second.data(), negatives->second.data(),
                        static_cast<int64_t>(positives->second.size()));
}

double Evaluation::TotalOf(size_t metric, int64_t* elements) const {
  const MetricKind kind = metrics_[metric].kind;
  const bool has_samples = samples() > 0;
  double sum = 0, weights = 0;
  for (const auto& [number, batch] : batches_) {
    const Value& value = batch.values[metric];
    *elements += value.elements;
    double weight = has_samples ? static_cast<double>(batch.samples) : 1;
    if (kind == MetricKind::kElements) weight = static_cast<double>(value.elements);
    if (kind == MetricKind::kSum) weight = 1;
    if (weight == 0) continue;
    sum += weight * value.mean;
    weights += weight;
  }
  if (kind == MetricKind::kSum) return sum;
  if (kind == MetricKind::kSame && !batches_.empty()) {
    return batches_.rbegin()->second.values[metric].mean;
  }
  return weights > 0 ? sum / weights : std::numeric_limits<double>::quiet_NaN();
}

std::vector<Evaluation::Total> Evaluation::Totals() const {
  std::vector<Total> totals;
  for (size_t i = 0; i < metrics_.size(); ++i) {
    Total total = {metrics_[i]};
    total.value = total.metric.kind == MetricKind::kCounts ? AreaOf(total.metric)
                                                           : TotalOf(i, &total.elements);
    totals.push_back(std::move(total));
  }
  return totals;
}

std::string TotalLine(const Evaluation::Total& total) {
  std::string how;
  switch (total.metric.kind) {
    case MetricKind::kMean:
      how = "mean over the samples";
      break;
    case MetricKind::kSum:
      how = "sum over the batches";
      break;
    case MetricKind::kElements:
      how = absl::StrCat("mean of ", total.elements, " elements");
      break;
    case MetricKind::kSame:
      how = "the same for all batches";
      break;
    case MetricKind::kCounts:
      how = "from the counts of all batches";
      break;
    case MetricKind::kOther:
      how = "mean of the batches";
      break;
  }
  return absl::StrFormat("%s: %.7g (%s)\n", total.metric.name, total.value, how);
}

}  // namespace weft
