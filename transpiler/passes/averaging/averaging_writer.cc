#include "transpiler/passes/averaging/averaging_writer.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "proto/op_role.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/step_condition.h"

namespace weft {
namespace {

pb::OpDesc InPlace(const std::string& type, const std::vector<std::string>& names, NewAttrs attrs,
                   absl::optional<int> nranks = absl::nullopt) {
  return BuildOp(InPlaceOp(type, names, std::move(attrs), kRoleOptimize, nranks));
}

// Starts the reduction of one element type by an op of type `all_reduce`. Returns the variables
// that a wait for it names; the last one is reduced.
std::vector<std::string> Launch(const FusedTensors& tensors, int ring, const char* all_reduce,
                                const AveragingPlace& place, ProgramEdits* edits) {
  const int block = place.block;
  std::vector<std::string> variables = tensors.names;
  if (tensors.names.size() > 1) {
    variables.push_back(edits->names.Next(place.buffer));
    edits->main.AddVar(block, FusedBuffer(variables.back(), tensors));
    edits->main.Append(block,
                       Coalesce(tensors, variables.back(), FusedValues::kCopied, kRoleOptimize));
  }
  edits->main.Append(block, InPlace("c_wait_compute", variables, {{"ring_id", ring}}));
  edits->main.Append(block, InPlace(all_reduce, {variables.back()},
                                    {{"ring_id", ring}, {"use_calc_stream", false}}));
  return variables;
}

}  // namespace

std::string WriteAveragingCondition(const AveragingSchedule& schedule, ProgramEdits* edits) {
  StepCounter counter("local_sgd", /*before=*/OpId(), edits);
  std::string is_due = counter.IsDue(counter.Remainder(schedule.period), 0);
  const bool begins_apart = schedule.begin_step > schedule.first_step;
  if (begins_apart) is_due = counter.OrBefore(schedule.begin_step, is_due);
  // The first multiple of the period is late enough.
  if (!begins_apart && schedule.first_step <= schedule.period) return is_due;
  return schedule.first_step > 1 ? counter.FromStep(schedule.first_step, is_due) : is_due;
}

std::vector<std::string> VariablesOf(const AveragingPlan& plan) {
  std::vector<std::string> names;
  for (const FusedTensors& tensors : plan.averaged) {
    names.insert(names.end(), tensors.names.begin(), tensors.names.end());
  }
  for (const AveragingPlan::Cast& cast : plan.casts) names.push_back(cast.param);
  for (const AveragingPlan::Reset& reset : plan.resets) names.push_back(reset.state);
  return names;
}

pb::OpDesc CastOp(const AveragingPlan::Cast& cast) {
  return BuildOp(CastOp(cast.master, cast.master_type, cast.param, cast.param_type, kRoleOptimize));
}

void WriteAveraging(const AveragingPlan& plan, const AveragingPlace& place,
                    absl::optional<int> nranks, ProgramEdits* edits) {
  const char* const all_reduce = nranks.has_value() ? "c_allreduce_sum" : "c_allreduce_avg";
  const int block = place.block;
  const auto ring_of = [&](size_t i) {
    return static_cast<int>((static_cast<size_t>(place.first_ring) + i) % place.nrings);
  };
  std::vector<std::vector<std::string>> in_flight;
  for (size_t i = 0; i < plan.averaged.size(); ++i) {
    in_flight.push_back(Launch(plan.averaged[i], ring_of(i), all_reduce, place, edits));
  }
  for (size_t i = 0; i < in_flight.size(); ++i) {
    edits->main.Append(block, InPlace("c_wait_comm", in_flight[i], {{"ring_id", ring_of(i)}}));
    if (!nranks.has_value()) continue;
    const float factor = static_cast<float>(1.0 / *nranks);
    edits->main.Append(block, InPlace("scale", {in_flight[i].back()}, {{"scale", factor}}, nranks));
  }
  for (const AveragingPlan::Cast& cast : plan.casts) edits->main.Append(block, CastOp(cast));
  for (const AveragingPlan::Reset& reset : plan.resets) edits->main.Append(block, reset.op);
}

}  // namespace weft
