// The analysis of streams against its definition, on random programs with blocks that may be
// skipped: the definition takes one path after the other and keeps, for every op, the set of all
// ops that come before it.
#include <bitset>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/analysis/streams/streams.h"
#include "proto/testing/program_builder.h"
#include "proto/text/program_text.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

constexpr int kMaxOps = 64;
constexpr int kRings = 2;  // beside the compute stream
constexpr int kVars = 3;

// --- A random program ----------------------------------------------------------------------------

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {
    builder_.Var("due").Var("scope");
    for (int i = 0; i < kVars; ++i) builder_.Var(Name(i));
    // Every ring has a stream.
    for (int ring = 0; ring < kRings; ++ring) {
      builder_.Var(absl::StrCat("idle", ring));
      AllReduce(ring, absl::StrCat("idle", ring), absl::StrCat("idle", ring));
    }
  }

  Program Generate(int max_branches) {
    branches_left_ = max_branches;
    FillBlock(0, 4 + Below(14));
    return builder_.Build();
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % n); }
  static std::string Name(int i) { return absl::StrCat("v", i); }
  std::string AnyVar() { return Name(Below(kVars)); }

  void AllReduce(int ring, const std::string& in, const std::string& out) {
    builder_.Op("c_allreduce_sum", {{"X", {in}}}, {{"Out", {out}}}).IntAttr("ring_id", ring);
  }
  void Sync(const char* type) {
    builder_.Op(type, {{"X", {"due"}}}, {{"Out", {"due"}}}).IntAttr("ring_id", Below(kRings));
  }

  void FillBlock(int block, int size) {
    for (int i = 0; i < size; ++i) {
      builder_.InBlock(block);
      switch (Below(11)) {
        case 0:
        case 1:
          builder_.Op("scale", {{"X", {AnyVar()}}}, {});
          break;
        case 2:
          builder_.Op("fill_constant", {}, {{"Out", {AnyVar()}}});
          break;
        case 3:
        case 4:
          AllReduce(Below(kRings), AnyVar(), AnyVar());
          break;
        case 5:
        case 6:
          Sync("c_wait_compute");
          break;
        case 7:
        case 8:
          Sync("c_wait_comm");
          break;
        case 9:
          Sync(Below(2) == 0 ? "c_sync_calc_stream" : "c_sync_comm_stream");
          if (Below(4) == 0) builder_.Op("c_comm_init_all", {}, {});
          break;
        case 10:
          if (branches_left_-- > 0) AddBranch(block);
          break;
      }
    }
  }

  void AddBranch(int block) {
    builder_.Op("conditional_block", {{"Cond", {"due"}}}, {{"Scope", {"scope"}}});
    const int inner = builder_.desc().blocks_size();
    builder_.BlockAttr("sub_block", inner).NewBlock(block);
    FillBlock(inner, 1 + Below(6));
  }

  std::mt19937 random_;
  ProgramBuilder builder_;
  int branches_left_ = 0;
};

// --- The definition ------------------------------------------------------------------------------

using Ops = std::bitset<kMaxOps>;

// A way through the program, with bit b of `taken` telling whether block b runs.
class Path {
 public:
  Path(const Program& program, uint32_t taken) : program_(program), taken_(taken) { RunBlock(0); }

  struct Clash {
    uint32_t first, second;  // OpIds
    std::string variable;
    friend bool operator<(const Clash& a, const Clash& b) {
      return std::tie(a.first, a.second, a.variable) < std::tie(b.first, b.second, b.variable);
    }
  };
  const std::set<Clash>& clashes() const { return clashes_; }

 private:
  struct Access {
    size_t op;
    bool writes;
  };

  static int Ring(const Op& op) { return op.FindAttr("ring_id")->i(); }

  void RunBlock(int block) {
    for (OpId id : program_.block(block).ops()) {
      const Op op = program_.op(id);
      if (op.type() == "c_wait_compute") {
        Wait(1 + Ring(op), 0);
      } else if (op.type() == "c_wait_comm") {
        Wait(0, 1 + Ring(op));
      } else if (op.type() == "c_sync_calc_stream") {
        HostWait(0);
      } else if (op.type() == "c_comm_init_all") {
        HostWait(0);
      } else if (op.type() == "c_sync_comm_stream") {
        HostWait(1 + Ring(op));
      } else if (op.type() == "conditional_block") {
        HostWait(0);
        const int inner = op.SubBlocks()[0];
        if ((taken_ >> inner & 1) != 0) RunBlock(inner);
      } else {
        Run(op, op.type() == "c_allreduce_sum" ? 1 + Ring(op) : 0);
      }
    }
  }

  void Wait(int waiting, int stream) { given_[waiting] |= given_[stream] | host_; }
  void HostWait(int stream) { host_ |= given_[stream]; }

  void Run(const Op& op, int stream) {
    const size_t i = op.id().value();
    ASSERT_LT(i, kMaxOps);
    given_[stream] |= host_;
    const Ops before = given_[stream];
    given_[stream].set(i);
    for (Symbol name : op.input_args()) Touch(i, before, name, false);
    for (Symbol name : op.output_args()) Touch(i, before, name, true);
  }

  void Touch(size_t op, const Ops& before, Symbol name, bool writes) {
    const std::string variable(program_.name(name));
    std::vector<Access>& accesses = accesses_[variable];
    for (const Access& access : accesses) {
      if (access.op == op || before.test(access.op) || (!writes && !access.writes)) continue;
      clashes_.insert({static_cast<uint32_t>(access.op), static_cast<uint32_t>(op), variable});
    }
    accesses.push_back({op, writes});
  }

  const Program& program_;
  const uint32_t taken_;
  Ops given_[1 + kRings];  // to the stream, and what comes before that
  Ops host_;
  std::map<std::string, std::vector<Access>> accesses_;
  std::set<Clash> clashes_;
};

std::set<Path::Clash> ClashesOnAnyPath(const Program& program) {
  std::set<Path::Clash> clashes;
  const uint32_t num_paths = 1u << program.num_blocks();  // the root block always runs
  for (uint32_t taken = 1; taken < num_paths; taken += 2) {
    const Path path(program, taken);
    clashes.insert(path.clashes().begin(), path.clashes().end());
  }
  return clashes;
}

std::set<std::string> Variables(const std::set<Path::Clash>& clashes) {
  std::set<std::string> variables;
  for (const Path::Clash& clash : clashes) variables.insert(clash.variable);
  return variables;
}

// --- The tests -----------------------------------------------------------------------------------

std::set<Path::Clash> Reported(const Program& program) {
  std::set<Path::Clash> reported;
  for (const Race& race : AnalyzeStreams(program).races) {
    reported.insert(
        {race.first.value(), race.second.value(), std::string(program.var(race.variable).name())});
  }
  return reported;
}

constexpr int kPrograms = 4000;

// Every variable with a race is reported, and no report is wrong.
TEST(RandomStreams, WithoutBranchesReportsAreExact) {
  int with_races = 0;
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    const Program program = Generator(seed).Generate(/*max_branches=*/0);
    const std::set<Path::Clash> expected = ClashesOnAnyPath(program);
    const std::set<Path::Clash> reported = Reported(program);
    ASSERT_EQ(Variables(reported), Variables(expected)) << ProgramText(program);
    for (const Path::Clash& clash : reported) {
      ASSERT_EQ(expected.count(clash), 1u) << ProgramText(program);
    }
    if (!expected.empty()) ++with_races;
  }
  EXPECT_GT(with_races, kPrograms / 10);
  EXPECT_LT(with_races, kPrograms * 95 / 100);
}

// The analysis knows no combinations of branches: "whenever this one ran, that one did not". Where
// nobody waits for what an earlier branch did, it may therefore report what cannot happen.
TEST(RandomStreams, WithBranchesEveryRaceIsReportedAndFewThatAreNone) {
  int clean = 0, false_alarms = 0;
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    const Program program = Generator(seed).Generate(/*max_branches=*/4);
    const std::set<Path::Clash> expected = ClashesOnAnyPath(program);
    const std::set<std::string> reported = Variables(Reported(program));
    for (const std::string& variable : Variables(expected)) {
      ASSERT_EQ(reported.count(variable), 1u) << variable << ProgramText(program);
    }
    if (!expected.empty()) continue;
    ++clean;
    if (!reported.empty()) ++false_alarms;
  }
  EXPECT_GT(clean, kPrograms / 10);
  EXPECT_LE(false_alarms, clean / 100);
}

// Random programs may have races, which the verifier would refuse.
absl::Status EliminateSyncs(Program* program) {
  TranspileOptions options;
  options.passes = "sync-elimination";
  options.verification = Verification::kNever;
  ProgramPair programs{program, nullptr};
  return Transpile(options, programs).status();
}

TEST(RandomStreams, RemovingWaitsThatAreNotNeededMakesNoRace) {
  int removed = 0;
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    const Program before = Generator(seed).Generate(/*max_branches=*/static_cast<int>(seed % 5));
    Program after = before;
    WEFT_ASSERT_OK(EliminateSyncs(&after));
    if (after.num_ops() == before.num_ops()) continue;
    removed += static_cast<int>(before.num_ops() - after.num_ops());
    ASSERT_THAT(ClashesOnAnyPath(after), IsEmpty()) << ProgramText(before) << ProgramText(after);
    const int revision = after.revision();
    WEFT_ASSERT_OK(EliminateSyncs(&after));
    ASSERT_EQ(after.revision(), revision) << ProgramText(before) << ProgramText(after);
  }
  EXPECT_GT(removed, 1000);
}

}  // namespace
}  // namespace weft::testing
