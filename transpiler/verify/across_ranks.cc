#include "transpiler/verify/across_ranks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/analysis/expressions.h"
#include "ops/analysis/op_traits.h"
#include "ops/analysis/rank_recipe.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/tensor_type.h"
#include "transpiler/verify/reporter.h"

namespace weft {
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
    {"W505", Severity::kError, "ranks exchange different variables",
     "They have the same size, so that nothing hangs: the value of one variable becomes that of "
     "another one. It cannot be shown that they mean the same.",
     nullptr},
    {"W506", Severity::kError,
     "ranks compute the condition of a block with collectives in different ways",
     "Sooner or later, ranks on which it holds wait for the others for ever.", nullptr},
    {"W507", Severity::kError, "two startup programs join a ring as the same rank",
     "The ring is never complete: all wait for ever.", nullptr},
};

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
  // By name; a buffer (Trait::kAlias) is its members.
  std::string variables;
};

std::string Describe(const Program& program, const Op& op, const CollectiveOp& collective) {
  const bool reduces = collective.kind != CollectiveKind::kAllGather &&
                       collective.kind != CollectiveKind::kBroadcast;
  std::string text(CollectiveKindName(collective.kind));
  if (reduces) absl::StrAppend(&text, " ", ReductionName(collective.reduction));
  if (!collective.root_attr.empty()) {
    absl::StrAppend(&text, " root ", IntAttr(op, collective.root_attr, 0));
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
      if (traits_.Has(op, Trait::kAlias)) SetMembers(op);
      if (traits_.Has(op, Trait::kCollective)) {
        const CollectiveOp& collective = *FindCollectiveOp(op.type());
        calls_.push_back(
            {id, IntAttr(op, "ring_id", 0), Describe(program_, op, collective), Variables(op)});
      }
      for (int sub : op.SubBlocks()) {
        if (!has_collectives_[sub] || !entered_.insert({sub, true}).second) continue;
        const std::string condition = absl::StrJoin(
            op.Input("Cond"), ", ",
            [&](std::string* out, Symbol name) { absl::StrAppend(out, program_.name(name)); });
        calls_.push_back({id, kNoRing, absl::StrCat("block on condition ", condition), ""});
        ReadBlock(sub);
        calls_.push_back({id, kNoRing, "end of block", ""});
      }
    }
  }

  void SetMembers(const Op& op) {
    const absl::Span<const Symbol> buffer = op.Output("FusedOutput");
    if (buffer.empty()) return;
    const absl::Span<const Symbol> members = op.Output("Output");
    members_[buffer[0]] = absl::StrCat("{", Names(members), "}");
  }

  std::string Names(absl::Span<const Symbol> names) const {
    return absl::StrJoin(names, ", ", [&](std::string* out, Symbol name) {
      const auto members = members_.find(name);
      absl::StrAppend(out, members == members_.end() ? program_.name(name)
                                                     : absl::string_view(members->second));
    });
  }

  // What is given, and what comes out where that is something else.
  std::string Variables(const Op& op) const {
    const absl::Span<const Symbol> in = op.Input("X"), out = op.Output("Out");
    return in == out ? Names(in) : absl::StrCat(Names(in), " -> ", Names(out));
  }

  const Program& program_;
  OpTraits traits_;
  const std::vector<bool> has_collectives_;
  std::map<int, bool> entered_;
  absl::flat_hash_map<Symbol, std::string> members_;  // of buffers
  std::vector<CallOfRank> calls_;
};

// Every rank of a ring joins it once.
void CheckOwnRanks(absl::Span<const Program* const> startups, Findings* findings) {
  std::map<std::pair<int64_t, int64_t>, size_t> joined;  // by ring and rank: the program
  for (size_t i = 0; i < startups.size(); ++i) {
    OpTraits traits(*startups[i]);
    for (OpId id : startups[i]->block(0).ops()) {
      const Op op = startups[i]->op(id);
      if (!traits.Has(op, Trait::kRingSetup) || !op.output_args().empty()) continue;
      if (!op.HasAttr("rank")) continue;
      const int64_t ring = IntAttr(op, "ring_id", 0), rank = IntAttr(op, "rank", 0);
      const auto [it, is_new] = joined.emplace(std::make_pair(ring, rank), i);
      if (is_new) continue;
      Reporter report(kRules, {static_cast<int>(i), true}, findings);
      report.Add("W507", id, "", [&, first = it->second] {
        return absl::StrCat(op.DebugName(), ": joins ring ", ring, " as rank ", rank,
                            ", as the startup program of rank ", first, " does");
      });
    }
  }
}

}  // namespace

absl::Span<const Rule> AcrossRanksRules() { return kRules; }

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
  found_.push_back({op.id(), condition, value.place});
}

void ConditionChecker::OnOpaqueBlock(const Op& op) {
  if (HasCollectives(op)) found_.push_back({op.id(), Symbol(), {}});
}

void ConditionChecker::Check(Findings* findings) const {
  Reporter report(kRules, ref_, findings);
  for (const Found& found : found_) {
    const Op op = program_.op(found.op);
    if (!found.condition.valid()) {
      report.Add("W504", found.op, "", [&] {
        return absl::StrCat(op.DebugName(),
                            ": its block has collectives, and how often it runs is not known: it "
                            "cannot be shown that it runs equally often on all ranks");
      });
      continue;
    }
    const absl::string_view name = program_.name(found.condition);
    report.Add("W503", found.op, name, [&] {
      return absl::StrCat(op.DebugName(), ": its block has collectives, but its condition ", name,
                          " is ", ToString(found.place),
                          ": ranks on which it holds wait for the others for ever");
    });
  }
}

void CheckSequences(absl::Span<const Program* const> programs, bool is_startup,
                    Findings* findings) {
  if (programs.size() < 2) return;
  if (is_startup) CheckOwnRanks(programs, findings);
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
      Reporter report(kRules, {static_cast<int>(rank), is_startup}, findings);
      size_t i = 0;
      while (i < expected.size() && i < found.size() && expected[i]->what == found[i]->what) ++i;
      if (i == expected.size() && i == found.size()) {
        i = 0;
        while (i < found.size() && expected[i]->variables == found[i]->variables) ++i;
        if (i == found.size()) continue;
        all_agree = false;
        report.Add("W505", found[i]->op, "", [&, ring = ring] {
          return absl::StrCat(
              "ring ", ring, ", call ", i, ": rank ", rank, " exchanges ", found[i]->variables,
              " (", programs[rank]->op(found[i]->op).DebugName(), "), rank ", first, " ",
              expected[i]->variables, " (", programs[first]->op(expected[i]->op).DebugName(), ")");
        });
        continue;
      }
      all_agree = false;
      const auto name = [&](size_t r, const std::vector<const CallOfRank*>& sequence) {
        if (i >= sequence.size()) return std::string("nothing");
        return absl::StrCat(sequence[i]->what, " (", programs[r]->op(sequence[i]->op).DebugName(),
                            ")");
      };
      const OpId op = i < found.size() ? found[i]->op : OpId();
      report.Add("W501", op, "", [&, ring = ring] {
        return absl::StrCat("ring ", ring, ", call ", i, ": rank ", rank, " makes ",
                            name(rank, found), ", rank ", first, " makes ", name(first, expected));
      });
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
    const size_t rank = place[node].first;
    const OpId op = place[node].second;
    Reporter report(kRules, {static_cast<int>(rank), is_startup}, findings);
    report.Add("W502", op, "", [&] {
      return absl::StrCat(programs[rank]->op(op).DebugName(), " of rank ", rank,
                          ": ranks call collectives of several rings in orders that contradict "
                          "each other, so that each may wait for another");
    });
    return;
  }
}

namespace {

// The conditions of one rank's blocks with collectives, in the order of the program, and what the
// variables that they are computed from become, all as expressions.
class ConditionReader : public RankObserver {
 public:
  struct Condition {
    OpId op;
    std::string name;
    ExprId expr;
  };

  ConditionReader(const Program& program, ExpressionTable* table)
      : program_(program), table_(*table), has_collectives_(BlocksWithCollectives(program)) {}

  void Restart() override { conditions_.clear(); }
  void OnUpdate(const Op& op, const RankValue& param, const RankValue& grad) override {}
  void OnCollective(const Op& op, Symbol variable, const RankValue& in) override {}
  void OnBranch(const Op& op, Symbol condition, const RankValue& value) override {
    const std::vector<int> blocks = op.SubBlocks();
    const bool matters = std::any_of(blocks.begin(), blocks.end(),
                                     [&](int block) { return has_collectives_[block]; });
    if (!matters) return;
    conditions_.push_back(
        {op.id(), std::string(program_.name(condition)), table_.Scaled(value.expr, value.factor)});
  }
  void OnOpaqueBlock(const Op& op) override {}

  bool HasConditions() const {
    return std::find(has_collectives_.begin() + 1, has_collectives_.end(), true) !=
           has_collectives_.end();
  }
  const std::vector<Condition>& conditions() const { return conditions_; }

  // Variables that a condition depends on, and what a step makes of them.
  std::map<std::string, ExprId> StateOf(ExprId condition, const RankValues& values) const {
    absl::flat_hash_map<ExprId, VarId> leaves;
    for (VarId var : program_.block(0).vars()) {
      if (!program_.var(var).persistable()) continue;
      leaves.emplace(table_.Initial(program_.var(var).name()), var);
    }
    std::map<std::string, ExprId> state;
    absl::flat_hash_set<ExprId> seen = {condition};
    std::vector<ExprId> todo = {condition};
    while (!todo.empty()) {
      const ExprId expr = todo.back();
      todo.pop_back();
      const auto leaf = leaves.find(expr);
      if (leaf != leaves.end()) {
        const RankValue& end = values.AtEnd(leaf->second);
        state.emplace(program_.var(leaf->second).name(),
                      end.expr.valid() ? table_.Scaled(end.expr, end.factor) : expr);
        if (end.expr.valid() && seen.insert(end.expr).second) todo.push_back(end.expr);
      }
      for (ExprId operand : table_.Operands(expr)) {
        if (seen.insert(operand).second) todo.push_back(operand);
      }
    }
    return state;
  }

 private:
  const Program& program_;
  ExpressionTable& table_;
  const std::vector<bool> has_collectives_;
  std::vector<Condition> conditions_;
};

}  // namespace

void CheckConditions(absl::Span<const Program* const> programs,
                     absl::Span<const Program* const> startups, absl::optional<int> nranks,
                     Findings* findings) {
  ExpressionTable table;
  std::vector<ConditionReader::Condition> expected;
  std::vector<std::map<std::string, ExprId>> expected_state;
  std::map<std::string, ExprId> expected_start;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    const Program& program = *programs[rank];
    ConditionReader reader(program, &table);
    if (!reader.HasConditions()) return;
    RankValuesOptions options;
    options.nranks = nranks;
    options.table = &table;
    options.observer = &reader;
    const RankValues values = RankValues::Of(program, options);
    absl::optional<RankValues> start;
    if (!startups.empty()) {
      options.is_startup = true;
      options.observer = nullptr;
      start = RankValues::Of(*startups[rank], options);
    }
    const auto at_start = [&](const std::string& name) {
      const Symbol symbol = startups[rank]->FindSymbol(name);
      const VarId var = symbol.valid() ? startups[rank]->block(0).FindVar(symbol) : VarId();
      if (!var.valid() || !start->AtEnd(var).expr.valid()) return ExprId();
      return table.Scaled(start->AtEnd(var).expr, start->AtEnd(var).factor);
    };
    const std::vector<ConditionReader::Condition>& found = reader.conditions();
    Reporter report(kRules, {static_cast<int>(rank), false}, findings);
    for (size_t i = 0; i < found.size(); ++i) {
      std::map<std::string, ExprId> state = reader.StateOf(found[i].expr, values);
      if (rank == 0) {
        if (start.has_value()) {
          for (const auto& [name, expr] : state) expected_start[name] = at_start(name);
        }
        expected_state.push_back(std::move(state));
        continue;
      }
      if (i >= expected.size()) break;  // then calls differ: W501
      const auto add = [&](absl::FunctionRef<std::string()> why) {
        report.Add("W506", found[i].op, found[i].name, [&] {
          return absl::StrCat(program.op(found[i].op).DebugName(), ": condition ", found[i].name,
                              why());
        });
      };
      if (found[i].expr != expected[i].expr) {
        add([&] {
          const ExpressionTable::Difference difference =
              table.FindDifference(expected[i].expr, found[i].expr);
          return absl::StrCat(" is computed from ", difference.b, " on rank ", rank, ", from ",
                              difference.a, " on rank 0");
        });
        continue;
      }
      for (const auto& [name, expr] : state) {
        const bool ends_alike =
            expected_state[i].count(name) > 0 && expected_state[i][name] == expr;
        const bool starts_alike = !start.has_value() || expected_start[name] == at_start(name);
        if (ends_alike && starts_alike) continue;
        add([&, &name = name] {
          return absl::StrCat(" depends on ", name, ", which ",
                              ends_alike ? "the startup program" : "a step",
                              " makes something else on rank ", rank, " than on rank 0");
        });
        break;
      }
    }
    if (rank == 0) expected = found;
  }
}

}  // namespace weft