// Sharded training computes what grad_allreduce computes, bit for bit: ranks add up in one order.
// And it goes on from the files of any number of ranks, of any stage, and of grad_allreduce.
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/testing/test.h"
#include "executor/files/checkpoint.h"
#include "executor/run/feed_sources.h"
#include "executor/run/memory_estimate.h"
#include "executor/run/runner.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/kernel.h"
#include "proto/formats/program_file.h"
#include "proto/setting.h"
#include "tests/support/stream_sanitizer.h"
#include "tests/support/training_programs.h"
#include "tests/support/training_spec.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

constexpr int kSteps = 4;

// Layers of 5 * 7 + 7 + 7 * 3 + 3 elements, which 4 ranks cannot share evenly.
TrainingSpec Layers(OptimizerKind weights, OptimizerKind biases) {
  TrainingSpec spec;
  spec.layers = {{7, Activation::kTanh, /*bias=*/true}, {3, Activation::kRelu, /*bias=*/true}};
  spec.head.layer = 1;
  spec.weights_by = weights;
  spec.biases_by = biases;
  return spec;
}

struct Programs {
  TrainingPrograms built;
  std::vector<Message> messages;
};

absl::StatusOr<Programs> Rewritten(TrainingPrograms built, const std::string& mode, int nranks,
                                   std::map<std::string, std::string> flags = {}) {
  Programs programs{std::move(built), {}};
  TranspileOptions options;
  options.mode = mode;
  options.mode_flags = std::move(flags);
  options.cluster.nranks = nranks;
  ProgramPair pair{&programs.built.main, &programs.built.startup};
  absl::StatusOr<TranspileResult> result = Transpile(options, pair);
  if (!result.ok()) return result.status();
  programs.messages = std::move(result->messages);
  return programs;
}

absl::StatusOr<Programs> Rewritten(const TrainingSpec& spec, const std::string& mode, int nranks,
                                   std::map<std::string, std::string> flags = {}) {
  return Rewritten(BuildPrograms(spec), mode, nranks, std::move(flags));
}

std::string NotesOf(const Programs& programs) {
  std::string notes;
  for (const Message& message : programs.messages) absl::StrAppend(&notes, message.text, "\n");
  return notes;
}

struct Trained {
  std::vector<std::string> losses;  // their bytes, by step
  std::map<std::string, Tensor> persistables;
  Checkpoint checkpoint;  // at the end
};

Checkpoint Copy(const Checkpoint& checkpoint) {
  Checkpoint copy = checkpoint;
  const auto clone = [](std::map<std::string, Tensor>* tensors) {
    for (auto& [name, tensor] : *tensors) {
      Tensor own;
      WEFT_EXPECT_OK(own.CopyFrom(tensor));
      tensor = std::move(own);
    }
  };
  clone(&copy.shared);
  for (auto& own : copy.own) clone(&own);
  return copy;
}

absl::StatusOr<Trained> Train(const Programs& programs, int nranks, int64_t first, int64_t steps,
                              const Checkpoint* resume = nullptr,
                              const std::map<std::string, Tensor>* params = nullptr,
                              bool has_startup = true) {
  Trained trained;
  RunInputs inputs;
  inputs.main = &programs.built.main;
  if (has_startup) inputs.startup = &programs.built.startup;
  inputs.feeds = programs.built.feeds;
  inputs.resume = resume;
  inputs.params = params;
  inputs.on_result = [&](const StepResult& result) {
    const Tensor& loss = result.values[0];
    if (result.rank == 0) {
      trained.losses.emplace_back(static_cast<const char*>(loss.raw()), loss.bytes());
    }
    return absl::OkStatus();
  };
  inputs.on_checkpoint = [&](Checkpoint checkpoint) {
    trained.checkpoint = Copy(checkpoint);
    return absl::OkStatus();
  };
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = nranks;
  options.begin_step = first;
  options.steps = steps;
  options.seed = 5;
  options.timeout_s = 60;
  absl::StatusOr<RunResult> result = RunChecked(inputs, options);
  if (!result.ok()) return result.status();
  trained.persistables = std::move(result->persistables);
  return trained;
}

std::string Bits(const std::map<std::string, Tensor>& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) return "none";
  return absl::StrCat(
      ToString(TensorType{found->second.dtype(), found->second.dims()}), " ",
      absl::string_view(static_cast<const char*>(found->second.raw()), found->second.bytes()));
}

void ExpectSame(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  for (const auto& [name, tensor] : a) EXPECT_EQ(Bits(a, name), Bits(b, name)) << name;
  EXPECT_EQ(a.size(), b.size());
}

// Weights of 3 x 5, four times 5 x 5, and 5 x 3 elements; five biases of 5, and one of 3.
TrainingSpec EqualLayers(OptimizerKind optimizer) {
  TrainingSpec spec = Layers(optimizer, optimizer);
  spec.layers.assign(6, {5, Activation::kTanh, /*bias=*/true});
  spec.head.layer = 5;
  return spec;
}

struct Case {
  std::string name;
  TrainingSpec spec;
  // Of 1, 2, 3 and 4 ranks: how many parameters all of them update.
  std::vector<int> num_whole = {0, 0, 0, 0};
};

// By what the notes say.
int NumWhole(const std::string& notes) {
  const std::string begin = "all ranks keep and update ";
  const size_t at = notes.find(begin);
  return at == std::string::npos ? 0 : std::stoi(notes.substr(at + begin.size()));
}

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {"Sgd", Layers(OptimizerKind::kSgd, OptimizerKind::kSgd)},
      {"Momentum", Layers(OptimizerKind::kMomentum, OptimizerKind::kMomentum)},
      {"Adam", Layers(OptimizerKind::kAdam, OptimizerKind::kAdam)},
      {"AdamAndSgd", Layers(OptimizerKind::kAdam, OptimizerKind::kSgd)},
  };
  Case decay{"WeightDecay", Layers(OptimizerKind::kMomentum, OptimizerKind::kMomentum)};
  decay.spec.l2_decay = true;
  cases.push_back(decay);
  Case clip{"ClipByValue", Layers(OptimizerKind::kAdam, OptimizerKind::kAdam)};
  clip.spec.clip = ClipKind::kByValue;
  cases.push_back(clip);
  Case tied{"TiedWeights", Layers(OptimizerKind::kAdam, OptimizerKind::kAdam)};
  tied.spec.layers = {{5, Activation::kTanh, true}, {5, Activation::kTanh, true}};
  tied.spec.layers[1].shares_weight = true;
  cases.push_back(tied);
  Case frozen{"Frozen", Layers(OptimizerKind::kAdam, OptimizerKind::kAdam)};
  frozen.spec.layers[0].frozen = true;
  cases.push_back(frozen);
  Case types{"TwoElementTypes", Layers(OptimizerKind::kAdam, OptimizerKind::kMomentum)};
  types.spec.layers[1].fp64 = true;
  cases.push_back(types);
  Case merged{"Accumulated", Layers(OptimizerKind::kAdam, OptimizerKind::kMomentum)};
  merged.spec.merged_steps = 2;
  merged.spec.clip = ClipKind::kByValue;
  cases.push_back(merged);
  // Whole parameters: of 25 elements, ranks own 2 and 2 of four, or 3, or 4.
  const std::vector<int> unlike = {0, 2, 2, 2};
  cases.push_back({"Lamb", EqualLayers(OptimizerKind::kLamb), unlike});
  cases.push_back({"Lars", EqualLayers(OptimizerKind::kLars), unlike});
  Case norm{"ClipByNorm", EqualLayers(OptimizerKind::kAdam), unlike};
  norm.spec.clip = ClipKind::kByNorm;
  cases.push_back(norm);
  Case accumulated{"AccumulatedLamb", EqualLayers(OptimizerKind::kLamb), unlike};
  accumulated.spec.merged_steps = 2;
  cases.push_back(accumulated);
  // Updated on all ranks: rows are no parts.
  Case rows{"Rows", Layers(OptimizerKind::kAdam, OptimizerKind::kAdam), {1, 1, 1, 1}};
  rows.spec.lookups = 2;
  rows.spec.sparse = true;
  cases.push_back(rows);
  return cases;
}

class ShardedTest : public ::testing::TestWithParam<Case> {};

TEST_P(ShardedTest, TrainsAsGradAllReduceDoes) {
  for (const int nranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(absl::StrCat(nranks, " ranks"));
    WEFT_ASSERT_OK_AND_ASSIGN(const Programs plain,
                              Rewritten(GetParam().spec, "grad_allreduce", nranks));
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(plain, nranks, 0, kSteps));
    for (const char* stage : {"1", "2", "3"}) {
      SCOPED_TRACE(absl::StrCat("stage ", stage));
      WEFT_ASSERT_OK_AND_ASSIGN(const Programs sharded,
                                Rewritten(GetParam().spec, "zero", nranks, {{"stage", stage}}));
      WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(sharded, nranks, 0, kSteps));
      const std::string notes = NotesOf(sharded);
      EXPECT_EQ(NumWhole(notes), GetParam().num_whole[nranks - 1]) << notes;
      EXPECT_EQ(found.losses, expected.losses);
      ExpectSame(found.persistables, expected.persistables);
      ExpectSame(found.checkpoint.shared, expected.checkpoint.shared);
    }
  }
}

// By AdaGrad, by RMSProp, by AdamW with parameters that do not decay, and with activations that are
// computed anew.
TEST(ShardedRunTest, ProgramsOfPaddleTrainAsGradAllReduceDoes) {
  for (const std::string model : {"mlp_adagrad", "mlp_rmsprop", "bert_tiny", "script_recompute"}) {
    SCOPED_TRACE(model);
    const std::string folder = absl::StrCat("tests/data/", model, "/");
    WEFT_ASSERT_OK_AND_ASSIGN(const Program main, ReadProgram(folder + "main.pb"));
    WEFT_ASSERT_OK_AND_ASSIGN(const Program startup, ReadProgram(folder + "startup.pb"));
    WEFT_ASSERT_OK_AND_ASSIGN(const FeedSource feeds, FeedsFromFile(folder + "feeds.npz"));
    const TrainingPrograms built = {main, startup, {}, {}, feeds};
    WEFT_ASSERT_OK_AND_ASSIGN(const Programs plain, Rewritten(built, "grad_allreduce", 2));
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(plain, 2, 0, kSteps));
    for (const char* stage : {"1", "2", "3"}) {
      SCOPED_TRACE(absl::StrCat("stage ", stage));
      WEFT_ASSERT_OK_AND_ASSIGN(const Programs sharded,
                                Rewritten(built, "zero", 2, {{"stage", stage}}));
      WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(sharded, 2, 0, kSteps));
      EXPECT_EQ(found.losses, expected.losses);
      ExpectSame(found.persistables, expected.persistables);
    }
  }
}

// Ranks add up squares in another order than one does. The norm is far from the limit's rounding.
TEST(ShardedRunTest, ClipsByTheGlobalNorm) {
  struct Clipped {
    TrainingSpec spec;
    int nranks;
    int merged_steps = 1;
    int num_whole = 0;
  };
  const TrainingSpec parts = Layers(OptimizerKind::kAdam, OptimizerKind::kAdam),
                     owners = EqualLayers(OptimizerKind::kLamb);
  for (Clipped& clipped : std::vector<Clipped>{{parts, 1},
                                               {parts, 2},
                                               {parts, 3},
                                               {parts, 3, 2},
                                               {owners, 2, 1, 2},
                                               {owners, 3, 2, 2}}) {
    TrainingSpec& spec = clipped.spec;
    const int nranks = clipped.nranks;
    SCOPED_TRACE(absl::StrCat(nranks, " ranks, ", clipped.merged_steps, " steps"));
    spec.clip = ClipKind::kByGlobalNorm;
    spec.merged_steps = clipped.merged_steps;
    WEFT_ASSERT_OK_AND_ASSIGN(const Programs plain, Rewritten(spec, "grad_allreduce", nranks));
    WEFT_ASSERT_OK_AND_ASSIGN(const Programs sharded, Rewritten(spec, "zero", nranks));
    EXPECT_EQ(NumWhole(NotesOf(sharded)), clipped.num_whole);
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(plain, nranks, 0, kSteps));
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(sharded, nranks, 0, kSteps));
    for (const std::string& name : plain.built.parameters) {
      const Tensor& a = expected.persistables.at(name);
      const Tensor& b = found.persistables.at(name);
      ASSERT_EQ(a.size(), b.size());
      for (int64_t i = 0; i < a.size(); ++i) {
        const float value = a.data<float>()[i];
        EXPECT_NEAR(value, b.data<float>()[i], 1e-5f * (1 + std::abs(value))) << name;
      }
    }
  }
}

TEST(ShardedRunTest, GathersAnyNumberOfBucketsAhead) {
  const TrainingSpec spec = Layers(OptimizerKind::kAdam, OptimizerKind::kAdam);
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs plain, Rewritten(spec, "grad_allreduce", 2));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(plain, 2, 0, kSteps));
  for (const char* stage : {"1", "3"}) {
    for (const char* prefetch : {"0", "1", "2", "9"}) {
      SCOPED_TRACE(absl::StrCat("stage ", stage, ", prefetch ", prefetch));
      WEFT_ASSERT_OK_AND_ASSIGN(
          const Programs sharded,
          Rewritten(spec, "zero", 2,
                    {{"stage", stage}, {"prefetch", prefetch}, {"buckets", "count{count=1}"}}));
      EXPECT_EQ(NotesOf(sharded), "");
      WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(sharded, 2, 0, kSteps));
      EXPECT_EQ(found.losses, expected.losses);
      ExpectSame(found.persistables, expected.persistables);
    }
  }
}

// Of 12 equal layers, in six buckets: with all parameters, all of them and two buckets of
// gradients, and two buckets of each.
TEST(ShardedRunTest, EachStageHoldsLessInAStep) {
  TrainingSpec spec = Layers(OptimizerKind::kAdam, OptimizerKind::kAdam);
  spec.layers.assign(24, {64, Activation::kTanh, /*bias=*/true});
  spec.head.layer = 23;
  PlanOptions options;
  options.kernels = &CpuKernels();
  options.nranks = 4;
  std::vector<double> live;
  for (const char* stage : {"1", "2", "3"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(
        const Programs zero,
        Rewritten(spec, "zero", 4, {{"stage", stage}, {"buckets", "count{count=2}"}}));
    WEFT_ASSERT_OK_AND_ASSIGN(const MemoryEstimate estimate,
                              EstimateMemory(zero.built.main, options, kBatch / 4));
    EXPECT_EQ(estimate.num_unknown, 0);
    live.push_back(static_cast<double>(estimate.memory.live));
  }
  EXPECT_LT(live[1], live[0]);
  EXPECT_LT(live[2], 0.5 * live[1]);
}

INSTANTIATE_TEST_SUITE_P(All, ShardedTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// A step with another number of ranks adds up in another order, so what follows is compared with
// grad_allreduce on these ranks.
TEST_P(ShardedTest, ResumesWithOtherRanksAndStages) {
  const TrainingSpec& spec = GetParam().spec;
  struct Leg {
    const char* stage;
    int nranks;
  };
  Checkpoint sharded, plain;
  int64_t step = 0;
  for (const Leg& leg : {Leg{"1", 4}, Leg{"3", 2}, Leg{"2", 3}}) {
    SCOPED_TRACE(leg.nranks);
    WEFT_ASSERT_OK_AND_ASSIGN(const Programs zero,
                              Rewritten(spec, "zero", leg.nranks, {{"stage", leg.stage}}));
    WEFT_ASSERT_OK_AND_ASSIGN(const Programs all, Rewritten(spec, "grad_allreduce", leg.nranks));
    WEFT_ASSERT_OK_AND_ASSIGN(Trained found,
                              Train(zero, leg.nranks, step, 2, step == 0 ? nullptr : &sharded));
    WEFT_ASSERT_OK_AND_ASSIGN(Trained expected,
                              Train(all, leg.nranks, step, 2, step == 0 ? nullptr : &plain));
    EXPECT_EQ(found.losses, expected.losses);
    ExpectSame(found.checkpoint.shared, expected.checkpoint.shared);
    sharded = std::move(found.checkpoint);
    plain = std::move(expected.checkpoint);
    step += 2;
  }
  // And on without shares.
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs all, Rewritten(spec, "grad_allreduce", 2));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(all, 2, step, 2, &sharded));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(all, 2, step, 2, &plain));
  EXPECT_EQ(found.losses, expected.losses);
}

// Mixed precision (O2): momentum updates master weights, and casts them.
constexpr char kHalves[] = R"(
    var x : fp32[-1, 4] need_check_feed stop_gradient
    var w : fp16[4, 3] parameter persistable
    var v : fp16[3, 1] parameter persistable
    var master_w, velocity_w : fp32[4, 3] persistable
    var master_v, velocity_v : fp32[3, 1] persistable
    var lr : fp32[1] persistable
    Out=[x16] = cast(X=[x]) {in_dtype=5, out_dtype=4}
    Out=[h] = mul(X=[x16], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[y] = mul(X=[h], Y=[v]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[t] = tanh(X=[y])
    Out=[loss] = reduce_mean(X=[t]) role=loss {dim=ints[], reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=4, value=1.0}
    X@GRAD=[t@GRAD] = reduce_mean_grad(X=[t], Out@GRAD=[loss@GRAD]) role=backward {dim=ints[], reduce_all=true}
    X@GRAD=[y@GRAD] = tanh_grad(Out=[t], Out@GRAD=[t@GRAD]) role=backward
    X@GRAD=[h@GRAD], Y@GRAD=[v@GRAD] = mul_grad(X=[h], Y=[v], Out@GRAD=[y@GRAD]) role=backward vars=[v, v@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x16], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    ParamOut=[v], VelocityOut=[velocity_v], MasterParamOut=[master_v] = momentum(Param=[v], Grad=[v@GRAD], Velocity=[velocity_v], LearningRate=[lr], MasterParam=[master_v]) role=optimize vars=[v, v@GRAD] {mu=0.9, multi_precision=true}
    ParamOut=[w], VelocityOut=[velocity_w], MasterParamOut=[master_w] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[velocity_w], LearningRate=[lr], MasterParam=[master_w]) role=optimize vars=[w, w@GRAD] {mu=0.9, multi_precision=true}
)";

constexpr char kHalvesStartup[] = R"(
    var w : fp16[4, 3] parameter persistable
    var v : fp16[3, 1] parameter persistable
    var master_w, velocity_w : fp32[4, 3] persistable
    var master_v, velocity_v : fp32[3, 1] persistable
    var lr : fp32[1] persistable
    Out=[master_w] = uniform_random() {shape=longs[4, 3], dtype=5, min=-1.0, max=1.0, seed=3}
    Out=[master_v] = uniform_random() {shape=longs[3, 1], dtype=5, min=-1.0, max=1.0, seed=4}
    Out=[w] = cast(X=[master_w]) {in_dtype=5, out_dtype=4}
    Out=[v] = cast(X=[master_v]) {in_dtype=5, out_dtype=4}
    Out=[velocity_w] = fill_constant() {shape=longs[4, 3], dtype=5, value=0.0}
    Out=[velocity_v] = fill_constant() {shape=longs[3, 1], dtype=5, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
)";

TrainingPrograms Halves() {
  FeedSource feeds = {{"x"}, [](int64_t step) {
                        std::vector<Tensor> tensors(1);
                        tensors[0].Resize(DType::kFloat32, {kBatch, 4});
                        for (int64_t i = 0; i < tensors[0].size(); ++i) {
                          tensors[0].data<float>()[i] = std::sin(1.0f + 12.9898f * i + 7.0f * step);
                        }
                        return tensors;
                      }};
  return {CompactProgram(kHalves),
          CompactProgram(kHalvesStartup),
          {"loss"},
          {"w", "v"},
          std::move(feeds)};
}

TEST(ShardedRunTest, SharesMasterWeights) {
  for (const char* stage : {"1", "3"}) {
    Checkpoint sharded, plain;
    int64_t step = 0;
    for (const int nranks : {2, 3}) {
      SCOPED_TRACE(absl::StrCat(nranks, " ranks, stage ", stage));
      WEFT_ASSERT_OK_AND_ASSIGN(const Programs all, Rewritten(Halves(), "grad_allreduce", nranks));
      WEFT_ASSERT_OK_AND_ASSIGN(const Programs zero,
                                Rewritten(Halves(), "zero", nranks, {{"stage", stage}}));
      EXPECT_EQ(NumWhole(NotesOf(zero)), 0);
      WEFT_ASSERT_OK_AND_ASSIGN(Trained expected,
                                Train(all, nranks, step, kSteps, step == 0 ? nullptr : &plain));
      WEFT_ASSERT_OK_AND_ASSIGN(Trained found,
                                Train(zero, nranks, step, kSteps, step == 0 ? nullptr : &sharded));
      EXPECT_EQ(found.losses, expected.losses);
      ExpectSame(found.checkpoint.shared, expected.checkpoint.shared);
      sharded = std::move(found.checkpoint);
      plain = std::move(expected.checkpoint);
      step += kSteps;
    }
  }
}

TEST(ShardedRunTest, TakesWholeParameters) {
  const TrainingSpec spec = Layers(OptimizerKind::kMomentum, OptimizerKind::kMomentum);
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs zero, Rewritten(spec, "zero", 3));
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs all, Rewritten(spec, "grad_allreduce", 3));
  std::map<std::string, Tensor> params;
  Tensor& param = params[all.built.parameters[0]];
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained start, Train(all, 3, 0, 1));
  WEFT_ASSERT_OK(param.CopyFrom(start.persistables.at(all.built.parameters[0])));
  for (int64_t i = 0; i < param.size(); ++i) param.data<float>()[i] = 0.01f * static_cast<float>(i);
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(zero, 3, 0, 2, nullptr, &params));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(all, 3, 0, 2, nullptr, &params));
  EXPECT_EQ(found.losses, expected.losses);
  ExpectSame(found.persistables, expected.persistables);
  params.begin()->second.Resize(DType::kFloat32, {2});
  EXPECT_THAT(std::string(Train(zero, 3, 0, 1, nullptr, &params).status().message()),
              HasSubstr("expected fp32"));
}

TEST(ShardedRunTest, BeginsWithTheParametersOfAWholeState) {
  const TrainingSpec spec = Layers(OptimizerKind::kAdam, OptimizerKind::kAdam);
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs zero, Rewritten(spec, "zero", 3, {{"stage", "3"}}));
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs all, Rewritten(spec, "grad_allreduce", 3));
  WEFT_ASSERT_OK_AND_ASSIGN(Trained start, Train(zero, 3, 0, 2));
  std::map<std::string, Tensor>* const params = &start.persistables;
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(zero, 3, 0, 2, nullptr, params, false));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(all, 3, 0, 2, nullptr, params, false));
  EXPECT_EQ(found.losses, expected.losses);
  ExpectSame(found.persistables, expected.persistables);
  params->erase(zero.built.parameters[0]);
  EXPECT_THAT(std::string(Train(zero, 3, 0, 2, nullptr, params, false).status().message()),
              HasSubstr(absl::StrCat("variable ", zero.built.parameters[0], ": the program has ")));
}

// A power of beta is one for all parameters of a bucket.
TEST(ShardedRunTest, RefusesStatesOfWhichOneVariableStandsForSeveral) {
  const TrainingSpec spec = Layers(OptimizerKind::kAdam, OptimizerKind::kAdam);
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs zero, Rewritten(spec, "zero", 3, {{"stage", "3"}}));
  WEFT_ASSERT_OK_AND_ASSIGN(const Setting setting, SettingOf(zero.built.main));
  ASSERT_FALSE(setting.common.empty());
  const std::vector<std::string>& equal = setting.common.begin()->second;
  ASSERT_GE(equal.size(), 2);
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained start, Train(zero, 3, 0, 0));
  const auto train_with = [&](const std::vector<std::string>& names, float scale) {
    std::map<std::string, Tensor> params;
    for (const std::string& name : names) {
      Tensor& param = params[name];
      WEFT_EXPECT_OK(param.CopyFrom(start.persistables.at(name)));
      param.data<float>()[0] *= scale;
    }
    return Train(zero, 3, 0, 1, nullptr, &params).status();
  };
  const std::string message(train_with({equal[0]}, 0.5f).message());
  EXPECT_THAT(message,
              HasSubstr(absl::StrCat("variable ", equal[0], ": expected the value that ")));
  EXPECT_THAT(message, HasSubstr(equal[1]));
  WEFT_EXPECT_OK(train_with(equal, 0.5f));
  WEFT_EXPECT_OK(train_with({equal[0]}, 1));
}

TEST(ShardedRunTest, SaysWhichParametersStayWhole) {
  TrainingSpec spec = Layers(OptimizerKind::kAdam, OptimizerKind::kAdam);
  spec.clip = ClipKind::kByNorm;
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs zero, Rewritten(spec, "zero", 2));
  EXPECT_THAT(NotesOf(zero), HasSubstr("all ranks keep and update 2 of 4 parameters as a whole"));
}

}  // namespace
}  // namespace weft::testing
