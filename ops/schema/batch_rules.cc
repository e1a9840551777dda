#include "ops/schema/batch_rules.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/algorithm/container.h"
#include "ops/schema/algebra.h"
#include "ops/schema/batch_context.h"
#include "ops/schema/batch_rule_functions.h"

namespace weft {
namespace {

using Relations = absl::Span<const BatchRelation>;

bool AnyIs(Relations inputs, bool (BatchRelation::*is)() const) {
  return std::any_of(inputs.begin(), inputs.end(), [is](BatchRelation in) { return (in.*is)(); });
}

bool AllAreIn(Relations inputs, bool (BatchRelation::*a)() const,
              bool (BatchRelation::*b)() const) {
  return std::all_of(inputs.begin(), inputs.end(),
                     [=](BatchRelation in) { return (in.*a)() || (in.*b)(); });
}

// nullptr: the op has none.
const BatchRule* RuleOf(const OpSchema* schema) {
  return schema == nullptr || schema->batch_rule().run == nullptr ? nullptr : &schema->batch_rule();
}

// Of an op type without a rule of its own.
Powers PowersOf(Algebra algebra, const OpSchema& schema, const BatchContext& c) {
  switch (algebra) {
    case Algebra::kSum:
    case Algebra::kAdd:
    case Algebra::kSubtract:
    case Algebra::kCopy:
    case Algebra::kSparsify:
      return Powers::kTogether;
    case Algebra::kReshape:
    case Algebra::kMove:
    case Algebra::kSplitEqual:
      return Powers::kFirst;
    case Algebra::kMultiply:
      return Powers::kProduct;
    case Algebra::kDivide:
      return c.IsFloatOut() ? Powers::kQuotient : Powers::kNone;
    case Algebra::kCast:
      return c.IsFloatOut() || c.IsInteger() ? Powers::kFirst : Powers::kNone;
    case Algebra::kScale:
      if (!c.IsFloatOut()) return Powers::kNone;
      if (c.attrs().Float("bias") != 0 || !c.AllIn("BiasTensor").empty()) return Powers::kAffine;
      return c.AllIn("ScaleTensor").empty() ? Powers::kFirst : Powers::kProduct;
    case Algebra::kIncrement:
      return Powers::kAffine;
    case Algebra::kFill:
    case Algebra::kZeros:
      return Powers::kAny;
    default:
      return schema.Has(Trait::kLinear) ? Powers::kTogether : Powers::kNone;
  }
}

// The power of the outputs; none if nothing is known of it.
absl::optional<int> PowerOfOutputs(Powers powers, const BatchContext& c) {
  const Relations in = c.inputs();
  const auto all_are = [&](int power) {
    return std::all_of(in.begin(), in.end(), [=](BatchRelation r) { return r.power == power; });
  };
  int sum = 0;
  for (BatchRelation r : in) sum += r.power;
  switch (powers) {
    case Powers::kNone:
    case Powers::kAffine:
      return all_are(0) ? absl::make_optional(0) : absl::nullopt;
    case Powers::kFirst:
    case Powers::kMean:
    case Powers::kPositive: {
      const int first = c.In("X").power + c.In("Input").power;
      return sum == first ? absl::make_optional(first) : absl::nullopt;
    }
    case Powers::kTable: {
      const int table = c.In("W").power;
      return sum == table ? absl::make_optional(table) : absl::nullopt;
    }
    case Powers::kTogether:
      return all_are(in[0].power) ? absl::make_optional<int>(in[0].power) : absl::nullopt;
    case Powers::kProduct:
      return sum;
    case Powers::kQuotient:
      return c.In("X").power - c.In("Y").power;
    case Powers::kSign:
    case Powers::kAny:
    case Powers::kOwn:
      break;
  }
  return 0;
}

// Whether the outputs are partial, given that some inputs are and the others are replicated.
bool KeepsPartial(Powers powers, const BatchContext& c) {
  const Relations in = c.inputs();
  const auto partial = [](BatchRelation r) { return r.IsPartial(); };
  switch (powers) {
    case Powers::kAffine:
    case Powers::kFirst:
    case Powers::kMean:
      return c.OthersAreReplicated({"X", "Input"});
    case Powers::kTable:
      return c.OthersAreReplicated({"W"});
    case Powers::kTogether:
      return true;
    case Powers::kProduct:
      return std::count_if(in.begin(), in.end(), partial) == 1;
    case Powers::kQuotient:
      return c.In("Y").IsReplicated();
    default:
      return false;
  }
}

// Whether the op makes integers of floats, or means of integers, which are rounded: no such
// function is linear.
bool Rounds(Powers powers, const BatchContext& c) {
  switch (powers) {
    case Powers::kMean:
      return !c.IsFloatOut();
    case Powers::kAffine:
    case Powers::kFirst:
    case Powers::kTogether:
    case Powers::kProduct:
    case Powers::kPositive:
      return c.IsFloatIn() && c.IsNoFloatOut();
    default:
      return false;
  }
}

// Applies a rule that is not kOwn.
void Apply(Powers powers, const std::function<void(BatchContext&)>& run, bool is_elementwise,
           BatchContext* c, std::vector<BatchRelation>* inputs) {
  if (Rounds(powers, *c)) powers = Powers::kNone;
  if (powers == Powers::kAny) {
    for (BatchRelation& in : *inputs) {
      const bool has_same_shape =
          in.IsPartial() || in.IsPartialOther() || in.kind == BatchRelation::Kind::kShape;
      in = has_same_shape ? BatchRelation::Replicated() : in.WithoutPower();
    }
  }
  const absl::optional<int> power = PowerOfOutputs(powers, *c);
  if (!power.has_value() || AnyIs(*inputs, &BatchRelation::IsUnrelated)) return;
  for (BatchRelation& in : *inputs) in = in.WithoutPower();
  if (AllAreIn(*inputs, &BatchRelation::IsReplicated, &BatchRelation::IsReplicated)) {
    c->SetAll(BatchRelation::Replicated());
  } else if (AllAreIn(*inputs, &BatchRelation::IsReplicated, &BatchRelation::IsPartial)) {
    if (KeepsPartial(powers, *c)) c->SetAll(BatchRelation::Partial());
  } else if (!AllAreIn(*inputs, &BatchRelation::IsReplicated, &BatchRelation::IsSharded)) {
    return;
  } else if (run != nullptr) {
    run(*c);
  } else if (is_elementwise) {
    batch::Elementwise(*c);
  }
  c->MultiplyAll(*power);
}

BatchRelation AfterAllReduce(Reduction reduction, BatchRelation in, bool is_integer) {
  const bool is_mean_or_same = in.IsReplicated() || in.IsPartial();
  switch (reduction) {
    case Reduction::kSum:
      return is_mean_or_same ? BatchRelation::Replicated(in.power).Times(1)
                             : BatchRelation::Unrelated();
    case Reduction::kAvg:
      if (is_integer && !in.IsReplicated()) return BatchRelation::Unrelated();
      return is_mean_or_same ? BatchRelation::Replicated(in.power) : BatchRelation::Unrelated();
    case Reduction::kMax:
      if (in == BatchRelation::PartialMax()) return BatchRelation::Replicated();
      return in.IsReplicated() ? in : BatchRelation::Unrelated();
    case Reduction::kMin:
      if (in == BatchRelation::PartialMin()) return BatchRelation::Replicated();
      return in.IsReplicated() ? in : BatchRelation::Unrelated();
    case Reduction::kProd:
      break;
  }
  return in == BatchRelation::PartialProd() ? BatchRelation::Replicated()
                                            : BatchRelation::Unrelated();
}

}  // namespace

BatchOutputs ApplyBatchRule(const Op& op, const OpSchema* schema, const TypeLookup& types,
                            absl::Span<const BatchRelation> inputs, bool has_no_negative_sizes) {
  BatchOutputs out;
  out.relations.resize(op.output_args().size(), BatchRelation::Unrelated());
  const Algebra algebra = AlgebraOf(op, schema);
  const bool all_same = AllAreIn(inputs, &BatchRelation::IsSame, &BatchRelation::IsSame);
  if (all_same && algebra != Algebra::kRandom) {
    std::fill(out.relations.begin(), out.relations.end(), BatchRelation::Replicated());
    return out;
  }
  // Other sizes are the same booleans.
  const bool is_of_bool = op.IntAttr("out_dtype") == paddle::framework::proto::VarType::BOOL;
  const bool keeps_values = (algebra == Algebra::kCast && !is_of_bool) || algebra == Algebra::kCopy;
  if (keeps_values && inputs.size() == 1 && inputs[0].kind == BatchRelation::Kind::kShape) {
    std::fill(out.relations.begin(), out.relations.end(), inputs[0]);
    return out;
  }
  // A flag that is set where that of any rank is.
  const absl::optional<TensorType> in_type =
      algebra == Algebra::kCast && inputs.size() == 1 ? types(op.input_args()[0]) : absl::nullopt;
  if (in_type.has_value() && in_type->dtype == DType::kBool &&
      inputs[0] == BatchRelation::PartialMax()) {
    std::fill(out.relations.begin(), out.relations.end(), inputs[0]);
    return out;
  }
  const BatchRule* rule = RuleOf(schema);
  const bool has_own_rule = rule != nullptr && rule->powers == Powers::kOwn;
  if (algebra == Algebra::kRandom && !has_own_rule) {
    // What another rank sends is no draw.
    const bool draws = !FindMessageOp(op.type()).has_value() && op.type() != kBarrierType;
    if (!out.relations.empty() && draws) out.effect = BatchEffect::kDraws;
    return out;
  }
  if (schema == nullptr) return out;
  // The relations are those of the whole values.
  if (algebra == Algebra::kSparsify) out.effect = BatchEffect::kSparsifies;
  const absl::StatusOr<OpAttrs> attrs = OpAttrs::Decode(op, *schema);
  if (!attrs.ok()) return out;
  std::vector<BatchRelation> seen(inputs.begin(), inputs.end());
  BatchContext context(op, *schema, *attrs, types, seen, has_no_negative_sizes, &out);
  if (algebra == Algebra::kConcat && batch::JoinSizes(context)) return out;
  if (has_own_rule) {
    rule->run(context);
  } else {
    Apply(rule == nullptr ? PowersOf(algebra, *schema, context) : rule->powers,
          rule == nullptr ? nullptr : rule->run, schema->Has(Trait::kElementwise), &context, &seen);
  }
  return out;
}

bool ComputesElements(const OpSchema& schema) {
  const auto* const rule = schema.batch_rule().run.target<void (*)(BatchContext&)>();
  return schema.Has(Trait::kElementwise) || schema.Has(Trait::kBroadcasts) ||
         (rule != nullptr && *rule == &batch::Elementwise);
}

BatchOutputs ApplyAssumedRule(const Op& op, const OpAssumption& assumption, const TypeLookup& types,
                              absl::Span<const BatchRelation> inputs) {
  BatchOutputs out;
  out.relations.resize(op.output_args().size(), BatchRelation::Unrelated());
  if (AllAreIn(inputs, &BatchRelation::IsSame, &BatchRelation::IsSame)) {
    std::fill(out.relations.begin(), out.relations.end(), BatchRelation::Replicated());
    return out;
  }
  const auto per_sample = [](BatchContext& c) {
    const bool are_rows = absl::c_all_of(c.inputs(), [](BatchRelation in) {
      return in.IsReplicated() || in == BatchRelation::Sharded(0);
    });
    if (are_rows) c.SetAll(BatchRelation::Sharded(0));
  };
  // Attributes may mean anything.
  static const OpSchema& schema = *new OpSchema("assumed");
  const OpAttrs attrs = OpAttrs::Make(schema);
  std::vector<BatchRelation> seen(inputs.begin(), inputs.end());
  BatchContext context(op, schema, attrs, types, seen, /*has_no_negative_sizes=*/false, &out);
  Apply(assumption.is_linear ? Powers::kTogether : Powers::kNone,
        assumption.is_per_sample ? batch::BatchRun(per_sample) : nullptr, assumption.is_elementwise,
        &context, &seen);
  return out;
}

bool IsLinearInAllInputs(const Op& op, const OpSchema* schema) {
  if (schema == nullptr) return false;
  const BatchRule* rule = RuleOf(schema);
  if (rule != nullptr) return rule->powers == Powers::kTogether;
  const Algebra algebra = AlgebraOf(op, schema);
  return algebra == Algebra::kSum || algebra == Algebra::kAdd || algebra == Algebra::kSubtract ||
         schema->Has(Trait::kLinear);
}

absl::string_view TimeMajorSlot(absl::string_view op_type) {
  const BatchRule* rule = RuleOf(FindOpSchema(op_type));
  return rule == nullptr ? "" : rule->time_major;
}

absl::string_view OpenSizeSlot(absl::string_view op_type) {
  const BatchRule* rule = RuleOf(FindOpSchema(op_type));
  return rule == nullptr ? "" : rule->open_size;
}

absl::string_view WhyUnrelated(const Op& op) {
  const bool is_weighted_mean =
      op.type() == "nll_loss" && op.StringAttr("reduction").value_or("mean") == "mean" &&
      (!op.Input("Weight").empty() || op.IntAttr("ignore_index").value_or(-1) >= 0);
  if (is_weighted_mean) {
    return "and divides by the weights of the rank's own labels; use reduction=none, divide by the "
           "sum of the weights, pass option:exact_loss to transpile";
  }
  if (op.type() == "data_norm_grad") {
    return "and divides by the numbers of the rank's own rows, because of slot_dim: no mode adds "
           "up such counts over ranks (local_sgd averages the statistics)";
  }
  if (op.type() == "center_loss" && op.BoolAttr("need_update").value_or(false)) {
    return "and moves the centers by the rank's own samples; use update_center=False, or centers "
           "that a gradient trains";
  }
  return "";
}

BatchRelation AfterCollective(const CollectiveOp& collective, BatchRelation in, bool is_integer) {
  const bool is_mean_or_same = in.IsReplicated() || in.IsPartial();
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      return AfterAllReduce(collective.reduction, in, is_integer);
    case CollectiveKind::kReduceScatter:
      if (collective.reduction == Reduction::kSum && is_mean_or_same) {
        return BatchRelation::Sharded(0, in.power).Times(1);
      }
      return BatchRelation::Unrelated();
    case CollectiveKind::kAllGather:
      return in.IsSharded() && in.axis == 0 ? BatchRelation::Replicated(in.power)
                                            : BatchRelation::Unrelated();
    case CollectiveKind::kBroadcast:
      return in.IsReplicated() ? in : BatchRelation::Unrelated();
    case CollectiveKind::kReduce:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kSend:
      break;
  }
  return BatchRelation::Unrelated();
}

}  // namespace weft
