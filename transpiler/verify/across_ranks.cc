#include "transpiler/verify/across_ranks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/analysis/op_traits.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

int64_t IntAttr(const Op& op, absl::string_view name) {
  const auto attr = op.FindAttr(name);
  if (!attr.has_value()) return 0;
  return attr->type() == pb::LONG ? attr->l() : attr->i();
}

// Which blocks hold collectives, themselves or in blocks of theirs.
std::vector<bool> BlocksWithCollectives(const Program& program) {
  std::vector<bool> has(program.num_blocks(), false);
  OpTraits traits(program);
  std::vector<std::vector<int>> inner(program.num_blocks());
  for (int b = 0; b < program.num_blocks(); ++b) {
    for (OpId id : program.block(b).ops()) {
      const Op op = program.op(id);
      if (traits.Has(op, Trait::kCollective)) has[b] = true;
      for (int sub : op.SubBlocks()) inner[sub].push_back(b);  // who holds the block
    }
  }
  // From the inside out. Blocks do not contain themselves.
  std::vector<int> todo;
  for (int b = 0; b < program.num_blocks(); ++b) {
    if (has[b]) todo.push_back(b);
  }
  while (!todo.empty()) {
    const int b = todo.back();
    todo.pop_back();
    for (int outer : inner[b]) {
      if (has[outer]) continue;
      has[outer] = true;
      todo.push_back(outer);
    }
  }
  return has;
}

// Blocks stand in the sequences of all rings.
constexpr int64_t kNoRing = -1;

// A call that all ranks of a ring make together, as one of them sees it.
struct CallOfRank {
  OpId op;
  int64_t ring;
  std::string what;  // all that the ranks must agree on
};

std::string Describe(const Program& program, const Op& op, const CollectiveOp& collective) {
  const bool reduces = collective.kind != CollectiveKind::kAllGather &&
                       collective.kind != CollectiveKind::kBroadcast;
  std::string text(CollectiveKindName(collective.kind));
  if (reduces) absl::StrAppend(&text, " ", ReductionName(collective.reduction));
  if (!collective.root_attr.empty()) {
    absl::StrAppend(&text, " root ", IntAttr(op, collective.root_attr));
  }
  for (Symbol name : op.Input("X")) {
    const VarId var = program.block(op.block()).Resolve(name);
    const absl::optional<TensorType> type =
        var.valid() ? DeclaredType(program.var(var)) : absl::nullopt;
    if (!type.has_value()) continue;
    const int64_t elements = NumElements(type->dims);
    absl::StrAppend(&text, " of ", elements < 0 ? "?" : absl::StrCat(elements), " ",
                    DTypeName(type->dtype));
    if (type->layout == TensorType::Layout::kSelectedRows) text += " rows";
  }
  return text;
}

class SequenceReader {
 public:
  explicit SequenceReader(const Program& program)
      : program_(program), traits_(program), has_collectives_(BlocksWithCollectives(program)) {}

  std::vector<CallOfRank> Read() {
    ReadBlock(0);
    return std::move(calls_);
  }

 private:
  void ReadBlock(int block) {
    for (OpId id : program_.block(block).ops()) {
      const Op op = program_.op(id);
      if (traits_.Has(op, Trait::kCollective)) {
        const CollectiveOp& collective = *FindCollectiveOp(op.type());
        calls_.push_back({id, IntAttr(op, "ring_id"), Describe(program_, op, collective)});
      }
      for (int sub : op.SubBlocks()) {
        if (!has_collectives_[sub] || !entered_.insert({sub, true}).second) continue;
        const std::string condition = absl::StrJoin(
            op.Input("Cond"), ", ",
            [&](std::string* out, Symbol name) { absl::StrAppend(out, program_.name(name)); });
        calls_.push_back({id, kNoRing, absl::StrCat("block on condition ", condition)});
        ReadBlock(sub);
        calls_.push_back({id, kNoRing, "end of block"});
      }
    }
  }

  const Program& program_;
  OpTraits traits_;
  const std::vector<bool> has_collectives_;
  std::map<int, bool> entered_;
  std::vector<CallOfRank> calls_;
};

Finding Report(const char* rule, ProgramRef ref, OpId op, std::string message) {
  Finding finding;
  finding.rule = rule;
  finding.severity = FindRule(rule).severity;
  finding.program = ref;
  finding.op = op;
  finding.message = std::move(message);
  return finding;
}

}  // namespace

ConditionChecker::ConditionChecker(const Program& program, ProgramRef ref)
    : program_(program), ref_(ref), block_has_collectives_(BlocksWithCollectives(program)) {}

void ConditionChecker::Restart() { found_.clear(); }

bool ConditionChecker::HasCollectives(const Op& op) const {
  const std::vector<int> blocks = op.SubBlocks();
  return std::any_of(blocks.begin(), blocks.end(),
                     [&](int block) { return block_has_collectives_[block]; });
}

void ConditionChecker::OnBranch(const Op& op, Symbol condition, const RankValue& value) {
  if (value.IsSame() || !HasCollectives(op)) return;
  const std::string name(program_.name(condition));
  Finding finding =
      Report("W503", ref_, op.id(),
             absl::StrCat(op.DebugName(), ": its block has collectives, but its condition ", name,
                          " is ", ToString(value.place),
                          ": ranks on which it holds wait for the others for ever"));
  finding.variable = name;
  found_.push_back(std::move(finding));
}

void ConditionChecker::OnOpaqueBlock(const Op& op) {
  if (!HasCollectives(op)) return;
  found_.push_back(
      Report("W504", ref_, op.id(),
             absl::StrCat(op.DebugName(),
                          ": its block has collectives, and how often it runs is not known: it "
                          "cannot be shown that it runs equally often on all ranks")));
}

void ConditionChecker::Check(Findings* findings) const {
  for (const Finding& finding : found_) findings->Add(finding);
}

void CheckSequences(absl::Span<const Program* const> programs, bool is_startup,
                    Findings* findings) {
  if (programs.size() < 2) return;
  std::vector<std::vector<CallOfRank>> calls;
  for (const Program* program : programs) calls.push_back(SequenceReader(*program).Read());

  // Per ring: the calls of every rank against those of the first rank that uses the ring.
  const auto of_ring = [&](size_t rank, int64_t ring) {
    std::vector<const CallOfRank*> sequence;
    bool uses = false;
    for (const CallOfRank& call : calls[rank]) {
      if (call.ring != ring && call.ring != kNoRing) continue;
      uses = uses || call.ring == ring;
      sequence.push_back(&call);
    }
    if (!uses) sequence.clear();
    return sequence;
  };
  std::map<int64_t, bool> rings;
  for (const auto& of_rank : calls) {
    for (const CallOfRank& call : of_rank) {
      if (call.ring != kNoRing) rings[call.ring] = true;
    }
  }
  bool all_agree = true;
  for (const auto& [ring, used] : rings) {
    size_t first = 0;
    while (of_ring(first, ring).empty()) ++first;
    const auto expected = of_ring(first, ring);
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      if (rank == first) continue;
      const auto found = of_ring(rank, ring);
      size_t i = 0;
      while (i < expected.size() && i < found.size() && expected[i]->what == found[i]->what) ++i;
      if (i == expected.size() && i == found.size()) continue;
      all_agree = false;
      const auto name = [&](size_t r, const std::vector<const CallOfRank*>& sequence) {
        if (i >= sequence.size()) return std::string("nothing");
        return absl::StrCat(sequence[i]->what, " (", programs[r]->op(sequence[i]->op).DebugName(),
                            ")");
      };
      const OpId op = i < found.size() ? found[i]->op : OpId();
      findings->Add(Report(
          "W501", {static_cast<int>(rank), is_startup}, op,
          absl::StrCat("ring ", ring, ", call ", i, ": rank ", rank, " makes ", name(rank, found),
                       ", rank ", first, " makes ", name(first, expected))));
    }
  }
  if (!all_agree) return;

  // A call may begin once the call before it on each of its ranks has: the order of the first rank
  // serves as the proof; a rank that has two calls the other way round contradicts it. Calls are
  // the nodes, "right after it on some rank" the edges; a cycle means that ranks wait for each
  // other.
  std::map<std::pair<int64_t, size_t>, uint32_t> node_of;  // ring, number on the ring
  std::vector<std::vector<uint32_t>> next;
  std::vector<std::pair<size_t, OpId>> place;  // rank and op of a node
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    std::map<int64_t, size_t> count;
    int64_t before = -1;
    for (const CallOfRank& call : calls[rank]) {
      if (call.ring == kNoRing) continue;
      const auto [it, is_new] =
          node_of.emplace(std::make_pair(call.ring, count[call.ring]++), next.size());
      if (is_new) {
        next.emplace_back();
        place.emplace_back(rank, call.op);
      }
      if (before >= 0) next[before].push_back(it->second);
      before = it->second;
    }
  }
  std::vector<uint32_t> waits_for(next.size(), 0);
  for (const auto& edges : next) {
    for (uint32_t to : edges) ++waits_for[to];
  }
  std::vector<uint32_t> ready;
  for (uint32_t node = 0; node < next.size(); ++node) {
    if (waits_for[node] == 0) ready.push_back(node);
  }
  size_t done = 0;
  while (!ready.empty()) {
    const uint32_t node = ready.back();
    ready.pop_back();
    ++done;
    for (uint32_t to : next[node]) {
      if (--waits_for[to] == 0) ready.push_back(to);
    }
  }
  if (done == next.size()) return;
  for (uint32_t node = 0; node < next.size(); ++node) {
    if (waits_for[node] == 0) continue;
    const auto [rank, op] = place[node];
    findings->Add(Report("W502", {static_cast<int>(rank), is_startup}, op,
                         absl::StrCat(programs[rank]->op(op).DebugName(), " of rank ", rank,
                                      ": ranks call collectives of several rings in orders that "
                                      "contradict each other, so that each may wait for another")));
    return;
  }
}

namespace {

constexpr Rule kRules[] = {
    {"W501", Severity::kError, "ranks make different calls on a ring",
     "The first call that differs hangs, or mixes up data. All ranks of a ring have to make the "
     "same collectives, of the same size, in the same order.",
     nullptr},
    {"W502", Severity::kError, "ranks call collectives of several rings in contradicting orders",
     "Each rank may wait for a collective that another one starts later only: a deadlock that "
     "depends on timing.",
     nullptr},
    {"W503", Severity::kError,
     "a block with collectives runs on a condition that ranks disagree on",
     "Ranks on which the condition holds wait for the others for ever. Conditions have to be "
     "computed from what is the same on all ranks, such as a step counter.",
     R"(program {
  block 0 parent=-1 {
    var x : fp32[1] need_check_feed
    var limit : fp32[1] persistable
    var is_large : bool[1]
    var scope : step_scopes
    var w : fp32[1] parameter persistable
    Out=[is_large] = greater_than(X=[x], Y=[limit])
    Out=[w], Scope=[scope] = conditional_block(Cond=[is_large], Input=[w]) {sub_block=block(1), is_scalar_condition=true}
  }
  block 1 parent=0 {
    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}
  }
})"},
    {"W504", Severity::kWarning, "a loop has collectives",
     "It cannot be shown that the loop runs equally often on all ranks.", R"(program {
  block 0 parent=-1 {
    var more : bool[1] persistable
    var w : fp32[1] parameter persistable
    Out=[w] = while(Condition=[more], X=[w]) {sub_block=block(1)}
  }
  block 1 parent=0 {
    Out=[w] = c_allreduce_avg(X=[w]) {ring_id=0, use_calc_stream=true}
  }
})"},
};

}  // namespace

absl::Span<const Rule> AcrossRanksRules() { return kRules; }

}  // namespace weft
