// Parameters of groups of ranks: the executor trains them on 4 ranks as a computation on paper
// does.
#include <array>
#include <map>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/files/checkpoint.h"
#include "executor/run/runner.h"
#include "ops/kernel.h"
#include "tests/support/group_programs.h"

namespace weft::testing {
namespace {

constexpr int kRanks = 4, kRows = 3, kSteps = 5;
const std::vector<std::string> kParams = {"w", "v", "u"};

using Vector = std::array<double, 2>;
// By step, parameter, rank.
using Trained = std::vector<std::map<std::string, std::vector<Vector>>>;

// What a row of the batch of a step holds; all are multiples of 1/16, and no two rows are equal.
double Feed(int step, int row, int column) {
  return ((step * 41 + row * 23 + column * 13 + row * row * 7) % 33 - 16) / 16.0;
}

// The columns of xw, xv and xu, and then t.
int FirstColumn(const std::string& data) { return data == "w" ? 0 : data == "v" ? 2 : 4; }

std::vector<int> RanksOf(const Groups& groups, const std::string& param) {
  const auto group = groups.find(param);
  return group == groups.end() ? std::vector<int>{0, 1, 2, 3} : group->second;
}

// By parameter and rank: every rank begins with a value of its own, times `drift`.
std::map<std::string, std::vector<Vector>> Begin(double drift) {
  std::map<std::string, std::vector<Vector>> values;
  const std::map<std::string, double> starts = {{"w", 0.5}, {"v", -0.25}, {"u", 0.125}};
  for (const auto& [param, start] : starts) {
    for (int rank = 0; rank < kRanks; ++rank) {
      values[param].push_back({start + rank * drift, start + rank * drift / 2});
    }
  }
  return values;
}

// Every rank computes its gradients; the ranks of a group take the mean of theirs. In every
// `period`-th step, they take the parameters of the first before they update them; 0: never.
Trained OnPaper(const Groups& groups, double drift, int period) {
  std::map<std::string, std::vector<Vector>> values = Begin(drift), velocities;
  for (const std::string& param : kParams) velocities[param].assign(kRanks, {0, 0});
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    std::map<std::string, std::vector<Vector>> gradients;
    for (const std::string& param : kParams) gradients[param].assign(kRanks, {0, 0});
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int row = rank * kRows; row < (rank + 1) * kRows; ++row) {
        double error = -Feed(step, row, 6);
        for (const std::string& param : kParams) {
          for (int k = 0; k < 2; ++k) {
            error += Feed(step, row, FirstColumn(param) + k) * values[param][rank][k];
          }
        }
        for (const std::string& param : kParams) {
          for (int k = 0; k < 2; ++k) {
            gradients[param][rank][k] +=
                2 * error * Feed(step, row, FirstColumn(param) + k) / kRows;
          }
        }
      }
    }
    for (const std::string& param : kParams) {
      const std::vector<int> ranks = RanksOf(groups, param);
      Vector mean = {0, 0};
      for (int rank : ranks) {
        for (int k = 0; k < 2; ++k) mean[k] += gradients[param][rank][k] / ranks.size();
      }
      for (int rank : ranks) gradients[param][rank] = mean;
      if (period > 0 && (step + 1) % period == 0) {
        for (int rank : ranks) values[param][rank] = values[param][ranks[0]];
      }
      for (int rank = 0; rank < kRanks; ++rank) {
        for (int k = 0; k < 2; ++k) {
          double& velocity = velocities[param][rank][k];
          velocity = 0.5 * velocity + gradients[param][rank][k];
          values[param][rank][k] -= 0.1 * velocity;
        }
      }
    }
    trained.push_back(values);
  }
  return trained;
}

FeedSource Feeds() {
  FeedSource feeds;
  feeds.num_steps = kSteps;
  feeds.variables = {"xw", "xv", "xu", "t"};
  feeds.read = [](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    std::vector<Tensor> batch;
    for (const char* param : {"w", "v", "u", "t"}) {
      const bool is_target = *param == 't';
      const int first = is_target ? 6 : FirstColumn(param), columns = is_target ? 1 : 2;
      Tensor& tensor = batch.emplace_back();
      tensor.Resize(DType::kFloat32, {kRanks * kRows, columns});
      float* const data = tensor.data<float>();
      for (int row = 0; row < kRanks * kRows; ++row) {
        for (int k = 0; k < columns; ++k) {
          data[row * columns + k] =
              static_cast<float>(Feed(static_cast<int>(step), row, first + k));
        }
      }
    }
    return batch;
  };
  return feeds;
}

RunOptions Options() {
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = kRanks;
  options.steps = kSteps;
  options.fetch = kParams;
  return options;
}

RunInputs InputsOf(const GroupPrograms& programs, Trained* trained) {
  trained->resize(kSteps);
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.feeds = Feeds();
  inputs.on_result = [trained](const StepResult& result) {
    for (size_t i = 0; i < kParams.size(); ++i) {
      const float* const data = result.values[i].data<float>();
      (*trained)[result.step][kParams[i]].push_back({data[0], data[1]});
    }
    return absl::OkStatus();
  };
  return inputs;
}

void ExpectNear(const Trained& found, const Trained& expected) {
  for (int step = 0; step < kSteps; ++step) {
    for (const std::string& param : kParams) {
      for (int rank = 0; rank < kRanks; ++rank) {
        for (int k = 0; k < 2; ++k) {
          EXPECT_NEAR(found[step].at(param)[rank][k], expected[step].at(param)[rank][k], 1e-5)
              << param << " on rank " << rank << " in step " << step;
        }
      }
    }
  }
}

class TrainGroups : public ::testing::TestWithParam<Groups> {};

TEST_P(TrainGroups, EveryRankTrainsAsOnPaper) {
  for (const char* buckets : {"bytes", "none"}) {
    SCOPED_TRACE(buckets);
    TranspileOptions transpile = OnFourRanks(GetParam());
    transpile.mode_flags["buckets"] = buckets;
    WEFT_ASSERT_OK_AND_ASSIGN(const GroupPrograms programs, WithGroups(transpile));
    RunOptions options = Options();
    std::vector<std::string> warnings;
    options.warn = [&](const std::string& warning) { warnings.push_back(warning); };
    Trained found;
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result,
                              RunProgram(InputsOf(programs, &found), options));
    EXPECT_THAT(warnings, IsEmpty());
    ExpectNear(found, OnPaper(GetParam(), /*drift=*/0, /*period=*/0));
    for (int step = 0; step < kSteps; ++step) {
      for (const auto& [param, ranks] : GetParam()) {
        for (int rank = 0; rank < kRanks; ++rank) {
          const Vector& of_first = found[step][param][ranks.front()];
          EXPECT_EQ(found[step][param][rank] == of_first, absl::c_linear_search(ranks, rank))
              << param << " " << rank;
        }
      }
    }
    // What is saved is that of the group.
    for (const std::string& param : kParams) {
      const int rank = RanksOf(GetParam(), param).front();
      const float* const saved = result.persistables.at(param).data<float>();
      EXPECT_EQ((Vector{saved[0], saved[1]}), found[kSteps - 1][param][rank]) << param;
    }
  }
}

// Ranks begin with parameters of their own, as if they had drifted apart.
TEST_P(TrainGroups, BroadcastsAreWithinTheGroups) {
  for (const int period : {0, 1, 2}) {
    SCOPED_TRACE(period);
    TranspileOptions transpile = OnFourRanks(GetParam());
    transpile.mode = "megengine";
    transpile.mode_flags["reduce_method"] = "mean";
    transpile.mode_flags["bcast_period"] = absl::StrCat(period);
    WEFT_ASSERT_OK_AND_ASSIGN(const GroupPrograms programs, WithGroups(transpile));
    Trained found;
    RunInputs inputs = InputsOf(programs, &found);
    RunOptions options = Options();
    options.steps = 0;
    Checkpoint begin;
    inputs.on_checkpoint = [&begin](const Checkpoint& checkpoint) {
      begin = checkpoint;
      return absl::OkStatus();
    };
    WEFT_ASSERT_OK(RunProgram(inputs, options).status());
    inputs.on_checkpoint = nullptr;
    const double drift = 0.25;
    begin.own.resize(kRanks);
    for (const auto& [param, values] : Begin(drift)) {
      begin.shared.erase(param);
      for (int rank = 0; rank < kRanks; ++rank) {
        Tensor& tensor = begin.own[rank][param];
        tensor.Resize(DType::kFloat32, {2, 1});
        for (int k = 0; k < 2; ++k) tensor.data<float>()[k] = static_cast<float>(values[rank][k]);
      }
    }
    options.steps = begin.end_step = kSteps;
    inputs.resume = &begin;
    WEFT_ASSERT_OK(RunProgram(inputs, options).status());
    ExpectNear(found, OnPaper(GetParam(), drift, period));
  }
}

INSTANTIATE_TEST_SUITE_P(All, TrainGroups,
                         ::testing::Values(Groups{{"w", {0, 1}}, {"v", {2, 3}}},
                                           Groups{{"w", {1, 3}}, {"v", {1, 3}}},
                                           Groups{{"w", {2}}, {"v", {0, 1, 3}}},
                                           Groups{{"w", {0, 1, 2}}, {"u", {1, 2, 3}}},
                                           Groups{{"w", {0, 1}}, {"v", {2, 3}}, {"u", {0, 2}}}));

}  // namespace
}  // namespace weft::testing
