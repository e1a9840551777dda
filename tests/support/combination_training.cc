#include "tests/support/combination_training.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "executor/run/runner.h"
#include "gtest/gtest.h"
#include "ops/kernel.h"
#include "ops/tensor.h"
#include "tests/support/rounding.h"
#include "tests/support/stream_sanitizer.h"

namespace weft::testing {
namespace {

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
FeedSource OfRank(const FeedSource& all, int rank, int ranks) {
  return PartsOf(
      all, ranks, [](int64_t step, int) { return step; }, rank);
}

using State = std::map<std::string, Tensor>;

// Of ranks first .. first + n - 1.
void Average(const std::string& name, int first, int n, std::vector<State>* states) {
  for (int64_t i = 0; i < states->front().at(name).size(); ++i) {
    float sum = 0;
    for (int rank = first; rank < first + n; ++rank) {
      sum += (*states)[rank].at(name).data<float>()[i];
    }
    for (int rank = first; rank < first + n; ++rank) {
      (*states)[rank].at(name).data<float>()[i] = sum / static_cast<float>(n);
    }
  }
}

// Moves a parameter, which is the mean over the ranks, by the outer optimizer.
void MoveByOuter(Tensor* last, Tensor* velocity, const std::string& name,
                 std::vector<State>* states) {
  for (int64_t i = 0; i < last->size(); ++i) {
    double x = last->data<float>()[i], v = velocity->data<float>()[i];
    const double d = x - states->front().at(name).data<float>()[i];
    v = kOuterMomentum * v + d;
    x -= kOuterLr * (d + kOuterMomentum * v);
    last->data<float>()[i] = static_cast<float>(x);
    velocity->data<float>()[i] = static_cast<float>(v);
    for (State& state : *states) state.at(name).data<float>()[i] = static_cast<float>(x);
  }
}

// What the startup program leaves.
absl::StatusOr<State> StateAtStart(const TrainingPrograms& programs, const KernelTable* kernels) {
  RunOptions options;
  options.kernels = kernels;
  options.steps = 1;
  RunInputs inputs;
  inputs.main = &programs.startup;
  WEFT_ASSIGN_OR_RETURN(RunResult result, RunProgram(inputs, options));
  return std::move(result.persistables);
}

// Each rank is a run of its own on one device; after every step, the parameters are averaged here.
absl::StatusOr<Trained> TrainApart(const FeaturePair& pair, const TrainingPrograms& programs,
                                   const FeedSource& feeds, int64_t steps,
                                   const KernelTable* kernels) {
  const int ranks = pair.ranks();
  Trained trained(steps);
  std::vector<State> states(ranks);
  WEFT_ASSIGN_OR_RETURN(State last, StateAtStart(programs, kernels));
  State velocity;
  for (const auto& [name, tensor] : last) {
    velocity[name].Resize(tensor.dtype(), tensor.dims());
    std::memset(velocity[name].raw(), 0, tensor.bytes());
  }
  const std::vector<std::string> served = ServedOf(pair, programs);
  for (int64_t step = 0; step < steps; ++step) {
    for (int rank = 0; rank < ranks; ++rank) {
      RunOptions options;
      options.kernels = kernels;
      options.begin_step = step;
      options.steps = 1;
      options.fetch = programs.parameters;
      RunInputs inputs;
      inputs.main = &programs.main;
      inputs.startup = &programs.startup;
      if (step > 0) inputs.params = &states[rank];
      inputs.feeds = OfRank(feeds, rank, ranks);
      WEFT_ASSIGN_OR_RETURN(RunResult result, RunProgram(inputs, options));
      states[rank] = std::move(result.persistables);
    }
    const bool in_groups = pair.Has(Feature::kGroups) && (step + 1) % kPairRounds != 0;
    trained[step].resize(1);
    for (const std::string& name : programs.parameters) {
      // A server updates by the mean of gradients, which is the mean of such updates.
      const bool is_served = absl::c_linear_search(served, name);
      const int n = in_groups && !is_served ? kPairGroup : ranks;
      for (int first = 0; first < ranks; first += n) Average(name, first, n, &states);
      if (pair.Has(Feature::kOuter) && !in_groups && !is_served) {
        MoveByOuter(&last.at(name), &velocity.at(name), name, &states);
      }
      trained[step][0].push_back(AsDoubles(states[0].at(name)));
    }
  }
  return trained;
}

}  // namespace

FeedSource InTurn(const FeedSource& whole, int parts) {
  return PartsOf(whole, parts, [](int64_t step, int n) { return step / n; });
}

FeedSource FeedsOf(const FeaturePair& pair, const FeedSource& whole) {
  // Groups have four ranks, among which parts of a batch cannot be divided.
  const bool divides = pair.Has(Feature::kAccumulation) && !pair.Has(Feature::kGroups);
  return divides ? InTurn(whole, kPairParts) : whole;
}

absl::StatusOr<Trained> Train(const TrainingPrograms& programs, const FeedSource& feeds,
                              int64_t steps, int ranks, const KernelTable* kernels) {
  RunOptions options;
  options.kernels = kernels;
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
      trained[result.step][result.rank].push_back(AsDoubles(value));
    }
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(RunSanitized(inputs, options).status());
  return trained;
}

absl::StatusOr<Trained> TrainAndSave(const TrainingPrograms& programs, const Program* server,
                                     const FeedSource& feeds, int64_t steps, int ranks) {
  // As from a file, without what the passes have erased.
  WEFT_ASSIGN_OR_RETURN(const Program main, Program::Parse(programs.main.Serialize()));
  Trained trained;
  for (int64_t step = 0; step < steps; ++step) {
    RunOptions options;
    options.kernels = &CpuKernels();
    options.nranks = ranks;
    options.num_servers = server == nullptr ? 0 : 1;
    options.steps = step + 1;
    options.timeout_s = 60;
    RunInputs inputs;
    inputs.main = &main;
    inputs.startup = &programs.startup;
    inputs.server = server;
    inputs.feeds = feeds;
    WEFT_ASSIGN_OR_RETURN(const RunResult result, RunSanitized(inputs, options));
    std::vector<Numbers> values;
    for (const std::string& name : programs.parameters) {
      values.push_back(AsDoubles(result.persistables.at(name)));
    }
    trained.emplace_back(ranks, values);
  }
  return trained;
}

namespace {

absl::StatusOr<Updates> ReferenceFrom(const FeaturePair& pair, const TrainingInputs& from) {
  TrainingPrograms programs = ProgramsOf(pair);
  std::vector<std::string> changes = ChangesOf(pair);
  const int steps = pair.Averages() ? pair.steps() : 1;
  // One device takes the whole batch at once.
  if (pair.Has(Feature::kAccumulation) && !pair.Averages()) changes.pop_back();
  const bool is_compressed =
      pair.Has(Feature::kLowRank) && VerdictOf(pair.first, pair.second) != Verdict::kWhole;
  if (is_compressed) {
    changes.emplace_back("comm-init,power-sgd{rank_approximation=1,start_step=2}");
  }
  if (!changes.empty()) WEFT_RETURN_IF_ERROR(Rewrite(absl::StrJoin(changes, ","), 1, &programs));
  const FeedSource feeds = pair.Averages() ? FeedsOf(pair, from.feeds) : from.feeds;
  const int64_t all_steps = int64_t{kPairUpdates} * steps;
  WEFT_ASSIGN_OR_RETURN(const Trained trained,
                        pair.Averages() ? TrainApart(pair, programs, feeds, all_steps, from.kernels)
                                        : Train(programs, feeds, all_steps, 1, from.kernels));
  Updates after;
  for (int i = 0; i < kPairUpdates; ++i) after.push_back(trained[(i + 1) * steps - 1][0]);
  return after;
}

std::string StateName(size_t update, size_t parameter) {
  return absl::StrCat("parameter ", parameter, " after update ", update);
}

}  // namespace

absl::StatusOr<RoundingBounds> MeasureUpdates(const TrainingInputs& inputs,
                                              const UpdatesRun& train) {
  return RoundingBounds::Measure(
      inputs, [&](const TrainingInputs& from) -> absl::StatusOr<TrainingResults> {
        WEFT_ASSIGN_OR_RETURN(const Updates updates, train(from));
        TrainingResults results;
        for (size_t update = 0; update < updates.size(); ++update) {
          for (size_t i = 0; i < updates[update].size(); ++i) {
            const Numbers& numbers = updates[update][i];
            Tensor& tensor = results.state[StateName(update, i)];
            tensor.Resize(DType::kFloat64, {static_cast<int64_t>(numbers.size())});
            std::copy(numbers.begin(), numbers.end(), tensor.data<double>());
          }
        }
        return results;
      });
}

absl::StatusOr<RoundingBounds> Reference(const FeaturePair& pair) {
  const bool is_half = pair.Has(Feature::kAmp) || pair.Has(Feature::kHalf);
  return MeasureUpdates(
      {{}, ProgramsOf(pair).feeds, &CpuKernels(), is_half ? kMovedByOfFp16 : kMovedBy},
      [&](const TrainingInputs& from) { return ReferenceFrom(pair, from); });
}

int NumDifferent(const Updates& found, const RoundingBounds& expected) {
  const auto& state = expected.results().state;
  int different = 0;
  for (size_t i = 0; i < found[0].size(); ++i) {
    EXPECT_NE(AsDoubles(state.at(StateName(0, i))),
              AsDoubles(state.at(StateName(found.size() - 1, i))))
        << "parameter " << i << " is not trained";
    for (size_t update = 0; update < found.size(); ++update) {
      const std::string name = StateName(update, i);
      const Numbers numbers = AsDoubles(state.at(name)), allowed = expected.OfState(name);
      for (size_t n = 0; n < numbers.size(); ++n) {
        different += !(std::abs(found[update][i][n] - numbers[n]) <= allowed[n]);
      }
    }
  }
  return different;
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
