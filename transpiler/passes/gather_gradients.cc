#include "transpiler/passes/gather_gradients.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/gradient_buckets.h"
#include "transpiler/passes/gradient_writer.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/passes/reduction_problems.h"
#include "transpiler/passes/rings.h"
#include "transpiler/pipeline/facts.h"

namespace weft {
namespace {

constexpr int kMaxRanks = 1024;

// The ops are built once: a program with many gradients needs many that differ in their variables
// only.
class AllGather : public GradientExchange {
 public:
  AllGather(const Program& program, int nranks, int nrings, bool average)
      : program_(program), nranks_(nranks), average_(average) {
    for (int ring = 0; ring < nrings; ++ring) {
      gather_.push_back(Op("c_allgather", {{"nranks", nranks}, {"ring_id", ring}}));
      reduce_rows_.push_back(
          Op(average ? "c_allreduce_avg" : "c_allreduce_sum", {{"ring_id", ring}}));
    }
    split_ = Op("split", {{"axis", 0}, {"num", nranks}});
    sum_ = Op("sum", {});
    to_scalar_ = Op("reshape2", {{"shape", std::vector<int>{}}});
    divide_ = Op("scale", {{"scale", static_cast<float>(1.0 / nranks)}}, nranks);
  }

  // Declares the variables that take the gathered gradient and its parts.
  void Declare(const Gradient& gradient, Rewriter* rewriter) {
    const std::string grad(program_.name(gradient.grad));
    pb::VarDesc var = program_.var(program_.block(0).FindVar(gradient.grad)).ToProto();
    if (!kinds_.emplace(grad, KindOf(var)).second || kinds_[grad] == Kind::kRows) return;
    var.set_persistable(false);
    var.set_is_parameter(false);
    auto* tensor = var.mutable_type()->mutable_lod_tensor()->mutable_tensor();
    if (tensor->dims_size() == 0) tensor->add_dims(1);
    for (const std::string& part : Parts(grad)) {
      var.set_name(part);
      rewriter->AddVar(0, var);
    }
    if (tensor->dims(0) > 0) tensor->set_dims(0, tensor->dims(0) * nranks_);
    var.set_name(GatheredName(grad));
    rewriter->AddVar(0, var);
  }

  const pb::OpDesc& Launch(const std::string& grad, int ring) override {
    if (kinds_[grad] == Kind::kRows) return Over({grad}, {grad}, &reduce_rows_[ring]);
    return Over({grad}, {GatheredName(grad)}, &gather_[ring]);
  }

  std::string Result(const std::string& grad) override {
    return kinds_[grad] == Kind::kRows ? grad : GatheredName(grad);
  }

  std::vector<pb::OpDesc> Finish(const std::string& grad) override {
    const Kind kind = kinds_[grad];
    if (kind == Kind::kRows) return {};
    const std::vector<std::string> parts = Parts(grad);
    // The parts of a scalar are vectors of one element.
    const std::string& total = kind == Kind::kScalar ? parts[0] : grad;
    std::vector<pb::OpDesc> ops = {Over({GatheredName(grad)}, parts, &split_),
                                   Over(parts, {total}, &sum_)};
    if (kind == Kind::kScalar) ops.push_back(Over({total}, {grad}, &to_scalar_));
    if (average_) ops.push_back(Over({grad}, {grad}, &divide_));
    return ops;
  }

 private:
  enum class Kind { kTensor, kScalar, kRows };

  static Kind KindOf(const pb::VarDesc& var) {
    if (var.type().type() == pb::VarType::SELECTED_ROWS) return Kind::kRows;
    return var.type().lod_tensor().tensor().dims_size() == 0 ? Kind::kScalar : Kind::kTensor;
  }

  static pb::OpDesc Op(const std::string& type,
                       std::vector<std::pair<std::string, AttrValue>> attrs,
                       absl::optional<int> nranks = absl::nullopt) {
    return BuildOp({type, {{"X", {}}}, {{"Out", {}}}, std::move(attrs), kRoleBackward, nranks},
                   Dialect::kWeft);
  }

  static const pb::OpDesc& Over(const std::vector<std::string>& inputs,
                                const std::vector<std::string>& outputs, pb::OpDesc* op) {
    op->mutable_inputs(0)->clear_arguments();
    op->mutable_outputs(0)->clear_arguments();
    for (const std::string& name : inputs) op->mutable_inputs(0)->add_arguments(name);
    for (const std::string& name : outputs) op->mutable_outputs(0)->add_arguments(name);
    return *op;
  }

  static std::string GatheredName(const std::string& grad) {
    return absl::StrCat(grad, "@GATHERED");
  }

  std::vector<std::string> Parts(const std::string& grad) const {
    std::vector<std::string> parts;
    for (int rank = 0; rank < nranks_; ++rank) parts.push_back(absl::StrCat(grad, "@RANK_", rank));
    return parts;
  }

  const Program& program_;
  const int nranks_;
  const bool average_;
  absl::flat_hash_map<std::string, Kind> kinds_;  // of gradients
  std::vector<pb::OpDesc> gather_, reduce_rows_;  // by ring
  pb::OpDesc split_, sum_, to_scalar_, divide_;
};

absl::Status RefuseAccumulated(const Program& program, const GradientAnalysis& analysis) {
  for (const Gradient& gradient : analysis.gradients) {
    if (gradient.block == 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "gradient ", program.name(gradient.grad), ", completed by ",
        program.op(gradient.completed_by).DebugName(),
        ": it is accumulated over several steps (gradient merge), which is not supported where "
        "gradients are gathered; use an all-reduce, which communicates once per real update"));
  }
  return absl::OkStatus();
}

}  // namespace

void GatherGradients::Options::Bind(OptionBinder& bind) {
  BindRings(bind, &nrings);
  BindGradientScale(bind, &scale);
}

const Contract& GatherGradients::contract() const {
  static const auto* contract =
      new Contract{{kGradientsReduced}, {}, {kGradientsReduced, kParametersAveraged}};
  return *contract;
}

absl::StatusOr<bool> GatherGradients::Run(PassContext& context, ProgramPair& programs) const {
  const Program& program = *programs.main;
  if (!context.participants.nranks().has_value()) {
    return absl::InvalidArgumentError(
        "gathering gradients needs the number of ranks, which is how many parts there are; give "
        "the number of ranks or the endpoints");
  }
  if (*context.participants.nranks() > kMaxRanks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gathering gradients makes a variable per gradient and rank: expected at most ", kMaxRanks,
        " ranks, found ", *context.participants.nranks()));
  }
  WEFT_ASSIGN_OR_RETURN(const GradientAnalysis analysis,
                        AnalyzeGradients(program, context.distributed_params));
  WEFT_RETURN_IF_ERROR(RequireGradients(analysis));
  for (const absl::Status& problem :
       ProblemsOfReduction(program, analysis, context.distributed_params)) {
    WEFT_RETURN_IF_ERROR(problem);
  }
  WEFT_RETURN_IF_ERROR(RefuseAccumulated(program, analysis));
  WEFT_ASSIGN_OR_RETURN(const bool average,
                        ReductionAverages(options_.scale, program, context.participants));

  Rewriter rewriter(programs.main);
  AllGather all_gather(program, *context.participants.nranks(), options_.nrings, average);
  for (const Gradient& gradient : analysis.gradients) all_gather.Declare(gradient, &rewriter);
  const std::vector<GradientBucket> buckets = FillBuckets(program, analysis, BucketPolicy());
  GradientWriter writer(program, analysis, options_.nrings, &all_gather, &rewriter);
  writer.Write(buckets);
  if (context.notes != nullptr) {
    writer.Explain(kName, "gathered", "c_allgather", buckets, context.notes);
  }
  if (rewriter.empty()) return false;
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return true;
}

}  // namespace weft
