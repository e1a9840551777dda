#include "transpiler/verifier/communication/collectives.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/training/num_ranks.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

// Whether a program that communicates needs an op that sets its ring up. Others leave that to the
// process: programs of Paddle 3, as builds without CUDA do, and programs without streams for rings,
// as CPUs run them.
bool SetsUpItsRings(const ProgramFacts& facts) {
  if (facts.program().version() >= 3'000'000) return false;
  const Communications& communications = facts.Get<Communications>();
  for (const Op& op : AllOps(facts.program())) {
    if (FindStreamSyncOp(op.type()).has_value()) return true;
    if (communications.Of(op) == Communication::kNone) continue;
    if (!op.BoolAttr("use_calc_stream").value_or(false)) return true;
  }
  return false;
}

class CollectiveChecker {
 public:
  CollectiveChecker(const ProgramFacts& facts, absl::optional<int> nranks, ProgramRef ref,
                    Findings* findings)
      : facts_(facts),
        program_(facts.program()),
        traits_(facts.Get<OpTraits>()),
        communications_(facts.Get<Communications>()),
        nranks_(nranks),
        reporter_(ref, findings),
        has_nranks_(program_.num_signatures(), -1),
        uses_ring_(program_.num_signatures(), -1),
        knows_rings_(ref.is_startup &&
                     (AnyHas(facts, Trait::kRingSetup) || SetsUpItsRings(facts))) {}

  void AddRings(const Program& startup) {
    OpTraits traits(startup);
    for (const Op& op : BlockOps(startup, 0)) {
      if (!traits.Has(op, Trait::kRingSetup)) continue;
      AddRing(op);
      const absl::StatusOr<std::vector<int>> ranks = GroupOf(op);
      if (!op.output_args().empty() || !ranks.ok()) continue;
      groups_.emplace(RingOf(op), Group{*ranks, "the op that sets it up"});
    }
    knows_rings_ = AnyHas(startup, Trait::kRingSetup) || SetsUpItsRings(facts_);
  }

  void Check() {
    for (const Op& op : AllOps(program_)) {
      CheckNumRanks(op);
      CheckGroup(op);
      if (traits_.Has(op, Trait::kRingSetup)) {
        AddRing(op);
        CheckMember(op);
      }
      if (traits_.Has(op, Trait::kStreamSync)) CheckRing(op);
      const Communication communication = communications_.Of(op);
      if (communication == Communication::kNone) continue;
      // On one rank, moments of all ranks are those of the batch.
      if (communication == Communication::kMoments && nranks_.value_or(1) == 1) continue;
      CheckRing(op);
      if (communication == Communication::kSend || communication == Communication::kReceive) {
        CheckRank(op, "peer");
      }
      if (communication == Communication::kCollective) CheckCollective(op, *FindCollectiveOp(op));
    }
  }

 private:
  // Set-up ops with outputs only exchange ids.
  void AddRing(const Op& op) {
    if (op.output_args().empty()) rings_.insert(op.IntAttr("ring_id").value_or(0));
  }

  // A list of all ranks is none.
  absl::StatusOr<std::vector<int>> GroupOf(const Op& op) const {
    absl::StatusOr<std::vector<int>> ranks = GroupRanksOf(op);
    const bool has_all = ranks.ok() && nranks_.has_value() &&
                         static_cast<int>(ranks->size()) == *nranks_ && ranks->back() < *nranks_;
    if (has_all) ranks->clear();
    return ranks;
  }

  // All ops on a ring say which ranks it connects.
  void CheckGroup(const Op& op) {
    char& uses_ring = uses_ring_[op.signature_id()];
    if (uses_ring < 0) {
      uses_ring = traits_.Has(op, Trait::kCollective) ||
                          (traits_.Has(op, Trait::kRingSetup) && op.output_args().empty())
                      ? 1
                      : 0;
    }
    if (uses_ring == 0) return;
    const absl::StatusOr<std::vector<int>> ranks = GroupOf(op);
    if (!ranks.ok()) {
      return reporter_.Add("W308", op.id(), "", std::string(ranks.status().message()));
    }
    const auto [known, is_new] = groups_.emplace(RingOf(op), Group{*ranks, ""});
    if (is_new) known->second.from = op.DebugName();
    if (known->second.ranks != *ranks) {
      Report("W308", op, "",
             absl::StrCat(" attribute ", kGroupRanksAttr, ": expected ring ", RingOf(op),
                          " to connect ", GroupText(known->second.ranks), ", as ",
                          known->second.from, " says, found ", GroupText(*ranks)));
    }
    if (!ranks->empty() && nranks_.has_value() && ranks->back() >= *nranks_) {
      Report("W308", op, "",
             absl::StrCat(" attribute ", kGroupRanksAttr, ": expected ranks below ", *nranks_,
                          ", found ", GroupText(*ranks)));
    }
    const CollectiveOp* const collective = FindCollectiveOp(op);
    if (!ranks->empty() && collective != nullptr &&
        collective->Inputs(op) != collective->Outputs(op)) {
      Report("W308", op, "",
             absl::StrCat(": expected the same variables in ", collective->in, " and ",
                          collective->out, ", as ranks outside of the ring keep theirs"));
    }
  }

  // The number of ranks that a collective exchanges values with.
  absl::optional<int> SizeOfRing(const Op& op) const {
    const absl::StatusOr<std::vector<int>> ranks = GroupRanksOf(op);
    if (!ranks.ok() || ranks->empty()) return nranks_;
    return static_cast<int>(ranks->size());
  }

  // Checks the size of a ring that lists its devices, and the rank that joins a ring.
  void CheckMember(const Op& op) {
    const absl::optional<int> size = RingSize(op);
    if (size.has_value() && nranks_.has_value() && *size != *nranks_ &&
        !op.HasAttr(kNumRanksAttr)) {
      Report("W302", op, "",
             absl::StrCat(": expected a ring of ", *nranks_, ", the number of ranks, found one of ",
                          *size));
    }
    if (!op.HasAttr("rank") || !op.HasAttr(kNumRanksAttr)) return;
    const int64_t rank = op.IntAttr("rank").value_or(0);
    const int64_t nranks = op.IntAttr(kNumRanksAttr).value_or(0);
    if (rank >= 0 && rank < nranks) return;
    Report(
        "W303", op, "",
        absl::StrCat(" attribute rank: expected 0 or more and below ", nranks, ", found ", rank));
  }

  void Report(const char* rule, const Op& op, absl::string_view variable,
              absl::string_view message) {
    reporter_.Add(rule, op.id(), variable, absl::StrCat(op.DebugName(), message));
  }

  void CheckRing(const Op& op) {
    if (!knows_rings_) return;
    if (traits_.Has(op, Trait::kStreamSync) && !op.HasAttr("ring_id")) {
      const absl::optional<StreamSync> sync = FindStreamSyncOp(op.type());
      if (sync == StreamSync::kAllWaitForCompute || sync == StreamSync::kStreamWaitsForStream) {
        return;
      }
    }
    const int64_t ring = op.IntAttr("ring_id").value_or(0);
    if (rings_.count(ring) > 0) return;
    Report("W301", op, "",
           absl::StrCat(": uses ring ", ring,
                        ", which no op of the startup program sets up; expected c_comm_init, "
                        "c_comm_init_all or comm_init_all with ring_id ",
                        ring));
  }

  void CheckNumRanks(const Op& op) {
    if (!nranks_.has_value()) return;
    char& has = has_nranks_[op.signature_id()];
    if (has < 0) has = op.HasAttr(kNumRanksAttr) ? 1 : 0;
    if (has == 0) return;
    const int64_t nranks = op.IntAttr(kNumRanksAttr).value_or(0);
    // An op that joins a ring as a rank says how many the ring has.
    const bool joins = op.HasAttr("rank") && traits_.Has(op, Trait::kRingSetup);
    const int expected = joins ? *SizeOfRing(op) : *nranks_;
    if (nranks == expected) return;
    // It is alone in its group: it does not communicate.
    if (nranks == 1 && !traits_.IsRegistered(op)) return;
    Report("W302", op, "",
           absl::StrCat(" attribute nranks: expected ", expected, ", the number of ranks, found ",
                        nranks));
  }

  void CheckCollective(const Op& op, const CollectiveOp& collective) {
    if (!collective.root_attr.empty()) CheckRank(op, collective.root_attr);
    const absl::Span<const Symbol> out = collective.Outputs(op);
    for (Symbol name : collective.Inputs(op)) {
      const VarId var = program_.block(op.block()).Resolve(name);
      if (!var.valid()) continue;
      CheckType(op, collective, var);
      if (Resizes(collective) && !out.empty() && out[0] == name) {
        const absl::string_view variable = program_.name(name);
        Report("W305", op, variable,
               absl::StrCat(" output ", collective.out, ": expected another variable than ",
                            collective.in, " (", variable, "), as it has another shape"));
      }
    }
  }

  // An attribute that names a rank of the ring.
  void CheckRank(const Op& op, absl::string_view attr) {
    const int64_t rank = op.IntAttr(attr).value_or(0);
    const absl::optional<int> nranks = SizeOfRing(op);
    if (rank >= 0 && (!nranks.has_value() || rank < *nranks)) return;
    Report("W303", op, "",
           absl::StrCat(" attribute ", attr, ": expected a rank, 0 or more",
                        nranks.has_value() ? absl::StrCat(" and below ", *nranks) : "", ", found ",
                        rank));
  }

  void CheckType(const Op& op, const CollectiveOp& collective, VarId var) {
    const absl::optional<TensorType> type = DeclaredType(program_.var(var));
    if (!type.has_value()) return;
    const absl::string_view variable = program_.var(var).name();
    if (Reduces(collective.kind) && !CanReduce(type->dtype)) {
      Report("W304", op, variable,
             absl::StrCat(" input ", collective.in, " (", variable,
                          "): expected an element type that can be reduced, found ",
                          DTypeName(type->dtype)));
    }
    if (type->kind == TensorType::Kind::kSelectedRows && !TakesRows(collective)) {
      Report("W306", op, variable,
             absl::StrCat(" input ", collective.in, " (", variable,
                          "): expected a dense tensor, found SelectedRows, whose number of rows "
                          "differs between ranks"));
    }
  }

  static bool Resizes(const CollectiveOp& collective) {
    return collective.kind == CollectiveKind::kAllGather ||
           collective.kind == CollectiveKind::kReduceScatter;
  }

  static bool TakesRows(const CollectiveOp& collective) {
    return collective.kind == CollectiveKind::kAllReduce &&
           (collective.reduction == Reduction::kSum || collective.reduction == Reduction::kAvg);
  }

  static bool CanReduce(DType dtype) {
    return dtype != DType::kBool && dtype != DType::kInt16 && dtype != DType::kComplex64 &&
           dtype != DType::kComplex128;
  }

  const ProgramFacts& facts_;
  const Program& program_;
  const OpTraits& traits_;
  const Communications& communications_;
  const absl::optional<int> nranks_;
  Reporter reporter_;
  std::vector<char> has_nranks_, uses_ring_;  // by signature; -1: not computed yet
  bool knows_rings_;                          // a startup program sets up the rings that it uses
  std::set<int64_t> rings_;
  struct Group {
    std::vector<int> ranks;  // empty: all
    std::string from;        // who says so
  };
  std::map<int64_t, Group> groups_;  // by ring
};

}  // namespace

void CheckCollectives(const ProgramFacts& facts, const Program* startup, absl::optional<int> nranks,
                      ProgramRef ref, Findings* findings) {
  CollectiveChecker checker(facts, nranks, ref, findings);
  if (startup != nullptr) checker.AddRings(*startup);
  checker.Check();
}

}  // namespace weft
