#include "transpiler/verifier/verify.h"

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/core/updates.h"
#include "ops/analysis/values/batch_edits.h"
#include "ops/analysis/values/batch_flow.h"
#include "ops/analysis/values/layout_guess.h"
#include "ops/analysis/values/rank_values.h"
#include "proto/all_ops.h"
#include "transpiler/verifier/batch/batch.h"
#include "transpiler/verifier/communication/block_conditions.h"
#include "transpiler/verifier/communication/call_sequences.h"
#include "transpiler/verifier/communication/collectives.h"
#include "transpiler/verifier/communication/data_order.h"
#include "transpiler/verifier/communication/parameter_updates.h"
#include "transpiler/verifier/communication/rank_agreement.h"
#include "transpiler/verifier/communication/residuals.h"
#include "transpiler/verifier/communication/ring_setup.h"
#include "transpiler/verifier/equivalence/equivalence.h"
#include "transpiler/verifier/equivalence/low_rank_gradients.h"
#include "transpiler/verifier/owners/owner_updates.h"
#include "transpiler/verifier/races/buffer_order.h"
#include "transpiler/verifier/races/devices.h"
#include "transpiler/verifier/races/races.h"
#include "transpiler/verifier/servers/server_programs.h"
#include "transpiler/verifier/structure/structure.h"
#include "transpiler/verifier/structure/types.h"
#include "transpiler/verifier/structure/uninitialized_reads.h"
#include "transpiler/verifier/value_options.h"

namespace weft {
namespace {

class RankVerifier {
 public:
  // Without kCalls: what each program says of collectives and rings is known. Without kValues:
  // others verify values.
  enum Parts { kCalls = 1, kValues = 2, kAll = kCalls | kValues };

  RankVerifier(const VerifyOptions& options, Findings* findings, Parts parts = kAll)
      : options_(options), findings_(*findings), parts_(parts) {}

  void Run(absl::Span<const ConstProgramPair> ranks) {
    num_programs_ = ranks.size();
    for (const ConstProgramPair& programs : ranks) ++uses_[{programs.main, programs.startup}];
    for (const ConstProgramPair& programs : ranks) {
      facts_.try_emplace(programs.main, *programs.main);
      if (programs.startup != nullptr) facts_.try_emplace(programs.startup, *programs.startup);
    }
    const ConstProgramPair& original = options_.original;
    if (original.main != nullptr) facts_.try_emplace(original.main, *original.main);
    Findings of_original;
    compares_ = options_.original.main != nullptr && Runs(Layer::kEquivalence) &&
                CheckOriginal(&of_original);
    bool is_sound = true;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      is_sound = CheckPrograms(ranks[rank], static_cast<int>(rank)) && is_sound;
    }
    if (!is_sound) return;
    findings_.Append(of_original);
    if (!Runs(Layer::kAcrossRanks)) return;
    if (ranks.size() == 1) return CheckMessages(ranks[0]);
    std::vector<const Program*> main, startup;
    for (const ConstProgramPair& programs : ranks) {
      main.push_back(programs.main);
      if (programs.startup != nullptr) startup.push_back(programs.startup);
    }
    if (startup.size() != main.size()) startup.clear();
    Findings calls;
    CheckCallSequences(main, &calls);
    CheckStartupCallSequences(startup, &calls);
    CheckConditionsAreEqual(main, startup, options_.setting.feeds, options_.setting.nranks, &calls);
    findings_.Append(calls);
    if (calls.HasErrors()) return;
    CheckRanksAgree(ranks, options_.setting.feeds,
                    NumRanks(options_.setting, ranks[0], ranks.size()), &findings_);
    for (const auto& [group, params] : ParamsOfGroups()) {
      if (group.back() >= static_cast<int>(ranks.size())) continue;  // W308
      CheckRanksAgree(ranks, options_.setting.feeds, static_cast<int>(group.size()), &findings_,
                      group);
    }
  }

 private:
  bool Runs(Layer layer) const { return options_.layers.count(layer) > 0; }

  const ProgramFacts& FactsOf(const Program* program) const { return facts_.at(program); }

  // False, with an error, if its structure is wrong: then nothing can be compared with it.
  bool CheckOriginal(Findings* findings) const {
    const Findings structure = StructureOf(options_.original, /*rank=*/0);
    const absl::Status status = ToStatus(structure);
    if (status.ok()) return true;
    Reporter({0, false}, findings)
        .Add("W611", OpId(), "", absl::StrCat("the original: ", status.message()));
    return false;
  }

  std::map<std::vector<int>, std::set<std::string>> ParamsOfGroups() const {
    std::map<std::vector<int>, std::set<std::string>> params;
    for (const auto& [param, group] : options_.setting.groups) params[group].insert(param);
    return params;
  }

  // Of programs that all ranks run.
  void CheckMessages(const ConstProgramPair& programs) {
    if (IsForOneDevice(FactsOf(programs.main), NumRanks(options_.setting, programs, 1))) return;
    CheckMessagesInOneProgram(FactsOf(programs.main), {0, false}, &findings_);
    if (programs.startup != nullptr) {
      CheckMessagesInOneProgram(FactsOf(programs.startup), {0, true}, &findings_);
    }
  }

  // The result for programs that several ranks run.
  struct Shared {
    bool is_sound = false;
    Findings findings;
  };

  // Checks the programs of one rank. False if their structure is wrong. Programs that ranks share
  // are checked once: the rank only matters to values of single ranks, where they are compared with
  // the original, and to groups.
  bool CheckPrograms(const ConstProgramPair& programs, int rank) {
    if (compares_ || !options_.setting.groups.empty()) return CheckRank(programs, rank, &findings_);
    const auto [it, is_new] = shared_.try_emplace({programs.main, programs.startup});
    Shared& shared = it->second;
    if (is_new) shared.is_sound = CheckRank(programs, rank, &shared.findings);
    shared.findings.SetRank(rank);
    findings_.Append(shared.findings);
    return shared.is_sound;
  }

  bool CheckRank(const ConstProgramPair& programs, int rank, Findings* findings) const {
    // All other layers rely on the structure.
    const Findings structure = StructureOf(programs, rank);
    findings->Append(structure);
    if (structure.HasErrors()) return false;
    const absl::optional<int> nranks = NumRanks(options_.setting, programs, num_programs_);
    Findings types, collectives, races, values, differences, batch;
    const auto policy = options_.threads > 1 ? std::launch::async : std::launch::deferred;
    // What knows nothing of values.
    std::future<void> others = std::async(policy, [&] {
      if (Runs(Layer::kTypes)) CheckAllTypes(programs, rank, &types);
      if (Runs(Layer::kCommunication) && (parts_ & kCalls) != 0) {
        CheckCalls(programs, nranks, rank, &collectives);
      }
      if (!Runs(Layer::kRaces)) return;
      const OpOrder order =
          options_.setting.ordered_by_data ? OpOrder::kByNames : OpOrder::kByStreams;
      if (programs.startup != nullptr) {
        CheckRaces(FactsOf(programs.startup), order, {rank, true}, &races);
      }
      CheckRaces(FactsOf(programs.main), order, {rank, false}, &races);
      CheckDevices(FactsOf(programs.main), {rank, false}, &races);
      if (programs.startup != nullptr) {
        CheckBufferOrder(FactsOf(programs.startup), nullptr, order, {rank, true}, &races);
      }
      CheckBufferOrder(FactsOf(programs.main), programs.startup, order, {rank, false}, &races);
      if (programs.startup != nullptr) {
        CheckDevices(FactsOf(programs.startup), {rank, true}, &races);
      }
    });
    const std::shared_future<Batch> flows = std::async(policy, [&] {
      return (parts_ & kValues) == 0 ? Batch() : FollowBatch(programs, nranks, rank, &batch);
    });
    RanksSetting all{options_.setting, {}};
    // A program without collectives and number of ranks is one for a single device.
    all.setting.nranks = IsForOneDevice(FactsOf(programs.main), nranks) ? 1 : nranks;
    all.setting.rank = absl::nullopt;
    if (num_programs_ > 1) all.setting.rank = rank;
    const bool has_right_factors =
        (parts_ & kValues) != 0 && CheckValues(programs, rank, all, flows, &values, &differences);
    others.get();
    if (has_right_factors) {
      values.Remove(FindingKind::kFactor);
      batch.Remove(FindingKind::kLossScale);
    }
    findings->Append(types);
    if (options_.setting.ordered_by_data && Runs(Layer::kAcrossRanks) && nranks.value_or(2) > 1) {
      CheckDataOrder(FactsOf(programs.main), {rank, false}, &collectives);
      if (programs.startup != nullptr) {
        CheckDataOrder(FactsOf(programs.startup), {rank, true}, &collectives);
      }
    }
    findings->Append(collectives);
    findings->Append(values);
    for (const auto& [group, params] : ParamsOfGroups()) {
      if (num_programs_ > 1 && !absl::c_binary_search(group, rank)) continue;
      CheckGroup(programs, rank, group, params, flows, findings);
    }
    findings->Append(races);
    // Layer 3 knows more of gradients of means that are divided too often, or not.
    const bool is_known = collectives.HasErrors() || values.HasErrors();
    const BatchFlow* const flow = flows.get().flow.get();
    if (is_known && flow != nullptr && !LossMayBeASum(FactsOf(programs.main), *flow)) {
      batch.Remove(FindingKind::kLossScale);
    }
    findings->Append(batch);
    findings->Append(differences);
    return true;
  }

  // Layer 1, on two threads.
  Findings StructureOf(const ConstProgramPair& programs, int rank) const {
    Findings structure, reads;
    if (!Runs(Layer::kStructure)) return structure;
    const auto for_both = [&](auto check, Findings* findings) {
      if (programs.startup != nullptr) check(*programs.startup, {rank, true}, findings);
      check(*programs.main, {rank, false}, findings);
    };
    // The only rank that runs the programs; none: several do.
    absl::optional<int> only = options_.setting.rank;
    if (num_programs_ > 1) {
      const auto uses = uses_.find({programs.main, programs.startup});
      only = uses != uses_.end() && uses->second == 1 ? absl::make_optional(rank) : absl::nullopt;
    }
    const auto check_reads = [&](const Program& program, ProgramRef ref, Findings* findings) {
      CheckUninitializedReads(program, ref, findings, only);
    };
    const auto policy = options_.threads > 1 ? std::launch::async : std::launch::deferred;
    std::future<void> meanwhile = std::async(policy, [&] { for_both(check_reads, &reads); });
    for_both(CheckStructure, &structure);
    if (programs.startup != nullptr) CheckStartupKeeps(programs, {rank, true}, &structure, only);
    meanwhile.get();
    structure.Append(reads);
    return structure;
  }

  // Layer 2.
  void CheckAllTypes(const ConstProgramPair& programs, int rank, Findings* findings) const {
    if (programs.startup != nullptr) CheckTypes(FactsOf(programs.startup), {rank, true}, findings);
    CheckTypes(FactsOf(programs.main), {rank, false}, findings);
    if (programs.startup != nullptr) CheckStartTypes(programs, {rank, true}, findings);
  }

  // What layers 3 and 6 learn from layer 7; null: nothing.
  struct Batch {
    std::unique_ptr<const BatchFlowOptions> options;
    std::unique_ptr<const BatchFlow> flow;
    std::unique_ptr<WhatIfFlows> what_if;
  };

  // Layer 7. A program for a single device has the whole batch.
  Batch FollowBatch(const ConstProgramPair& programs, absl::optional<int> nranks, int rank,
                    Findings* findings) const {
    const ProgramFacts& main = FactsOf(programs.main);
    Batch batch;
    if (IsForOneDevice(main, nranks)) return batch;
    Setting setting = options_.setting;
    setting.nranks = nranks;
    BatchFlowOptions options = BatchOptionsOf(programs, setting);
    options.original = options_.original.main;
    batch.options = std::make_unique<BatchFlowOptions>(std::move(options));
    batch.what_if = std::make_unique<WhatIfFlows>(main, *batch.options);
    if (!Runs(Layer::kBatch)) return batch;
    batch.flow = std::make_unique<BatchFlow>(BatchFlow::Of(main, *batch.options));
    CheckBatch(main, *batch.flow,
               {options_.setting.reduction == Setting::Reduction::kSum, options_.fetched},
               batch.what_if.get(), {rank, false}, findings);
    return batch;
  }

  static bool IsForOneDevice(const ProgramFacts& main, absl::optional<int> nranks) {
    return nranks.has_value() ? *nranks == 1 : !main.Get(Communicates);
  }

  // Layer 3: collectives, and the rings that they use.
  void CheckCalls(const ConstProgramPair& programs, absl::optional<int> nranks, int rank,
                  Findings* findings) const {
    if (programs.startup != nullptr) {
      CheckCollectives(FactsOf(programs.startup), nullptr, nranks, {rank, true}, findings);
      CheckRingSetup(*programs.startup, {rank, true}, findings);
    }
    CheckRingSetup(*programs.main, {rank, false}, findings);
    CheckCollectives(FactsOf(programs.main), programs.startup, nranks, {rank, false}, findings);
  }

  // Ranks whose values are followed together, as if they were the run.
  struct RanksSetting {
    Setting setting;         // theirs
    std::vector<int> group;  // empty: all
  };

  // Layers 3 and 6, in one walk over values; and, for all ranks, layer 5 of one program.
  // `differences`: of layer 6.
  //
  // Returns whether it proves all values equal to those of the original, and layers 3 and 7 agree
  // on how often gradients are divided: the factors are right then, by whatever op. A loss may be
  // divided in the forward pass.
  bool CheckValues(const ConstProgramPair& programs, int rank, const RanksSetting& ranks,
                   const std::shared_future<Batch>& batch, Findings* findings,
                   Findings* differences) const {
    const bool is_for_all = ranks.group.empty();
    const bool reduces = !is_for_all || ranks.setting.nranks != 1;
    const bool checks_updates = reduces && Runs(Layer::kCommunication);
    const bool checks_conditions = reduces && is_for_all && Runs(Layer::kAcrossRanks);
    // What is kept is claimed of one rank, too.
    const bool checks_low_rank =
        is_for_all && Runs(Layer::kCommunication) && options_.setting.low_rank.has_value();
    if (!checks_updates && !checks_conditions && !checks_low_rank && !compares_) return false;
    const ProgramRef ref{rank, false};
    StartupValues start;
    RankValuesOptions options = ValueOptions(ranks.setting, programs, &start, ranks.group);
    absl::optional<Equivalence> equivalence;
    if (compares_) {
      equivalence.emplace(Comparison{options_.original, programs, options, ref,
                                     options_.expression_depth, FactsOf(options_.original.main),
                                     FactsOf(programs.main)});
    }
    // The walk needs what layer 7 finds.
    options.batch = batch.get().flow.get();
    RankValuesOptions of_walk = options;
    if (compares_) equivalence->AttachTo(&of_walk);
    const RankValues found = RankValues::Of(FactsOf(programs.main), of_walk);
    if (checks_updates) {
      CheckUpdates(FactsOf(programs.main), options, found,
                   is_for_all ? batch.get().what_if.get() : nullptr, ref, findings);
      if (is_for_all) CheckSparsifiedGradients(programs, options, ref, findings);
    }
    if (checks_low_rank) {
      CheckLowRankGradients(programs, FactsOf(programs.main), options, ref, findings);
    }
    if (checks_conditions) {
      CheckConditions(FactsOf(programs.main), found, ref, findings);
      if (options.start != nullptr) {
        CheckStartIsEqual(programs, start, ranks.setting.distributed_params, ref, findings);
      }
    }
    if (!compares_) return false;
    Findings of_values;
    equivalence->Check(found, &of_values);
    differences->Append(of_values);
    const auto is_note = [](const Finding& finding) { return finding.severity == Severity::kNote; };
    return absl::c_all_of(of_values.all(), is_note) && is_for_all &&
           ranks.setting.nranks.has_value() &&
           DivisionsAgree(*programs.main, *options_.original.main, found, batch.get().flow.get());
  }

  // A loss that is not the mean for which layer 3 takes it differs by a power of the number of
  // ranks.
  static bool DivisionsAgree(const Program& main, const Program& original, const RankValues& values,
                             const BatchFlow* flow) {
    if (flow == nullptr) return false;
    absl::flat_hash_map<std::pair<OpId, Symbol>, BatchRelation> relations;
    for (const BatchUpdate& update : flow->updates()) {
      relations.emplace(std::make_pair(update.op, update.input), update.value.relation);
    }
    return absl::c_all_of(values.events().updates, [&](const RankUpdate& update) {
      const Symbol gradient = main.op(update.op).Input("Grad")[update.index];
      const auto found = relations.find({update.op, gradient});
      const BatchRelation relation =
          found == relations.end() ? BatchRelation::Replicated() : found->second;
      // Layer 6 compares what the original has, too.
      const Symbol param = main.op(update.op).Input("Param")[update.index];
      const VarId compared = original.block(0).FindVar(main.name(param));
      if (!compared.valid() || !original.var(compared).persistable()) return false;
      return update.grad.is_zero ||
             (relation.IsReplicated() && relation.power == update.grad.unscaled_sums);
    });
  }

  // Layers 3 and 6 for the parameters that a group of ranks shares. Other parameters count as
  // rank-local, which needs no assumption about them.
  void CheckGroup(const ConstProgramPair& programs, int rank, const std::vector<int>& group,
                  const std::set<std::string>& params, const std::shared_future<Batch>& batch,
                  Findings* findings) const {
    RanksSetting of_group{options_.setting, group};
    of_group.setting.distributed_params = ParamsBut(params, FactsOf(programs.main));
    of_group.setting.nranks = static_cast<int>(group.size());
    of_group.setting.rank = absl::nullopt;
    if (num_programs_ > 1) {
      of_group.setting.rank = static_cast<int>(absl::c_lower_bound(group, rank) - group.begin());
    }
    Findings of_values;
    CheckValues(programs, rank, of_group, batch, &of_values, &of_values);
    AppendOfGroup(of_values, group, findings);
  }

  // Without what is known already: other variables than parameters are the same in all groups.
  static void AppendOfGroup(const Findings& of_group, const std::vector<int>& group,
                            Findings* findings) {
    std::set<std::tuple<std::string, uint32_t, std::string>> known;
    for (const Finding& finding : findings->all()) {
      known.emplace(finding.rule, finding.op.value(), finding.variable);
    }
    for (Finding finding : of_group.all()) {
      if (known.count({finding.rule, finding.op.value(), finding.variable}) > 0) continue;
      finding.message = absl::StrCat("for ", GroupText(group), ": ", finding.message);
      findings->Add(std::move(finding));
    }
  }

  static std::set<std::string> ParamsBut(const std::set<std::string>& without,
                                         const ProgramFacts& facts) {
    const Program& main = facts.program();
    std::set<std::string> params;
    const auto add = [&](absl::string_view name) {
      std::string param(name);
      if (without.count(param) == 0) params.insert(std::move(param));
    };
    for (const Var& var : AllVars(main)) {
      if (var.is_parameter()) add(var.name());
    }
    // States of the group's parameters may be marked as parameters, too.
    for (const ParamUpdate& update : facts.Get(FindUpdates)) {
      add(main.name(update.param));
      if (without.count(std::string(main.name(update.param))) == 0) continue;
      for (Symbol state : update.states) params.erase(std::string(main.name(state)));
      if (update.master.valid()) params.erase(std::string(main.name(update.master)));
    }
    for (Symbol param : facts.Get(FindManuallyUpdatedParams)) add(main.name(param));
    return params;
  }

  const VerifyOptions& options_;
  Findings& findings_;
  const Parts parts_;
  size_t num_programs_ = 1;  // 1: all ranks run it
  bool compares_ = false;    // with the original
  // Of the programs of all ranks: layers share what they find out.
  std::map<const Program*, ProgramFacts> facts_;
  // By main and startup program.
  using ProgramsKey = std::pair<const Program*, const Program*>;
  absl::flat_hash_map<ProgramsKey, int> uses_;  // by how many ranks
  absl::flat_hash_map<ProgramsKey, Shared> shared_;
};

// Adds findings about another program than that of the workers, whose ops they cannot name.
void AppendOf(absl::string_view program, const Findings& found, Findings* findings) {
  for (Finding finding : found.all()) {
    finding.message = absl::StrCat(program, ": ", finding.message);
    finding.op = finding.other = OpId();
    findings->Add(std::move(finding));
  }
}

// The findings that are not about what servers hold or compute.
Findings OfOthers(const std::set<std::string>& held, const Findings& found) {
  Findings others;
  for (const Finding& finding : found.all()) {
    if (held.count(finding.variable) > 0 || IsOnServer(finding.variable)) continue;
    others.Add(finding);
  }
  return others;
}

// The layers that need no other program.
std::set<Layer> LayersOfOne(const std::set<Layer>& layers) {
  std::set<Layer> kept;
  for (Layer layer : {Layer::kStructure, Layer::kTypes, Layer::kRaces}) {
    if (layers.count(layer) > 0) kept.insert(layer);
  }
  return kept;
}

// Of a program for workers.
Findings VerifyWithServers(absl::Span<const ConstProgramPair> ranks, const VerifyOptions& options) {
  Findings findings;
  const ConstProgramPair& worker = ranks[0];
  const Program* const server = options.server;
  VerifyOptions of_one = options;
  of_one.server = nullptr;
  of_one.original = {};
  of_one.layers = LayersOfOne(options.layers);
  RankVerifier(of_one, &findings).Run({worker});
  if (server != nullptr) {
    Findings of_server;
    RankVerifier(of_one, &of_server).Run({{server, nullptr}});
    AppendOf("server program", of_server, &findings);
  }
  if (findings.HasErrors() || of_one.layers.size() == options.layers.size()) return findings;
  Reporter reporter({0, false}, &findings);
  if (ranks.size() > 1) {
    reporter.Add("W511", OpId(), "",
                 absl::StrCat("expected one program for all workers, found ", ranks.size()));
    return findings;
  }
  Findings pair;
  CheckServers(*worker.main, server, &pair);
  findings.Append(pair);
  if (findings.HasErrors()) return findings;
  if (IsAsynchronous(*server)) {
    reporter.Add("W715", OpId(), "",
                 "servers update by the gradient of each worker as it comes: a step computes "
                 "something else than one device, and runs differ from each other");
  }
  absl::StatusOr<Program> joined = JoinServers(*worker.main, *server);
  absl::optional<Program> startup;
  absl::Status status = joined.status();
  if (status.ok() && worker.startup != nullptr) {
    absl::StatusOr<Program> joined_startup = JoinStartup(*worker.startup, *server);
    status = joined_startup.status();
    if (status.ok()) startup = *std::move(joined_startup);
  }
  if (!status.ok()) {
    reporter.Add("W511", OpId(), "",
                 absl::StrCat("the programs do not fit together: ", status.message()));
    return findings;
  }
  VerifyOptions together = options;
  together.server = nullptr;
  // To a worker, what servers do not update for all workers at once is its own.
  const std::set<std::string> held = HeldByServers(*server);
  const bool is_async = IsAsynchronous(*server);
  for (const std::string& name : held) {
    is_async ? void(together.setting.distributed_params.insert(name))
             : void(together.setting.distributed_params.erase(name));
  }
  for (Layer layer : of_one.layers) {
    if (layer != Layer::kStructure) together.layers.erase(layer);
  }
  Findings of_both;
  RankVerifier(together, &of_both).Run({{&*joined, startup.has_value() ? &*startup : nullptr}});
  if (is_async) of_both = OfOthers(held, of_both);
  AppendOf("workers and servers together", of_both, &findings);
  return findings;
}

// Of programs whose ranks update parameters for each other.
Findings VerifyWithOwners(absl::Span<const ConstProgramPair> ranks, const OwnerUpdates& owners,
                          const VerifyOptions& options) {
  Findings findings;
  VerifyOptions of_each = options;
  of_each.original = {};
  of_each.layers.erase(Layer::kBatch);
  Findings by_rank;
  RankVerifier(of_each, &by_rank, RankVerifier::kCalls).Run(ranks);
  for (const Finding& finding : by_rank.all()) {
    const bool is_of_unkept =
        finding.kind == FindingKind::kStart && owners.unkept.count(finding.variable) > 0;
    if (!is_of_unkept || owners.findings.HasErrors()) findings.Add(finding);
  }
  if (options.layers.count(Layer::kAcrossRanks) > 0) findings.Append(owners.findings);
  if (findings.HasErrors() || owners.findings.HasErrors()) return findings;
  VerifyOptions together = options;
  together.setting.nranks = static_cast<int>(ranks.size());
  together.setting.rank = absl::nullopt;
  for (Layer layer : {Layer::kTypes, Layer::kRaces}) together.layers.erase(layer);
  Findings of_all, new_ones;
  RankVerifier(together, &of_all, RankVerifier::kValues)
      .Run({{&owners.main, owners.startup.has_value() ? &*owners.startup : nullptr}});
  for (const Finding& finding : of_all.all()) {
    // Each program has shown these of its own structure.
    const bool is_known =
        FindRule(finding.rule).layer == Layer::kStructure && finding.severity != Severity::kError;
    if (!is_known) new_ones.Add(finding);
  }
  AppendOf("all ranks together", new_ones, &findings);
  return findings;
}

}  // namespace

Findings Verify(absl::Span<const ConstProgramPair> ranks, const VerifyOptions& options) {
  VerifyOptions complete = options;
  // All ranks are fed alike.
  if (complete.setting.feeds.empty() && !ranks.empty()) {
    std::vector<const Program*> mains;
    for (const ConstProgramPair& programs : ranks) mains.push_back(programs.main);
    complete.setting.feeds = *FeedLayoutsOf(mains);
  }
  // To ranks outside of its group, a parameter is their own.
  for (const auto& [param, group] : options.setting.groups) {
    const bool has_all = options.setting.nranks.has_value() &&
                         group.size() == static_cast<size_t>(*options.setting.nranks);
    if (has_all) complete.setting.groups.erase(param);
  }
  for (const auto& [param, group] : complete.setting.groups)
    complete.setting.distributed_params.insert(param);
  for (const ConstProgramPair& programs : ranks) {
    if (programs.main->origin() == nullptr) continue;
    const std::vector<std::string>& marked = programs.main->origin()->distributed_params();
    complete.setting.distributed_params.insert(marked.begin(), marked.end());
  }
  if (!ranks.empty() && (options.server != nullptr || HasServerOps(*ranks[0].main))) {
    return VerifyWithServers(ranks, complete);
  }
  const absl::optional<OwnerUpdates> owners = FindOwnerUpdates(ranks);
  if (owners.has_value()) return VerifyWithOwners(ranks, *owners, complete);
  Findings findings;
  RankVerifier(complete, &findings).Run(ranks);
  return findings;
}

}  // namespace weft
