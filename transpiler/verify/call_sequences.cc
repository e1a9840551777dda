// Which calls ranks make, and in which order: W501, W502, W505, W507.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/analysis/op_traits.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/tensor_type.h"
#include "transpiler/verify/across_ranks.h"
#include "transpiler/verify/blocks_with_collectives.h"
#include "transpiler/verify/reporter.h"

namespace weft {
namespace {

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
    absl::StrAppend(&text, " root ", op.IntAttr(collective.root_attr).value_or(0));
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
        calls_.push_back({id, op.IntAttr("ring_id").value_or(0), Describe(program_, op, collective),
                          Variables(op)});
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
      const int64_t ring = op.IntAttr("ring_id").value_or(0), rank = op.IntAttr("rank").value_or(0);
      const auto [it, is_new] = joined.emplace(std::make_pair(ring, rank), i);
      if (is_new) continue;
      Reporter report(AcrossRanksRules(), {static_cast<int>(i), true}, findings);
      report.Add("W507", id, "", [&, first = it->second] {
        return absl::StrCat(op.DebugName(), ": joins ring ", ring, " as rank ", rank,
                            ", as the startup program of rank ", first, " does");
      });
    }
  }
}

class SequenceChecker {
 public:
  SequenceChecker(absl::Span<const Program* const> programs, bool is_startup, Findings* findings)
      : programs_(programs), is_startup_(is_startup), findings_(findings) {
    for (const Program* program : programs) calls_.push_back(SequenceReader(*program).Read());
  }

  void Check() {
    std::set<int64_t> rings;
    for (const std::vector<CallOfRank>& of_rank : calls_) {
      for (const CallOfRank& call : of_rank) {
        if (call.ring != kNoRing) rings.insert(call.ring);
      }
    }
    bool all_agree = true;
    for (int64_t ring : rings) all_agree = CompareCalls(ring) && all_agree;
    if (all_agree) CheckOrder();
  }

 private:
  using Sequence = std::vector<const CallOfRank*>;

  // The calls of a rank on a ring, and the blocks that it may run between them; none where it does
  // not use the ring.
  Sequence CallsOf(size_t rank, int64_t ring) const {
    Sequence sequence;
    bool uses = false;
    for (const CallOfRank& call : calls_[rank]) {
      if (call.ring != ring && call.ring != kNoRing) continue;
      uses = uses || call.ring == ring;
      sequence.push_back(&call);
    }
    if (!uses) sequence.clear();
    return sequence;
  }

  // The calls of every rank against those of the first rank that uses the ring.
  bool CompareCalls(int64_t ring) const {
    size_t first = 0;
    while (CallsOf(first, ring).empty()) ++first;
    const Sequence expected = CallsOf(first, ring);
    bool all_agree = true;
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      if (rank == first) continue;
      all_agree = CompareCalls(ring, first, expected, rank, CallsOf(rank, ring)) && all_agree;
    }
    return all_agree;
  }

  bool CompareCalls(int64_t ring, size_t first, const Sequence& expected, size_t rank,
                    const Sequence& found) const {
    Reporter report(AcrossRanksRules(), {static_cast<int>(rank), is_startup_}, findings_);
    const auto name_of = [&](size_t of, const CallOfRank& call) {
      return programs_[of]->op(call.op).DebugName();
    };
    size_t i = 0;
    while (i < expected.size() && i < found.size() && expected[i]->what == found[i]->what) ++i;
    if (i < expected.size() || i < found.size()) {
      const auto call_of = [&](size_t of, const Sequence& sequence) {
        if (i >= sequence.size()) return std::string("nothing");
        return absl::StrCat(sequence[i]->what, " (", name_of(of, *sequence[i]), ")");
      };
      report.Add("W501", i < found.size() ? found[i]->op : OpId(), "", [&] {
        return absl::StrCat("ring ", ring, ", call ", i, ": rank ", rank, " makes ",
                            call_of(rank, found), ", rank ", first, " makes ",
                            call_of(first, expected));
      });
      return false;
    }
    i = 0;
    while (i < found.size() && expected[i]->variables == found[i]->variables) ++i;
    if (i == found.size()) return true;
    report.Add("W505", found[i]->op, "", [&] {
      return absl::StrCat("ring ", ring, ", call ", i, ": rank ", rank, " exchanges ",
                          found[i]->variables, " (", name_of(rank, *found[i]), "), rank ", first,
                          " ", expected[i]->variables, " (", name_of(first, *expected[i]), ")");
    });
    return false;
  }

  // A call may begin once the call before it on each of its ranks has: the order of the first rank
  // serves as the proof; a rank that has two calls the other way round contradicts it. Calls are
  // the nodes, "right after it on some rank" the edges; a cycle means that ranks wait for each
  // other.
  void CheckOrder() const {
    std::map<std::pair<int64_t, size_t>, uint32_t> node_of;  // ring, number on the ring
    std::vector<std::vector<uint32_t>> next;
    std::vector<std::pair<size_t, OpId>> place;  // rank and op of a node
    for (size_t rank = 0; rank < calls_.size(); ++rank) {
      std::map<int64_t, size_t> count;
      int64_t before = -1;
      for (const CallOfRank& call : calls_[rank]) {
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
      Reporter report(AcrossRanksRules(), {static_cast<int>(rank), is_startup_}, findings_);
      report.Add("W502", op, "", [&] {
        return absl::StrCat(programs_[rank]->op(op).DebugName(), " of rank ", rank,
                            ": ranks call collectives of several rings in orders that contradict "
                            "each other, so that each may wait for another");
      });
      return;
    }
  }

  const absl::Span<const Program* const> programs_;
  const bool is_startup_;
  Findings* const findings_;
  std::vector<std::vector<CallOfRank>> calls_;  // by rank
};

}  // namespace

void CheckSequences(absl::Span<const Program* const> programs, bool is_startup,
                    Findings* findings) {
  if (programs.size() < 2) return;
  if (is_startup) CheckOwnRanks(programs, findings);
  SequenceChecker(programs, is_startup, findings).Check();
}

}  // namespace weft
