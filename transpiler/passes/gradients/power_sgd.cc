#include "transpiler/passes/gradients/power_sgd.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/training/gradients.h"
#include "ops/schema/op_kinds.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "transpiler/passes/gradients/dense_reducer.h"
#include "transpiler/passes/gradients/gradient_buckets.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/gradients/gradient_writer.h"
#include "transpiler/passes/support/fused_buffer.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/program_edits.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"
#include "transpiler/passes/support/step_condition.h"

namespace weft {
namespace {

// A gradient that is compressed, and its variables.
struct Compressed {
  int gradient;  // into GradientAnalysis::gradients
  std::string grad, sent, residual, basis;
  int64_t rows, columns;
};

// Why each gradient travels whole; empty: it is compressed.
class Selection {
 public:
  Selection(const Program& program, const GradientAnalysis& analysis, int64_t rank)
      : program_(program), rank_(rank) {
    for (const Gradient& gradient : analysis.gradients) ++turns_[gradient.grad];
    is_scaled_ =
        absl::c_any_of(AllOps(program), [](const Op& op) { return UnscalesGradients(op.type()); });
  }

  std::string WhyWhole(const Gradient& gradient) const {
    const Var var = program_.var(program_.block(0).Resolve(gradient.grad));
    const absl::optional<TensorType> type = DeclaredType(var);
    if (is_scaled_) {
      return "the loss is scaled: what is kept would be of another scale in the next step";
    }
    if (gradient.block != 0 || var.persistable()) return "it is accumulated over several steps";
    if (turns_.at(gradient.grad) > 1) return "its variable holds several gradients in turn";
    if (!type.has_value() || type->kind != TensorType::Kind::kDense) return "it is row-sparse";
    if (type->dtype != DType::kFloat32) {
      return absl::StrCat("its elements are ", DTypeName(type->dtype));
    }
    const Dims& dims = type->dims;
    if (dims.size() != 2 || NumElements(dims) < 1) {
      return absl::StrCat("it has shape ", DimsToString(dims));
    }
    const int64_t sent = rank_ * (dims[0] + dims[1]);
    if (sent < dims[0] * dims[1]) return "";
    return absl::StrCat("two matrices of rank ", rank_, " have ", sent, " elements, it has ",
                        dims[0] * dims[1]);
  }

 private:
  const Program& program_;
  const int64_t rank_;
  bool is_scaled_ = false;
  absl::flat_hash_map<Symbol, int> turns_;  // how many gradients a variable holds
};

// Writes the exchange of gradients that are complete before one of them is used.
class PowerSgdWriter {
 public:
  PowerSgdWriter(int rank, absl::optional<int> nranks, ProgramEdits* edits)
      : rank_(rank), nranks_(nranks), edits_(*edits) {}

  void Declare(Compressed* one) {
    one->sent = edits_.names.Of(absl::StrCat(one->grad, "@SENT"));
    const Dims dims = {one->rows, one->columns}, of_basis = {one->columns, rank_};
    edits_.main.AddVar(0, TensorVar(one->sent, DType::kFloat32, dims));
    edits_.AddState(one->residual, DType::kFloat32, dims,
                    FillOp(one->residual, DType::kFloat32, dims, 0, kRoleForward));
    // With a seed, equal on all ranks.
    const NewAttrs draw = {{"dtype", static_cast<int>(DType::kFloat32)},
                           {"seed", ++num_bases_},
                           {"shape", std::vector<int64_t>(of_basis.begin(), of_basis.end())}};
    edits_.AddState(one->basis, DType::kFloat32, of_basis,
                    {"gaussian_random", {}, {{"Out", {one->basis}}}, draw, kRoleForward});
  }

  // `suffix` distinguishes names of several calls.
  void Write(const std::vector<Compressed>& all, const std::string& whole,
             const std::string& compressed, const std::string& suffix, int ring, OpId before) {
    ring_ = ring;
    BranchVariables variables;
    for (const Compressed& one : all) {
      variables.reads.push_back(one.grad);
      variables.writes.push_back(one.sent);
    }
    block_ = WriteBranch(whole, variables, absl::StrCat("power_sgd_scope_whole", suffix), before,
                         &edits_);
    WriteWhole(all);
    for (const Compressed& one : all) {
      for (const std::string& state : {one.residual, one.basis}) {
        variables.reads.push_back(state);
        variables.writes.push_back(state);
      }
    }
    block_ = WriteBranch(compressed, variables, absl::StrCat("power_sgd_scope", suffix), before,
                         &edits_);
    WriteCompressed(all);
    for (const Compressed& one : all) {
      edits_.InsertBefore(before, BuildOp(Assign(one.sent, one.grad, kRoleBackward)));
    }
  }

 private:
  static NewOp Assign(const std::string& x, const std::string& out, int role = kRoleOptimize) {
    return {"assign", {{"X", {x}}}, {{"Out", {out}}}, {}, role};
  }

  void WriteWhole(const std::vector<Compressed>& all) {
    FusedTensors sent;
    for (const Compressed& one : all) {
      sent.names.push_back(one.sent);
      sent.dims.push_back({one.rows, one.columns});
    }
    const std::vector<std::string> variables = Fuse(sent);
    for (const Compressed& one : all) Append(Assign(one.grad, one.sent));
    WriteMean(variables);
  }

  void WriteCompressed(const std::vector<Compressed>& all) {
    FusedTensors left, right;
    std::vector<std::string> orthonormal;
    for (const Compressed& one : all) {
      Combine("elementwise_add", one.residual, one.grad, one.residual);
      NewTensor("power_sgd_left", {one.rows, rank_}, &left);
      NewTensor("power_sgd_right", {one.columns, rank_}, &right);
    }
    const std::vector<std::string> of_left = Fuse(left), of_right = Fuse(right);
    for (size_t i = 0; i < all.size(); ++i) {
      // Of zeros, which a gradient of zeros leaves, too: else all later products would be zeros.
      const std::string basis = Orthonormal(all[i].basis, all[i].columns);
      Multiply(all[i].residual, basis, left.names[i], /*trans_x=*/false, /*trans_y=*/false);
    }
    WriteMean(of_left);
    for (size_t i = 0; i < all.size(); ++i) {
      orthonormal.push_back(Orthonormal(left.names[i], all[i].rows));
      Multiply(all[i].residual, orthonormal[i], right.names[i], /*trans_x=*/true,
               /*trans_y=*/false);
    }
    WriteMean(of_right);
    for (size_t i = 0; i < all.size(); ++i) {
      Append(Assign(right.names[i], all[i].basis));
      Multiply(orthonormal[i], right.names[i], all[i].sent, /*trans_x=*/false, /*trans_y=*/true);
      Combine("elementwise_sub", all[i].residual, all[i].sent, all[i].residual);
    }
  }

  // Orthonormal columns, which span what the columns of x do.
  std::string Orthonormal(const std::string& x, int64_t rows) {
    FusedTensors factors;
    NewTensor("power_sgd_orthonormal", {rows, rank_}, &factors);
    NewTensor("power_sgd_triangle", {rank_, rank_}, &factors);
    Append({"qr",
            {{"X", {x}}},
            {{"Q", {factors.names[0]}}, {"R", {factors.names[1]}}},
            {},
            kRoleOptimize});
    return factors.names[0];
  }

  void Append(const NewOp& op) { edits_.main.Append(block_, BuildOp(op)); }

  void Combine(const char* type, const std::string& x, const std::string& y,
               const std::string& out) {
    NewOp op = BinaryOp(type, x, y, out, kRoleOptimize);
    op.attrs.push_back({"axis", -1});
    Append(op);
  }

  void Multiply(const std::string& x, const std::string& y, const std::string& out, bool trans_x,
                bool trans_y) {
    NewOp op = BinaryOp("matmul_v2", x, y, out, kRoleOptimize);
    op.attrs = {{"trans_x", trans_x}, {"trans_y", trans_y}};
    Append(op);
  }

  void NewTensor(const std::string& key, Dims dims, FusedTensors* tensors) {
    tensors->names.push_back(edits_.names.Next(key));
    edits_.main.AddVar(block_, TensorVar(tensors->names.back(), DType::kFloat32, dims));
    tensors->dims.push_back(std::move(dims));
  }

  // Makes the tensors slices of a buffer if there are several, before they have values. Returns
  // their names, and the buffer's: the last one holds all.
  std::vector<std::string> Fuse(const FusedTensors& tensors) {
    std::vector<std::string> variables = tensors.names;
    if (variables.size() == 1) return variables;
    variables.push_back(edits_.names.Next("power_sgd_buffer"));
    edits_.main.AddVar(block_, FusedBuffer(variables.back(), tensors));
    edits_.main.Append(block_,
                       Coalesce(tensors, variables.back(), FusedValues::kDiscarded, kRoleOptimize));
    return variables;
  }

  // The last variable becomes the mean over the ranks.
  void WriteMean(const std::vector<std::string>& variables) {
    const std::vector<std::string> all = {variables.back()};
    const NewAttrs of_ring = {{"ring_id", ring_}};
    Append(InPlaceOp("c_wait_compute", variables, of_ring, kRoleOptimize));
    Append(InPlaceOp(nranks_.has_value() ? "c_allreduce_sum" : "c_allreduce_avg", all,
                     {{"ring_id", ring_}, {"use_calc_stream", false}}, kRoleOptimize));
    Append(InPlaceOp("c_wait_comm", variables, of_ring, kRoleOptimize));
    if (!nranks_.has_value()) return;
    const float factor = static_cast<float>(1.0 / *nranks_);
    Append(InPlaceOp("scale", all, {{"scale", factor}}, kRoleOptimize, nranks_));
  }

  const int rank_;
  const absl::optional<int> nranks_;
  ProgramEdits& edits_;
  int num_bases_ = 0;
  int ring_ = 0, block_ = 0;
};

// Gradients that are complete before the first use of any of them.
struct Batch {
  std::vector<Compressed> gradients;
  OpId before;  // the first use; invalid: none
};

std::vector<Batch> InBatches(const Program& program, const GradientAnalysis& analysis,
                             const std::vector<Compressed>& all) {
  constexpr uint32_t kEnd = -1;
  std::vector<Batch> batches;
  uint32_t first_use = 0;
  for (const Compressed& one : all) {
    const Gradient& gradient = analysis.gradients[one.gradient];
    const uint32_t use =
        gradient.first_use.valid() ? program.op(gradient.first_use).position() : kEnd;
    if (batches.empty() || program.op(gradient.completed_by).position() >= first_use) {
      batches.emplace_back();
      first_use = kEnd;
    }
    batches.back().gradients.push_back(one);
    if (use >= first_use) continue;
    first_use = use;
    batches.back().before = gradient.first_use;
  }
  return batches;
}

int64_t BytesOf(const Program& program, const Gradient& gradient) {
  const absl::optional<TensorType> type =
      DeclaredType(program.var(program.block(0).Resolve(gradient.grad)));
  return type.has_value() ? NumElements(type->dims) * static_cast<int64_t>(SizeOf(type->dtype)) : 0;
}

// What a rank gives to collectives.
void ExplainBytes(const Program& program, const GradientAnalysis& analysis,
                  const std::vector<Compressed>& compressed, const PowerSgd::Options& options,
                  const PassContext& context) {
  int64_t whole = 0, saved = 0;
  for (const Gradient& gradient : analysis.gradients) whole += BytesOf(program, gradient);
  for (const Compressed& one : compressed) {
    saved += BytesOf(program, analysis.gradients[one.gradient]);
    saved -=
        static_cast<int64_t>(sizeof(float)) * options.rank_approximation * (one.rows + one.columns);
  }
  context.sink.Explain(PowerSgd::kName, "communication", "bytes that a rank gives to collectives",
                       "mode grad_allreduce gives all gradients to them in every step",
                       {{"when", absl::StrCat("from step ", options.start_step, " on")},
                        {"bytes_a_step", absl::StrCat(whole - saved)},
                        {"bytes_a_step_of_grad_allreduce", absl::StrCat(whole)}});
}

}  // namespace

void PowerSgd::Options::Bind(OptionBinder& bind) {
  BindRings(bind, &nrings);
  bind.Int(
      "rank_approximation", &rank_approximation,
      "rank of the approximation: columns of the two matrices whose product replaces a gradient",
      /*min=*/1);
  bind.Int("start_step", &start_step,
           "before this step, gradients travel whole; steps count from 1", /*min=*/2);
  bind.Parsed("buckets", &buckets, "none", "which gradients travel together", kBucketPolicies,
              BucketPolicy::Parse);
}

Contract PowerSgd::contract() const {
  return Contract().ProvidesOnce(kGradientsReduced).ConflictsWith(kParametersAveraged);
}

Claims PowerSgd::claims(const PassContext& context) const {
  return Claims::Of(GradientsUnder(GradientScale::kAuto, context));
}

absl::StatusOr<bool> PowerSgd::Run(const PassContext& context, ProgramPair& programs) const {
  const Program& program = *programs.main;
  WEFT_RETURN_IF_ERROR(RefuseGroups(context));
  WEFT_ASSIGN_OR_RETURN(const GradientReduction reduction,
                        AnalyzeReduction(program, context, GradientScale::kAuto));
  if (!reduction.averages) {
    return absl::FailedPreconditionError(
        "expected the gradients of losses that are means over the batch, found those that ranks "
        "sum: what is sent and what a rank keeps would not be its gradient");
  }
  const GradientAnalysis& analysis = reduction.analysis;
  const Selection selection(program, analysis, options_.rank_approximation);
  ProgramEdits edits(programs);
  const absl::optional<int> nranks = context.target.cluster.nranks();
  PowerSgdWriter writer(options_.rank_approximation, nranks, &edits);
  std::vector<Compressed> compressed;
  GradientAnalysis others = analysis;
  others.gradients.clear();
  std::string first_why;
  for (size_t i = 0; i < analysis.gradients.size(); ++i) {
    const Gradient& gradient = analysis.gradients[i];
    const std::string grad(program.name(gradient.grad));
    const std::string why = selection.WhyWhole(gradient);
    if (!why.empty()) {
      if (others.gradients.empty()) first_why = absl::StrCat(grad, ": ", why);
      others.gradients.push_back(gradient);
      context.sink.Explain(kName, grad, "not compressed", why);
      continue;
    }
    if (programs.startup == nullptr) {
      return absl::FailedPreconditionError(
          "what is kept of gradients needs the startup program, which sets it to 0");
    }
    const absl::optional<TensorType> type =
        DeclaredType(program.var(program.block(0).Resolve(gradient.grad)));
    const std::string param(program.name(gradient.param));
    Compressed& one = compressed.emplace_back();
    one.gradient = static_cast<int>(i);
    one.grad = grad;
    one.residual = edits.names.Of(absl::StrCat(param, "@RESIDUAL"));
    one.basis = edits.names.Of(absl::StrCat(param, "@BASIS"));
    one.rows = type->dims[0];
    one.columns = type->dims[1];
    writer.Declare(&one);
    context.sink.Explain(
        kName, grad, "compressed", "two thin matrices are fewer bytes",
        {{"elements", absl::StrCat(one.rows * one.columns)},
         {"sent", absl::StrCat(options_.rank_approximation * (one.rows + one.columns))}});
  }
  if (compressed.empty()) {
    context.sink.Warn(absl::StrCat("no gradient is compressed: all ", analysis.gradients.size(),
                                   " travel whole; the first, ", first_why));
  }
  WEFT_ASSIGN_OR_RETURN(const FilledBuckets filled, FillBuckets(program, others, options_.buckets));
  for (const std::string& warning : filled.warnings) context.sink.Warn(warning);
  DenseReduction whole;
  whole.averages = !nranks.has_value();
  whole.nranks = nranks;
  if (nranks.has_value()) whole.factor_after = static_cast<float>(1.0 / *nranks);
  DenseReducer reducer(program, others, options_.nrings, whole);
  GradientWriter of_others(program, others, options_.nrings, &reducer, &edits.main);
  of_others.Write(filled.buckets);
  of_others.Explain(kName, "reduced", reducer.op_type(), filled.buckets, context);

  if (compressed.empty()) return edits.Commit();
  const std::vector<Batch> batches = InBatches(program, analysis, compressed);
  StepCounter counter("power_sgd", batches[0].before, &edits);
  const std::string has_begun = counter.IsFrom(options_.start_step);
  const std::string is_early = counter.Not(has_begun);
  for (size_t i = 0; i < batches.size(); ++i) {
    writer.Write(batches[i].gradients, is_early, has_begun, i == 0 ? "" : absl::StrCat("_", i),
                 static_cast<int>(i) % options_.nrings, batches[i].before);
  }
  if (context.sink.shares != nullptr) {
    LowRankGradients& claim = context.sink.shares->low_rank.emplace();
    claim.first_step = options_.start_step;
    for (const Compressed& one : compressed) claim.residuals.insert(one.residual);
  }
  ExplainBytes(program, analysis, compressed, options_, context);
  return edits.Commit();
}

}  // namespace weft
