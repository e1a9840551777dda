#include "transpiler/passes/gather_gradients.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "ops/schema/tensor_type.h"
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

class AllGather : public GradientExchange {
 public:
  AllGather(const Program& program, int nranks, bool average)
      : program_(program), nranks_(nranks), average_(average) {}

  // The variables that take the gathered gradient and its parts.
  void Declare(const std::string& grad, Rewriter* rewriter) {
    if (IsRows(grad) || !declared_.insert(grad).second) return;
    const pb::VarDesc desc = VarOf(grad).ToProto();
    const auto declare = [&](const std::string& name, int ranks) {
      pb::VarDesc var = desc;
      var.set_name(name);
      var.set_persistable(false);
      var.set_is_parameter(false);
      auto* tensor = var.mutable_type()->mutable_lod_tensor()->mutable_tensor();
      if (tensor->dims_size() == 0) {
        tensor->add_dims(ranks);
      } else if (tensor->dims(0) > 0) {
        tensor->set_dims(0, tensor->dims(0) * ranks);
      }
      rewriter->AddVar(0, var);
    };
    declare(Result(grad), nranks_);
    for (const std::string& part : Parts(grad)) declare(part, 1);
  }

  const pb::OpDesc& Launch(const std::string& grad, int ring) override {
    if (IsRows(grad)) {
      launch_ = BuildOp({average_ ? "c_allreduce_avg" : "c_allreduce_sum",
                         {{"X", {grad}}},
                         {{"Out", {grad}}},
                         {{"ring_id", ring}, {"use_calc_stream", false}},
                         kRoleBackward},
                        Dialect::kWeft);
      return launch_;
    }
    launch_ = BuildOp({"c_allgather",
                       {{"X", {grad}}},
                       {{"Out", {Result(grad)}}},
                       {{"nranks", nranks_}, {"ring_id", ring}, {"use_calc_stream", false}},
                       kRoleBackward},
                      Dialect::kWeft);
    return launch_;
  }

  std::string Result(const std::string& grad) override {
    return IsRows(grad) ? grad : absl::StrCat(grad, "@GATHERED");
  }

  std::vector<pb::OpDesc> Finish(const std::string& grad) override {
    if (IsRows(grad)) return {};
    const bool is_scalar = DeclaredType(VarOf(grad))->dims.empty();
    std::vector<pb::OpDesc> ops;
    const auto add = [&](NewOp op) {
      op.role = kRoleBackward;
      ops.push_back(BuildOp(op, Dialect::kWeft));
    };
    const std::vector<std::string> parts = Parts(grad);
    add({"split", {{"X", {Result(grad)}}}, {{"Out", parts}}, {{"axis", 0}, {"num", nranks_}}});
    // The parts of a scalar are vectors of one element.
    const std::string& sum = is_scalar ? parts[0] : grad;
    add({"sum", {{"X", parts}}, {{"Out", {sum}}}, {}});
    if (is_scalar) {
      add({"reshape2", {{"X", {sum}}}, {{"Out", {grad}}}, {{"shape", std::vector<int>{}}}});
    }
    if (average_) {
      add({"scale",
           {{"X", {grad}}},
           {{"Out", {grad}}},
           {{"scale", static_cast<float>(1.0 / nranks_)}},
           kRoleBackward,
           nranks_});
    }
    return ops;
  }

 private:
  Var VarOf(const std::string& grad) const {
    return program_.var(program_.block(0).FindVar(program_.FindSymbol(grad)));
  }
  bool IsRows(const std::string& grad) const {
    return VarOf(grad).type() == pb::VarType::SELECTED_ROWS;
  }
  std::vector<std::string> Parts(const std::string& grad) const {
    std::vector<std::string> parts;
    for (int rank = 0; rank < nranks_; ++rank) parts.push_back(absl::StrCat(grad, "@RANK_", rank));
    return parts;
  }

  const Program& program_;
  const int nranks_;
  const bool average_;
  std::set<std::string> declared_;
  pb::OpDesc launch_;
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
  AllGather all_gather(program, *context.participants.nranks(), average);
  for (const Gradient& gradient : analysis.gradients) {
    all_gather.Declare(std::string(program.name(gradient.grad)), &rewriter);
  }
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
