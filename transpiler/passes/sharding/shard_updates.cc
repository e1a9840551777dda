#include "transpiler/passes/sharding/shard_updates.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "proto/op_role.h"
#include "transpiler/passes/gradients/gradient_buckets.h"
#include "transpiler/passes/gradients/gradient_reduction.h"
#include "transpiler/passes/gradients/gradient_writer.h"
#include "transpiler/passes/sharding/parameter_gathers.h"
#include "transpiler/passes/sharding/share_writer.h"
#include "transpiler/passes/sharding/shared_bucket.h"
#include "transpiler/passes/sharding/update_chains.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/program_edits.h"
#include "transpiler/passes/support/properties.h"
#include "transpiler/passes/support/rings.h"

namespace weft {
namespace {

// Fewer would send more than they save.
bool HasEnoughOwners(int owners, int nranks) {
  return nranks == 1 || (owners > 1 && 2 * owners >= nranks);
}

// Gives each rank its part of the sum of shared buckets, and all ranks the sum of the others.
class ReduceScatter : public GradientExchange {
 public:
  ReduceScatter(const GradientAnalysis& analysis, const UpdateChains& chains, int nranks,
                int nrings, bool averages, bool frees, ProgramEdits* edits)
      : analysis_(analysis),
        chains_(chains),
        nranks_(nranks),
        averages_(averages),
        frees_(frees),
        edits_(*edits),
        divide_(Op("scale", {{"scale", static_cast<float>(1.0 / nranks)}}, nranks)) {
    const char* const all_reduce = averages ? "c_allreduce_avg" : "c_allreduce_sum";
    for (int ring = 0; ring < nrings; ++ring) {
      reduce_.emplace_back(Op(all_reduce, {{"ring_id", ring}, {"use_calc_stream", false}}));
      scatter_.emplace_back(Op(
          "c_reducescatter", {{"nranks", nranks}, {"ring_id", ring}, {"use_calc_stream", false}}));
    }
  }

  bool TravelsAlone() const override { return frees_; }

  absl::optional<int64_t> PaddingOf(const GradientBucket& bucket) const override {
    if (!IsShared(bucket)) return absl::nullopt;
    return weft::PaddingOf(ChainsOf(bucket), nranks_);
  }

  void Declare(const Bucket& bucket, Rewriter* rewriter) override {
    if (!IsShared(bucket.gradients)) return;
    SharedBucket shared;
    shared.chains = ChainsOf(bucket.gradients);
    shared.nranks = nranks_;
    for (const UpdateChain* chain : shared.chains) shared.elements += NumElements(chain->dims);
    shared.padding = weft::PaddingOf(shared.chains, nranks_);
    shared.elements += shared.padding;
    for (const UpdateChain::Tensor& tensor : shared.first().tensors) {
      shared.shares.push_back(
          edits_.names.Next(absl::StrCat(absl::AsciiStrToLower(tensor.slot), "_share")));
    }
    for (size_t p = 0; p < shared.first().partials.size(); ++p) {
      shared.partials.push_back(edits_.names.Next("norm_share"));
    }
    const std::string& share = shared.shares[UpdateChain::kGrad];
    share_of_.emplace(bucket.variable, share);
    const DType dtype = shared.first().tensors[UpdateChain::kGrad].dtype;
    rewriter->AddVar(shared.first().block, TensorVar(share, dtype, {shared.share()}));
    buckets_.push_back(std::move(shared));
  }

  const pb::OpDesc& Launch(absl::Span<const std::string> variables, int ring) override {
    const auto share = share_of_.find(variables[0]);
    if (share == share_of_.end()) return reduce_[ring].InPlace(variables);
    return scatter_[ring].Over(variables, {share->second});
  }

  std::string Result(const std::string& variable) override {
    const auto share = share_of_.find(variable);
    return share == share_of_.end() ? variable : share->second;
  }

  void Finish(const std::string& variable, Insert insert) override {
    if (averages_ && share_of_.contains(variable)) insert(divide_.InPlace({Result(variable)}));
  }

  // In the order of the gradients.
  absl::Span<const SharedBucket> buckets() const { return buckets_; }

 private:
  static pb::OpDesc Op(const std::string& type, NewAttrs attrs,
                       absl::optional<int> nranks = absl::nullopt) {
    return BuildOp(InPlaceOp(type, {}, std::move(attrs), kRoleBackward, nranks));
  }

  bool IsShared(const GradientBucket& bucket) const {
    const auto chain = chains_.by_param.find(analysis_.gradients[bucket.gradients[0]].param);
    if (!bucket.why_alone.empty() || chain == chains_.by_param.end()) return false;
    const int members = static_cast<int>(bucket.gradients.size());
    return !chain->second.needs_whole || HasEnoughOwners(members, nranks_);
  }

  std::vector<const UpdateChain*> ChainsOf(const GradientBucket& bucket) const {
    std::vector<const UpdateChain*> chains;
    for (int i : bucket.gradients) {
      chains.push_back(&chains_.by_param.at(analysis_.gradients[i].param));
    }
    return chains;
  }

  const GradientAnalysis& analysis_;
  const UpdateChains& chains_;
  const int nranks_;
  const bool averages_;
  const bool frees_;  // gradients, when their bucket is reduced
  ProgramEdits& edits_;
  std::vector<OpTemplate> reduce_, scatter_;  // by ring
  OpTemplate divide_;
  absl::flat_hash_map<std::string, std::string> share_of_;  // by buffer
  std::vector<SharedBucket> buckets_;
};

// The classes of the parameters, and those that are one bucket each.
struct ChainClasses {
  std::map<std::string, int> of_param;  // from 1 on
  std::set<int> undivided;
};

// The parameters of chains that compute the same, of tensors of the same types, are one class. Of
// those that need whole parameters, a class has one for each rank at most, of equally many
// elements; chains of which there are too few stay whole.
ChainClasses ClassesOf(const ProgramPair& programs, const GradientAnalysis& analysis, int nranks,
                       UpdateChains* chains) {
  const Program& program = *programs.main;
  std::map<std::string, std::vector<Symbol>> params_of;  // by what they have in common
  for (const Gradient& gradient : analysis.gradients) {
    const auto found = chains->by_param.find(gradient.param);
    if (found == chains->by_param.end()) continue;
    const UpdateChain& chain = found->second;
    std::string key =
        absl::StrCat(DTypeName(chain.tensors[UpdateChain::kParam].dtype), " ",
                     DTypeName(chain.tensors[UpdateChain::kGrad].dtype), " ", chain.signature);
    for (const UpdateChain::Tensor& tensor : chain.tensors) {
      absl::StrAppend(&key, " ", DTypeName(TypeAtStart(tensor, programs)));
    }
    if (chain.needs_whole) absl::StrAppend(&key, " ", NumElements(chain.dims));
    params_of[key].push_back(gradient.param);
  }
  ChainClasses classes;
  int last = 0;
  for (const auto& [key, params] : params_of) {
    ++last;
    for (size_t i = 0; i < params.size(); ++i) {
      const Symbol param = params[i];
      if (chains->by_param.at(param).needs_whole) {
        if (i > 0 && i % nranks == 0) ++last;
        const size_t begin = i / nranks * nranks;
        const int owners = static_cast<int>(std::min<size_t>(params.size() - begin, nranks));
        if (!HasEnoughOwners(owners, nranks)) {
          chains->by_param.erase(param);
          chains->why_not.emplace(
              param, absl::StrCat("its update needs all of its elements, and too few parameters "
                                  "have as many, by the same update: expected one for every other "
                                  "rank, and at least two, found ",
                                  owners));
          continue;
        }
        classes.undivided.insert(last);
      }
      classes.of_param[std::string(program.name(param))] = last;
    }
  }
  return classes;
}

// Which parameters all ranks update, and why.
void SayWhole(const Program& program, const GradientAnalysis& analysis, const UpdateChains& chains,
              absl::Span<const SharedBucket> buckets, const PassContext& context) {
  std::set<Symbol> shared;
  for (const SharedBucket& bucket : buckets) {
    for (const UpdateChain* const& chain : bucket.chains) {
      const Symbol param = chain->tensors[UpdateChain::kParam].name;
      shared.insert(param);
      std::vector<std::pair<std::string, std::string>> facts = {
          {"share", bucket.shares[UpdateChain::kParam]}};
      if (chain->needs_whole) {
        facts.emplace_back("owner", absl::StrCat("rank ", &chain - &bucket.chains[0]));
      }
      context.sink.Explain(ShardUpdates::kName, std::string(program.name(param)), "shared out",
                           chain->needs_whole ? "its update needs all elements: it has an owner"
                                              : "its update works element by element",
                           std::move(facts));
    }
  }
  std::string first;
  int count = 0;
  for (const Gradient& gradient : analysis.gradients) {
    if (shared.count(gradient.param) > 0) continue;
    const auto found = chains.why_not.find(gradient.param);
    const std::string why = found == chains.why_not.end()
                                ? "its gradient cannot move into a fused buffer"
                                : found->second;
    const std::string param(program.name(gradient.param));
    context.sink.Explain(ShardUpdates::kName, param, "updated on all ranks", why);
    if (count++ == 0) first = absl::StrCat("parameter ", param, ": ", why);
  }
  if (count == 0) return;
  context.sink.Note(absl::StrCat("all ranks keep and update ", count, " of ",
                                 analysis.gradients.size(), " parameters as a whole: ", first,
                                 count == 1 ? "" : absl::StrCat(" (and ", count - 1, " more)")));
}

}  // namespace

void ShardUpdates::Options::Bind(OptionBinder& bind) {
  bind.Int("stage", &stage,
           "what is sharded over the ranks: 1 optimizer state, and parameters between steps; 2 "
           "gradients, too; 3 parameters within a step, too",
           /*min=*/1, /*max=*/3);
  BindPrefetch(bind, &prefetch);
  BindRings(bind, &nrings);
  BindGradientScale(bind, &scale);
  bind.Parsed("buckets", &buckets, "bytes", "which gradients travel together", kBucketPolicies,
              BucketPolicy::Parse);
}

Contract ShardUpdates::contract() const {
  return Contract()
      .Needs(kRingsSetUp)
      .ProvidesOnce(kGradientsReduced)
      .ConflictsWith(kParametersAveraged)
      .ConflictsWith(kParametersServed)
      .Provides(kParametersDivided);
}

Claims ShardUpdates::claims(const PassContext& context) const {
  return Claims::Of(GradientsUnder(options_.scale, context));
}

bool ShardUpdates::HasTrait(PassTrait trait) const { return ReadsTimes(options_.buckets, trait); }

absl::StatusOr<bool> ShardUpdates::Run(const PassContext& context, ProgramPair& programs) const {
  const Program& main = *programs.main;
  WEFT_RETURN_IF_ERROR(RefuseGroups(context));
  const absl::optional<int> nranks = context.target.cluster.nranks();
  if (!nranks.has_value()) {
    return absl::InvalidArgumentError(
        "sharding needs the number of ranks, which is the number of parts; give it as "
        "option:nranks N");
  }
  if (options_.buckets.is_none()) {
    return absl::InvalidArgumentError(
        "option buckets: sharding cuts buckets: expected a policy that makes some, found none; "
        "leave the option out for the default");
  }
  WEFT_ASSIGN_OR_RETURN(const GradientReduction reduction,
                        AnalyzeReduction(main, context, options_.scale));
  const GradientAnalysis& analysis = reduction.analysis;
  UpdateChains chains = FindUpdateChains(main, analysis);
  if (programs.startup == nullptr) {
    return absl::FailedPreconditionError(
        "sharding needs the startup program, which gives each rank its part of the parameters: "
        "give it as option:startup_in");
  }
  BucketInputs inputs{context.target.forecast.gradient_ready, context.target.collective_time,
                      options_.nrings, context.target.param_attrs};
  ChainClasses classes = ClassesOf(programs, analysis, *nranks, &chains);
  inputs.classes = std::move(classes.of_param);
  inputs.undivided = std::move(classes.undivided);
  WEFT_ASSIGN_OR_RETURN(const FilledBuckets filled,
                        FillBuckets(main, analysis, options_.buckets, inputs));
  for (const std::string& warning : filled.warnings) context.sink.Warn(warning);

  ProgramEdits edits(programs);
  const int last_ring = options_.nrings - 1;
  ReduceScatter exchange(analysis, chains, *nranks, options_.nrings, reduction.averages,
                         /*frees=*/options_.stage >= 2, &edits);
  GradientWriter writer(main, analysis, options_.nrings, &exchange, &edits.main);
  writer.Write(filled.buckets);
  writer.Explain(kName, "reduced", "c_reducescatter", filled.buckets, context);
  const absl::Span<const SharedBucket> shared = exchange.buckets();
  GatherParameters(main, shared, {options_.nrings, options_.prefetch, options_.stage == 3}, &edits);
  WriteSharedUpdates(main, shared, &edits);
  WriteSums(main, chains.sums, shared, last_ring, &edits);
  WriteLists(main, chains.lists, shared, last_ring, &edits);
  WriteShareInitializers(programs, shared, last_ring, &edits);
  SayWhole(main, analysis, chains, shared, context);
  if (context.sink.shares != nullptr) DescribeShares(main, shared, context.sink.shares);
  return edits.Commit();
}

}  // namespace weft
