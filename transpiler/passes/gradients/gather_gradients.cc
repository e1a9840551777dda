#include "transpiler/passes/gradients/gather_gradients.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/analysis/training/gradients.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "transpiler/passes/gradients/gradient_buckets.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/gradients/gradient_writer.h"
#include "transpiler/passes/support/new_variables.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"

namespace weft {
namespace {

constexpr int kMaxRanks = 1024;

// Several gradients are in flight at once, so each is gathered into a separate variable. The parts
// of one gradient are summed before the next is split, so gradients of one type and block share
// them: a program grows by a few variables per rank.
class AllGather : public GradientExchange {
 public:
  AllGather(const Program& program, int nranks, int nrings, bool average)
      : program_(program),
        nranks_(nranks),
        average_(average),
        names_(program),
        split_(Op("split", {{"axis", 0}, {"num", nranks}})),
        sum_(Op("sum", {})),
        to_scalar_(Op("reshape2", {{"shape", std::vector<int>{}}})),
        divide_(Op("scale", {{"scale", static_cast<float>(1.0 / nranks)}}, nranks)) {
    for (int ring = 0; ring < nrings; ++ring) {
      gather_.emplace_back(Op("c_allgather", {{"nranks", nranks}, {"ring_id", ring}}));
      reduce_rows_.emplace_back(
          Op(average ? "c_allreduce_avg" : "c_allreduce_sum", {{"ring_id", ring}}));
    }
  }

  // Declares the gathered gradient and its parts in the block that gathers it.
  void Declare(const Bucket& bucket, Rewriter* rewriter) override {
    const auto [it, is_new] = gathered_.try_emplace(bucket.variable);
    if (!is_new) return;
    GatheredGradient& gathered = it->second;
    const int block = bucket.gradients.block;
    const Symbol grad = program_.FindSymbol(bucket.variable);
    pb::VarDesc var = program_.var(program_.block(0).FindVar(grad)).ToProto();
    gathered.kind = KindOf(var);
    if (gathered.kind == Kind::kRows) return;
    var.set_persistable(false);
    var.set_is_parameter(false);
    auto* tensor = var.mutable_type()->mutable_lod_tensor()->mutable_tensor();
    if (tensor->dims_size() == 0) tensor->add_dims(1);
    gathered.parts = Parts(&var, block, rewriter);
    if (tensor->dims(0) > 0) tensor->set_dims(0, tensor->dims(0) * nranks_);
    gathered.name = names_.Of(absl::StrCat(it->first, "@GATHERED"));
    var.set_name(gathered.name);
    rewriter->AddVar(block, var);
  }

  const pb::OpDesc& Launch(absl::Span<const std::string> grads, int ring) override {
    const std::string& grad = grads[0];
    const GatheredGradient& gathered = gathered_.at(grad);
    if (gathered.kind == Kind::kRows) return reduce_rows_[ring].InPlace({grad});
    return gather_[ring].Over({grad}, {gathered.name});
  }

  std::string Result(const std::string& grad) override {
    const GatheredGradient& gathered = gathered_.at(grad);
    return gathered.kind == Kind::kRows ? grad : gathered.name;
  }

  void Finish(const std::string& grad, Insert insert) override {
    const GatheredGradient& gathered = gathered_.at(grad);
    if (gathered.kind == Kind::kRows) return;
    const std::vector<std::string>& parts = *gathered.parts;
    // The parts of a scalar are vectors of one element.
    const std::string& total = gathered.kind == Kind::kScalar ? parts[0] : grad;
    insert(split_.Over({gathered.name}, parts));
    insert(sum_.Over(parts, {total}));
    if (gathered.kind == Kind::kScalar) insert(to_scalar_.Over({total}, {grad}));
    if (average_) insert(divide_.InPlace({grad}));
  }

 private:
  enum class Kind { kTensor, kScalar, kRows };
  struct GatheredGradient {
    Kind kind;
    std::string name;                       // unless kRows
    const std::vector<std::string>* parts;  // by rank; unless kRows
  };

  static Kind KindOf(const pb::VarDesc& var) {
    if (var.type().type() == pb::VarType::SELECTED_ROWS) return Kind::kRows;
    return var.type().lod_tensor().tensor().dims_size() == 0 ? Kind::kScalar : Kind::kTensor;
  }

  static pb::OpDesc Op(const std::string& type, NewAttrs attrs,
                       absl::optional<int> nranks = absl::nullopt) {
    return BuildOp(InPlaceOp(type, {}, std::move(attrs), kRoleBackward, nranks));
  }

  // The parts of the gradients that have the type of `var` and belong to `block`, by rank.
  const std::vector<std::string>* Parts(pb::VarDesc* var, int block, Rewriter* rewriter) {
    std::vector<std::string>& parts = parts_[{block, var->type().SerializeAsString()}];
    for (int rank = static_cast<int>(parts.size()); rank < nranks_; ++rank) {
      parts.push_back(names_.Next("gathered_part"));
      var->set_name(parts.back());
      rewriter->AddVar(block, *var);
    }
    return &parts;
  }

  const Program& program_;
  const int nranks_;
  const bool average_;
  UniqueNames names_;
  absl::flat_hash_map<std::string, GatheredGradient> gathered_;            // by gradient
  std::map<std::pair<int, std::string>, std::vector<std::string>> parts_;  // by block and type
  std::vector<OpTemplate> gather_, reduce_rows_;                           // by ring
  OpTemplate split_, sum_, to_scalar_, divide_;
};

}  // namespace

void GatherGradients::Options::Bind(OptionBinder& bind) {
  BindRings(bind, &nrings);
  BindGradientScale(bind, &scale);
}

Contract GatherGradients::contract() const {
  return Contract().ProvidesOnce(kGradientsReduced).ConflictsWith(kParametersAveraged);
}

Claims GatherGradients::claims(const PassContext& context) const {
  return Claims::Of(GradientsUnder(options_.scale, context));
}

absl::StatusOr<bool> GatherGradients::Run(const PassContext& context, ProgramPair& programs) const {
  const Program& program = *programs.main;
  WEFT_RETURN_IF_ERROR(RefuseGroups(context));
  if (!context.target.cluster.nranks().has_value()) {
    return absl::InvalidArgumentError(
        "gathering gradients needs the number of ranks, which is the number of parts; give it "
        "as option:nranks N, or the endpoints as option:endpoints");
  }
  if (*context.target.cluster.nranks() > kMaxRanks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gathering gradients adds an argument per gradient and rank: expected at most ", kMaxRanks,
        " ranks, found ", *context.target.cluster.nranks()));
  }
  WEFT_ASSIGN_OR_RETURN(const GradientReduction reduction,
                        AnalyzeReduction(program, context, options_.scale));
  const GradientAnalysis& analysis = reduction.analysis;
  Rewriter rewriter(programs.main);
  AllGather all_gather(program, *context.target.cluster.nranks(), options_.nrings,
                       reduction.averages);
  WEFT_ASSIGN_OR_RETURN(const FilledBuckets filled, FillBuckets(program, analysis, BucketPolicy()));
  GradientWriter writer(program, analysis, options_.nrings, &all_gather, &rewriter);
  writer.Write(filled.buckets);
  writer.Explain(kName, "gathered", "c_allgather", filled.buckets, context);
  return CommitEdits(&rewriter);
}

}  // namespace weft
