#include "transpiler/verify/verify.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ops/analysis/num_ranks.h"
#include "ops/analysis/op_traits.h"
#include "ops/analysis/rank_values.h"
#include "transpiler/verify/across_ranks.h"
#include "transpiler/verify/communication.h"
#include "transpiler/verify/equivalence.h"
#include "transpiler/verify/races.h"
#include "transpiler/verify/structure.h"
#include "transpiler/verify/types.h"

namespace weft {
namespace {

// Tells several checkers.
class Observers : public RankObserver {
 public:
  explicit Observers(std::vector<RankObserver*> all) : all_(std::move(all)) {}
  void Restart() override {
    for (RankObserver* one : all_) one->Restart();
  }
  void OnUpdate(const Op& op, const RankValue& param, const RankValue& grad) override {
    for (RankObserver* one : all_) one->OnUpdate(op, param, grad);
  }
  void OnCollective(const Op& op, Symbol variable, const RankValue& in) override {
    for (RankObserver* one : all_) one->OnCollective(op, variable, in);
  }
  void OnScale(const Op& op, bool divides) override {
    for (RankObserver* one : all_) one->OnScale(op, divides);
  }
  void OnBranch(const Op& op, Symbol condition, const RankValue& value) override {
    for (RankObserver* one : all_) one->OnBranch(op, condition, value);
  }
  void OnOpaqueBlock(const Op& op) override {
    for (RankObserver* one : all_) one->OnOpaqueBlock(op);
  }

 private:
  const std::vector<RankObserver*> all_;
};

using StartValues = absl::flat_hash_map<std::string, RankValue>;

// What the startup program leaves in persistable variables.
StartValues AfterStartup(const Program& startup, absl::optional<int> nranks) {
  RankValuesOptions options;
  options.nranks = nranks;
  options.is_startup = true;
  const RankValues values = RankValues::Of(startup, options);
  StartValues start;
  for (size_t i = 0; i < startup.var_id_limit(); ++i) {
    const VarId var(static_cast<uint32_t>(i));
    if (values.IsWritten(var)) start.emplace(startup.var(var).name(), values.AtEnd(var));
  }
  return start;
}

// A process that drives all ranks runs the startup program once for all of them: it sets up rings
// without an id that it would have got from another process.
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

// Runs tasks in any order, by so many threads.
void RunAll(const std::vector<std::function<void()>>& tasks, int threads) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < tasks.size(); i = next++) tasks[i]();
  };
  std::vector<std::thread> helpers;
  const int wanted = std::min<int>(threads, static_cast<int>(tasks.size()));
  for (int i = 1; i < wanted; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
}

class Verifier {
 public:
  Verifier(const VerifyOptions& options, Findings* findings)
      : options_(options), findings_(*findings) {}

  void Run(absl::Span<const RankPrograms> ranks) {
    bool is_sound = true;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      is_sound = CheckPrograms(ranks[rank], static_cast<int>(rank), ranks.size()) && is_sound;
    }
    if (!is_sound || ranks.size() < 2 || !Runs(Layer::kAcrossRanks)) return;
    std::vector<const Program*> main, startup;
    for (const RankPrograms& programs : ranks) {
      main.push_back(programs.main);
      if (programs.startup != nullptr) startup.push_back(programs.startup);
    }
    CheckSequences(main, /*is_startup=*/false, &findings_);
    if (startup.size() != main.size()) startup.clear();
    CheckSequences(startup, /*is_startup=*/true, &findings_);
    CheckConditions(main, startup, options_.nranks, &findings_);
  }

 private:
  bool Runs(Layer layer) const { return options_.layers.count(layer) > 0; }
  bool ComparesWithOriginal() const {
    return options_.original.main != nullptr && Runs(Layer::kEquivalence);
  }

  // What one rank runs. False where a program is none.
  bool CheckPrograms(const RankPrograms& programs, int rank, size_t num_programs) {
    absl::optional<int> nranks = options_.nranks;
    if (!nranks.has_value()) nranks = FindNumRanks(*programs.main, programs.startup);
    if (!nranks.has_value() && num_programs > 1) nranks = static_cast<int>(num_programs);

    Findings form, values;
    Findings races;
    bool is_proven = false;
    RunAll(
        {[&] { is_proven = CheckValues(programs, nranks, rank, &values); },
         [&] { CheckForm(programs, rank, &form); }, [&] { CheckRacesOf(programs, rank, &races); }},
        options_.threads);
    findings_.Append(form);
    const auto is_of_structure = [](const Finding& finding) {
      return finding.severity == Severity::kError && finding.rule[1] == '1';
    };
    // Other layers count on what the first one checks.
    if (std::any_of(form.all().begin(), form.all().end(), is_of_structure)) return false;
    findings_.Append(values);
    findings_.Append(races);
    if (!is_proven && ComparesWithOriginal()) {
      StartValues start;
      const RankValuesOptions of = ValueOptions(programs, nranks, &start);
      CheckEquivalence({options_.original.main, options_.original.startup},
                       {programs.main, programs.startup}, of, options_.averaging, {rank, false},
                       &findings_);
    }
    return true;
  }

  // Layers 1 and 2.
  void CheckForm(const RankPrograms& programs, int rank, Findings* findings) const {
    const auto check = [&](const Program* program, bool is_startup) {
      if (program == nullptr) return;
      const ProgramRef ref{rank, is_startup};
      Findings structure;
      if (Runs(Layer::kStructure)) CheckStructure(*program, ref, &structure);
      findings->Append(structure);
      if (Runs(Layer::kTypes) && !structure.HasErrors()) CheckTypes(*program, ref, findings);
    };
    check(programs.startup, true);
    check(programs.main, false);
  }

  // Layer 4.
  void CheckRacesOf(const RankPrograms& programs, int rank, Findings* findings) const {
    if (!Runs(Layer::kRaces)) return;
    if (programs.startup != nullptr) CheckRaces(*programs.startup, {rank, true}, findings);
    CheckRaces(*programs.main, {rank, false}, findings);
  }

  RankValuesOptions ValueOptions(const RankPrograms& programs, absl::optional<int> nranks,
                                 StartValues* start) const {
    RankValuesOptions values;
    values.nranks = nranks;
    values.distributed_params = options_.distributed_params;
    values.sums_are_wanted = options_.gradients_are_summed;
    if (programs.startup != nullptr && !IsOneProcess(*programs.startup)) {
      *start = AfterStartup(*programs.startup, nranks);
      values.start = start;
    }
    return values;
  }

  // Layer 3, and what layer 5 has to say of one program for all ranks. True where the same walk
  // over the program shows that it is equivalent to the original.
  bool CheckValues(const RankPrograms& programs, absl::optional<int> nranks, int rank,
                   Findings* findings) const {
    if (!Runs(Layer::kCommunication) && !Runs(Layer::kAcrossRanks)) return false;
    const ProgramRef ref{rank, false};
    if (Runs(Layer::kCommunication)) {
      if (programs.startup != nullptr) {
        CheckCollectives(*programs.startup, nullptr, nranks, {rank, true}, findings);
      }
      CheckCollectives(*programs.main, programs.startup, nranks, ref, findings);
    }
    // A program without collectives, for nobody knows how many ranks, is one for a single device.
    if (nranks.has_value() ? *nranks == 1 : !AnyHas(*programs.main, Trait::kCollective))
      return false;
    StartValues start;
    RankValuesOptions options = ValueOptions(programs, nranks, &start);
    UpdateChecker updates(*programs.main, options_.distributed_params, options.start, ref);
    ConditionChecker conditions(*programs.main, ref);
    std::vector<RankObserver*> all = {&updates, &conditions};
    absl::optional<EquivalenceProof> proof;
    if (ComparesWithOriginal() && !options_.compares_whole_programs) {
      const ProgramsToCompare original = {options_.original.main, options_.original.startup};
      proof.emplace(original, ProgramsToCompare{programs.main, programs.startup}, options,
                    options_.averaging);
      proof->Join(&options);
      for (RankObserver* observer : proof->observers()) all.push_back(observer);
    }
    Observers observers(std::move(all));
    options.observer = &observers;
    const RankValues found = RankValues::Of(*programs.main, options);
    if (Runs(Layer::kCommunication)) updates.Check(found, findings);
    if (Runs(Layer::kAcrossRanks)) conditions.Check(findings);
    return proof.has_value() && proof->Succeeds(found);
  }

  const VerifyOptions& options_;
  Findings& findings_;
};

}  // namespace

Findings Verify(absl::Span<const RankPrograms> ranks, const VerifyOptions& options) {
  Findings findings;
  Verifier(options, &findings).Run(ranks);
  return findings;
}

}  // namespace weft
