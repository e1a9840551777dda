#include "transpiler/passes/compat/sparsify_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/training/gradients.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/buckets/bucket_policy.h"
#include "transpiler/passes/gradients/gradient_buckets.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/gradients/gradient_writer.h"
#include "transpiler/passes/support/fused_buffer.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/program_edits.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"

namespace weft {
namespace {

using Mode = SparsifyGradients::Mode;
using Options = SparsifyGradients::Options;

// SINGA computes the product in fp32.
int64_t NumSent(double spars, int64_t elements) {
  const float product = static_cast<float>(spars) * static_cast<float>(elements);
  return std::clamp(static_cast<int64_t>(std::ceil(product)), int64_t{1}, elements);
}

absl::Status CheckSpars(const Options& options) {
  const bool fits = options.mode == Mode::kTopK
                        ? static_cast<float>(options.spars) > 0 && options.spars <= 1
                        : options.spars >= 0 && std::isfinite(static_cast<float>(options.spars));
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "option spars: expected ",
      options.mode == Mode::kTopK ? "a share of the elements, more than 0 and at most 1 (mode topk)"
                                  : "a finite magnitude >= 0 (mode threshold)",
      ", found ", options.spars));
}

pb::VarDesc RowsVar(const std::string& name, int64_t elements) {
  pb::VarDesc var;
  var.set_name(name);
  var.mutable_type()->set_type(pb::VarType::SELECTED_ROWS);
  *var.mutable_type()->mutable_selected_rows() = TensorOf(pb::VarType::FP32, {elements, 1});
  var.set_persistable(false);
  return var;
}

// How a bucket travels, and why.
struct Plan {
  bool is_sparse = false;
  bool is_more_bytes = false;  // as rows, than whole
  int64_t elements = 0;
  int64_t sent = -1;  // of these, by each rank; -1: depends on the values
  // The most elements per rank for which rows are fewer bytes; none: unknown.
  absl::optional<int64_t> break_even = absl::nullopt;
  std::string why;
};

// What a rank receives from each of the others (executor/communicators/rows_all_reduce.h): four
// numbers about the rows, and an index and a value of each.
constexpr int64_t kHeaderBytes = 32;
int64_t BytesOfRow(int64_t elements) {
  const bool is_short = elements - 1 <= std::numeric_limits<int32_t>::max();
  return (is_short ? 4 : 8) + static_cast<int64_t>(sizeof(float));
}

// What a rank receives of fp32 gradients that travel whole: 2 (n - 1) / n times their bytes.
double DenseBytes(int64_t elements, int nranks) {
  return 2.0 * (nranks - 1) / nranks * 4 * static_cast<double>(elements);
}
double RowsBytes(int64_t sent, int64_t elements, int nranks) {
  return (nranks - 1) * (kHeaderBytes + static_cast<double>(sent * BytesOfRow(elements)));
}

// The most elements per rank for which rows are fewer bytes; 0: they never are.
int64_t BreakEven(int64_t elements, int nranks) {
  if (nranks < 2) return 0;  // nothing is received
  const double of_a_rank = DenseBytes(elements, nranks) / (nranks - 1);
  const double sent = (of_a_rank - kHeaderBytes) / static_cast<double>(BytesOfRow(elements));
  return std::clamp(static_cast<int64_t>(std::ceil(sent)) - 1, int64_t{0}, elements);
}

class SparseExchange : public GradientExchange {
 public:
  // Where a bucket has residuals, there must be a startup program.
  SparseExchange(const ProgramPair& programs, const GradientAnalysis& analysis,
                 const Options& options, absl::optional<int> nranks, bool averages,
                 ProgramEdits* edits)
      : program_(*programs.main),
        analysis_(analysis),
        options_(options),
        nranks_(nranks),
        averages_(averages),
        edits_(*edits) {
    const bool divides = averages_ && nranks_.has_value();
    reduce_type_ = averages_ && !divides ? "c_allreduce_avg" : "c_allreduce_sum";
    for (int ring = 0; ring < options.nrings; ++ring) {
      reduce_.emplace_back(BuildOp(InPlaceOp(
          reduce_type_, {}, {{"ring_id", ring}, {"use_calc_stream", false}}, kRoleBackward)));
    }
    for (const Gradient& gradient : analysis.gradients) ++turns_[gradient.grad];
    if (!divides) return;
    const float factor = static_cast<float>(1.0 / *nranks_);
    scale_.emplace(BuildOp(InPlaceOp("scale", {}, {{"scale", factor}}, kRoleBackward, nranks_)));
  }

  const std::string& reduce_type() const { return reduce_type_; }

  Plan PlanOf(const GradientBucket& bucket) const {
    Plan plan;
    const FusedTensors tensors = TensorsOf(program_, analysis_, bucket);
    for (int i : bucket.gradients) {
      const Symbol grad = analysis_.gradients[i].grad;
      const Var var = program_.var(program_.block(0).Resolve(grad));
      if (var.type() == pb::VarType::SELECTED_ROWS) {
        plan.why = "it is row-sparse: its rows travel";
        return plan;
      }
      const auto turns = turns_.find(grad);
      if (turns != turns_.end() && turns->second > 1) {
        plan.why = "its variable holds several gradients in turn, which would share a residual";
        return plan;
      }
    }
    for (const Dims& dims : tensors.dims) {
      const int64_t elements = NumElements(dims);
      if (elements < 1) {
        plan.why = absl::StrCat("it has shape ", DimsToString(dims));
        return plan;
      }
      plan.elements += elements;
    }
    if (options_.mode == Mode::kTopK) plan.sent = NumSent(options_.spars, plan.elements);
    if (nranks_.has_value()) plan.break_even = BreakEven(plan.elements, *nranks_);
    plan.why = options_.mode == Mode::kTopK ? OfTopK(&plan) : OfThreshold(&plan);
    plan.is_sparse = !(options_.fallback && plan.is_more_bytes);
    return plan;
  }

  void Declare(const Bucket& bucket, Rewriter* rewriter) override {
    const auto [it, is_new] = buckets_.try_emplace(bucket.variable);
    if (!is_new) return;
    const Plan plan = PlanOf(bucket.gradients);
    if (!plan.is_sparse) return;
    Sparse& sparse = it->second;
    sparse.tensors = TensorsOf(program_, analysis_, bucket.gradients);
    sparse.rows = edits_.names.Next("sparse_gradient");
    sparse.sent = plan.sent;
    rewriter->AddVar(bucket.gradients.block, RowsVar(sparse.rows, plan.elements));
    for (size_t k = 0; options_.corr && k < sparse.tensors.names.size(); ++k) {
      const Gradient& gradient = analysis_.gradients[bucket.gradients.gradients[k]];
      const Dims& dims = sparse.tensors.dims[k];
      sparse.residuals.push_back(
          edits_.names.Of(absl::StrCat(program_.name(gradient.param), "@RESIDUAL")));
      const std::string& name = sparse.residuals.back();
      edits_.AddState(name, DType::kFloat32, dims,
                      FillOp(name, DType::kFloat32, dims, 0, kRoleForward));
    }
  }

  Sharing SharingOf(const GradientBucket& bucket) const override {
    return PlanOf(bucket).is_sparse ? Sharing::kSeparate : Sharing::kBuffer;
  }

  std::string Sent(const std::string& variable) override {
    const Sparse& sparse = buckets_.at(variable);
    return sparse.IsDense() ? variable : sparse.rows;
  }

  void Prepare(const std::string& variable, Insert insert) override {
    const Sparse& sparse = buckets_.at(variable);
    if (sparse.IsDense()) return;
    NewOp op{"", {{"X", sparse.tensors.names}}, {{"Out", {sparse.rows}}}, {}, kRoleBackward};
    if (options_.corr) {
      op.inputs.push_back({"Residual", sparse.residuals});
      op.outputs.push_back({"ResidualOut", sparse.residuals});
    }
    if (options_.mode == Mode::kTopK) {
      op.type = "sparsify_topk";
      op.attrs.push_back({"k", sparse.sent});
    } else {
      op.type = "sparsify_threshold";
      op.attrs.push_back({"threshold", static_cast<float>(options_.spars)});
    }
    insert(BuildOp(op));
  }

  const pb::OpDesc& Launch(absl::Span<const std::string> variables, int ring) override {
    return reduce_[ring].InPlace({Sent(variables[0])});
  }

  void Finish(const std::string& variable, Insert insert) override {
    const Sparse& sparse = buckets_.at(variable);
    if (scale_.has_value()) insert(scale_->InPlace({Sent(variable)}));
    if (sparse.IsDense()) return;
    std::vector<int64_t> shapes, ranks;
    for (const Dims& dims : sparse.tensors.dims) {
      shapes.insert(shapes.end(), dims.begin(), dims.end());
      ranks.push_back(static_cast<int64_t>(dims.size()));
    }
    insert(BuildOp({"densify",
                    {{"X", {sparse.rows}}},
                    {{"Out", sparse.tensors.names}},
                    {{"concated_ranks", ranks}, {"concated_shapes", shapes}},
                    kRoleBackward}));
  }

 private:
  // A bucket that is sparsified; without `rows`, one that travels whole.
  struct Sparse {
    FusedTensors tensors;
    std::string rows;
    std::vector<std::string> residuals;
    int64_t sent = -1;
    bool IsDense() const { return rows.empty(); }
  };

  // Whether the bucket is more bytes as rows, and why it travels as it does.
  std::string OfTopK(Plan* plan) const {
    if (!nranks_.has_value()) return "the number of ranks is unknown";
    const double rows = RowsBytes(plan->sent, plan->elements, *nranks_);
    const double dense = DenseBytes(plan->elements, *nranks_);
    const auto bytes = [](double value) { return absl::StrCat(std::llround(value)); };
    plan->is_more_bytes = rows >= dense;
    return absl::StrCat("a rank would receive ", bytes(rows), " bytes of ", plan->sent,
                        " elements per rank, or ", bytes(dense), " of whole gradients");
  }
  std::string OfThreshold(Plan* plan) const {
    if (plan->break_even == 0) {
      plan->is_more_bytes = true;
      return absl::StrCat(
          "a rank would receive ", std::llround(RowsBytes(1, plan->elements, *nranks_)),
          " bytes or more of 1 element or more per rank, or ",
          std::llround(DenseBytes(plan->elements, *nranks_)), " of whole gradients");
    }
    return "how many elements are sent depends on their values";
  }

  const Program& program_;
  const GradientAnalysis& analysis_;
  const Options& options_;
  const absl::optional<int> nranks_;
  const bool averages_;
  ProgramEdits& edits_;
  std::string reduce_type_;
  std::vector<OpTemplate> reduce_;  // by ring
  absl::optional<OpTemplate> scale_;
  absl::flat_hash_map<Symbol, int> turns_;            // of gradients: how many a variable holds
  absl::flat_hash_map<std::string, Sparse> buckets_;  // by variable
};

// Rows may be fp64, too.
absl::Status CheckElementTypes(const Program& program, const GradientAnalysis& analysis) {
  for (const Gradient& gradient : analysis.gradients) {
    const Var var = program.var(program.block(0).Resolve(gradient.grad));
    const absl::optional<TensorType> type = DeclaredType(var);
    if (!type.has_value() || type->kind != TensorType::Kind::kDense ||
        type->dtype == DType::kFloat32) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "gradient ", var.name(), " of parameter ", program.name(gradient.param), ", completed by ",
        program.op(gradient.completed_by).DebugName(), ": expected fp32, found ",
        DTypeName(type->dtype), "; only fp32 gradients can be sparsified"));
  }
  return absl::OkStatus();
}

// For how many elements per rank rows are fewer bytes than whole gradients.
std::string FewerBytesText(const Plan& plan) {
  if (!plan.break_even.has_value()) return "below a share of 1 / ranks";
  const double share =
      static_cast<double>(*plan.break_even) / static_cast<double>(plan.elements) * 100;
  return absl::StrFormat("up to %d of %d elements per rank (%.3g %%)", *plan.break_even,
                         plan.elements, share);
}

void NoteBytes(const SparseExchange& exchange, const std::vector<GradientBucket>& buckets,
               const Options& options, const PassContext& context) {
  if (context.target.cluster.nranks() == 1) return;  // nothing travels
  size_t all = 0, affected = 0;
  for (const GradientBucket& bucket : buckets) {
    all += bucket.gradients.size();
    if (exchange.PlanOf(bucket).is_more_bytes) affected += bucket.gradients.size();
  }
  if (options.fallback && !context.target.cluster.nranks().has_value()) {
    context.sink.Note(
        "option:fallback compares bytes for a number of ranks: without option:nranks, all "
        "gradients "
        "travel as rows");
  }
  if (affected == 0) return;
  context.sink.Note(absl::StrCat(
      affected, " of ", all, " gradients ",
      options.fallback
          ? "travel whole, as rows would be no fewer bytes: results differ from SINGA's, "
            "which option:fallback false computes"
          : "travel as rows, which are no fewer bytes than whole gradients; "
            "option:fallback true sends them whole, with other results"));
}

void Explain(const Program& program, const GradientAnalysis& analysis,
             const SparseExchange& exchange, const std::vector<GradientBucket>& buckets,
             const PassContext& context) {
  if (context.sink.remarks == nullptr) return;
  for (const GradientBucket& bucket : buckets) {
    const Plan plan = exchange.PlanOf(bucket);
    for (int i : bucket.gradients) {
      std::vector<std::pair<std::string, std::string>> details;
      if (plan.is_sparse) {
        details.push_back({"elements", absl::StrCat(plan.elements)});
        if (plan.sent >= 0) details.push_back({"sent", absl::StrCat(plan.sent)});
        details.push_back({"fewer bytes", FewerBytesText(plan)});
      }
      context.sink.Explain(
          SparsifyGradients::kName, std::string(program.name(analysis.gradients[i].grad)),
          plan.is_sparse ? "sparsified" : "not sparsified", plan.why, std::move(details));
    }
  }
}

}  // namespace

void SparsifyGradients::Options::Bind(OptionBinder& bind) {
  BindRings(bind, &nrings);
  bind.Choice("mode", &mode, "which elements are sent: a share of them, or all from a magnitude on",
              {{"threshold", Mode::kThreshold}, {"topk", Mode::kTopK}});
  bind.Parsed("spars", &spars, "0.05",
              "the share of the elements that is sent (topk), or the least magnitude (threshold)",
              "a number", [](absl::string_view text) -> absl::StatusOr<double> {
                double number = 0;
                if (absl::SimpleAtod(text, &number)) return number;
                return absl::InvalidArgumentError("not a number");
              });
  bind.Bool("corr", &corr, "add what was not sent to the gradients of the next step");
  bind.Int64("threshold", &threshold,
             "a tensor with more elements than this travels alone; others share a collective until "
             "it has more",
             /*min=*/0);
  bind.Int64("buffer_elements", &buffer_elements,
             "the size of SINGA's buffer, in elements; at least twice the threshold", /*min=*/0);
  bind.Bool("fallback", &fallback,
            "send gradients whole where sparsifying them saves no bytes, whatever their values; "
            "SINGA sparsifies all");
}

Contract SparsifyGradients::contract() const {
  return Contract().ProvidesOnce(kGradientsReduced).ConflictsWith(kParametersAveraged);
}

Claims SparsifyGradients::claims(const PassContext& context) const {
  Claims claims = Claims::Of(Claims::Computation::kChanged);
  claims.gradients = GradientsUnder(GradientScale::kAuto, context);
  return claims;
}

absl::StatusOr<bool> SparsifyGradients::Run(const PassContext& context,
                                            ProgramPair& programs) const {
  const Program& program = *programs.main;
  WEFT_RETURN_IF_ERROR(CheckSpars(options_));
  WEFT_RETURN_IF_ERROR(RefuseGroups(context));
  WEFT_ASSIGN_OR_RETURN(
      const BucketPolicy policy,
      BucketPolicy::Parse(absl::StrCat("singa{threshold=", options_.threshold,
                                       ",buffer_elements=", options_.buffer_elements, "}")));
  WEFT_ASSIGN_OR_RETURN(const GradientReduction reduction,
                        AnalyzeReduction(program, context, GradientScale::kAuto));
  const GradientAnalysis& analysis = reduction.analysis;
  WEFT_RETURN_IF_ERROR(CheckElementTypes(program, analysis));
  WEFT_ASSIGN_OR_RETURN(const FilledBuckets filled, FillBuckets(program, analysis, policy));
  for (const std::string& warning : filled.warnings) context.sink.Warn(warning);
  ProgramEdits edits(programs);
  SparseExchange exchange(programs, analysis, options_, context.target.cluster.nranks(),
                          reduction.averages, &edits);
  const bool has_residuals =
      options_.corr && absl::c_any_of(filled.buckets, [&](const GradientBucket& bucket) {
        return exchange.PlanOf(bucket).is_sparse;
      });
  if (has_residuals && programs.startup == nullptr) {
    return absl::FailedPreconditionError(
        "residuals need the startup program, which sets them to 0; give it, or use corr=false");
  }
  GradientWriter writer(program, analysis, options_.nrings, &exchange, &edits.main);
  writer.Write(filled.buckets);
  NoteBytes(exchange, filled.buckets, options_, context);
  Explain(program, analysis, exchange, filled.buckets, context);
  writer.Explain(kName, "reduced", exchange.reduce_type(), filled.buckets, context);
  return edits.Commit();
}

}  // namespace weft
