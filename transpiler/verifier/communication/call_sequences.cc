#include "transpiler/verifier/communication/call_sequences.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/training/num_ranks.h"
#include "ops/schema/buffer_slices.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/tensor_type.h"
#include "ops/schema/weft_attrs.h"
#include "proto/all_ops.h"
#include "transpiler/verifier/communication/block_conditions.h"
#include "transpiler/verifier/communication/ring_setup.h"

namespace weft {
namespace {

// " of 16 fp32", for each variable.
std::string DescribeSizes(const Program& program, const Op& op, absl::Span<const Symbol> names) {
  std::string text;
  for (Symbol name : names) {
    const VarId var = program.block(op.block()).Resolve(name);
    const absl::optional<TensorType> type =
        var.valid() ? DeclaredType(program.var(var)) : absl::nullopt;
    if (!type.has_value()) continue;
    const int64_t elements = NumElements(type->dims);
    absl::StrAppend(&text, " of ",
                    elements < 0 ? absl::StrCat("[", absl::StrJoin(type->dims, ", "), "]")
                                 : absl::StrCat(elements),
                    " ", DTypeName(type->dtype));
    if (type->kind == TensorType::Kind::kSelectedRows) text += " rows";
  }
  return text;
}

std::string Describe(const Program& program, const Op& op, const CollectiveOp& collective) {
  std::string text(CollectiveKindName(collective.kind));
  if (Reduces(collective.kind)) absl::StrAppend(&text, " ", ReductionName(collective.reduction));
  if (!collective.root_attr.empty()) {
    absl::StrAppend(&text, " root ", op.IntAttr(collective.root_attr).value_or(0));
  }
  return text + DescribeSizes(program, op, collective.Inputs(op));
}

class CallReader {
 public:
  explicit CallReader(const ProgramFacts& facts)
      : program_(facts.program()),
        traits_(facts.Get<OpTraits>()),
        communications_(facts.Get<Communications>()),
        blocks_(facts.Get<BlocksWithCollectives>()) {}

  std::vector<RankCall> Read() {
    ReadBlock(0);
    return std::move(calls_);
  }

 private:
  void ReadBlock(int block) {
    for (const Op& op : BlockOps(program_, block)) {
      if (traits_.Has(op, Trait::kAlias)) SetMembers(op);
      if (traits_.Has(op, Trait::kRingSetup)) {
        AddSetup(op);
      } else {
        AddCall(op);
      }
      for (int sub : op.SubBlocks()) {
        if (!blocks_.Has(sub) || !entered_.insert(sub).second) continue;
        const std::string condition = absl::StrJoin(
            op.Input("Cond"), ", ",
            [&](std::string* out, Symbol name) { absl::StrAppend(out, program_.name(name)); });
        const std::string around = where_;
        const std::string begin = absl::StrCat("block on condition ", condition);
        absl::StrAppend(&where_, " in ", begin);
        calls_.push_back({op.id(), RankCall::kNoRing, begin, ""});
        ReadBlock(sub);
        calls_.push_back({op.id(), RankCall::kNoRing, "end of block", ""});
        where_ = around;
      }
    }
  }

  // Ranks exchange an id, and join a ring by it, together.
  void AddSetup(const Op& op) {
    RankCall call;
    call.op = op.id();
    call.ring = RingOf(op);
    if (!op.output_args().empty()) {
      const std::string id = absl::StrCat(made_ids_[call.ring]++, " of ring ", call.ring);
      call.what = absl::StrCat(op.type(), " of id ", id);
      ids_[op.output_args()[0]] = id;
    } else {
      call.what = std::string(op.type());
      const absl::optional<int> size = RingSize(op);
      if (size.has_value()) absl::StrAppend(&call.what, " of ", *size, " ranks");
      SetGroup(op, &call);
      for (Symbol name : op.input_args()) {
        const auto id = ids_.find(name);
        if (id != ids_.end()) absl::StrAppend(&call.what, " by id ", id->second);
      }
    }
    calls_.push_back(std::move(call));
  }

  // Groups that are no lists of ranks (W308) count as all ranks.
  static void SetGroup(const Op& op, RankCall* call) {
    const absl::StatusOr<std::vector<int>> ranks = GroupRanksOf(op);
    if (!ranks.ok() || ranks->empty()) return;
    call->group = *ranks;
    absl::StrAppend(&call->what, " over ", GroupText(*ranks));
  }

  void AddCall(const Op& op) {
    const Communication communication = communications_.Of(op);
    RankCall call;
    call.op = op.id();
    call.ring = RingOf(op);
    switch (communication) {
      case Communication::kNone:
        return;
      case Communication::kCollective:
        call.what = Describe(program_, op, *FindCollectiveOp(op));
        call.variables = Variables(op, *FindCollectiveOp(op));
        SetGroup(op, &call);
        if (op.StringAttr(kAccumulateTypeAttr) == kAccumulatesNatively) {
          absl::StrAppend(&call.what, ", rounded after each addition");
        }
        break;
      case Communication::kMoments:
        call.what = absl::StrCat(op.type(), DescribeSizes(program_, op, op.Input("Scale")));
        call.variables = Names(op.Input("X"));
        break;
      case Communication::kBarrier:
      case Communication::kUnknown:
        call.what = absl::StrCat(op.type(), DescribeSizes(program_, op, op.input_args()));
        call.variables = Names(op.input_args());
        break;
      case Communication::kSend:
      case Communication::kReceive:
        call.sends = communication == Communication::kSend;
        call.peer = op.IntAttr("peer").value_or(0);
        call.what = DescribeMessage(op, op.args(), op.IntAttr("num").value_or(1));
        break;
    }
    calls_.push_back(std::move(call));
  }

  // One of `parts` equal parts of the variables, where it is sent or received.
  std::string DescribeMessage(const Op& op, absl::Span<const Symbol> names, int64_t parts) const {
    const std::string of_parts = parts == 1 ? "" : absl::StrCat(" in ", parts, " parts");
    return absl::StrCat("a message", DescribeSizes(program_, op, names), of_parts, where_);
  }

  void SetMembers(const Op& op) {
    const MadeBuffer made = MadeBufferOf(op);
    if (made.name.valid()) members_[made.name] = absl::StrCat("{", Names(made.parts), "}");
  }

  std::string Names(absl::Span<const Symbol> names) const {
    return absl::StrJoin(names, ", ", [&](std::string* out, Symbol name) {
      const auto members = members_.find(name);
      absl::StrAppend(out, members == members_.end() ? program_.name(name)
                                                     : absl::string_view(members->second));
    });
  }

  // The inputs, and the outputs if they differ.
  std::string Variables(const Op& op, const CollectiveOp& collective) const {
    const absl::Span<const Symbol> in = collective.Inputs(op), out = collective.Outputs(op);
    return in == out ? Names(in) : absl::StrCat(Names(in), " -> ", Names(out));
  }

  const Program& program_;
  const OpTraits& traits_;
  const Communications& communications_;
  const BlocksWithCollectives& blocks_;
  std::set<int> entered_;
  std::string where_;                                 // in root block: empty
  absl::flat_hash_map<Symbol, std::string> members_;  // by buffer
  absl::flat_hash_map<Symbol, std::string> ids_;      // of rings: "0 of ring 1", by maker
  std::map<int64_t, int> made_ids_;                   // by ring
  std::vector<RankCall> calls_;
};

// What sends and receives are counted by: ring, sender, receiver.
using Channel = std::tuple<int64_t, int64_t, int64_t>;

// For a call of all ranks, sender and receiver are -1.
Channel ChannelOf(const RankCall& call, int64_t rank) {
  if (!call.peer.has_value()) return {call.ring, -1, -1};
  return call.sends ? Channel(call.ring, rank, *call.peer) : Channel(call.ring, *call.peer, rank);
}

// An edge leads from a call to the next call of the same rank. A call on a ring is one node for all
// ranks, and a message is one for two.
class CallGraph {
 public:
  explicit CallGraph(const std::vector<std::vector<RankCall>>& calls) {
    std::map<std::pair<Channel, size_t>, uint32_t> node_of;  // by channel, and number on it
    for (size_t rank = 0; rank < calls.size(); ++rank) {
      std::map<Channel, size_t> count;
      int64_t before = -1;
      for (const RankCall& call : calls[rank]) {
        if (call.ring == RankCall::kNoRing) continue;
        const Channel channel = ChannelOf(call, static_cast<int64_t>(rank));
        const auto [node, is_new] =
            node_of.emplace(std::make_pair(channel, count[channel]++), next_.size());
        if (is_new) {
          next_.emplace_back();
          first_caller_.emplace_back(rank, call.op);
        }
        if (before >= 0) next_[before].push_back(node->second);
        before = node->second;
      }
    }
  }

  // The rank and op of a call on or after a cycle; null if there is no cycle.
  const std::pair<size_t, OpId>* FindCycle() const {
    std::vector<uint32_t> waits_for(next_.size(), 0);
    for (const auto& edges : next_) {
      for (uint32_t to : edges) ++waits_for[to];
    }
    std::vector<uint32_t> ready;
    for (uint32_t node = 0; node < next_.size(); ++node) {
      if (waits_for[node] == 0) ready.push_back(node);
    }
    while (!ready.empty()) {
      const uint32_t node = ready.back();
      ready.pop_back();
      for (uint32_t to : next_[node]) {
        if (--waits_for[to] == 0) ready.push_back(to);
      }
    }
    for (uint32_t node = 0; node < next_.size(); ++node) {
      if (waits_for[node] > 0) return &first_caller_[node];
    }
    return nullptr;
  }

 private:
  std::vector<std::vector<uint32_t>> next_;
  std::vector<std::pair<size_t, OpId>> first_caller_;
};

class SequenceChecker {
 public:
  SequenceChecker(absl::Span<const Program* const> programs, bool is_startup, Findings* findings)
      : programs_(programs), is_startup_(is_startup), findings_(findings) {
    for (const Program* program : programs) {
      const int rank = static_cast<int>(calls_.size());
      std::vector<RankCall> calls = ReadRankCalls(*program);
      // Ranks that do not belong to a ring leave its calls out.
      calls.erase(std::remove_if(calls.begin(), calls.end(),
                                 [&](const RankCall& call) {
                                   return !call.group.empty() &&
                                          !absl::c_binary_search(call.group, rank);
                                 }),
                  calls.end());
      calls_.push_back(std::move(calls));
    }
  }

  void Check() {
    std::set<int64_t> rings;
    for (const std::vector<RankCall>& of_rank : calls_) {
      for (const RankCall& call : of_rank) {
        if (call.ring != RankCall::kNoRing && !call.peer.has_value()) rings.insert(call.ring);
      }
    }
    bool all_agree = CheckMessages();
    for (int64_t ring : rings) all_agree = CompareRing(ring) && all_agree;
    if (all_agree) CheckOrder();
  }

  // Every message has a sender and a receiver, two ranks that agree on it.
  bool CheckMessages() const {
    std::map<Channel, Message> messages;
    for (size_t rank = 0; rank < calls_.size(); ++rank) {
      for (const RankCall& call : calls_[rank]) {
        if (!call.peer.has_value()) continue;
        Message& message = messages[ChannelOf(call, static_cast<int64_t>(rank))];
        (call.sends ? message.sent : message.received).push_back(&call);
      }
    }
    bool all_match = true;
    for (const auto& [channel, message] : messages) {
      all_match = CheckChannel(channel, message) && all_match;
    }
    return all_match;
  }

 private:
  using Sequence = std::vector<const RankCall*>;
  struct Message {
    Sequence sent, received;
  };

  bool CheckChannel(const Channel& channel, const Message& message) const {
    const auto [ring, sender, receiver] = channel;
    const Sequence &sent = message.sent, &received = message.received;
    size_t i = 0;
    const bool are_two = sender != receiver;
    while (are_two && i < sent.size() && i < received.size() && sent[i]->what == received[i]->what)
      ++i;
    if (i == sent.size() && i == received.size()) return true;
    const RankCall& call = i < sent.size() ? *sent[i] : *received[i];
    const auto says = [&](const Sequence& calls) {
      return i < calls.size() ? calls[i]->what : std::string("nothing");
    };
    Report("W508", static_cast<size_t>(call.sends ? sender : receiver), call.op,
           absl::StrCat("ring ", ring, ", message ", i, ": rank ", sender, " sends ", says(sent),
                        " to rank ", receiver, ", which receives ", says(received), " from it"));
    return false;
  }

  struct RankSequence {
    size_t rank;
    Sequence calls;
  };

  // The calls of a rank on a ring and the blocks between them; empty if it does not use the ring.
  Sequence CallsOf(size_t rank, int64_t ring) const {
    Sequence sequence;
    bool uses = false;
    for (const RankCall& call : calls_[rank]) {
      if (call.ring != ring && call.ring != RankCall::kNoRing) continue;
      if (call.peer.has_value()) continue;
      uses = uses || call.ring == ring;
      sequence.push_back(&call);
    }
    if (!uses) sequence.clear();
    return sequence;
  }

  // Compares every rank with the first rank that uses the ring.
  bool CompareRing(int64_t ring) const {
    RankSequence expected = {0, CallsOf(0, ring)};
    while (expected.calls.empty()) {
      ++expected.rank;
      expected.calls = CallsOf(expected.rank, ring);
    }
    bool all_agree = true;
    std::vector<int> group;
    for (const RankCall* call : expected.calls) {
      if (call->ring == ring) group = call->group;
    }
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      if (rank == expected.rank) continue;
      const bool is_outside =
          !group.empty() && !absl::c_binary_search(group, static_cast<int>(rank));
      if (is_outside && CallsOf(rank, ring).empty()) continue;
      all_agree = Compare(ring, expected, {rank, CallsOf(rank, ring)}) && all_agree;
    }
    return all_agree;
  }

  bool Compare(int64_t ring, const RankSequence& expected, const RankSequence& found) const {
    const Sequence &a = expected.calls, &b = found.calls;
    size_t i = 0;
    while (i < a.size() && i < b.size() && a[i]->what == b[i]->what) ++i;
    if (i < a.size() || i < b.size()) {
      const auto call_of = [&](const RankSequence& of) {
        if (i >= of.calls.size()) return std::string("nothing");
        return absl::StrCat(of.calls[i]->what, " (", NameOf(of, i), ")");
      };
      Report("W501", found.rank, i < b.size() ? b[i]->op : OpId(),
             absl::StrCat("ring ", ring, ", call ", i, ": rank ", found.rank, " makes ",
                          call_of(found), ", rank ", expected.rank, " makes ", call_of(expected)));
      return false;
    }
    for (i = 0; i < b.size(); ++i) {
      if (a[i]->variables == b[i]->variables) continue;
      if (MayHaveOwnName(expected.rank, *a[i]) && MayHaveOwnName(found.rank, *b[i])) continue;
      Report("W505", found.rank, b[i]->op,
             absl::StrCat("ring ", ring, ", call ", i, ": rank ", found.rank, " exchanges ",
                          b[i]->variables, " (", NameOf(found, i), "), rank ", expected.rank, " ",
                          a[i]->variables, " (", NameOf(expected, i), ")"));
      return false;
    }
    return true;
  }

  // Whether it does not matter in which variable the rank takes part: it sends by a broadcast, or
  // receives what it has no variable for that persists, as with Paddle's sharding.
  bool MayHaveOwnName(size_t rank, const RankCall& call) const {
    const Op op = programs_[rank]->op(call.op);
    const CollectiveOp* const collective = FindCollectiveOp(op);
    if (collective == nullptr || collective->kind != CollectiveKind::kBroadcast) return false;
    if (op.IntAttr(collective->root_attr).value_or(0) == static_cast<int64_t>(rank)) return true;
    return absl::c_none_of(op.output_args(), [&](Symbol name) {
      const VarId var = op.program().block(op.block()).Resolve(name);
      return var.valid() && op.program().var(var).persistable();
    });
  }

  // A call can begin when the previous call of each of its ranks has begun. Ranks that order two
  // calls differently form a cycle and can wait for each other.
  void CheckOrder() const {
    const CallGraph graph(calls_);
    const std::pair<size_t, OpId>* const found = graph.FindCycle();
    if (found == nullptr) return;
    const auto [rank, op] = *found;
    Report("W502", rank, op,
           absl::StrCat(programs_[rank]->op(op).DebugName(), " of rank ", rank,
                        ": ranks call collectives of several rings in inconsistent orders, "
                        "so that each may wait for another"));
  }

  std::string NameOf(const RankSequence& of, size_t i) const {
    return programs_[of.rank]->op(of.calls[i]->op).DebugName();
  }

  void Report(const char* rule, size_t rank, OpId op, std::string message) const {
    Reporter({static_cast<int>(rank), is_startup_}, findings_)
        .Add(rule, op, "", std::move(message));
  }

  const absl::Span<const Program* const> programs_;
  const bool is_startup_;
  Findings* const findings_;
  std::vector<std::vector<RankCall>> calls_;  // by rank
};

// Whether an op sends to one rank, or receives from one.
bool HasMessages(const ProgramFacts& facts) {
  const Communications& communications = facts.Get<Communications>();
  return absl::c_any_of(AllOps(facts.program()), [&](const Op& op) {
    const Communication communication = communications.Of(op);
    return communication == Communication::kSend || communication == Communication::kReceive;
  });
}

}  // namespace

std::vector<RankCall> ReadRankCalls(const ProgramFacts& facts) { return CallReader(facts).Read(); }

void CheckMessagesInOneProgram(const ProgramFacts& facts, ProgramRef ref, Findings* findings) {
  if (!HasMessages(facts)) return;
  for (const RankCall& call : ReadRankCalls(facts)) {
    if (!call.peer.has_value()) continue;
    Reporter(ref, findings)
        .Add("W508", call.op, "",
             absl::StrCat(facts.program().op(call.op).DebugName(),
                          call.sends ? ": sends " : ": receives ", call.what,
                          call.sends ? " to rank " : " from rank ", *call.peer,
                          ", but all ranks run this program, that rank too: it cannot be shown "
                          "that each message has a sender and a receiver; give the program of "
                          "each rank"));
  }
}

void CheckCallSequences(absl::Span<const Program* const> mains, Findings* findings) {
  if (mains.size() < 2) return;
  SequenceChecker(mains, /*is_startup=*/false, findings).Check();
}

void CheckStartupCallSequences(absl::Span<const Program* const> startups, Findings* findings) {
  if (startups.size() < 2) return;
  CheckRingSetups(startups, findings);
  SequenceChecker(startups, /*is_startup=*/true, findings).Check();
}

}  // namespace weft
