#include "transpiler/verify/verify.h"

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ops/analysis/op_traits.h"
#include "ops/analysis/rank_values.h"
#include "transpiler/verify/across_ranks.h"
#include "transpiler/verify/communication.h"
#include "transpiler/verify/equivalence.h"
#include "transpiler/verify/structure.h"

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
  void OnBranch(const Op& op, Symbol condition, const RankValue& value) override {
    for (RankObserver* one : all_) one->OnBranch(op, condition, value);
  }
  void OnOpaqueBlock(const Op& op) override {
    for (RankObserver* one : all_) one->OnOpaqueBlock(op);
  }

 private:
  const std::vector<RankObserver*> all_;
};

bool HasCollectives(const Program& program) {
  OpTraits traits(program);
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (OpId id : program.block(block).ops()) {
      if (traits.Has(program.op(id), Trait::kCollective)) return true;
    }
  }
  return false;
}

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

class Verifier {
 public:
  Verifier(const VerifyOptions& options, Findings* findings)
      : options_(options), findings_(*findings) {}

  void Run(absl::Span<const RankPrograms> ranks) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      CheckProgram(ranks[rank], static_cast<int>(rank), ranks.size());
    }
    if (findings_.HasErrors() || ranks.size() < 2 || !Runs(Layer::kAcrossRanks)) return;
    std::vector<const Program*> main, startup;
    for (const RankPrograms& programs : ranks) {
      main.push_back(programs.main);
      if (programs.startup != nullptr) startup.push_back(programs.startup);
    }
    CheckSequences(main, /*is_startup=*/false, &findings_);
    if (startup.size() == main.size()) CheckSequences(startup, /*is_startup=*/true, &findings_);
  }

 private:
  bool Runs(Layer layer) const { return layer <= options_.last_layer; }

  void CheckProgram(const RankPrograms& programs, int rank, size_t num_programs) {
    const ProgramRef main_ref{rank, false};
    const ProgramRef startup_ref{rank, true};
    if (!CheckStructureOf(*programs.main, main_ref)) return;
    if (programs.startup != nullptr && !CheckStructureOf(*programs.startup, startup_ref)) return;
    absl::optional<int> nranks = options_.nranks;
    if (!nranks.has_value()) nranks = FindNumRanks(*programs.main, programs.startup);
    if (!nranks.has_value() && num_programs > 1) nranks = static_cast<int>(num_programs);
    if (Runs(Layer::kCommunication)) {
      CheckCollectives(*programs.main, programs.startup, nranks, main_ref, &findings_);
      if (programs.startup != nullptr) {
        CheckCollectives(*programs.startup, nullptr, nranks, startup_ref, &findings_);
      }
      CheckValues(programs, nranks, main_ref);
    }
    if (options_.original.main != nullptr && Runs(Layer::kEquivalence)) {
      RankValuesOptions values = ValueOptions(programs, nranks);
      CheckEquivalence(*options_.original.main, *programs.main, values, main_ref, &findings_);
    }
  }

  bool CheckStructureOf(const Program& program, ProgramRef ref) {
    const absl::Status status = VerifyStructure(program);
    if (status.ok()) return true;
    Finding finding;
    finding.rule = "W101";
    finding.program = ref;
    finding.message = std::string(status.message());
    findings_.Add(std::move(finding));
    return false;
  }

  RankValuesOptions ValueOptions(const RankPrograms& programs, absl::optional<int> nranks) {
    RankValuesOptions values;
    values.nranks = nranks;
    values.distributed_params = options_.distributed_params;
    if (programs.startup != nullptr && !IsOneProcess(*programs.startup)) {
      start_ = AfterStartup(*programs.startup, nranks);
      values.start = &start_;
    }
    return values;
  }

  // A program without collectives, for nobody knows how many ranks, is one for a single device.
  void CheckValues(const RankPrograms& programs, absl::optional<int> nranks, ProgramRef ref) {
    if (nranks.has_value() ? *nranks == 1 : !HasCollectives(*programs.main)) return;
    UpdateChecker updates(*programs.main,
                          {options_.distributed_params, options_.gradients_are_summed}, ref);
    ConditionChecker conditions(*programs.main, ref);
    Observers observers({&updates, &conditions});
    RankValuesOptions values = ValueOptions(programs, nranks);
    values.observer = &observers;
    const RankValues found = RankValues::Of(*programs.main, values);
    updates.Check(found, &findings_);
    if (Runs(Layer::kAcrossRanks)) conditions.Check(&findings_);
  }

  const VerifyOptions& options_;
  Findings& findings_;
  StartValues start_;
};

}  // namespace

Findings Verify(absl::Span<const RankPrograms> ranks, const VerifyOptions& options) {
  Findings findings;
  Verifier(options, &findings).Run(ranks);
  return findings;
}

}  // namespace weft
