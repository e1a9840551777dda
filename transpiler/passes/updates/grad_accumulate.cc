#include "transpiler/passes/updates/grad_accumulate.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/analysis/training/gradients.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/op_queries.h"
#include "transpiler/passes/support/program_edits.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/step_condition.h"
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

class Accumulation {
 public:
  Accumulation(const GradAccumulate::Options& options, float factor, const UpdateSlice& part,
               ProgramPair* programs)
      : options_(options),
        factor_(factor),
        part_(part),
        main_(*programs->main),
        edits_(*programs) {}

  absl::Status Run() {
    Unpair();
    for (const PartGradient& gradient : part_.gradients) WriteAccumulator(gradient);
    const std::string is_due = WriteCondition();
    const int block = AppendBranch(0, is_due, VariablesOfBlock(), "accumulate_scope", &edits_);
    WriteGradients(block);
    MoveUpdatePart(options_.skip_nonfinite ? WriteGuard(block) : block);
    WriteResets(block);
    return edits_.Commit().status();
  }

  // By gradient.
  const Names& accumulators() const { return accumulators_; }

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
      for (pb::OpDesc::Attr& attr : *cast.mutable_attrs()) {
        if (attr.name() == kOpRoleAttr) attr.set_i(kRoleBackward);
      }
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
    for (Symbol symbol : part_.writes) writes.push_back(Name(symbol));
    return {Unique(reads), Unique(writes)};
  }

  // Gives the gradients what is accumulated.
  void WriteGradients(int block) {
    for (size_t i = 0; i < part_.gradients.size(); ++i) {
      const PartGradient& gradient = part_.gradients[i];
      const std::string grad = Name(gradient.grad);
      const DType dtype = AccumulatorType(gradient);
      if (dtype == gradient.type.dtype) {
        Append(block, ScaleOp(accumulators_[i], grad, factor_, kRoleOptimize));
      } else {
        const std::string scaled = Temporary(grad + "@SCALED", block, dtype, gradient.type.dims);
        Append(block, ScaleOp(accumulators_[i], scaled, factor_, kRoleOptimize));
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
  const float factor_;
  const UpdateSlice& part_;
  const Program& main_;
  ProgramEdits edits_;
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

// form=sharded.
absl::StatusOr<bool> ScaleAccumulated(const GradAccumulate::Options& options, float factor,
                                      const PassContext& context, Program* main) {
  if (options.k != 1 || options.average || options.skip_nonfinite) {
    return absl::InvalidArgumentError(
        "form=sharded scales gradients that the program accumulates itself; expected no k, average "
        "or skip_nonfinite");
  }
  WEFT_ASSIGN_OR_RETURN(const GradientAnalysis analysis, AnalyzeGradients(*main, {}));
  for (const SkippedGradient& unclear : analysis.unclear) {
    return absl::FailedPreconditionError(
        absl::StrCat("gradient ", main->name(unclear.grad),
                     " is accumulated over several steps: ", unclear.why));
  }
  Rewriter rewriter(main);
  for (const Gradient& gradient : analysis.gradients) {
    const std::string name(main->name(gradient.grad));
    if (gradient.block == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("gradient ", name,
                       " is not accumulated over several steps: expected a program that "
                       "accumulates and resets its gradients, or form=plain"));
    }
    if (factor == 1) continue;
    rewriter.InsertBefore(gradient.first_use, BuildOp(ScaleOp(name, name, factor, kRoleOptimize)));
    context.sink.Explain(GradAccumulate::kName, name, "scaled", "accumulated by the program",
                         {{"by", absl::StrCat(factor)}});
  }
  if (analysis.gradients.empty()) {
    return absl::FailedPreconditionError("the program has no accumulated gradients");
  }
  return CommitEdits(&rewriter);
}

}  // namespace

void GradAccumulate::Options::Bind(OptionBinder& bind) {
  bind.Int("k", &k, "steps whose gradients are accumulated", /*min=*/1);
  bind.Parsed("scale_sense", &scale_sense, "1", "what accumulated gradients are divided by",
              "a number other than 0", [](absl::string_view text) -> absl::StatusOr<double> {
                double value = 0;
                if (absl::SimpleAtod(text, &value)) {
                  const auto inverse = static_cast<float>(1 / value);
                  if (std::isfinite(value) && std::isfinite(inverse) && inverse != 0) return value;
                }
                return absl::InvalidArgumentError("no divisor");
              });
  bind.Bool("average", &average, "divide by k, too");
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
  const double divisor = options_.scale_sense * (options_.average ? options_.k : 1);
  const auto factor = static_cast<float>(1 / divisor);
  if (factor == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scale_sense times k: expected a number whose reciprocal is not 0 in fp32, found ",
        divisor));
  }
  if (options_.form == Form::kSharded) {
    return ScaleAccumulated(options_, factor, context, programs.main);
  }
  if (programs.startup == nullptr) {
    return absl::FailedPreconditionError(
        "accumulating gradients needs the startup program, which sets the accumulators and the "
        "counter of steps to 0");
  }
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
  Accumulation accumulation(options_, factor, part, &programs);
  WEFT_RETURN_IF_ERROR(accumulation.Run());
  for (size_t i = 0; i < part.gradients.size(); ++i) {
    const PartGradient& gradient = part.gradients[i];
    context.sink.Explain(kName, std::string(programs.main->name(gradient.grad)), "accumulated",
                         absl::StrCat("gradient of ", programs.main->name(gradient.param)),
                         {{"in", accumulation.accumulators()[i]},
                          {"steps", absl::StrCat(options_.k)},
                          {"scaled by", absl::StrCat(factor)}});
  }
  return true;
}

}  // namespace weft
