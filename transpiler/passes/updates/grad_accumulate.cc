#include "transpiler/passes/updates/grad_accumulate.h"

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/training/gradients.h"
#include "ops/analysis/training/losses.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/schema/batch_relation.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/op_queries.h"
#include "transpiler/passes/support/program_edits.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/step_condition.h"
#include "transpiler/passes/updates/batch_divisor.h"
#include "transpiler/passes/updates/update_slice.h"

namespace weft {
namespace {

using Names = std::vector<std::string>;

NewOp Fill(const std::string& name, DType dtype, const Dims& dims, float value, int role) {
  NewOp op = FillOp(name, dtype, dims, value, role);
  op.attrs.push_back({"str_value", absl::StrCat(value)});
  return op;
}

// Keeps the pairs of op_role_var whose gradient stays paired. Returns whether others went.
bool ErasePairs(const absl::flat_hash_set<std::string>& unpaired, pb::OpDesc* op) {
  auto* attrs = op->mutable_attrs();
  bool any = false;
  for (int i = attrs->size(); i-- > 0;) {
    pb::OpDesc::Attr& attr = *attrs->Mutable(i);
    if (attr.name() != kOpRoleVarAttr) continue;
    Names kept;
    for (int k = 0; k + 1 < attr.strings_size(); k += 2) {
      if (unpaired.contains(attr.strings(k + 1))) continue;
      kept.push_back(attr.strings(k));
      kept.push_back(attr.strings(k + 1));
    }
    if (static_cast<int>(kept.size()) == attr.strings_size()) continue;
    any = true;
    attr.clear_strings();
    for (std::string& name : kept) *attr.add_strings() = std::move(name);
    if (kept.empty()) attrs->DeleteSubrange(i, 1);
  }
  return any;
}

void SetRole(int role, pb::OpDesc* op) {
  for (pb::OpDesc::Attr& attr : *op->mutable_attrs()) {
    if (attr.name() == kOpRoleAttr) attr.set_i(role);
  }
}

// What accumulated gradients are multiplied by: one over k, for a mean, and over scale_sense, which
// is a variable, as in MindSpore.
class GradientScale {
 public:
  // `steps`: what is divided by besides scale_sense.
  GradientScale(const GradAccumulate::Options& options, int steps, ProgramEdits* edits)
      : steps_(steps), edits_(*edits) {
    if (!options.scale_sense.has_value()) return;
    variable_ = edits_.names.Of("scale_sense");
    edits_.AddState(variable_, DType::kFloat32, {1},
                    Fill(variable_, DType::kFloat32, {1}, static_cast<float>(*options.scale_sense),
                         kRoleForward));
  }

  // A variable of the block in which the gradients are used.
  void DivideBy(const std::string& variable, const Dims& dims) {
    variable_ = variable;
    dims_ = dims;
    divides_ = true;
  }

  bool IsOne() const { return variable_.empty() && steps_ == 1; }
  // Empty: there is no scale_sense.
  const std::string& variable() const { return variable_; }

  std::string ToString() const {
    if (variable_.empty()) return absl::StrCat(1 / static_cast<float>(steps_));
    return absl::StrCat("1 / ", steps_ == 1 ? "" : absl::StrCat(steps_, " "), variable_);
  }

  // The op that multiplies `x` in `block`. Calls prepend(NewOp) for ops that stand before all such
  // ops of the block.
  template <typename Prepend>
  NewOp Times(const std::string& x, const std::string& out, DType dtype, int block,
              Prepend prepend) {
    if (variable_.empty()) return ScaleOp(x, out, 1 / static_cast<float>(steps_), kRoleOptimize);
    std::string& factor = factors_[{block, dtype}];
    if (factor.empty()) {
      std::string divisor = variable_;
      if (dtype != DType::kFloat32) {
        const std::string cast = Temporary("scale_sense@CAST", block, dtype);
        prepend(CastOp(divisor, DType::kFloat32, cast, dtype, kRoleOptimize));
        divisor = cast;
      }
      if (steps_ != 1) {
        const std::string times = Temporary("scale_sense@TIMES_K", block, dtype);
        prepend(ScaleOp(divisor, times, steps_, kRoleOptimize));
        divisor = times;
      }
      factor = divisor;
      if (!divides_) {
        factor = Temporary("scale_sense@RECIPROCAL", block, dtype);
        prepend({"reciprocal", {{"X", {divisor}}}, {{"Out", {factor}}}, {}, kRoleOptimize});
      }
    }
    NewOp times =
        BinaryOp(divides_ ? "elementwise_div" : "elementwise_mul", x, factor, out, kRoleOptimize);
    times.attrs = {{"axis", -1}};
    return times;
  }

 private:
  std::string Temporary(const std::string& wanted, int block, DType dtype) {
    std::string name = edits_.names.Of(wanted);
    edits_.main.AddVar(block, TensorVar(name, dtype, dims_));
    return name;
  }

  const int steps_;
  ProgramEdits& edits_;
  std::string variable_;
  Dims dims_ = {1};
  bool divides_ = false;
  std::map<std::pair<int, DType>, std::string> factors_;
};

class Accumulation {
 public:
  // `divisor`: with exact_loss; none: the mean over the steps is exact.
  Accumulation(const GradAccumulate::Options& options, const UpdateSlice& part,
               absl::optional<BatchDivisor> divisor, ProgramPair* programs)
      : options_(options),
        part_(part),
        divisor_(std::move(divisor)),
        main_(*programs->main),
        edits_(*programs),
        scale_(options, options.average && !divisor_.has_value() ? options.k : 1, &edits_) {}

  absl::Status Run() {
    Unpair();
    for (const PartGradient& gradient : part_.gradients) WriteAccumulator(gradient);
    if (divisor_.has_value()) WriteCount();
    const std::string is_due = WriteCondition();
    const int block = AppendBranch(0, is_due, VariablesOfBlock(), "accumulate_scope", &edits_);
    if (divisor_.has_value()) WriteDivisor(block);
    WriteGradients(block);
    MoveUpdatePart(options_.skip_nonfinite ? WriteGuard(block) : block);
    WriteResets(block);
    return edits_.Commit().status();
  }

  // By gradient.
  const Names& accumulators() const { return accumulators_; }
  const GradientScale& scale() const { return scale_; }

 private:
  std::string Name(Symbol symbol) const { return std::string(main_.name(symbol)); }

  // The accumulators are paired instead. Casts that stay are of backward now: they pass gradients
  // on in every step.
  void Unpair() {
    absl::flat_hash_set<std::string> unpaired;
    for (const PartGradient& gradient : part_.gradients) {
      unpaired.insert(Name(gradient.paired));
      if (gradient.grad == gradient.paired) continue;
      pb::OpDesc cast = main_.op(gradient.completed_by).ToProto();
      SetRole(kRoleBackward, &cast);
      edits_.main.Replace(gradient.completed_by, cast);
    }
    for (OpId id : main_.block(0).ops()) {
      const Op op = main_.op(id);
      if (!IsBackward(op) || !op.has_role_vars()) continue;
      pb::OpDesc desc = op.ToProto();
      if (ErasePairs(unpaired, &desc)) edits_.main.Replace(id, desc);
    }
  }

  std::string State(const std::string& wanted, DType dtype, const Dims& dims) {
    std::string name = edits_.names.Of(wanted);
    edits_.AddState(name, dtype, dims, Fill(name, dtype, dims, 0, kRoleForward));
    return name;
  }
  void Append(int block, const NewOp& op) { edits_.main.Append(block, BuildOp(op)); }

  std::string Temporary(const std::string& wanted, int block, DType dtype, const Dims& dims) {
    std::string name = edits_.names.Of(wanted);
    edits_.main.AddVar(block, TensorVar(name, dtype, dims));
    return name;
  }

  // At the end of the step, where the gradient has the value that the update part would read.
  void WriteAccumulator(const PartGradient& gradient) {
    const std::string grad = Name(gradient.grad);
    const DType dtype = AccumulatorType(gradient);
    const Dims& dims = gradient.type.dims;
    const std::string sum = State(grad + "@ACCUMULATED", dtype, dims);
    accumulators_.push_back(sum);
    std::string summand = grad;
    if (dtype != gradient.type.dtype) {
      summand = Temporary(grad + "@FP32", 0, dtype, dims);
      Append(0, CastOp(grad, gradient.type.dtype, summand, dtype, kRoleBackward));
    }
    NewOp add = BinaryOp("elementwise_add", sum, summand, sum, kRoleBackward);
    add.attrs = {{"axis", -1}};
    pb::OpDesc desc = BuildOp(add);
    *desc.add_attrs() = MakeAttr(kOpRoleVarAttr, Names{Name(gradient.param), sum});
    edits_.main.Append(0, desc);
  }
  static DType AccumulatorType(const PartGradient& gradient) {
    const DType dtype = gradient.type.dtype;
    return SizeOf(dtype) < SizeOf(DType::kFloat32) ? DType::kFloat32 : dtype;
  }

  // The backward pass begins with the divisor, so that what it computes is not divided by it.
  void WriteCount() {
    const Op seed = main_.op(divisor_->seed);
    const std::string gradient = Name(seed.output_args()[0]);
    NewOp times = BinaryOp("elementwise_mul", gradient,
                           std::string(main_.var(divisor_->divisor).name()), gradient, seed.role());
    times.attrs = {{"axis", -1}};
    edits_.main.InsertAfter(seed.id(), BuildOp(times));
    const Var count = main_.var(divisor_->count);
    const TensorType type = *DeclaredType(count);
    count_ = State(absl::StrCat(count.name(), "@ACCUMULATED"), type.dtype, type.dims);
    NewOp add =
        BinaryOp("elementwise_add", count_, std::string(count.name()), count_, kRoleBackward);
    add.attrs = {{"axis", -1}};
    Append(0, add);
  }

  // The divisor of all samples: what a step computes from its count, from that of all steps.
  void WriteDivisor(int block) {
    absl::flat_hash_map<Symbol, std::string> renamed;
    renamed[main_.var(divisor_->count).name_symbol()] = count_;
    for (OpId id : divisor_->ops) {
      pb::OpDesc op = main_.op(id).ToProto();
      for (Symbol out : main_.op(id).output_args()) {
        const VarId var = main_.block(0).FindVar(out);
        pb::VarDesc desc = main_.var(var).ToProto();
        desc.set_name(edits_.names.Of(absl::StrCat(desc.name(), "@OF_ALL")));
        renamed[out] = desc.name();
        edits_.main.AddVar(block, desc);
      }
      for (auto* slots : {op.mutable_inputs(), op.mutable_outputs()}) {
        for (pb::OpDesc::Var& slot : *slots) {
          for (std::string& argument : *slot.mutable_arguments()) {
            const auto name = renamed.find(main_.FindSymbol(argument));
            if (name != renamed.end()) argument = name->second;
          }
        }
      }
      SetRole(kRoleOptimize, &op);
      edits_.main.Append(block, op);
    }
    const Var divisor = main_.var(divisor_->divisor);
    scale_.DivideBy(renamed.at(divisor.name_symbol()), DeclaredType(divisor)->dims);
  }

  // Whether the number of the step, from 1 on, is a multiple of k.
  std::string WriteCondition() {
    StepCounter counter("accumulate", /*before=*/OpId(), &edits_);
    return counter.IsDue(counter.Remainder(options_.k), 0);
  }

  // Of the block that runs in every k-th step: it writes gradients before it reads them.
  BranchVariables VariablesOfBlock() const {
    Names reads = accumulators_, writes;
    absl::flat_hash_set<Symbol> gradients;
    for (size_t i = 0; i < part_.gradients.size(); ++i) {
      gradients.insert(part_.gradients[i].grad);
      writes.push_back(accumulators_[i]);
      writes.push_back(Name(part_.gradients[i].grad));
    }
    for (Symbol symbol : part_.reads) {
      if (!gradients.contains(symbol)) reads.push_back(Name(symbol));
    }
    if (!scale_.variable().empty()) reads.push_back(scale_.variable());
    if (divisor_.has_value()) {
      reads.push_back(count_);
      writes.push_back(count_);
      // Constants, too.
      absl::flat_hash_set<Symbol> made = {main_.var(divisor_->count).name_symbol()};
      for (OpId id : divisor_->ops) {
        for (Symbol in : main_.op(id).input_args()) {
          if (!made.contains(in)) reads.push_back(Name(in));
        }
        made.insert(main_.op(id).output_args().begin(), main_.op(id).output_args().end());
      }
    }
    for (Symbol symbol : part_.writes) writes.push_back(Name(symbol));
    return {Unique(reads), Unique(writes)};
  }

  // Gives the gradients what is accumulated.
  void WriteGradients(int block) {
    const auto append = [&](const NewOp& op) { Append(block, op); };
    for (size_t i = 0; i < part_.gradients.size(); ++i) {
      const PartGradient& gradient = part_.gradients[i];
      const std::string grad = Name(gradient.grad);
      const DType dtype = AccumulatorType(gradient);
      if (dtype == gradient.type.dtype) {
        Append(block, scale_.Times(accumulators_[i], grad, dtype, block, append));
      } else {
        const std::string scaled = Temporary(grad + "@SCALED", block, dtype, gradient.type.dims);
        Append(block, scale_.Times(accumulators_[i], scaled, dtype, block, append));
        Append(block, CastOp(scaled, dtype, grad, gradient.type.dtype, kRoleOptimize));
      }
    }
  }

  // A block that runs if all gradients are finite. Returns its number.
  int WriteGuard(int block) {
    Names gradients;
    for (const PartGradient& gradient : part_.gradients) gradients.push_back(Name(gradient.grad));
    const std::string one = Temporary("accumulate_one", block, DType::kFloat32, {1});
    const std::string found = Temporary("accumulate_found_nonfinite", block, DType::kBool, {1});
    const std::string finite = Temporary("accumulate_is_finite", block, DType::kBool, {1});
    Append(block, Fill(one, DType::kFloat32, {1}, 1, kRoleOptimize));
    Append(block, {"check_finite_and_unscale",
                   {{"X", gradients}, {"Scale", {one}}},
                   {{"Out", gradients}, {"FoundInfinite", {found}}},
                   {},
                   kRoleOptimize});
    Append(block, {"logical_not", {{"X", {found}}}, {{"Out", {finite}}}, {}, kRoleOptimize});
    BranchVariables variables;
    for (Symbol symbol : part_.reads) variables.reads.push_back(Name(symbol));
    for (Symbol symbol : part_.writes) variables.writes.push_back(Name(symbol));
    return AppendBranch(block, finite, variables, "accumulate_finite_scope", &edits_);
  }

  void MoveUpdatePart(int block) {
    for (OpId id : part_.ops) {
      edits_.main.Append(block, main_.op(id).ToProto());
      edits_.main.Erase(id);
    }
  }

  void WriteResets(int block) {
    for (size_t i = 0; i < part_.gradients.size(); ++i) {
      const PartGradient& gradient = part_.gradients[i];
      Append(block, Fill(accumulators_[i], AccumulatorType(gradient), gradient.type.dims, 0,
                         kRoleOptimize));
    }
    if (!divisor_.has_value()) return;
    const TensorType type = *DeclaredType(main_.var(divisor_->count));
    Append(block, Fill(count_, type.dtype, type.dims, 0, kRoleOptimize));
  }

  static Names Unique(const Names& names) {
    absl::flat_hash_set<std::string> seen;
    Names unique;
    for (const std::string& name : names) {
      if (seen.insert(name).second) unique.push_back(name);
    }
    return unique;
  }

  const GradAccumulate::Options& options_;
  const UpdateSlice& part_;
  const absl::optional<BatchDivisor> divisor_;
  const Program& main_;
  ProgramEdits edits_;
  GradientScale scale_;
  std::string count_;  // of all steps of a round; empty: there is no divisor
  Names accumulators_;
};

// A program that checks gradients itself acts on what it finds.
absl::Status RefuseOtherChecks(const Program& program, const UpdateSlice& part) {
  for (OpId id : part.ops) {
    const Op op = program.op(id);
    if (op.Output("FoundInfinite").empty() && op.Input("FoundInfinite").empty() &&
        op.Input("SkipUpdate").empty()) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        op.DebugName(),
        ": the program checks whether gradients are finite, and must see those that are not; "
        "expected skip_nonfinite=false, found true"));
  }
  return absl::OkStatus();
}

// The ops with blocks in `blocks` read the variable.
void ReadInBlocks(const std::set<int>& blocks, const std::string& variable, const Program& program,
                  Rewriter* rewriter) {
  for (const Op& op : AllOps(program)) {
    const auto is_scaled = [&](int block) { return blocks.count(block) > 0; };
    if (!absl::c_any_of(op.SubBlocks(), is_scaled)) continue;
    pb::OpDesc desc = op.ToProto();
    for (pb::OpDesc::Var& slot : *desc.mutable_inputs()) {
      if (slot.parameter() == "Input") slot.add_arguments(variable);
    }
    rewriter->Replace(op.id(), desc);
  }
}

// form=sharded.
absl::StatusOr<bool> ScaleAccumulated(const GradAccumulate::Options& options,
                                      const PassContext& context, const ProgramPair& programs) {
  if (options.k != 1 || options.average || options.skip_nonfinite || options.exact_loss) {
    return absl::InvalidArgumentError(
        "form=sharded scales gradients that the program accumulates itself; expected no k, "
        "average, exact_loss or skip_nonfinite");
  }
  const Program& main = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const GradientAnalysis analysis, AnalyzeGradients(main, {}));
  for (const SkippedGradient& unclear : analysis.unclear) {
    return absl::FailedPreconditionError(absl::StrCat(
        "gradient ", main.name(unclear.grad), " is accumulated over several steps: ", unclear.why));
  }
  ProgramEdits edits(programs);
  GradientScale scale(options, 1, &edits);
  std::set<int> blocks;
  for (const Gradient& gradient : analysis.gradients) {
    const std::string name(main.name(gradient.grad));
    if (gradient.block == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("gradient ", name,
                       " is not accumulated over several steps: expected a program that "
                       "accumulates and resets its gradients, or form=plain"));
    }
    if (scale.IsOne()) continue;
    blocks.insert(gradient.block);
    const OpId first = main.block(gradient.block).ops()[0];
    const auto prepend = [&](const NewOp& op) { edits.main.InsertBefore(first, BuildOp(op)); };
    const auto insert = [&](const NewOp& op) {
      edits.main.InsertBefore(gradient.first_use, BuildOp(op));
    };
    const TensorType type = *DeclaredType(main, gradient.grad);
    if (SizeOf(type.dtype) >= SizeOf(DType::kFloat32)) {
      insert(scale.Times(name, name, type.dtype, gradient.block, prepend));
    } else {
      // The reciprocal may be less than half precision has.
      const std::string wide = edits.names.Of(name + "@FP32");
      edits.main.AddVar(gradient.block, TensorVar(wide, DType::kFloat32, type.dims));
      insert(CastOp(name, type.dtype, wide, DType::kFloat32, kRoleOptimize));
      insert(scale.Times(wide, wide, DType::kFloat32, gradient.block, prepend));
      insert(CastOp(wide, DType::kFloat32, name, type.dtype, kRoleOptimize));
    }
    context.sink.Explain(GradAccumulate::kName, name, "scaled", "accumulated by the program",
                         {{"by", scale.ToString()}});
  }
  if (analysis.gradients.empty()) {
    return absl::FailedPreconditionError("the program has no accumulated gradients");
  }
  if (!blocks.empty()) ReadInBlocks(blocks, scale.variable(), main, &edits.main);
  return edits.Commit();
}

// The mean of k means is the mean of all samples. For any other loss it is not what one batch of k
// times the size would give, as for ranks (W701).
void WarnOfOtherLosses(const GradAccumulate::Options& accumulate, const PassContext& context,
                       const Program& main) {
  const int k = accumulate.k;
  BatchFlowOptions options;
  options.setting.feeds = context.setting.feeds;
  options.extent = BatchFlowOptions::Extent::kToLosses;
  const BatchFlow flow = BatchFlow::Of(main, options);
  for (Symbol loss : FindLosses(main)) {
    const VarId var = main.block(0).FindVar(loss);
    if (!var.valid() || accumulate.exact_loss) continue;
    const BatchValue& value = flow.AtEnd(var);
    const BatchRelation relation = value.relation;
    if (relation.IsSame() || relation == BatchRelation::Partial()) continue;
    const bool is_sum = relation == BatchRelation::PartialSum();
    const bool has_exact = !is_sum && FindBatchDivisor(main, context.setting.feeds).ok();
    context.sink.Warn(absl::StrCat(
        "loss ", main.name(loss), " is no mean over the batch",
        value.cause.valid() ? absl::StrCat(" after ", main.op(value.cause).DebugName()) : "",
        ": the average of its gradients over ", k,
        " batches is not the gradient of one batch of all their samples",
        is_sum ? absl::StrCat(", but 1/", k, " of it; leave out average")
               : ", as each batch counts alike, whatever it divides by",
        has_exact ? "; exact_loss=true accumulates the divisor, too" : ""));
  }
  for (const BatchEffectAt& at : flow.effects()) {
    if (at.effect != BatchEffect::kStatistics) continue;
    context.sink.Warn(absl::StrCat(main.op(at.op).DebugName(),
                                   " normalizes by the statistics of each batch: ", k,
                                   " small batches do not train as one large batch"));
    return;
  }
}

}  // namespace

void GradAccumulate::Options::Bind(OptionBinder& bind) {
  bind.Int("k", &k, "steps whose gradients are accumulated", /*min=*/1);
  bind.Parsed("scale_sense", &scale_sense, "none",
              "the first value of a variable by which accumulated gradients are divided",
              "a number other than 0",
              [](absl::string_view text) -> absl::StatusOr<absl::optional<double>> {
                double value = 0;
                if (absl::SimpleAtod(text, &value)) {
                  const auto inverse = static_cast<float>(1 / value);
                  if (std::isfinite(value) && std::isfinite(inverse) && inverse != 0) return value;
                }
                return absl::InvalidArgumentError("no divisor");
              });
  bind.Bool("average", &average, "divide by k, too");
  bind.Bool("exact_loss", &exact_loss,
            "average=true of a loss that is divided by a number of the batch: divide by the "
            "number of all batches");
  bind.Bool("skip_nonfinite", &skip_nonfinite, "no update by gradients of which one is not finite");
  bind.Choice("form", &form, "sharded: scale gradients that the program accumulates itself",
              {{"plain", Form::kPlain}, {"sharded", Form::kSharded}});
}

Contract GradAccumulate::contract() const {
  // It runs before all passes that preserve what is computed, so that their result can be compared
  // with its own.
  return Contract()
      .ProvidesOnce(kGradientsAccumulated)
      .ConflictsWith(kGradientsReduced)
      .ConflictsWith(kParametersAveraged)
      .ConflictsWith(kLossGradientScaled)
      .ConflictsWith(kRingsSetUp);
}

Claims GradAccumulate::claims(const PassContext& context) const {
  return Claims::Of(Claims::Computation::kChanged);
}

absl::StatusOr<bool> GradAccumulate::Run(const PassContext& context, ProgramPair& programs) const {
  WEFT_RETURN_IF_ERROR(RefuseCompressedGradients(*programs.main));
  const double divisor = options_.scale_sense.value_or(1) * (options_.average ? options_.k : 1);
  if (static_cast<float>(1 / divisor) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scale_sense times k: expected a number whose reciprocal is not 0 in fp32, found ",
        divisor));
  }
  const bool is_sharded = options_.form == Form::kSharded;
  if (programs.startup == nullptr && !(is_sharded && !options_.scale_sense.has_value())) {
    return absl::FailedPreconditionError(
        "accumulating gradients needs the startup program, which sets the accumulators and the "
        "counter of steps to 0, and scale_sense");
  }
  if (is_sharded) return ScaleAccumulated(options_, context, programs);
  if (options_.exact_loss && (!options_.average || options_.scale_sense.has_value())) {
    return absl::InvalidArgumentError(
        "exact_loss divides by what the loss divides by; expected average=true, and no "
        "scale_sense");
  }
  absl::optional<BatchDivisor> of_loss;
  if (options_.exact_loss) {
    WEFT_ASSIGN_OR_RETURN(of_loss, FindBatchDivisor(*programs.main, context.setting.feeds));
    if (of_loss.has_value() && context.target.cluster.nranks().value_or(1) > 1) {
      return absl::FailedPreconditionError(
          "exact_loss accumulates the divisor on one device; expected one rank; without "
          "grad-accumulate, pass exact-loss makes the loss exact over the ranks");
    }
  }
  if (options_.average) WarnOfOtherLosses(options_, context, *programs.main);
  WEFT_ASSIGN_OR_RETURN(const UpdateSlice part, FindUpdateSlice(*programs.main));
  if (options_.skip_nonfinite) {
    WEFT_RETURN_IF_ERROR(RefuseOtherChecks(*programs.main, part));
  }
  for (const UpdateSlice::OtherUpdate& other : part.updated_in_every_step) {
    context.sink.Warn(absl::StrCat(
        programs.main->op(other.op).DebugName(), " updates ", programs.main->name(other.param),
        " in every step, and not with the accumulated gradients: it is not "
        "of role optimize"));
  }
  Accumulation accumulation(options_, part, std::move(of_loss), &programs);
  WEFT_RETURN_IF_ERROR(accumulation.Run());
  for (size_t i = 0; i < part.gradients.size(); ++i) {
    const PartGradient& gradient = part.gradients[i];
    context.sink.Explain(kName, std::string(programs.main->name(gradient.grad)), "accumulated",
                         absl::StrCat("gradient of ", programs.main->name(gradient.param)),
                         {{"in", accumulation.accumulators()[i]},
                          {"steps", absl::StrCat(options_.k)},
                          {"scaled by", accumulation.scale().ToString()}});
  }
  return true;
}

}  // namespace weft
