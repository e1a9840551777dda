// LocalSGD of programs whose parameters are not all updated by one optimizer op per step: master
// weights, accumulated gradients, target networks. Each is rewritten, which verifies it, and
// trained on one rank and on two.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/run/runner.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/kernel.h"
#include "tests/support/rounding.h"
#include "tests/support/stream_sanitizer.h"
#include "tests/support/training_programs.h"
#include "tests/support/training_spec.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using ::testing::Combine;
using ::testing::Values;

constexpr int kSteps = 6;

// Mixed precision (O2): momentum updates a master weight, and casts it.
constexpr char kMasterWeight[] = R"(
    var x : fp32[-1, 4] need_check_feed stop_gradient
    var w : fp16[4, 1] parameter persistable
    var master, velocity : fp32[4, 1] persistable
    var lr : fp32[1] persistable
    Out=[x16] = cast(X=[x]) {in_dtype=5, out_dtype=4}
    Out=[y] = mul(X=[x16], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[t] = tanh(X=[y]) role=forward
    Out=[loss] = reduce_mean(X=[t]) role=loss {dim=ints[], reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=4, value=1.0}
    X@GRAD=[t@GRAD] = reduce_mean_grad(X=[t], Out@GRAD=[loss@GRAD]) role=backward {dim=ints[], reduce_all=true}
    X@GRAD=[y@GRAD] = tanh_grad(Out=[t], Out@GRAD=[t@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x16], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    ParamOut=[w], VelocityOut=[velocity], MasterParamOut=[master] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[velocity], LearningRate=[lr], MasterParam=[master]) role=optimize vars=[w, w@GRAD] {mu=0.9, multi_precision=true}
)";

constexpr char kMasterWeightStartup[] = R"(
    var w : fp16[4, 1] parameter persistable
    var master, velocity : fp32[4, 1] persistable
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() {shape=longs[4, 1], dtype=4, value=0.5}
    Out=[master] = cast(X=[w]) {in_dtype=4, out_dtype=5}
    Out=[velocity] = fill_constant() {shape=longs[4, 1], dtype=5, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
)";

// A mean teacher: the target, a parameter without an optimizer, follows the online weight.
constexpr char kTarget[] = R"(
    var x : fp32[-1, 4] need_check_feed stop_gradient
    var w : fp32[4, 1] parameter persistable
    var target : fp32[4, 1] parameter persistable stop_gradient
    var lr : fp32[1] persistable
    Out=[y] = mul(X=[x], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[z] = mul(X=[x], Y=[target]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[d] = elementwise_sub(X=[y], Y=[z]) {axis=-1}
    Out=[s] = square(X=[d]) role=forward
    Out=[loss] = reduce_mean(X=[s]) role=loss {dim=ints[], reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[s@GRAD] = reduce_mean_grad(X=[s], Out@GRAD=[loss@GRAD]) role=backward {dim=ints[], reduce_all=true}
    X@GRAD=[d@GRAD] = square_grad(X=[d], Out@GRAD=[s@GRAD]) role=backward
    X@GRAD=[y@GRAD] = elementwise_sub_grad(X=[y], Y=[z], Out@GRAD=[d@GRAD]) role=backward {axis=-1}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, w@GRAD]
    Out=[kept] = scale(X=[target]) role=ROLE {scale=0.75}
    Out=[added] = scale(X=[w]) role=ROLE {scale=0.25}
    Out=[next] = elementwise_add(X=[kept], Y=[added]) role=ROLE {axis=-1}
    Out=[target] = assign(X=[next]) role=ROLE
)";

constexpr char kTargetStartup[] = R"(
    var w : fp32[4, 1] parameter persistable
    var target : fp32[4, 1] parameter persistable stop_gradient
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() {shape=longs[4, 1], dtype=5, value=0.5}
    Out=[target] = fill_constant() {shape=longs[4, 1], dtype=5, value=0.25}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
)";

enum class Model { kMasterWeight, kTarget, kTargetOfOptimizeRole, kMergedSgd, kMergedAdam };

void PrintTo(Model model, std::ostream* out) {
  constexpr const char* kNames[] = {"MasterWeight", "Target", "TargetOfOptimizeRole", "MergedSgd",
                                    "MergedAdam"};
  *out << kNames[static_cast<int>(model)];
}

absl::StatusOr<TrainingPrograms> FromText(const std::string& main, const std::string& startup,
                                          std::vector<std::string> parameters) {
  Program main_program = testing::CompactProgram(main);
  Program startup_program = testing::CompactProgram(startup);
  FeedSource feeds = {{"x"}, [](int64_t step) {
                        std::vector<Tensor> tensors(1);
                        tensors[0].Resize(DType::kFloat32, {kBatch, 4});
                        for (int64_t i = 0; i < tensors[0].size(); ++i) {
                          tensors[0].data<float>()[i] = std::sin(1.0f + 12.9898f * i + 7.0f * step);
                        }
                        return tensors;
                      }};
  return TrainingPrograms{std::move(main_program),
                          std::move(startup_program),
                          {"loss"},
                          std::move(parameters),
                          std::move(feeds)};
}

// Two layers, whose gradients are accumulated over two steps.
TrainingPrograms Merged(OptimizerKind optimizer) {
  TrainingSpec spec;
  spec.layers.resize(2);
  for (auto& layer : spec.layers) {
    layer.width = 3;
    layer.bias = true;
  }
  spec.weights_by = spec.biases_by = optimizer;
  spec.merged_steps = 2;
  return BuildPrograms(spec);
}

absl::StatusOr<TrainingPrograms> ProgramsOf(Model model) {
  switch (model) {
    case Model::kMasterWeight:
      return FromText(kMasterWeight, kMasterWeightStartup, {"w", "master"});
    case Model::kTarget:
      return FromText(absl::StrReplaceAll(kTarget, {{"ROLE", "forward"}}), kTargetStartup,
                      {"w", "target"});
    case Model::kTargetOfOptimizeRole:
      return FromText(absl::StrReplaceAll(kTarget, {{"ROLE", "optimize"}}), kTargetStartup,
                      {"w", "target"});
    case Model::kMergedSgd:
      return Merged(OptimizerKind::kSgd);
    case Model::kMergedAdam:
      return Merged(OptimizerKind::kAdam);
  }
  return absl::InternalError("no such model");
}

struct Flags {
  const char* name;
  int k_steps;
  std::map<std::string, std::string> others;
};

void PrintTo(const Flags& flags, std::ostream* out) { *out << flags.name; }

// Rewritten for any number of ranks, if none is given.
absl::StatusOr<TrainingPrograms> Rewritten(TrainingPrograms programs, const Flags& flags,
                                           absl::optional<int> nranks = absl::nullopt) {
  TranspileOptions options;
  options.cluster.nranks = nranks;
  options.mode = "local_sgd";
  options.mode_flags = flags.others;
  options.mode_flags["k_steps"] = absl::StrCat(flags.k_steps);
  options.verification = Verification::kAfterEachPass;
  ProgramPair pair{&programs.main, &programs.startup};
  WEFT_RETURN_IF_ERROR(Transpile(options, pair).status());
  return programs;
}

std::string InStep(const std::string& parameter, int64_t step) {
  return absl::StrCat(parameter, " in step ", step);
}

// The parameters InStep, by rank.
using Trained = std::vector<std::map<std::string, Tensor>>;

absl::StatusOr<Trained> Train(const TrainingPrograms& programs, int ranks,
                              const TrainingInputs& from,
                              const std::map<std::string, Tensor>* params = nullptr) {
  RunOptions options;
  options.kernels = from.kernels;
  options.nranks = ranks;
  options.steps = kSteps;
  options.fetch = programs.parameters;
  Trained trained(ranks);
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.feeds = from.feeds;
  inputs.params = params;
  inputs.on_result = [&](const StepResult& result) {
    for (size_t i = 0; i < result.values.size(); ++i) {
      trained[result.rank][InStep(options.fetch[i], result.step)] = result.values[i].Clone();
    }
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(RunChecked(inputs, options).status());
  return trained;
}
absl::StatusOr<Trained> Train(const TrainingPrograms& programs, int ranks) {
  return Train(programs, ranks, {{}, programs.feeds});
}

absl::StatusOr<RoundingBounds> BoundsOf(const TrainingPrograms& programs, double moved_by) {
  const TrainingInputs inputs{{}, programs.feeds, &CpuKernels(), moved_by};
  const auto train = [&](const TrainingInputs& from) -> absl::StatusOr<TrainingResults> {
    WEFT_ASSIGN_OR_RETURN(Trained trained, Train(programs, 1, from));
    return TrainingResults{{}, std::move(trained[0])};
  };
  return RoundingBounds::Measure(inputs, train);
}

class TrainLocalSgdTest : public ::testing::TestWithParam<std::tuple<Model, Flags>> {
 protected:
  static Model TheModel() { return std::get<0>(GetParam()); }
  static const Flags& TheFlags() { return std::get<1>(GetParam()); }
  static bool Resets() {
    const auto state = TheFlags().others.find("state");
    return state != TheFlags().others.end() && state->second == "reset";
  }
};

// A reset of the state changes the training of one rank, too.
class TrainLocalSgdWithoutResetTest : public TrainLocalSgdTest {};

TEST_P(TrainLocalSgdWithoutResetTest, OneRankTrainsAsWithoutIt) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs, ProgramsOf(TheModel()));
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms rewritten, Rewritten(programs, TheFlags()));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(rewritten, 1));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(programs, 1));
  for (const auto& [name, value] : expected[0]) {
    EXPECT_EQ(AsDoubles(found[0].at(name)), AsDoubles(value)) << name;
  }
}

class TrainLocalSgdWithResetTest : public TrainLocalSgdTest {};

TEST_P(TrainLocalSgdWithResetTest, OneRankTrains) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs, ProgramsOf(TheModel()));
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms rewritten, Rewritten(programs, TheFlags()));
  WEFT_EXPECT_OK(Train(rewritten, 1).status());
}

// What is computed from the mean of the updates of a step is the mean of what is computed from
// each, where that is linear: then two ranks train as one device does with both batches.
TEST_P(TrainLocalSgdTest, TwoRanksAgreeWhereTheyAverage) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs, ProgramsOf(TheModel()));
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms rewritten, Rewritten(programs, TheFlags()));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(rewritten, 2));
  const bool is_half = TheModel() == Model::kMasterWeight;
  WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds,
                            BoundsOf(programs, is_half ? kMovedByOfFp16 : kMovedBy));
  const bool is_linear = TheModel() != Model::kMergedAdam && TheFlags().k_steps == 1 && !Resets();
  for (int step = 0; step < kSteps; ++step) {
    for (const std::string& parameter : programs.parameters) {
      const std::string name = InStep(parameter, step);
      const Tensor& of_rank = found[0].at(name);
      if ((step + 1) % TheFlags().k_steps == 0) {
        EXPECT_EQ(AsDoubles(of_rank), AsDoubles(found[1].at(name))) << name;
      }
      if (is_linear) bounds.ExpectState(name, of_rank, bounds.results().state.at(name));
    }
  }
}

// A file of parameters replaces what the startup program has copied for the outer optimizer, too.
TEST(TrainOuterTest, BeginsWithTheParametersOfTheFile) {
  const Flags flags = {"OuterSgd", 2, {{"outer", "sgd{lr=0.5}"}}};
  for (const Model model : {Model::kMasterWeight, Model::kTarget}) {
    SCOPED_TRACE(::testing::PrintToString(model));
    WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs, ProgramsOf(model));
    WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms rewritten, Rewritten(programs, flags));
    Tensor weight;
    if (model == Model::kMasterWeight) {
      weight.Resize(DType::kFloat16, {4, 1});
      std::fill_n(weight.data<Float16>(), 4, Float16(8.0F));
    } else {
      weight.Resize(DType::kFloat32, {4, 1});
      std::fill_n(weight.data<float>(), 4, 8.0F);
    }
    const std::map<std::string, Tensor> params = {{"w", weight}};
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained found,
                              Train(rewritten, 1, {{}, rewritten.feeds}, &params));
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained local,
                              Train(programs, 1, {{}, programs.feeds}, &params));
    const std::string name = InStep(programs.parameters[0], 1);
    const std::vector<double> moved = AsDoubles(found[0].at(name)),
                              own = AsDoubles(local[0].at(name));
    ASSERT_EQ(moved.size(), own.size());
    for (size_t k = 0; k < own.size(); ++k) EXPECT_NEAR(moved[k], (8 + own[k]) / 2, 2e-2);
  }
}

// Every rank: w -= 0.1 mean(x), of its three rows.
constexpr char kMeans[] = R"(
    var x : fp32[-1, 4] need_check_feed stop_gradient
    var w : fp32[4, 1] parameter persistable
    var b : fp32[1] parameter persistable
    var lr : fp32[1] persistable
    Out=[h] = mul(X=[x], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[y] = elementwise_add(X=[h], Y=[b]) {axis=1}
    Out=[loss] = reduce_mean(X=[y]) role=loss {dim=ints[], reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = reduce_mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward {dim=ints[], reduce_all=true}
    X@GRAD=[h@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(X=[h], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD] {axis=1}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, w@GRAD]
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize vars=[b, b@GRAD]
)";

constexpr char kMeansStartup[] = R"(
    var w : fp32[4, 1] parameter persistable
    var b : fp32[1] parameter persistable
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() {shape=longs[4, 1], dtype=5, value=0.5}
    Out=[b] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
)";

TEST(TrainGroupsTest, GroupsAverageOftenAndAllRanksRarely) {
  constexpr int kRanks = 4, kRows = kBatch / kRanks;
  // The outer optimizer of all ranks, by its learning rate and momentum.
  for (const auto& [k_steps, rounds, group_size, outer, outer_lr, momentum] :
       {std::tuple(1, 3, 2, "averaging", 1.0, 0.0), std::tuple(2, 2, 2, "averaging", 1.0, 0.0),
        std::tuple(1, 2, 2, "averaging", 1.0, 0.0), std::tuple(1, 2, 2, "sgd{lr=0.5}", 0.5, 0.0),
        std::tuple(1, 2, 2, "nesterov{lr=0.7,momentum=0.9}", 0.7, 0.9)}) {
    SCOPED_TRACE(absl::StrCat(k_steps, " steps, ", rounds, " rounds, ", outer));
    WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs,
                              FromText(kMeans, kMeansStartup, {"w", "b"}));
    const Flags flags = {"Groups",
                         k_steps,
                         {{"group_size", absl::StrCat(group_size)},
                          {"rounds", absl::StrCat(rounds)},
                          {"outer", outer}}};
    WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms rewritten, Rewritten(programs, flags, kRanks));
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(rewritten, kRanks));
    std::vector<double> expected(kRanks, 0.5);  // the first element of w
    double last = 0.5, velocity = 0;            // of the outer optimizer
    for (int step = 1; step <= kSteps; ++step) {
      WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<Tensor> batch, programs.feeds.read(step - 1));
      for (int rank = 0; rank < kRanks; ++rank) {
        double mean = 0;
        for (int row = 0; row < kRows; ++row) {
          mean += batch[0].data<float>()[(rank * kRows + row) * 4] / kRows;
        }
        expected[rank] -= 0.1 * mean;
      }
      const int size = step % (k_steps * rounds) == 0 ? kRanks
                       : step % k_steps == 0          ? group_size
                                                      : 1;
      for (int first = 0; first < kRanks; first += size) {
        double mean = 0;
        for (int i = 0; i < size; ++i) mean += expected[first + i] / size;
        if (size == kRanks) {
          const double change = last - mean;
          velocity = momentum * velocity + change;
          last -= outer_lr * (change + momentum * velocity);
          mean = last;
        }
        std::fill_n(expected.begin() + first, size, mean);
      }
      for (int rank = 0; rank < kRanks; ++rank) {
        EXPECT_NEAR(AsDoubles(found[rank].at(InStep("w", step - 1)))[0], expected[rank], 1e-6)
            << "rank " << rank << ", step " << step;
      }
    }
  }
}

auto AllModels() {
  return Values(Model::kMasterWeight, Model::kTarget, Model::kTargetOfOptimizeRole,
                Model::kMergedSgd, Model::kMergedAdam);
}
auto FlagsWithoutReset() {
  return Values(Flags{"EveryStep", 1, {}}, Flags{"EverySecondStep", 2, {}},
                Flags{"AveragesState", 1, {{"state", "average"}}},
                Flags{"AveragesStateEverySecondStep", 2, {{"state", "average"}}},
                Flags{"AveragesStatistics", 2, {{"state", "average"}, {"statistics", "true"}}});
}
auto FlagsWithReset() {
  return Values(Flags{"ResetsState", 1, {{"state", "reset"}}},
                Flags{"ResetsStateEveryThirdStep", 3, {{"state", "reset"}}});
}
auto FlagsOfOuter() {
  return Values(Flags{"OuterSgd", 2, {{"outer", "sgd{lr=0.5}"}}},
                Flags{"OuterNesterov", 3, {{"outer", "nesterov"}, {"state", "average"}}},
                Flags{"OuterDelayed", 3, {{"outer", "nesterov"}, {"delay", "2"}}},
                Flags{"OuterRounded", 2, {{"outer", "nesterov"}, {"comm_dtype", "bf16"}}});
}
std::string NameOf(const ::testing::TestParamInfo<TrainLocalSgdTest::ParamType>& info) {
  return absl::StrCat(::testing::PrintToString(std::get<0>(info.param)),
                      std::get<1>(info.param).name);
}

INSTANTIATE_TEST_SUITE_P(All, TrainLocalSgdWithoutResetTest,
                         Combine(AllModels(), FlagsWithoutReset()), NameOf);
INSTANTIATE_TEST_SUITE_P(All, TrainLocalSgdTest, Combine(AllModels(), FlagsWithoutReset()), NameOf);
INSTANTIATE_TEST_SUITE_P(All, TrainLocalSgdWithResetTest, Combine(AllModels(), FlagsWithReset()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Resets, TrainLocalSgdTest, Combine(AllModels(), FlagsWithReset()), NameOf);
INSTANTIATE_TEST_SUITE_P(Outer, TrainLocalSgdTest, Combine(AllModels(), FlagsOfOuter()), NameOf);
// Its formula has the learning rate of each parameter, which a target network lacks.
INSTANTIATE_TEST_SUITE_P(OuterSlowMo, TrainLocalSgdTest,
                         Combine(Values(Model::kMasterWeight, Model::kMergedSgd,
                                        Model::kMergedAdam),
                                 Values(Flags{"OuterSlowMo", 2, {{"outer", "slowmo"}}})),
                         NameOf);

}  // namespace
}  // namespace weft::testing
