#include "transpiler/verifier/value_options.h"

#include <utility>

#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/training/num_ranks.h"
#include "ops/analysis/values/sum_losses.h"

namespace weft {
namespace {

// Whether one process drives all ranks and runs the startup program once for all of them: it sets
// up rings without an id from another process.
bool IsOneProcess(const Program& startup) {
  OpTraits traits(startup);
  bool sets_up = false;
  for (OpId id : startup.block(0).ops()) {
    const Op op = startup.op(id);
    if (!traits.Has(op, Trait::kRingSetup)) continue;
    if (!op.input_args().empty() || !op.output_args().empty()) return false;
    sets_up = true;
  }
  return sets_up;
}

}  // namespace

absl::optional<int> NumRanks(const VerifyOptions& options, const ConstProgramPair& programs,
                             size_t num_programs) {
  absl::optional<int> nranks = options.setting.nranks;
  if (!nranks.has_value()) nranks = FindNumRanks(*programs.main, programs.startup);
  if (!nranks.has_value() && num_programs > 1) nranks = static_cast<int>(num_programs);
  return nranks;
}

BatchFacts BatchFactsOf(const VerifyOptions& options, const Program& main, const BatchFlow* flow) {
  BatchFacts facts;
  facts.feeds = options.setting.feeds;
  facts.sums_are_wanted = options.setting.reduction == Setting::Reduction::kSum;
  if (flow == nullptr) return facts;
  for (const BatchLift& lift : flow->lifts()) facts.lifts.emplace(lift.op, lift.power);
  // Parameters that ranks average are no sums.
  if (options.setting.reduction != Setting::Reduction::kByLoss || !flow->own_updates().empty())
    return facts;
  SumLosses sums = FindSumLosses(main, *flow);
  facts.sums_are_wanted = sums.are_all && sums.gradients.empty();
  facts.sum_gradients = std::move(sums.gradients);
  return facts;
}

RankValuesOptions ValueOptions(const VerifyOptions& options, const ConstProgramPair& programs,
                               absl::optional<int> nranks, const BatchFacts& facts,
                               StartupValues* start, const std::vector<int>& group) {
  RankValuesOptions values;
  values.nranks = nranks;
  values.group = group;
  values.distributed_params = options.setting.distributed_params;
  values.feeds = &facts.feeds;
  values.sums_are_wanted = facts.sums_are_wanted;
  values.casts_are_exact = options.setting.gradients_are_rounded;
  if (!facts.sum_gradients.empty()) values.sum_gradients = &facts.sum_gradients;
  if (!facts.lifts.empty()) values.lifts = &facts.lifts;
  if (programs.startup != nullptr && !IsOneProcess(*programs.startup)) {
    RankValuesOptions of_startup;
    of_startup.nranks = nranks;
    of_startup.group = group;
    *start = ReadStartupValues(*programs.startup, of_startup);
    values.start = start;
  }
  return values;
}

}  // namespace weft
