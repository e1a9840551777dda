#include "tests/replay/stream_replay.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/schema/communication_ops.h"
#include "tests/replay/program.h"
#include "tests/replay/rank_run.h"
#include "tests/replay/run_graph.h"
#include "tests/replay/storage.h"

namespace weft::testing {

class ReplayRun {
 public:
  // Stops after the first step that leaves something else than `expected`, which may be null.
  ReplayRun(StreamReplay* replay, absl::Span<const ProgramDescs* const> ranks, int seed,
            const ReplayResult* expected)
      : replay_(*replay), table_(replay->table_), seed_(seed), expected_(expected) {
    for (const ProgramDescs* programs : ranks) {
      // Ranks mostly run the same.
      if (!mains_.empty() && programs->main.blocks_size() > 0 && programs == last_) {
        mains_.push_back(mains_.back());
        startups_.push_back(startups_.back());
        continue;
      }
      last_ = programs;
      mains_.push_back(std::make_shared<ReplayProgram>(CompileForReplay(programs->main)));
      startups_.push_back(std::make_shared<ReplayProgram>(CompileForReplay(programs->startup)));
    }
    memory_.resize(ranks.size());
    graphs_.resize(ranks.size());
    rings_.resize(ranks.size());
    has_startup_ = startups_[0]->desc->blocks_size() > 0;
  }

  ReplayResult Run() {
    if (!RunAll(startups_, /*step=*/0, /*is_startup=*/true)) return std::move(result_);
    ShareDraws();
    for (size_t rank = 0; has_startup_ && rank < memory_.size(); ++rank) {
      Forget(*startups_[rank], &memory_[rank]);
    }
    for (int step = 0; step < replay_.options_.steps; ++step) {
      for (size_t rank = 0; rank < memory_.size(); ++rank) Forget(*mains_[rank], &memory_[rank]);
      if (!RunAll(mains_, step, /*is_startup=*/false)) return std::move(result_);
      result_.values.emplace_back();
      for (Memory& memory : memory_) {
        std::vector<ValueId>& values = result_.values.back().emplace_back();
        for (const std::string& name : replay_.watched_) {
          const auto found = memory.of_var.find({0, name});
          values.push_back(found == memory.of_var.end() ? 0 : memory.cells[found->second[0]]);
        }
      }
      if (expected_ != nullptr && expected_->values.size() > static_cast<size_t>(step) &&
          expected_->values[step] != result_.values.back()) {
        break;
      }
    }
    return std::move(result_);
  }

 private:
  using Programs = std::vector<std::shared_ptr<ReplayProgram>>;

  // What does not persist is gone.
  static void Forget(const ReplayProgram& program, Memory* memory) {
    for (auto it = memory->of_var.begin(); it != memory->of_var.end();) {
      const auto& [block, name] = it->first;
      const bool persists = block == 0 && program.persistable.count(name) > 0;
      it = persists ? std::next(it) : memory->of_var.erase(it);
    }
  }

  // Ranks draw alike, so it does not matter whose draw all of them have got.
  void ShareDraws() {
    for (const auto& [key, cells] : memory_[0].of_var) {
      if (cells.size() != 1) continue;
      const ValueId value = memory_[0].cells[cells[0]];
      bool is_same = true;
      for (const Memory& memory : memory_) {
        const auto found = memory.of_var.find(key);
        is_same = is_same && found != memory.of_var.end() && found->second.size() == 1 &&
                  memory.cells[found->second[0]] == value;
      }
      if (!is_same) continue;
      for (Memory& memory : memory_) {
        memory.cells[memory.of_var.at(key)[0]] = OfAnyRank(value);
      }
    }
  }

  // A draw without its rank and number: the op, with its attributes, and the variable.
  ValueId OfAnyRank(ValueId value) {
    const std::string& text = table_.TextOf(value);
    const size_t of = text.rfind(" of ");
    uint32_t whole = 0;
    if (of == std::string::npos || !absl::SimpleAtoi(text.substr(of + 4), &whole)) return value;
    const std::string& drawn = table_.TextOf(whole);
    const size_t begin = drawn.find("\ndraw of ");
    if (begin == std::string::npos) return value;
    return table_.Named(drawn.substr(0, drawn.find(" step ", begin)));
  }

  bool RunAll(const Programs& programs, int step, bool is_startup) {
    is_startup_ = is_startup;
    const bool once = is_startup && programs[0]->is_one_process;
    std::deque<RankRun> runs;
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      RankSetting setting;
      setting.rank = once ? 0 : static_cast<int>(rank);
      setting.step = step;
      setting.seed = seed_;
      setting.has_startup = has_startup_;
      setting.rings = has_startup_ ? &rings_[rank] : nullptr;
      setting.types = &replay_.types_;
      setting.feeds = &replay_.feeds_;
      runs.emplace_back(*programs[rank], setting, std::move(graphs_[rank]), &memory_[rank],
                        &table_);
    }
    Calls waiting(runs.size());  // by rank: the call that it waits in
    while (true) {
      for (size_t rank = 0; rank < runs.size(); ++rank) {
        if (waiting[rank] == nullptr) waiting[rank] = NextCall(rank, &runs[rank]);
        if (!runs[rank].unsupported().empty()) {
          result_.unsupported = runs[rank].unsupported();
          return false;
        }
        if (!runs[rank].failure().empty()) return Fail(runs[rank].failure());
      }
      if (std::all_of(waiting.begin(), waiting.end(), [](const ReplayOp* op) { return !op; })) {
        break;
      }
      members_ = WhoCanMeet(waiting);
      Calls calls;
      Runs of_members;
      for (int rank : members_) {
        calls.push_back(waiting[rank]);
        of_members.push_back(&runs[rank]);
        waiting[rank] = nullptr;
      }
      if (!Meet(calls, of_members)) return false;
    }
    for (size_t rank = 0; rank < runs.size(); ++rank) {
      replay_.num_guesses_ += runs[rank].num_guesses();
      const std::string race = runs[rank].FindRace();
      if (!race.empty()) return Fail(absl::StrCat("race: ", race));
      graphs_[rank] = runs[rank].Pending();
    }
    return true;
  }

  bool Fail(std::string failure) {
    result_.failure = std::move(failure);
    return false;
  }

  // Of those that meet, in the order of ranks.
  using Calls = std::vector<const ReplayOp*>;
  using Runs = std::vector<RankRun*>;

  // The next one that the rank takes part in.
  const ReplayOp* NextCall(size_t rank, RankRun* run) {
    const ReplayOp* call = run->RunToCall();
    while (call != nullptr && !call->group.empty() &&
           std::count(call->group.begin(), call->group.end(), static_cast<int>(rank)) == 0) {
      // It knows the ring, on which it has nothing to wait for.
      if (call->call == RankCall::kJoinAll) rings_[rank].emplace(call->ring, kOtherRanks);
      call = run->RunToCall();
    }
    return call;
  }

  // Ranks of a group that are all there, or all ranks.
  std::vector<int> WhoCanMeet(const Calls& waiting) const {
    for (const ReplayOp* call : waiting) {
      if (call == nullptr || call->group.empty()) continue;
      const bool are_there = std::all_of(call->group.begin(), call->group.end(), [&](size_t rank) {
        return rank < waiting.size() && waiting[rank] != nullptr &&
               waiting[rank]->group == call->group;
      });
      if (are_there) return call->group;
    }
    std::vector<int> all(waiting.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  bool Meet(const Calls& calls, const Runs& runs) {
    for (size_t rank = 0; rank < calls.size(); ++rank) {
      if (calls[rank] == nullptr) {
        return Fail(
            absl::StrCat("deadlock: rank ", rank, " never makes the call that others wait in"));
      }
      if (calls[rank]->call != calls[0]->call) return FailToMeet(*calls[0], *calls[rank]);
    }
    switch (calls[0]->call) {
      case RankCall::kMakeId:
        return MakeId(calls, runs);
      case RankCall::kJoin:
        return Join(calls, runs);
      case RankCall::kJoinAll:
        return JoinAll(calls, runs);
      case RankCall::kCollective:
        return MeetOnRing(calls, runs) && Exchange(calls, runs);
      case RankCall::kMeet:
        if (!MeetOnRing(calls, runs)) return false;
        for (size_t rank = 0; rank < calls.size(); ++rank) runs[rank]->Meet(*calls[rank]);
        return true;
      case RankCall::kSend:
      case RankCall::kReceive:
      case RankCall::kNone:
        break;
    }
    return Fail("deadlock: all ranks send, or all receive");
  }

  bool FailToMeet(const ReplayOp& first, const ReplayOp& other) {
    return Fail(absl::StrCat("deadlock: ranks wait in ", first.place, " and in ", other.place));
  }

  // --- Rings

  static std::string TextAttr(const ReplayOp& op, absl::string_view name) {
    const pb::OpDesc::Attr* attr = FindAttr(*op.desc, name);
    return attr == nullptr ? "" : attr->s();
  }

  // Rank 0 sends the id; the others wait for it at their endpoints.
  bool MakeId(const Calls& calls, const Runs& runs) {
    std::multiset<std::string> named, waiting;
    int senders = 0;
    for (const ReplayOp* call : calls) {
      if (NumberOf(*call->desc, "rank") != 0) {
        waiting.insert(TextAttr(*call, "endpoint"));
        continue;
      }
      ++senders;
      const pb::OpDesc::Attr* others = FindAttr(*call->desc, "other_endpoints");
      if (others != nullptr) named.insert(others->strings().begin(), others->strings().end());
    }
    if (senders != 1) return Fail(absl::StrCat("deadlock: ", senders, " ranks send an id"));
    if (named != waiting ||
        std::set<std::string>(named.begin(), named.end()).size() != named.size()) {
      return Fail("deadlock: an id is sent to other endpoints than where ranks wait for it");
    }
    const ValueId id = table_.Named(absl::StrCat("id ", ids_.size()));
    ids_.emplace(id, /*is_used=*/false);
    for (size_t rank = 0; rank < calls.size(); ++rank) runs[rank]->SetUp(*calls[rank], id);
    return true;
  }

  bool Join(const Calls& calls, const Runs& runs) {
    std::vector<int> numbers;
    const ValueId id = runs[0]->IdOf(*calls[0]);
    for (size_t rank = 0; rank < calls.size(); ++rank) {
      if (runs[rank]->IdOf(*calls[rank]) != id) return FailToMeet(*calls[0], *calls[rank]);
      const pb::OpDesc& op = *calls[rank]->desc;
      const bool is_trainer = FindAttr(op, "trainer_id") != nullptr;
      numbers.push_back(static_cast<int>(NumberOf(op, is_trainer ? "trainer_id" : "rank")));
      const double members = NumberOf(op, is_trainer ? "ntrainers" : "nranks");
      if (members != static_cast<double>(calls.size())) {
        return Fail(absl::StrCat("deadlock: a ring of ", members));
      }
    }
    const auto made = ids_.find(id);
    if (made == ids_.end()) return Fail("deadlock: an id that nobody made");
    if (made->second) return Fail("deadlock: an id that another ring uses");
    made->second = true;
    std::vector<int> sorted = numbers;
    std::sort(sorted.begin(), sorted.end());
    for (size_t rank = 0; rank < sorted.size(); ++rank) {
      if (sorted[rank] != static_cast<int>(rank)) return Fail("deadlock: a number is missing");
    }
    SetUpRing(calls, std::move(numbers), runs);
    return true;
  }

  // One process, for all of its devices.
  bool JoinAll(const Calls& calls, const Runs& runs) {
    std::vector<int> numbers;
    for (const ReplayOp* call : calls) {
      if (call->ring != calls[0]->ring) return FailToMeet(*calls[0], *call);
      numbers.push_back(static_cast<int>(numbers.size()));
      const pb::OpDesc::Attr* members = FindAttr(*call->desc, "nranks");
      if (members != nullptr &&
          NumberOf(*call->desc, "nranks") != static_cast<double>(memory_.size())) {
        return Fail(absl::StrCat("deadlock: a ring of ", NumberOf(*call->desc, "nranks")));
      }
    }
    SetUpRing(calls, std::move(numbers), runs);
    return true;
  }

  void SetUpRing(const Calls& calls, std::vector<int> numbers, const Runs& runs) {
    for (size_t rank = 0; rank < calls.size(); ++rank) {
      // The first one that is set up under a number stays.
      rings_[members_[rank]].emplace(calls[rank]->ring, static_cast<int>(numbers_.size()));
      runs[rank]->SetUp(*calls[rank], 0);
    }
    numbers_.push_back(std::move(numbers));
  }

  // Which of the rings that were set up; negative: none.
  int RingOf(size_t rank, const ReplayOp& call) const {
    if (!has_startup_) return call.ring;
    const std::map<int, int>& rings = rings_[members_[rank]];
    const auto found = rings.find(call.ring);
    return found == rings.end() ? -1 : found->second;
  }

  // The number of each of them in the ring.
  std::vector<int> NumbersOn(const ReplayOp& call) const {
    if (has_startup_) return numbers_[RingOf(0, call)];
    std::vector<int> numbers(members_.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }

  bool MeetOnRing(const Calls& calls, const Runs& runs) {
    for (size_t rank = 0; rank < calls.size(); ++rank) {
      const int ring = RingOf(rank, *calls[rank]);
      if (ring < 0 && has_startup_) {
        return Fail(absl::StrCat("deadlock: ring ", calls[rank]->ring, " is not set up"));
      }
      if (ring != RingOf(0, *calls[0]) || calls[rank]->group != calls[0]->group) {
        return FailToMeet(*calls[0], *calls[rank]);
      }
      if (calls[0]->call == RankCall::kMeet) {
        if (calls[rank]->type != calls[0]->type) return FailToMeet(*calls[0], *calls[rank]);
        continue;
      }
      const std::string first = runs[0]->Signature(*calls[0]);
      const std::string own = runs[rank]->Signature(*calls[rank]);
      if (first != own) return Fail(absl::StrCat("mismatch: ", first, " and ", own));
    }
    return true;
  }

  // --- Collectives

  bool Exchange(const Calls& calls, const Runs& runs) {
    const CollectiveOp& collective = *calls[0]->collective;
    const int n = static_cast<int>(calls.size());
    const int root = collective.root_attr.empty()
                         ? 0
                         : static_cast<int>(NumberOf(*calls[0]->desc, collective.root_attr));
    if (root < 0 || root >= n) return Fail(absl::StrCat("deadlock: root ", root, " is no rank"));
    const std::vector<int> numbers = NumbersOn(*calls[0]);
    std::vector<std::vector<std::vector<CellId>>> in, out;
    for (int rank = 0; rank < n; ++rank) {
      in.push_back(runs[rank]->Cells(*calls[rank], "X", true));
      out.push_back(runs[rank]->Cells(*calls[rank], "Out", false));
      runs[rank]->IssueCollective(*calls[rank]);
    }
    // Parts of a buffer, or a buffer of parts.
    const bool divides = collective.kind == CollectiveKind::kReduceScatter ||
                         collective.kind == CollectiveKind::kAllToAll;
    const bool gathers = collective.kind == CollectiveKind::kAllGather;
    const bool shares_draws = is_startup_ && (collective.kind == CollectiveKind::kBroadcast ||
                                              collective.kind == CollectiveKind::kAllToAll);
    const auto sent = [&](ValueId value) { return shares_draws ? OfAnyRank(value) : value; };
    for (size_t arg = 0; arg < in[0].size(); ++arg) {
      bool is_whole = true;
      for (int rank = 0; rank < n; ++rank) {
        if (arg >= in[rank].size() || arg >= out[rank].size() ||
            in[rank][arg].size() != in[0][arg].size() ||
            out[rank][arg].size() != out[0][arg].size()) {
          return Fail("mismatch: sizes of buffers");
        }
        is_whole = is_whole && out[rank][arg].size() == in[rank][arg].size();
        const size_t parts = divides ? out[rank][arg].size() : in[rank][arg].size();
        if (!is_whole && ((!divides && !gathers) || parts != 1)) {
          return Fail("mismatch: sizes of buffers");
        }
      }
      if (!is_whole) {
        std::vector<ValueId> values(n);
        for (int rank = 0; rank < n; ++rank) {
          std::vector<ValueId> slices;
          for (CellId cell : in[rank][arg]) slices.push_back(sent(runs[rank]->Value(cell)));
          values[numbers[rank]] = slices.size() == 1 ? slices[0] : table_.Concat(slices);
        }
        const std::vector<ValueId> results = Results(collective, values, root);
        for (int rank = 0; rank < n; ++rank) {
          const std::vector<CellId>& cells = out[rank][arg];
          for (size_t slice = 0; slice < cells.size(); ++slice) {
            ValueId value = results[numbers[rank]];
            if (gathers) {
              value =
                  table_.Named(absl::StrCat("slice ", slice, " of ", cells.size(), " of ", value));
            }
            runs[rank]->SetValue(*calls[rank], arg, cells[slice], value);
          }
        }
        continue;
      }
      for (size_t slice = 0; slice < in[0][arg].size(); ++slice) {
        std::vector<ValueId> values(n);
        for (int rank = 0; rank < n; ++rank) {
          values[numbers[rank]] = sent(runs[rank]->Value(in[rank][arg][slice]));
        }
        const std::vector<ValueId> results = Results(collective, values, root);
        for (int rank = 0; rank < n; ++rank) {
          runs[rank]->SetValue(*calls[rank], arg, out[rank][arg][slice], results[numbers[rank]]);
        }
      }
    }
    return true;
  }

  std::vector<ValueId> Results(const CollectiveOp& collective, const std::vector<ValueId>& in,
                               int root) {
    const int n = static_cast<int>(in.size());
    switch (collective.kind) {
      case CollectiveKind::kAllReduce:
        return std::vector<ValueId>(n, Reduced(collective.reduction, in));
      case CollectiveKind::kReduce: {
        std::vector<ValueId> out = in;
        out[root] = Reduced(collective.reduction, in);
        return out;
      }
      case CollectiveKind::kReduceScatter: {
        std::vector<ValueId> out;
        const ValueId whole = Reduced(collective.reduction, in);
        for (int rank = 0; rank < n; ++rank) out.push_back(table_.Part(whole, rank, n));
        return out;
      }
      case CollectiveKind::kAllGather:
        return std::vector<ValueId>(n, table_.Concat(in));
      case CollectiveKind::kBroadcast:
        return std::vector<ValueId>(n, in[root]);
      case CollectiveKind::kAllToAll: {
        std::vector<ValueId> out;
        for (int rank = 0; rank < n; ++rank) {
          std::vector<ValueId> parts;
          for (const ValueId value : in) parts.push_back(table_.Part(value, rank, n));
          out.push_back(table_.Concat(parts));
        }
        return out;
      }
      case CollectiveKind::kSend:
        break;  // no op of a program
    }
    return in;
  }

  ValueId Reduced(Reduction reduction, std::vector<ValueId> in) {
    if (reduction == Reduction::kSum || reduction == Reduction::kAvg) {
      std::vector<std::pair<ValueId, double>> terms;
      const double factor = reduction == Reduction::kSum ? 1 : 1.0 / static_cast<double>(in.size());
      for (ValueId value : in) terms.emplace_back(value, factor);
      return table_.Linear(terms);
    }
    std::sort(in.begin(), in.end());
    const bool is_same = in.front() == in.back();
    if (is_same && reduction != Reduction::kProd) return in[0];
    return table_.Named(absl::StrCat(ReductionName(reduction), " ", absl::StrJoin(in, " ")));
  }

  StreamReplay& replay_;
  ValueTable& table_;
  const int seed_;
  bool is_startup_ = false;
  const ReplayResult* const expected_;
  const ProgramDescs* last_ = nullptr;
  Programs mains_, startups_;
  std::vector<RunGraph> graphs_;  // by rank: what earlier runs left to do
  std::map<ValueId, bool> ids_;   // that were made; whether a ring uses it
  static constexpr int kOtherRanks = -2;
  std::vector<std::map<int, int>> rings_;  // by rank and ring: index into numbers_, or kOtherRanks
  std::vector<int> members_;               // the ranks that meet
  std::vector<std::vector<int>> numbers_;  // of the ranks in a ring
  bool has_startup_ = false;
  std::vector<Memory> memory_;
  ReplayResult result_;
};

// --- Comparing -----------------------------------------------------------------------------------

namespace {

constexpr int kSeeds = 4;

void AddTypes(const pb::ProgramDesc& program, std::map<std::string, std::string>* types) {
  for (const pb::BlockDesc& block : program.blocks()) {
    for (const pb::VarDesc& var : block.vars()) types->emplace(var.name(), TypeText(var));
  }
}

}  // namespace

StreamReplay::StreamReplay(absl::Span<const ProgramDescs* const> ranks,
                           std::vector<std::string> watched, const ReplayOptions& options)
    : options_(options), watched_(std::move(watched)) {
  const ProgramDescs& reference = *ranks[0];
  AddTypes(reference.main, &types_);
  AddTypes(reference.startup, &types_);
  for (const pb::VarDesc& var : reference.main.blocks(0).vars()) {
    if (var.need_check_feed()) feeds_.insert(var.name());
  }
  references_.push_back(Run(ranks, 0, nullptr));
  reference_ = references_[0];
  for (int seed = 1; num_guesses_ > 0 && seed < kSeeds; ++seed) {
    references_.push_back(Run(ranks, seed, nullptr));
  }
}

ReplayResult StreamReplay::Run(absl::Span<const ProgramDescs* const> ranks, int seed,
                               const ReplayResult* expected) {
  return ReplayRun(this, ranks, seed, expected).Run();
}

std::string StreamReplay::Difference(absl::Span<const ProgramDescs* const> ranks) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    const int64_t guesses = num_guesses_;
    const ReplayResult& expected =
        seed < static_cast<int>(references_.size()) ? references_[seed] : references_[0];
    const ReplayResult result = Run(ranks, seed, &expected);
    if (!result.unsupported.empty()) return "";
    if (result.failure != expected.failure) return result.failure;
    for (size_t step = 0; step < result.values.size(); ++step) {
      for (size_t rank = 0; rank < result.values[step].size(); ++rank) {
        for (size_t i = 0; i < watched_.size(); ++i) {
          if (result.values[step][rank][i] == expected.values[step][rank][i]) continue;
          return absl::StrCat(watched_[i], " after step ", step, " on rank ", rank);
        }
      }
    }
    if (num_guesses_ == guesses) break;
  }
  return "";
}

}  // namespace weft::testing
