// The bytes that `weft stats` predicts from the program alone are those that ranks pass to
// collectives.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <numeric>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "executor/communicators/communicator_decorators.h"
#include "executor/communicators/local_communicator.h"
#include "executor/run/feed_sources.h"
#include "executor/run/runner.h"
#include "ops/analysis/core/communication.h"
#include "ops/kernel.h"
#include "proto/all_ops.h"
#include "proto/formats/program_file.h"
#include "tests/support/rewrite.h"
#include "tools/inspect/program_stats.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

struct Job {
  std::string model;
  std::string mode;
  std::map<std::string, std::string> flags;
  int ranks = 2;
  // How often collectives on conditions of unknown period run in a period of the others.
  int64_t conditional_runs = 0;
};

void PrintTo(const Job& job, std::ostream* out) { *out << job.model << " " << job.mode; }

std::string NameOf(const ::testing::TestParamInfo<Job>& info) {
  std::string name = info.param.model + "_" + info.param.mode;
  for (const auto& [flag, value] : info.param.flags) name += "_" + flag + "_" + value;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

class CommunicatedBytes : public ::testing::TestWithParam<Job> {
 protected:
  // Of rank 0 in `steps` steps and the startup program, by ring.
  std::map<int, TrafficLog::Traffic> Traffic(const Program& main, const Program& startup,
                                             int64_t steps) const {
    TrafficLog log;
    RunInputs inputs;
    inputs.main = &main;
    inputs.startup = &startup;
    auto feeds = FeedsFromFile(Folder() + "/feeds.npz");
    EXPECT_THAT(feeds, IsOk());
    inputs.feeds = *std::move(feeds);
    RunOptions options;
    options.kernels = &CpuKernels();
    options.nranks = GetParam().ranks;
    options.steps = steps;
    options.new_group = [&log](GroupOptions group) {
      return NewRecordingGroup(NewLocalGroup(std::move(group)), &log);
    };
    EXPECT_THAT(RunProgram(inputs, options), IsOk());
    return log.OfRank(0);
  }

  std::string Folder() const { return "tests/data/" + GetParam().model; }
};

TEST_P(CommunicatedBytes, AreThoseOfTheStatistics) {
  auto main = ReadProgram(Folder() + "/main.pb");
  auto startup = ReadProgram(Folder() + "/startup.pb");
  WEFT_ASSERT_OK(main.status());
  WEFT_ASSERT_OK(startup.status());
  WEFT_ASSERT_OK(
      Rewrite(InMode(GetParam().mode, GetParam().ranks, GetParam().flags), &*main, &*startup)
          .status());

  const ProgramStats stats = ComputeProgramStats(*main);
  // Of so many steps, in which all collectives run.
  int64_t steps = 1;
  for (const auto& [key, totals] : stats.collectives) {
    steps = std::lcm(steps, std::max<int64_t>(key.period, 1));
  }
  std::map<int, int64_t> predicted, found;
  for (const auto& [key, totals] : stats.collectives) {
    EXPECT_EQ(totals.unknown, 0);
    const int64_t runs = key.period == 0 ? GetParam().conditional_runs : steps / key.period;
    if (runs > 0) predicted[key.ring] += totals.bytes * runs;
  }
  // Those of groups of other ranks.
  for (const Op& op : AllOps(*main)) {
    WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<int> group, GroupRanksOf(op));
    if (!group.empty() && group[0] != 0) predicted.erase(static_cast<int>(*op.IntAttr("ring_id")));
  }
  const auto of_one = Traffic(*main, *startup, 1);
  for (const auto& [ring, traffic] : Traffic(*main, *startup, 1 + steps)) {
    const auto before = of_one.find(ring);
    const int64_t more = traffic.bytes - (before == of_one.end() ? 0 : before->second.bytes);
    if (more != 0) found[ring] = more;  // else the startup program alone uses the ring
  }
  EXPECT_FALSE(predicted.empty());
  EXPECT_EQ(found, predicted);
}

using BytesOfAThreshold = CommunicatedBytes;

// How many elements pass is known at run time only. With threshold 0, all but zeros do.
TEST_P(BytesOfAThreshold, AreAtMostWhatTheStatisticsSay) {
  auto main = ReadProgram(Folder() + "/main.pb");
  auto startup = ReadProgram(Folder() + "/startup.pb");
  WEFT_ASSERT_OK(main.status());
  WEFT_ASSERT_OK(startup.status());
  WEFT_ASSERT_OK(
      Rewrite(InMode(GetParam().mode, GetParam().ranks, GetParam().flags), &*main, &*startup)
          .status());

  const ProgramStats stats = ComputeProgramStats(*main);
  int64_t most = 0, bounded = 0;
  for (const auto& [key, totals] : stats.collectives) {
    EXPECT_EQ(totals.unknown, totals.bounded);
    most += totals.bytes + totals.bound_bytes;
    bounded += totals.bounded;
  }
  EXPECT_GT(bounded, 0);
  int64_t found = 0;
  const auto of_one = Traffic(*main, *startup, 1);
  for (const auto& [ring, traffic] : Traffic(*main, *startup, 2)) {
    found += traffic.bytes - of_one.at(ring).bytes;
  }
  EXPECT_LE(found, most);
  if (GetParam().flags.at("spars") == "0") {
    EXPECT_GT(found, most / 3);  // many are zeros
  }
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, BytesOfAThreshold,
    ::testing::Values(
        Job{"mlp_adam", "singa_sparse_threshold", {{"spars", "0"}}},
        Job{"mlp_adam", "singa_sparse_threshold", {{"spars", "0.01"}}},
        Job{"mlp_adam", "singa_sparse_threshold", {{"spars", "0"}, {"threshold", "0"}}}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Jobs, CommunicatedBytes,
    ::testing::Values(
        Job{"fit_a_line", "grad_allreduce", {}},
        Job{"mlp_adam", "grad_allreduce", {{"nrings", "2"}}},
        Job{"mlp_adam", "grad_allreduce", {{"buckets", "none"}, {"nrings", "2"}}},
        Job{"mlp_adam", "grad_allreduce", {{"buckets", "optimal"}}},
        Job{"mlp_adam", "grad_allreduce", {{"buckets", "megengine_pass"}}},
        Job{"mlp_adam", "multi_thread", {{"trans_mode", "all_gather"}}},
        Job{"mlp_adam", "local_sgd", {}}, Job{"mlp_adam", "local_sgd", {{"k_steps", "3"}}},
        Job{"mlp_adam", "local_sgd", {{"group_size", "2"}, {"rounds", "3"}}, 4, 2},
        Job{"mlp_adam", "local_sgd", {{"k_steps", "2"}, {"outer", "nesterov"}}},
        Job{"mlp_adam", "power_sgd", {{"start_step", "2"}}},
        Job{"mlp_adam", "power_sgd", {{"rank_approximation", "1"}, {"start_step", "2"}}},
        Job{"mlp_adam", "zero", {}}, Job{"mlp_adam", "zero", {{"stage", "3"}}},
        Job{"mlp_adam", "singa_partial", {{"threshold", "0"}}},
        Job{"mlp_adam", "mindspore_reducer", {}},
        Job{"mlp_adam", "singa_plain", {{"lowering", "group"}}}, Job{"mlp_adam", "singa_half", {}},
        Job{"mlp_adam", "megengine", {{"reduce_method", "mean"}}},
        Job{"mlp_adam", "megengine", {{"reduce_method", "sum"}, {"bcast_period", "2"}}},
        Job{"mlp_adam", "singa_sparse_topk", {{"nrings", "2"}}},
        Job{"mlp_adam", "singa_sparse_topk", {{"spars", "0.6"}, {"fallback", "true"}}}),
    NameOf);

}  // namespace
}  // namespace weft::testing
