#include "tools/inspect/program_plan.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/training/gradients.h"
#include "proto/op_role.h"
#include "transpiler/buckets/optimal_plan.h"
#include "transpiler/passes/gradients/gradient_buckets.h"

namespace weft {
namespace {

// When the last op of backward ends.
double BackwardEnd(const Program& program, const std::vector<double>& op_seconds) {
  double now = 0, end = 0;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    now += op_seconds[op.position()];
    if (IsBackward(op)) end = now;
  }
  return end;
}

class ProgramPlanner {
 public:
  ProgramPlanner(const Program& program, const GradientAnalysis& analysis, const StepTimes& times,
                 int nrings, const ParamAttrsByName& params)
      : program_(program),
        params_(params),
        analysis_(analysis),
        times_(times),
        nrings_(nrings),
        end_(BackwardEnd(program, times.op_seconds)),
        ready_(FindReadyTimes(program, analysis, times.op_seconds)),
        ready_of_(ReadyOfGradients(program, analysis, ready_)) {}

  absl::StatusOr<ProgramPlan> Plan(const BucketPolicy& policy) const {
    WEFT_ASSIGN_OR_RETURN(
        const FilledBuckets filled,
        FillBuckets(program_, analysis_, policy, {ready_, times_.collective, nrings_, params_}));
    ProgramPlan plan;
    plan.warnings = filled.warnings;
    plan.backward_end = end_;
    std::vector<TimedCollective> collectives;
    int turn = 0;
    for (const GradientBucket& bucket : filled.buckets) {
      PlannedBucket planned = Describe(bucket);
      planned.ring = bucket.group.has_value() ? nrings_ + bucket.group->index : turn++ % nrings_;
      collectives.push_back({planned.bytes, planned.ready, planned.ring});
      plan.buckets.push_back(std::move(planned));
    }
    const std::vector<Interval> runs = Schedule(collectives, times_.collective);
    for (size_t b = 0; b < runs.size(); ++b) plan.buckets[b].run = runs[b];
    plan.exposed = ExposedSeconds(runs, {{0, end_}});
    return plan;
  }

  // Of the exposed time of any buckets.
  double LeastExposed() const {
    std::vector<int64_t> bytes;
    std::vector<double> ready;
    for (size_t i = 0; i < analysis_.gradients.size(); ++i) {
      bytes.push_back(BytesOf(analysis_.gradients[i]));
      ready.push_back(ReadyOf(i));
    }
    const int rings = nrings_ + static_cast<int>(GroupsOf(params_).size());
    return std::max(0.0, LowerBound(bytes, ready, times_.collective, rings) - end_);
  }

 private:
  TensorType TypeOf(const Gradient& gradient) const {
    return DeclaredType(program_.var(program_.block(0).Resolve(gradient.grad)))
        .value_or(TensorType{DType::kFloat32, {-1}});
  }

  // 0 if the size is unknown, as that of rows is.
  int64_t BytesOf(const Gradient& gradient) const {
    const TensorType type = TypeOf(gradient);
    if (type.kind != TensorType::Kind::kDense) return 0;
    return std::max<int64_t>(0, NumElements(type.dims)) * static_cast<int64_t>(SizeOf(type.dtype));
  }

  // Accumulated gradients are sent by a block that runs after backward.
  double ReadyOf(size_t gradient) const { return ready_of_[gradient].value_or(end_); }

  PlannedBucket Describe(const GradientBucket& bucket) const {
    PlannedBucket planned;
    for (int i : bucket.gradients) {
      const Gradient& gradient = analysis_.gradients[i];
      planned.gradients.emplace_back(program_.name(gradient.grad));
      planned.dtype = std::string(DTypeName(TypeOf(gradient).dtype));
      planned.bytes += BytesOf(gradient);
      planned.ready = std::max(planned.ready, ReadyOf(i));
    }
    planned.why_alone = bucket.why_alone;
    planned.why_ended = bucket.why_ended;
    planned.ranks = GroupText(bucket.group.has_value() ? bucket.group->ranks : std::vector<int>());
    return planned;
  }

  const Program& program_;
  const ParamAttrsByName& params_;
  const GradientAnalysis& analysis_;
  const StepTimes& times_;
  const int nrings_;
  const double end_;
  const ReadyTimes ready_;
  const std::vector<absl::optional<double>> ready_of_;  // by gradient
};

const PlannedBucket* FindBucket(const ProgramPlan& plan, absl::string_view gradient) {
  for (const PlannedBucket& bucket : plan.buckets) {
    if (absl::c_linear_search(bucket.gradients, gradient)) return &bucket;
  }
  return nullptr;
}

std::string EscapeXml(absl::string_view text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// A picture in time, from the left to the right.
class Svg {
 public:
  Svg(double seconds, int lanes) : seconds_(std::max(seconds, 1e-9)) {
    absl::StrAppendFormat(&text_,
                          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                          "font-family=\"sans-serif\" font-size=\"12\">\n",
                          kLeft + kWidth + 20, kTop + lanes * kLane + 30);
  }
  void Label(int lane, absl::string_view text) {
    absl::StrAppendFormat(&text_, "<text x=\"4\" y=\"%d\">%s</text>\n", kTop + lane * kLane + 18,
                          EscapeXml(text));
  }
  void Bar(int lane, const Interval& interval, const char* color, absl::string_view title) {
    absl::StrAppendFormat(&text_,
                          "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
                          "stroke=\"white\"><title>%s</title></rect>\n",
                          XOf(interval.begin), kTop + lane * kLane + 3,
                          std::max(0.5, XOf(interval.end) - XOf(interval.begin)), kLane - 6, color,
                          EscapeXml(title));
  }
  void Mark(double seconds, int lanes, absl::string_view text) {
    absl::StrAppendFormat(&text_,
                          "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%d\" y2=\"%d\" stroke=\"black\" "
                          "stroke-dasharray=\"4 3\"/>\n<text x=\"%.2f\" y=\"%d\" "
                          "text-anchor=\"end\">%s</text>\n",
                          XOf(seconds), XOf(seconds), kTop, kTop + lanes * kLane, XOf(seconds) - 4,
                          kTop + lanes * kLane + 18, EscapeXml(text));
  }
  std::string Finish() && { return std::move(text_) + "</svg>\n"; }

 private:
  static constexpr int kLeft = 110, kTop = 10, kWidth = 1000, kLane = 26;
  double XOf(double seconds) const { return kLeft + kWidth * seconds / seconds_; }

  const double seconds_;  // of the whole width
  std::string text_;
};

}  // namespace

absl::StatusOr<ProgramPlan> PlanProgram(const Program& program, const BucketPolicy& policy,
                                        const StepTimes& times, int nrings,
                                        const ParamAttrsByName& params) {
  std::set<std::string> distributed;
  for (const auto& [param, attrs] : params) {
    if (!attrs.is_replicated()) distributed.insert(param);
  }
  WEFT_ASSIGN_OR_RETURN(const GradientAnalysis analysis, AnalyzeGradients(program, distributed));
  const ProgramPlanner planner(program, analysis, times, nrings, params);
  WEFT_ASSIGN_OR_RETURN(ProgramPlan plan, planner.Plan(policy));
  plan.least_exposed = plan.exposed;
  if (!policy.is_optimal()) {
    WEFT_ASSIGN_OR_RETURN(const BucketPolicy optimal, BucketPolicy::Parse("optimal"));
    WEFT_ASSIGN_OR_RETURN(const ProgramPlan best, planner.Plan(optimal));
    plan.least_exposed = best.exposed;
  }
  plan.lower_bound = planner.LeastExposed();
  return plan;
}

absl::StatusOr<std::string> WhyApart(const ProgramPlan& plan, absl::string_view a,
                                     absl::string_view b) {
  const PlannedBucket* of_a = FindBucket(plan, a);
  const PlannedBucket* of_b = FindBucket(plan, b);
  for (const auto& [name, bucket] : {std::make_pair(a, of_a), std::make_pair(b, of_b)}) {
    if (bucket != nullptr) continue;
    return absl::NotFoundError(absl::StrCat("the program does not reduce a gradient ", name));
  }
  if (of_a == of_b) return std::string("they share a bucket");
  for (const auto& [name, bucket] : {std::make_pair(a, of_a), std::make_pair(b, of_b)}) {
    if (!bucket->why_alone.empty()) return absl::StrCat(name, ": ", bucket->why_alone);
  }
  if (of_a->ranks != of_b->ranks) {
    return absl::StrCat("reduced over ", of_a->ranks, " and over ", of_b->ranks);
  }
  if (of_a->ring != of_b->ring && of_a->ranks != GroupText({})) {
    return std::string("two groups of the same ranks");
  }
  if (of_a->dtype != of_b->dtype) {
    return absl::StrCat("element types ", of_a->dtype, " and ", of_b->dtype);
  }
  // Of policies that begin with the last gradient, the later bucket was filled first.
  const auto says = [&](const PlannedBucket* bucket) {
    return absl::StrCat("bucket ", bucket - plan.buckets.data(), ": ", bucket->why_ended);
  };
  return absl::StrCat(says(std::min(of_a, of_b)), "; ", says(std::max(of_a, of_b)));
}

std::string PlanSvg(const ProgramPlan& plan) {
  double end = plan.backward_end;
  int rings = 0;
  for (const PlannedBucket& bucket : plan.buckets) {
    end = std::max(end, bucket.run.end);
    rings = std::max(rings, bucket.ring + 1);
  }
  Svg svg(end, rings + 1);
  svg.Label(0, "computation");
  svg.Bar(0, {0, plan.backward_end}, "#4e79a7",
          absl::StrFormat("forward and backward: %.3f ms", plan.backward_end * 1e3));
  for (int ring = 0; ring < rings; ++ring) svg.Label(ring + 1, absl::StrCat("ring ", ring));
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    const PlannedBucket& bucket = plan.buckets[b];
    const bool is_exposed = bucket.run.end > plan.backward_end;
    svg.Bar(bucket.ring + 1, bucket.run, is_exposed ? "#e15759" : "#59a14f",
            absl::StrFormat("bucket %d: %d bytes, ready %.3f ms, %.3f to %.3f ms: %s",
                            static_cast<int>(b), bucket.bytes, bucket.ready * 1e3,
                            bucket.run.begin * 1e3, bucket.run.end * 1e3,
                            absl::StrJoin(bucket.gradients, " ")));
  }
  svg.Mark(plan.backward_end, rings + 1, absl::StrFormat("exposed: %.3f ms", plan.exposed * 1e3));
  return std::move(svg).Finish();
}

}  // namespace weft
