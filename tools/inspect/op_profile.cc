#include "tools/inspect/op_profile.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void OpProfile::Add(const StepTrace& trace) {
  if (trace.rank != 0) return;
  for (const std::vector<OpSpan>& stream : trace.spans) {
    for (const OpSpan& span : stream) {
      span.VisitTimes([&](int op, std::chrono::duration<double> time) {
        AddOp(trace.plan->ops[op], trace.step, time.count());
      });
    }
  }
}

void OpProfile::AddOp(const Plan::PlanOp& op, int64_t step, double seconds) {
  // A collective runs beside the ops; what it takes says comm_bench.
  if (op.ring_work() != nullptr) return;
  // "block 1, op 0 (scale)" runs within an op of the root block; "the step" is no op.
  if (!absl::StartsWith(op.name, "op ")) return;
  std::vector<double>& of_op = seconds_[op.name];
  if (of_op.empty()) names_.push_back(op.name);
  const auto [last, is_first] = step_of_.try_emplace(op.name, step);
  if (is_first || last->second != step) {
    of_op.push_back(seconds);
  } else {
    of_op.back() += seconds;  // in a loop
  }
  last->second = step;
}

std::string OpProfile::Json() const {
  nlohmann::ordered_json ops = nlohmann::ordered_json::array();
  for (const std::string& name : names_) {
    std::vector<double> seconds = seconds_.at(name);
    if (seconds.size() > kWarmUpSteps)
      seconds.erase(seconds.begin(), seconds.begin() + kWarmUpSteps);
    ops.push_back({{"op", name}, {"seconds", Median(std::move(seconds))}});
  }
  return nlohmann::ordered_json{{"ops", std::move(ops)}}.dump(1) + "\n";
}

}  // namespace weft
