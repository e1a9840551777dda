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
                              ProgramEdits* edits, FusedValues values = FusedValues::kCopied,
                              int alignment = kSliceAlignment) {
  std::vector<std::string> variables = tensors.names;
  if (tensors.names.size() > 1) {
    variables.push_back(edits->names.Next(place.buffer));
    edits->main.AddVar(place.block, FusedBuffer(variables.back(), tensors, alignment));
    edits->main.Append(place.block,
                       Coalesce(tensors, variables.back(), values, kRoleOptimize, alignment));
  }
  return variables;
}

// What is on its way over a ring, and then moves by an outer optimizer.
struct InFlight {
  int ring = 0;
  std::vector<std::string> variables;  // that a wait for it names; the last one is reduced
  const AveragingPlan::Outer* outer = nullptr;
  // With `outer`: what holds all tensors, all of outer->last, and then the mean outer gradients.
  std::string params, last, gradient;
};

// Of tensors that have as many elements each in a buffer as those of the other type.
int AlignmentOf(DType dtype, DType other) {
  return static_cast<int>(kSliceAlignment * SizeOf(dtype) / SizeOf(other));
}

class OuterWriter {
 public:
  OuterWriter(const AveragingPlace& place, ProgramEdits* edits) : place_(place), edits_(*edits) {}

  void WriteGradient(const InFlight& of, const std::string& gradient) {
    Combine("elementwise_sub", of.last, of.params, gradient);
  }
  // Adds what rounding took before to the gradient, and rounds that to `sent`.
  void WriteRounded(const AveragingPlan::Outer& outer, const std::string& gradient,
                    const std::string& sent) {
    const std::string error = Fuse(outer.error, place_, &edits_).back();
    Combine("elementwise_add", gradient, error, gradient);
    Append(CastOp(gradient, outer.last.dtype, sent, outer.sent, kRoleOptimize));
    Append(CastOp(sent, outer.sent, error, outer.last.dtype, kRoleOptimize));
    Combine("elementwise_sub", gradient, error, error);
  }
  // Tensors of the block, with elements for all of outer.last. Returns the name of what holds all.
  std::string NewTensors(const AveragingPlan::Outer& outer, DType dtype) {
    FusedTensors tensors = {dtype, {}, outer.last.dims};
    for (const Dims& dims : tensors.dims) {
      tensors.names.push_back(edits_.names.Next("outer_gradient"));
      edits_.main.AddVar(place_.block, TensorVar(tensors.names.back(), dtype, dims));
    }
    return Fuse(tensors, place_, &edits_, FusedValues::kDiscarded,
                AlignmentOf(dtype, outer.last.dtype))
        .back();
  }
  // What has arrived, in the element type of parameters.
  void Receive(const AveragingPlan::Outer& outer, const std::string& from, const std::string& to) {
    if (outer.sent == outer.last.dtype) return Copy(from, to);
    Append(CastOp(from, outer.sent, to, outer.last.dtype, kRoleOptimize));
  }
  // The gradient changes.
  void WriteUpdate(const InFlight& reduced) {
    const OuterOptimizer& outer = place_.outer;
    const std::string& d = reduced.gradient;
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
    if (place_.mix == 0) return Copy(reduced.last, reduced.params);
    Scale(reduced.params, reduced.params, place_.mix);
    Scale(reduced.last, d, 1 - place_.mix);
    Combine("elementwise_add", reduced.params, d, reduced.params);
  }

 private:
  void Copy(const std::string& from, const std::string& to) {
    Append({"assign", {{"X", {from}}}, {{"Out", {to}}}, {}, kRoleOptimize});
  }
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

GroupConditions WriteGroupConditions(const AveragingSchedule& schedule, ProgramEdits* edits) {
  StepCounter counter("local_sgd", /*before=*/OpId(), edits);
  const std::string is_due = counter.IsDue(counter.Remainder(schedule.period), 0);
  const std::string of_all = counter.Remainder(schedule.PeriodOfAll(), "_of_all");
  return {counter.AndNot(is_due, of_all, 0), counter.IsDue(of_all, 0, "_of_all")};
}

BranchVariables VariablesOfGradients(const AveragingPlan& plan) {
  BranchVariables variables;
  for (const auto& [index, outer] : plan.outer) {
    for (const FusedTensors* const tensors :
         {&plan.averaged[index], &outer.last, &outer.gradient, &outer.error}) {
      variables.reads.insert(variables.reads.end(), tensors->names.begin(), tensors->names.end());
    }
  }
  // Fused buffers hold them all.
  variables.writes = variables.reads;
  return variables;
}

BranchVariables VariablesOf(const AveragingPlan& plan) {
  std::vector<std::string> names;
  for (const FusedTensors& tensors : plan.averaged) {
    names.insert(names.end(), tensors.names.begin(), tensors.names.end());
  }
  std::set<std::string> rates;
  for (const auto& [index, outer] : plan.outer) {
    const FusedTensors none;
    const FusedTensors& error = outer.HasDelay() ? none : outer.error;
    for (const FusedTensors* const states :
         {&outer.last, &outer.velocity, &outer.gradient, &error}) {
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
      for (const FusedTensors* const zeros : {&outer.velocity, &outer.gradient, &outer.error}) {
        if (zeros->names.empty()) continue;
        const std::string& state = zeros->names[i];
        edits->AddState(state, zeros->dtype, tensors.dims[i],
                        FillOp(state, zeros->dtype, tensors.dims[i], 0, kRoleForward));
      }
    }
  }
}

pb::OpDesc CastOp(const AveragingPlan::Cast& cast) {
  return BuildOp(CastOp(cast.master, cast.master_type, cast.param, cast.param_type, kRoleOptimize));
}

namespace {

int RingOf(const AveragingPlace& place, size_t i) {
  return static_cast<int>((static_cast<size_t>(place.first_ring) + i) % place.nrings);
}

// Sums over the ranks, or averages if their number is unknown, once the block has computed it.
void Launch(const InFlight& tensors, const AveragingPlace& place, absl::optional<int> nranks,
            ProgramEdits* edits) {
  for (const RankGroup& group : place.groups) {
    const int ring = place.nrings + group.index;
    const auto append = [&](const NewOp& op) { edits->main.Append(place.block, BuildOp(op)); };
    NewOp average = InPlaceOp("c_allreduce_avg", {tensors.variables.back()},
                              {{"ring_id", ring}, {"use_calc_stream", false}}, kRoleOptimize);
    average.group_ranks = group.ranks;
    append(InPlaceOp("c_wait_compute", tensors.variables, {{"ring_id", ring}}, kRoleOptimize));
    append(average);
    append(InPlaceOp("c_wait_comm", tensors.variables, {{"ring_id", ring}}, kRoleOptimize));
  }
  if (!place.groups.empty()) return;
  const char* const all_reduce = nranks.has_value() ? "c_allreduce_sum" : "c_allreduce_avg";
  edits->main.Append(place.block,
                     InPlace("c_wait_compute", tensors.variables, {{"ring_id", tensors.ring}}));
  edits->main.Append(place.block, InPlace(all_reduce, {tensors.variables.back()},
                                          {{"ring_id", tensors.ring}, {"use_calc_stream", false}}));
}

// Waits for all that the ring was given.
void Await(const std::vector<std::string>& variables, int ring, const AveragingPlace& place,
           ProgramEdits* edits) {
  if (!place.groups.empty()) return;  // Launch has waited
  edits->main.Append(place.block, InPlace("c_wait_comm", variables, {{"ring_id", ring}}));
}

std::vector<std::string> FuseGradients(const AveragingPlan::Outer& outer,
                                       const AveragingPlace& place, FusedValues values,
                                       ProgramEdits* edits) {
  return Fuse(outer.gradient, place, edits, values, AlignmentOf(outer.sent, outer.last.dtype));
}

void DivideByRanks(const std::string& sum, const AveragingPlace& place, absl::optional<int> nranks,
                   ProgramEdits* edits) {
  if (!nranks.has_value()) return;
  const float factor = static_cast<float>(1.0 / *nranks);
  edits->main.Append(place.block, InPlace("scale", {sum}, {{"scale", factor}}, nranks));
}

}  // namespace

void WriteAveraging(const AveragingPlan& plan, const AveragingPlace& place,
                    absl::optional<int> nranks, ProgramEdits* edits) {
  OuterWriter outer_writer(place, edits);
  std::vector<InFlight> in_flight;
  for (size_t i = 0; i < plan.averaged.size(); ++i) {
    InFlight launched;
    launched.ring = RingOf(place, i);
    launched.variables = Fuse(plan.averaged[i], place, edits);
    const auto outer = plan.outer.find(i);
    if (outer != plan.outer.end()) {
      launched.outer = &outer->second;
      launched.params = launched.variables.back();
      launched.last = Fuse(outer->second.last, place, edits).back();
      const bool is_apart = place.mix > 0;
      launched.gradient = is_apart
                              ? outer_writer.NewTensors(outer->second, outer->second.last.dtype)
                              : launched.params;
      if (outer->second.HasDelay()) {
        launched.variables = outer->second.gradient.names;
        in_flight.push_back(std::move(launched));
        continue;
      }
      if (is_apart) launched.variables = {launched.gradient};
      outer_writer.WriteGradient(launched, launched.gradient);
      if (outer->second.IsRounded()) {
        DivideByRanks(launched.gradient, place, nranks, edits);
        launched.variables = {outer_writer.NewTensors(outer->second, outer->second.sent)};
        outer_writer.WriteRounded(outer->second, launched.gradient, launched.variables.back());
      }
    }
    Launch(launched, place, nranks, edits);
    in_flight.push_back(std::move(launched));
  }
  for (const InFlight& reduced : in_flight) {
    Await(reduced.variables, reduced.ring, place, edits);
    const AveragingPlan::Outer* const outer = reduced.outer;
    std::string arrived = reduced.variables.back();
    const bool has_delay = outer != nullptr && outer->HasDelay();
    if (has_delay) arrived = FuseGradients(*outer, place, FusedValues::kCopied, edits).back();
    if (has_delay || (outer != nullptr && outer->IsRounded())) {
      outer_writer.Receive(*outer, arrived, reduced.gradient);
    } else {
      DivideByRanks(arrived, place, nranks, edits);
    }
    if (outer != nullptr) outer_writer.WriteUpdate(reduced);
  }
  for (const AveragingPlan::Cast& cast : plan.casts) edits->main.Append(place.block, CastOp(cast));
  for (const AveragingPlan::Reset& reset : plan.resets) edits->main.Append(place.block, reset.op);
}

void LaunchGradients(const AveragingPlan& plan, const AveragingPlace& place,
                     absl::optional<int> nranks, ProgramEdits* edits) {
  OuterWriter outer_writer(place, edits);
  for (const auto& [index, outer] : plan.outer) {
    InFlight launched;
    launched.ring = RingOf(place, index);
    // Those of the last turn have arrived long ago, which no order of ops says.
    Await(outer.gradient.names, launched.ring, place, edits);
    launched.params = Fuse(plan.averaged[index], place, edits).back();
    launched.last = Fuse(outer.last, place, edits).back();
    launched.variables = FuseGradients(outer, place, FusedValues::kDiscarded, edits);
    const std::string& sent = launched.variables.back();
    const std::string gradient =
        outer.IsRounded() ? outer_writer.NewTensors(outer, outer.last.dtype) : sent;
    outer_writer.WriteGradient(launched, gradient);
    // Before the sum, so that the state is the mean.
    DivideByRanks(gradient, place, nranks, edits);
    if (outer.IsRounded()) outer_writer.WriteRounded(outer, gradient, sent);
    Launch(launched, place, nranks, edits);
  }
}

}  // namespace weft
