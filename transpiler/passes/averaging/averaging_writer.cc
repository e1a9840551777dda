#include "transpiler/passes/averaging/averaging_writer.h"

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/op_role.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/step_condition.h"

namespace weft {
namespace {

pb::OpDesc InPlace(const std::string& type, const std::vector<std::string>& names, NewAttrs attrs,
                   absl::optional<int> nranks = absl::nullopt) {
  return BuildOp(InPlaceOp(type, names, std::move(attrs), kRoleOptimize, nranks));
}

// Makes the tensors slices of a buffer if there are several. Returns their names, and that of the
// buffer, so that the last one is what holds all.
std::vector<std::string> Fuse(const FusedTensors& tensors, const AveragingPlace& place,
                              ProgramEdits* edits) {
  std::vector<std::string> variables = tensors.names;
  if (tensors.names.size() > 1) {
    variables.push_back(edits->names.Next(place.buffer));
    edits->main.AddVar(place.block, FusedBuffer(variables.back(), tensors));
    edits->main.Append(place.block,
                       Coalesce(tensors, variables.back(), FusedValues::kCopied, kRoleOptimize));
  }
  return variables;
}

// What is on its way over a ring, and then moves by an outer optimizer.
struct InFlight {
  int ring = 0;
  std::vector<std::string> variables;  // that a wait for it names; the last one is reduced
  const AveragingPlan::Outer* outer = nullptr;
  std::string last;  // what holds all of outer->last
};

class OuterWriter {
 public:
  OuterWriter(const AveragingPlace& place, ProgramEdits* edits) : place_(place), edits_(*edits) {}

  // The tensors become their outer gradients.
  void WriteGradient(const std::string& last, const std::string& tensors) {
    Combine("elementwise_sub", last, tensors, tensors);
  }
  // `d`: the mean outer gradient; becomes the parameter.
  void WriteUpdate(const InFlight& reduced) {
    const OuterOptimizer& outer = place_.outer;
    const std::string& d = reduced.variables.back();
    std::string rate;
    if (outer.rule == OuterOptimizer::Rule::kSlowMo) {
      rate = RateOf(*reduced.outer);
      Combine("elementwise_div", d, rate, d);
    }
    if (outer.HasMomentum()) {
      const std::string v = Fuse(reduced.outer->velocity, place_, &edits_).back();
      if (outer.rule == OuterOptimizer::Rule::kNesterov) {
        // The state is momentum times v, so that no further buffer is needed.
        Combine("elementwise_add", v, d, v);
        Scale(v, v, outer.momentum);
        Combine("elementwise_add", d, v, d);
        Scale(d, d, outer.lr);
      } else {
        Scale(v, v, outer.momentum);
        Combine("elementwise_add", v, d, v);
        Scale(v, d, outer.lr);
        Combine("elementwise_mul", d, rate, d);
      }
    } else {
      Scale(d, d, outer.lr);
    }
    Combine("elementwise_sub", reduced.last, d, reduced.last);
    Append({"assign", {{"X", {reduced.last}}}, {{"Out", {d}}}, {}, kRoleOptimize});
  }

 private:
  void Append(const NewOp& op) { edits_.main.Append(place_.block, BuildOp(op)); }
  void Combine(const char* type, const std::string& x, const std::string& y,
               const std::string& out) {
    NewOp op = BinaryOp(type, x, y, out, kRoleOptimize);
    op.attrs.push_back({"axis", -1});
    Append(op);
  }
  void Scale(const std::string& x, const std::string& out, double factor) {
    Append(ScaleOp(x, out, factor, kRoleOptimize));
  }
  // The learning rate in the element type of the tensors.
  std::string RateOf(const AveragingPlan::Outer& outer) {
    if (outer.rate_type == outer.last.dtype) return outer.rate;
    std::string rate = edits_.names.Next("outer_rate");
    edits_.main.AddVar(place_.block, TensorVar(rate, outer.last.dtype, {1}));
    Append(CastOp(outer.rate, outer.rate_type, rate, outer.last.dtype, kRoleOptimize));
    return rate;
  }

  const AveragingPlace& place_;
  ProgramEdits& edits_;
};

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

BranchVariables VariablesOf(const AveragingPlan& plan) {
  std::vector<std::string> names;
  for (const FusedTensors& tensors : plan.averaged) {
    names.insert(names.end(), tensors.names.begin(), tensors.names.end());
  }
  std::set<std::string> rates;
  for (const auto& [index, outer] : plan.outer) {
    for (const FusedTensors* const states : {&outer.last, &outer.velocity}) {
      names.insert(names.end(), states->names.begin(), states->names.end());
    }
    if (!outer.rate.empty()) rates.insert(outer.rate);
  }
  for (const AveragingPlan::Cast& cast : plan.casts) names.push_back(cast.param);
  for (const AveragingPlan::Reset& reset : plan.resets) names.push_back(reset.state);
  BranchVariables variables{names, names};
  variables.reads.insert(variables.reads.end(), rates.begin(), rates.end());
  return variables;
}

void AddOuterStates(const AveragingPlan& plan, ProgramEdits* edits) {
  for (const auto& [index, outer] : plan.outer) {
    const FusedTensors& tensors = plan.averaged[index];
    for (size_t i = 0; i < tensors.names.size(); ++i) {
      const std::string& last = outer.last.names[i];
      edits->AddState(last, tensors.dtype, tensors.dims[i],
                      {"assign", {{"X", {tensors.names[i]}}}, {{"Out", {last}}}, {}, kRoleForward});
      if (outer.velocity.names.empty()) continue;
      const std::string& velocity = outer.velocity.names[i];
      edits->AddState(velocity, tensors.dtype, tensors.dims[i],
                      FillOp(velocity, tensors.dtype, tensors.dims[i], 0, kRoleForward));
    }
  }
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
  OuterWriter outer_writer(place, edits);
  std::vector<InFlight> in_flight;
  for (size_t i = 0; i < plan.averaged.size(); ++i) {
    InFlight launched;
    launched.ring = ring_of(i);
    launched.variables = Fuse(plan.averaged[i], place, edits);
    const std::string& all = launched.variables.back();
    const auto outer = plan.outer.find(i);
    if (outer != plan.outer.end()) {
      launched.outer = &outer->second;
      launched.last = Fuse(outer->second.last, place, edits).back();
      outer_writer.WriteGradient(launched.last, all);
    }
    edits->main.Append(block,
                       InPlace("c_wait_compute", launched.variables, {{"ring_id", launched.ring}}));
    edits->main.Append(block, InPlace(all_reduce, {all},
                                      {{"ring_id", launched.ring}, {"use_calc_stream", false}}));
    in_flight.push_back(std::move(launched));
  }
  for (const InFlight& reduced : in_flight) {
    edits->main.Append(block,
                       InPlace("c_wait_comm", reduced.variables, {{"ring_id", reduced.ring}}));
    if (nranks.has_value()) {
      const float factor = static_cast<float>(1.0 / *nranks);
      edits->main.Append(block,
                         InPlace("scale", {reduced.variables.back()}, {{"scale", factor}}, nranks));
    }
    if (reduced.outer != nullptr) outer_writer.WriteUpdate(reduced);
  }
  for (const AveragingPlan::Cast& cast : plan.casts) edits->main.Append(block, CastOp(cast));
  for (const AveragingPlan::Reset& reset : plan.resets) edits->main.Append(block, reset.op);
}

}  // namespace weft
