#include "tools/view/lanes.h"

#include <algorithm>

#include "transpiler/buckets/timeline.h"

namespace weft {
namespace {

constexpr double kSecond = 1e9;  // in nanoseconds

LaneTotals TotalsOfStep(const std::vector<const LaneSpan*>& spans) {
  std::vector<Interval> communication, computation;
  int64_t begin = 0, end = 0;
  for (const LaneSpan* span : spans) {
    const Interval interval = {static_cast<double>(span->begin) / kSecond,
                               static_cast<double>(span->end) / kSecond};
    (span->communicates ? communication : computation).push_back(interval);
    begin = span == spans.front() ? span->begin : std::min(begin, span->begin);
    end = std::max(end, span->end);
  }
  LaneTotals totals;
  totals.step = static_cast<double>(end - begin);
  totals.computation = ExposedSeconds(computation, {}) * kSecond;
  totals.communication = ExposedSeconds(communication, {}) * kSecond;
  totals.exposed = ExposedSeconds(communication, computation) * kSecond;
  return totals;
}

// The steps of the first rank that count: all but the first, if there are others.
std::vector<const LaneStep*> CountedSteps(const Lanes& lanes) {
  std::vector<const LaneStep*> steps;
  if (lanes.lanes.empty()) return steps;
  for (const LaneStep& step : lanes.steps) {
    if (step.rank == lanes.lanes[0].rank) steps.push_back(&step);
  }
  std::sort(steps.begin(), steps.end(),
            [](const LaneStep* a, const LaneStep* b) { return a->begin < b->begin; });
  if (steps.size() > 1) steps.erase(steps.begin());
  return steps;
}

// The spans of the first rank in each of these steps.
std::vector<std::vector<const LaneSpan*>> SpansOf(const Lanes& lanes,
                                                  const std::vector<const LaneStep*>& steps) {
  std::vector<std::vector<const LaneSpan*>> spans(steps.size());
  for (const LaneSpan& span : lanes.spans) {
    if (lanes.lanes[span.lane].rank != lanes.lanes[0].rank) continue;
    // The last step that begins no later.
    const auto after =
        std::upper_bound(steps.begin(), steps.end(), span.begin,
                         [](int64_t time, const LaneStep* step) { return time < step->begin; });
    if (after == steps.begin()) continue;
    if (span.begin <= (*(after - 1))->end) spans[after - steps.begin() - 1].push_back(&span);
  }
  return spans;
}

}  // namespace

LaneTotals TotalsOf(const Lanes& lanes) {
  LaneTotals totals;
  const std::vector<const LaneStep*> steps = CountedSteps(lanes);
  if (steps.empty()) return totals;
  totals.rank = lanes.lanes[0].rank;
  totals.num_steps = static_cast<int64_t>(steps.size());
  const double share = 1 / static_cast<double>(steps.size());
  for (const std::vector<const LaneSpan*>& spans : SpansOf(lanes, steps)) {
    if (spans.empty()) continue;
    const LaneTotals of_step = TotalsOfStep(spans);
    totals.step += of_step.step * share;
    totals.computation += of_step.computation * share;
    totals.communication += of_step.communication * share;
    totals.exposed += of_step.exposed * share;
  }
  return totals;
}

std::vector<double> TimesOfOps(const Lanes& lanes, size_t num_ops) {
  std::vector<double> times(num_ops, 0);
  const std::vector<const LaneStep*> steps = CountedSteps(lanes);
  for (const std::vector<const LaneSpan*>& spans : SpansOf(lanes, steps)) {
    for (const LaneSpan* span : spans) {
      if (span->op == LaneSpan::kNoOp) continue;
      times[span->op] +=
          static_cast<double>(span->end - span->begin) / static_cast<double>(steps.size());
    }
  }
  return times;
}

}  // namespace weft
