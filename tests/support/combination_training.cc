#include "tests/support/combination_training.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "executor/run/runner.h"
#include "gtest/gtest.h"
#include "ops/float16.h"
#include "ops/kernel.h"
#include "ops/tensor.h"

namespace weft::testing {
namespace {

Numbers NumbersOf(const Tensor& tensor) {
  Numbers numbers;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    numbers.push_back(tensor.dtype() == DType::kFloat16
                          ? static_cast<double>(static_cast<float>(tensor.data<Float16>()[i]))
                          : static_cast<double>(tensor.data<float>()[i]));
  }
  return numbers;
}

// The first `parts`-th of the batch in step 0, ..., of a batch that lasts `parts` steps.
FeedSource PartsOf(const FeedSource& whole, int parts, int64_t (*batch_of)(int64_t, int),
                   int which = -1) {
  return {whole.variables, [=](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
            WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> batch,
                                  whole.read(batch_of(step, parts)));
            std::vector<Tensor> rows;
            for (const Tensor& tensor : batch) {
              Dims dims(tensor.dims().begin(), tensor.dims().end());
              dims[0] /= parts;
              Tensor part;
              part.Resize(tensor.dtype(), dims);
              const size_t bytes = tensor.bytes() / parts;
              const int64_t i = which >= 0 ? which : step % parts;
              std::memcpy(part.raw(), static_cast<const char*>(tensor.raw()) + i * bytes, bytes);
              rows.push_back(std::move(part));
            }
            return rows;
          }};
}
FeedSource OfRank(const FeedSource& all, int rank) {
  return PartsOf(
      all, kPairRanks, [](int64_t step, int) { return step; }, rank);
}

using State = std::map<std::string, Tensor>;

void AverageParameters(const std::vector<std::string>& parameters, std::vector<State>* states) {
  for (const std::string& name : parameters) {
    std::vector<float*> values;
    for (State& state : *states) values.push_back(state.at(name).data<float>());
    for (int64_t i = 0; i < states->front().at(name).size(); ++i) {
      float sum = 0;
      for (const float* of_rank : values) sum += of_rank[i];
      for (float* of_rank : values) of_rank[i] = sum / static_cast<float>(values.size());
    }
  }
}

// Each rank is a run of its own on one device; after every step, the parameters are averaged here.
absl::StatusOr<Trained> TrainApart(const TrainingPrograms& programs, const FeedSource& feeds,
                                   int64_t steps) {
  Trained trained(steps);
  std::vector<State> states(kPairRanks);
  for (int64_t step = 0; step < steps; ++step) {
    for (int rank = 0; rank < kPairRanks; ++rank) {
      RunOptions options;
      options.kernels = &CpuKernels();
      options.begin_step = step;
      options.steps = 1;
      options.fetch = programs.parameters;
      RunInputs inputs;
      inputs.main = &programs.main;
      inputs.startup = &programs.startup;
      if (step > 0) inputs.params = &states[rank];
      inputs.feeds = OfRank(feeds, rank);
      WEFT_ASSIGN_OR_RETURN(RunResult result, RunProgram(inputs, options));
      states[rank] = std::move(result.persistables);
    }
    AverageParameters(programs.parameters, &states);
    trained[step].resize(1);
    for (const std::string& name : programs.parameters) {
      trained[step][0].push_back(NumbersOf(states[0].at(name)));
    }
  }
  return trained;
}

}  // namespace

FeedSource InTurn(const FeedSource& whole, int parts) {
  return PartsOf(whole, parts, [](int64_t step, int n) { return step / n; });
}

absl::StatusOr<Trained> Train(const TrainingPrograms& programs, const FeedSource& feeds,
                              int64_t steps, int ranks) {
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = ranks;
  options.steps = steps;
  options.fetch = programs.parameters;
  options.timeout_s = 60;
  Trained trained(steps, std::vector<std::vector<Numbers>>(ranks));
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.feeds = feeds;
  inputs.on_result = [&trained](const StepResult& result) {
    for (const Tensor& value : result.values) {
      trained[result.step][result.rank].push_back(NumbersOf(value));
    }
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(RunProgram(inputs, options).status());
  return trained;
}

absl::StatusOr<Trained> TrainWithServer(const TrainingPrograms& programs, const Program& server,
                                        const FeedSource& feeds, int64_t steps, int ranks) {
  // As from a file, without what the passes have erased.
  WEFT_ASSIGN_OR_RETURN(const Program main, Program::Parse(programs.main.Serialize()));
  Trained trained;
  for (int64_t step = 0; step < steps; ++step) {
    RunOptions options;
    options.kernels = &CpuKernels();
    options.nranks = ranks;
    options.num_servers = 1;
    options.steps = step + 1;
    options.timeout_s = 60;
    RunInputs inputs;
    inputs.main = &main;
    inputs.startup = &programs.startup;
    inputs.server = &server;
    inputs.feeds = feeds;
    WEFT_ASSIGN_OR_RETURN(const RunResult result, RunProgram(inputs, options));
    std::vector<Numbers> values;
    for (const std::string& name : programs.parameters) {
      values.push_back(NumbersOf(result.persistables.at(name)));
    }
    trained.emplace_back(ranks, values);
  }
  return trained;
}

absl::StatusOr<Updates> Reference(const FeaturePair& pair) {
  TrainingPrograms programs = ProgramsOf(pair);
  std::vector<std::string> changes = ChangesOf(pair);
  const int parts = pair.Has(Feature::kAccumulation) && pair.Averages() ? kPairParts : 1;
  // One device takes the whole batch at once.
  if (pair.Has(Feature::kAccumulation) && !pair.Averages()) changes.pop_back();
  if (!changes.empty()) WEFT_RETURN_IF_ERROR(Rewrite(absl::StrJoin(changes, ","), &programs));
  const FeedSource feeds = InTurn(programs.feeds, parts);
  const int64_t steps = int64_t{kPairUpdates} * parts;
  WEFT_ASSIGN_OR_RETURN(const Trained trained, pair.Averages() ? TrainApart(programs, feeds, steps)
                                                               : Train(programs, feeds, steps, 1));
  Updates after;
  for (int i = 0; i < kPairUpdates; ++i) after.push_back(trained[(i + 1) * parts - 1][0]);
  return after;
}

double ToleranceOf(const FeaturePair& pair) {
  if (pair.Has(Feature::kAmp)) return 5e-2;
  return pair.Has(Feature::kHalf) ? 3e-3 : 1e-4;
}

double Difference(const Updates& found, const Updates& expected) {
  double largest = 0;
  for (size_t i = 0; i < expected[0].size(); ++i) {
    double change = 0, difference = 0;
    for (size_t update = 0; update < expected.size(); ++update) {
      for (size_t n = 0; n < expected[0][i].size(); ++n) {
        const double value = expected[update][i][n];
        change = std::max(change, std::abs(value - expected[0][i][n]));
        difference = std::max(difference, std::abs(found[update][i][n] - value));
      }
    }
    EXPECT_GT(change, 0) << "parameter " << i << " is not trained";
    largest = std::max(largest, difference / change);
  }
  return largest;
}

Updates UpdatesOf(const Trained& trained, int parts) {
  Updates updates;
  for (int update = 0; update < kPairUpdates; ++update) {
    const std::vector<std::vector<Numbers>>& ranks = trained[(update + 1) * parts - 1];
    for (const std::vector<Numbers>& rank : ranks) EXPECT_EQ(rank, ranks[0]) << update;
    updates.push_back(ranks[0]);
  }
  return updates;
}

}  // namespace weft::testing
