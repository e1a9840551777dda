#include "tests/replay/stream_replay.h"

#include <algorithm>
#include <deque>
#include <memory>

#include "absl/strings/match.h"
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
  // Stops behind the first step that leaves something else than `expected`, which may be null.
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
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      rings_.push_back(startups_[rank]->rings_set_up);
      rings_.back().insert(mains_[rank]->rings_set_up.begin(), mains_[rank]->rings_set_up.end());
    }
    has_startup_ = startups_[0]->desc->blocks_size() > 0;
  }

  ReplayResult Run() {
    if (!RunAll(startups_, /*step=*/0, /*is_startup=*/true)) return std::move(result_);
    ShareDraws();
    for (int step = 0; step < replay_.options_.steps; ++step) {
      for (size_t rank = 0; rank < memory_.size(); ++rank) ForgetStep(rank);
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
  void ForgetStep(size_t rank) {
    Memory next;
    for (const pb::VarDesc& var : mains_[rank]->desc->blocks(0).vars()) {
      if (!var.persistable()) continue;
      const auto found = memory_[rank].of_var.find({0, var.name()});
      if (found == memory_[rank].of_var.end()) continue;
      std::vector<CellId>& cells = next.of_var[found->first];
      for (CellId cell : found->second) {
        cells.push_back(static_cast<CellId>(next.cells.size()));
        next.cells.push_back(memory_[rank].cells[cell]);
      }
    }
    memory_[rank] = std::move(next);
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
      if (!is_same || !IsDraw(value)) continue;
      for (Memory& memory : memory_) {
        memory.cells[memory.of_var.at(key)[0]] =
            table_.Named(absl::StrCat("the draw of ", key.second));
      }
    }
  }

  bool IsDraw(ValueId value) const {
    const std::string& text = table_.TextOf(value);
    const size_t of = text.rfind(" of ");
    uint32_t whole = 0;
    return of != std::string::npos && absl::SimpleAtoi(text.substr(of + 4), &whole) &&
           absl::StrContains(table_.TextOf(whole), "\ndraw of ");
  }

  bool RunAll(const Programs& programs, int step, bool is_startup) {
    const bool once = is_startup && programs[0]->is_one_process;
    std::deque<RankRun> runs;
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      RankSetting setting;
      setting.rank = once ? 0 : static_cast<int>(rank);
      setting.step = step;
      setting.seed = seed_;
      setting.has_startup = has_startup_;
      setting.rings = &rings_[rank];
      setting.types = &replay_.types_;
      runs.emplace_back(*programs[rank], setting, &memory_[rank], &table_);
    }
    while (true) {
      std::vector<const ReplayOp*> calls;
      for (RankRun& run : runs) {
        calls.push_back(run.RunToCollective());
        if (!run.unsupported().empty()) {
          result_.unsupported = run.unsupported();
          return false;
        }
        if (!run.failure().empty()) return Fail(run.failure());
      }
      if (std::all_of(calls.begin(), calls.end(), [](const ReplayOp* op) { return !op; })) break;
      if (!Meet(programs, calls, &runs)) return false;
    }
    for (RankRun& run : runs) {
      replay_.num_guesses_ += run.num_guesses();
      const std::string race = run.FindRace();
      if (!race.empty()) return Fail(absl::StrCat("race: ", race));
    }
    return true;
  }

  bool Fail(std::string failure) {
    result_.failure = std::move(failure);
    return false;
  }

  bool Meet(const Programs& programs, const std::vector<const ReplayOp*>& calls,
            std::deque<RankRun>* runs) {
    for (size_t rank = 0; rank < calls.size(); ++rank) {
      if (calls[rank] == nullptr) {
        return Fail(
            absl::StrCat("deadlock: rank ", rank, " never makes the call that others wait in"));
      }
      if (has_startup_ && rings_[rank].count(calls[rank]->ring) == 0) {
        return Fail(absl::StrCat("deadlock: ring ", calls[rank]->ring, " is not set up"));
      }
      const std::string first = (*runs)[0].Signature(*calls[0]);
      const std::string own = (*runs)[rank].Signature(*calls[rank]);
      if (calls[rank]->ring != calls[0]->ring) {
        return Fail(absl::StrCat("deadlock: ranks wait in ", first, " and in ", own));
      }
      if (first != own) return Fail(absl::StrCat("mismatch: ", first, " and ", own));
    }
    return Exchange(calls, runs);
  }

  bool Exchange(const std::vector<const ReplayOp*>& calls, std::deque<RankRun>* runs) {
    const CollectiveOp& collective = *calls[0]->collective;
    const int n = static_cast<int>(calls.size());
    const int root = collective.root_attr.empty()
                         ? 0
                         : static_cast<int>(NumberOf(*calls[0]->desc, collective.root_attr));
    if (root < 0 || root >= n) return Fail(absl::StrCat("deadlock: root ", root, " is no rank"));
    std::vector<std::vector<std::vector<CellId>>> in, out;
    for (int rank = 0; rank < n; ++rank) {
      in.push_back((*runs)[rank].Cells(*calls[rank], "X", true));
      out.push_back((*runs)[rank].Cells(*calls[rank], "Out", false));
      (*runs)[rank].IssueCollective(*calls[rank]);
    }
    for (size_t arg = 0; arg < in[0].size(); ++arg) {
      for (int rank = 0; rank < n; ++rank) {
        if (arg >= in[rank].size() || arg >= out[rank].size() ||
            in[rank][arg].size() != in[0][arg].size() ||
            out[rank][arg].size() != in[0][arg].size()) {
          return Fail("mismatch: sizes of buffers");
        }
      }
      for (size_t slice = 0; slice < in[0][arg].size(); ++slice) {
        std::vector<ValueId> values;
        for (int rank = 0; rank < n; ++rank) {
          values.push_back((*runs)[rank].Value(in[rank][arg][slice]));
        }
        const std::vector<ValueId> results = Results(collective, values, root);
        for (int rank = 0; rank < n; ++rank) {
          (*runs)[rank].SetValue(*calls[rank], arg, out[rank][arg][slice], results[rank]);
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
  const ReplayResult* const expected_;
  const ProgramDescs* last_ = nullptr;
  Programs mains_, startups_;
  std::vector<std::set<int>> rings_;  // by rank: those that are set up
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

StreamReplay::StreamReplay(const ProgramDescs& reference, std::vector<std::string> watched,
                           const ReplayOptions& options)
    : options_(options), watched_(std::move(watched)) {
  AddTypes(reference.main, &types_);
  AddTypes(reference.startup, &types_);
  const std::vector<const ProgramDescs*> ranks(options.nranks, &reference);
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
