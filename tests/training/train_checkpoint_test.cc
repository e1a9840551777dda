// A run that is resumed from a checkpoint goes on with the same bits, on every rank, from any step
// of any mode.
#include <atomic>
#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/files/checkpoint.h"
#include "executor/run/runner.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/kernel.h"
#include "tests/support/training_programs.h"
#include "tests/support/training_spec.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

constexpr int kSteps = 7;

// adam, with dropout, and with noise that is the same on all ranks.
constexpr char kDropout[] = R"(
    var x : fp32[-1, 4] need_check_feed stop_gradient
    var w : fp32[4, 3] parameter persistable
    var m1, m2 : fp32[4, 3] persistable
    var b1, b2 : fp32[1] persistable
    var lr : fp32[1] persistable
    Out=[y] = mul(X=[x], Y=[w]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[noise] = uniform_random() {shape=longs[3], dtype=5, min=-1.0, max=1.0, seed=0}
    Out=[n] = elementwise_add(X=[y], Y=[noise]) {axis=-1}
    Mask=[mask], Out=[d] = dropout(X=[n]) {dropout_prob=0.5, dropout_implementation="upscale_in_train"}
    Out=[s] = square(X=[d]) role=forward
    Out=[loss] = reduce_mean(X=[s]) role=loss {dim=ints[], reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[s@GRAD] = reduce_mean_grad(X=[s], Out@GRAD=[loss@GRAD]) role=backward {dim=ints[], reduce_all=true}
    X@GRAD=[d@GRAD] = square_grad(X=[d], Out@GRAD=[s@GRAD]) role=backward
    X@GRAD=[n@GRAD] = dropout_grad(Mask=[mask], Out@GRAD=[d@GRAD]) role=backward {dropout_prob=0.5, dropout_implementation="upscale_in_train"}
    X@GRAD=[y@GRAD] = elementwise_add_grad(X=[y], Y=[noise], Out@GRAD=[n@GRAD]) role=backward {axis=-1}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    Beta1PowOut=[b1], Beta2PowOut=[b2], Moment1Out=[m1], Moment2Out=[m2], ParamOut=[w] = adam(Beta1Pow=[b1], Beta2Pow=[b2], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m1], Moment2=[m2], Param=[w]) role=optimize vars=[w, w@GRAD] {beta1=0.9, beta2=0.999, epsilon=1e-08}
)";

constexpr char kDropoutStartup[] = R"(
    var w : fp32[4, 3] parameter persistable
    var m1, m2 : fp32[4, 3] persistable
    var b1, b2, lr : fp32[1] persistable
    Out=[w] = uniform_random() {shape=longs[4, 3], dtype=5, min=-1.0, max=1.0, seed=0}
    Out=[m1] = fill_constant() {shape=longs[4, 3], dtype=5, value=0.0}
    Out=[m2] = fill_constant() {shape=longs[4, 3], dtype=5, value=0.0}
    Out=[b1] = fill_constant() {shape=longs[1], dtype=5, value=0.9}
    Out=[b2] = fill_constant() {shape=longs[1], dtype=5, value=0.999}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
)";

// w, of bf16, follows x; `last`, which is not persistable, is x where its sum has been positive for
// the last time.
constexpr char kLast[] = R"(
    var x : fp32[1] need_check_feed stop_gradient
    var w : bf16[1] parameter persistable
    Out=[zero] = fill_constant() {shape=longs[1], dtype=5, value=0.0}
    Out=[positive] = greater_than(X=[x], Y=[zero]) role=forward
    Out=[last], Scope=[scopes] = conditional_block(Cond=[positive], Input=[x]) {is_scalar_condition=true, sub_block=block(1)}
    Out=[last16] = cast(X=[last]) {in_dtype=5, out_dtype=22}
    Out=[w] = elementwise_add(X=[w], Y=[last16]) {axis=-1}
    Out=[loss] = cast(X=[w]) role=loss {in_dtype=22, out_dtype=5}
    block 1:
    Out=[last] = scale(X=[x]) {scale=1.0}
)";

constexpr char kLastStartup[] = R"(
    var w : bf16[1] parameter persistable
    Out=[w] = fill_constant() {shape=longs[1], dtype=22, value=0.5}
)";

absl::StatusOr<TrainingPrograms> FromText(const std::string& main, const std::string& startup) {
  Program main_program = testing::CompactProgram(main);
  Program startup_program = testing::CompactProgram(startup);
  FeedSource feeds = {{"x"}, [](int64_t step) {
                        std::vector<Tensor> tensors(1);
                        tensors[0].Resize(DType::kFloat32, {kBatch, 4});
                        for (int64_t i = 0; i < kBatch * 4; ++i) {
                          tensors[0].data<float>()[i] =
                              static_cast<float>((step * 31 + i * 17) % 13) / 13 - 0.4f;
                        }
                        return tensors;
                      }};
  return TrainingPrograms{
      std::move(main_program), std::move(startup_program), {"loss"}, {"w"}, std::move(feeds)};
}

TrainingPrograms Merged(int steps = 3) {
  TrainingSpec spec;
  spec.layers = {{2, weft::testing::Activation::kTanh, true}};
  spec.weights_by = OptimizerKind::kAdam;
  spec.biases_by = OptimizerKind::kMomentum;
  spec.merged_steps = steps;
  return BuildPrograms(spec);
}

absl::Status Rewrite(const std::string& mode, const std::map<std::string, std::string>& flags,
                     TrainingPrograms* programs) {
  TranspileOptions options;
  options.mode = mode;
  options.mode_flags = flags;
  ProgramPair pair{&programs->main, &programs->startup};
  return Transpile(options, pair).status();
}

std::string TestPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::string Contents(const std::string& path) {
  const absl::StatusOr<FileBytes> file = ReadFile(path);
  return file.ok() ? std::string(file->bytes) : file.status().ToString();
}

// Runs programs, and keeps their losses and checkpoints.
class Trainer {
 public:
  Trainer(const TrainingPrograms* programs, int nranks) : programs_(*programs) {
    options.kernels = &CpuKernels();
    options.nranks = nranks;
    options.steps = kSteps;
    options.seed = 5;
    options.timeout_s = 60;
  }

  absl::StatusOr<RunResult> Run(const Checkpoint* resume = nullptr) {
    losses.clear();
    files.clear();
    RunInputs inputs;
    inputs.main = &programs_.main;
    inputs.startup = &programs_.startup;
    inputs.feeds = programs_.feeds;
    inputs.resume = resume;
    inputs.on_result = [this](const StepResult& result) {
      const Tensor& loss = result.values[0];
      losses.emplace_back(static_cast<const char*>(loss.raw()), loss.bytes());
      if (on_step) on_step(result.step);
      return absl::OkStatus();
    };
    inputs.on_checkpoint = [this](Checkpoint checkpoint) -> absl::Status {
      // Without the steps of later ones.
      EXPECT_THAT(losses, SizeIs(options.nranks * (checkpoint.step - options.begin_step)));
      const std::string path = TestPath("state.ckpt");
      WEFT_RETURN_IF_ERROR(WriteCheckpoint(path, checkpoint));
      EXPECT_EQ(files.count(checkpoint.step), 0u) << "written twice";
      files[checkpoint.step] = Contents(path);
      return absl::OkStatus();
    };
    return RunProgram(inputs, options);
  }

  // Runs the rest of the steps.
  absl::StatusOr<RunResult> Resume(const std::string& file) {
    const std::string path = TestPath("resumed.ckpt");
    WEFT_RETURN_IF_ERROR(WriteFile(path, file));
    WEFT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, ReadCheckpoint(path));
    options.begin_step = checkpoint.step;
    options.steps = kSteps - checkpoint.step;
    return Run(&checkpoint);
  }

  RunOptions options;
  std::function<void(int64_t)> on_step;
  std::vector<std::string> losses;       // bits, by step and rank
  std::map<int64_t, std::string> files;  // checkpoints by step

 private:
  const TrainingPrograms& programs_;
};

Checkpoint Parse(const std::string& file) {
  const std::string path = TestPath("parsed.ckpt");
  EXPECT_THAT(WriteFile(path, file), IsOk());
  absl::StatusOr<Checkpoint> checkpoint = ReadCheckpoint(path);
  EXPECT_THAT(checkpoint.status(), IsOk());
  return checkpoint.ok() ? *std::move(checkpoint) : Checkpoint();
}

struct Case {
  const char* name;
  absl::StatusOr<TrainingPrograms> (*programs)();
  int nranks;
  bool differs;  // between ranks, in some step
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

absl::StatusOr<TrainingPrograms> Dropout() { return FromText(kDropout, kDropoutStartup); }
absl::StatusOr<TrainingPrograms> ParallelDropout() {
  WEFT_ASSIGN_OR_RETURN(TrainingPrograms programs, Dropout());
  WEFT_RETURN_IF_ERROR(Rewrite("grad_allreduce", {}, &programs));
  return programs;
}
absl::StatusOr<TrainingPrograms> OneMerged() { return Merged(); }
absl::StatusOr<TrainingPrograms> ParallelMerged() {
  TrainingPrograms programs = Merged();
  WEFT_RETURN_IF_ERROR(Rewrite("grad_allreduce", {}, &programs));
  return programs;
}
absl::StatusOr<TrainingPrograms> Accumulated(const std::string& more_passes) {
  WEFT_ASSIGN_OR_RETURN(TrainingPrograms programs, Dropout());
  TranspileOptions options;
  options.passes = absl::StrCat("grad-accumulate{k=3,skip_nonfinite=true}", more_passes);
  ProgramPair pair{&programs.main, &programs.startup};
  WEFT_RETURN_IF_ERROR(Transpile(options, pair).status());
  return programs;
}
absl::StatusOr<TrainingPrograms> OneAccumulated() { return Accumulated(""); }
absl::StatusOr<TrainingPrograms> ParallelAccumulated() {
  return Accumulated(",comm-init,broadcast-params,grad-all-reduce{buckets=bytes}");
}
absl::StatusOr<TrainingPrograms> LocalSgd() {
  WEFT_ASSIGN_OR_RETURN(TrainingPrograms programs, Dropout());
  WEFT_RETURN_IF_ERROR(Rewrite("local_sgd", {{"k_steps", "3"}}, &programs));
  return programs;
}
absl::StatusOr<TrainingPrograms> Outer() {
  WEFT_ASSIGN_OR_RETURN(TrainingPrograms programs, Dropout());
  WEFT_RETURN_IF_ERROR(Rewrite("local_sgd", {{"k_steps", "2"}, {"outer", "nesterov"}}, &programs));
  return programs;
}
// Checkpoints between a gradient and its use, too.
absl::StatusOr<TrainingPrograms> Streaming() {
  WEFT_ASSIGN_OR_RETURN(TrainingPrograms programs, Dropout());
  WEFT_RETURN_IF_ERROR(Rewrite("local_sgd",
                               {{"k_steps", "4"},
                                {"outer", "nesterov"},
                                {"delay", "1"},
                                {"mix", "0.5"},
                                {"comm_dtype", "bf16"}},
                               &programs));
  return programs;
}
// Between an average over groups and one over all ranks, too.
absl::StatusOr<TrainingPrograms> InGroups() {
  WEFT_ASSIGN_OR_RETURN(TrainingPrograms programs, Dropout());
  TranspileOptions options;
  options.mode = "local_sgd";
  options.mode_flags = {{"k_steps", "1"}, {"group_size", "2"}, {"rounds", "3"}};
  options.cluster.nranks = 4;
  ProgramPair pair{&programs.main, &programs.startup};
  WEFT_RETURN_IF_ERROR(Transpile(options, pair).status());
  return programs;
}
// Every parameter is a partition.
absl::StatusOr<TrainingPrograms> PartialUpdate() {
  TrainingPrograms programs = Merged(/*steps=*/1);
  WEFT_RETURN_IF_ERROR(Rewrite("singa_partial", {{"threshold", "0"}}, &programs));
  return programs;
}
absl::StatusOr<TrainingPrograms> Exchanging(const std::string& mode,
                                            const std::map<std::string, std::string>& flags) {
  WEFT_ASSIGN_OR_RETURN(TrainingPrograms programs, Dropout());
  WEFT_RETURN_IF_ERROR(Rewrite(mode, flags, &programs));
  return programs;
}
absl::StatusOr<TrainingPrograms> TopK() {
  return Exchanging("singa_sparse_topk", {{"spars", "0.1"}});
}
absl::StatusOr<TrainingPrograms> Threshold() {
  return Exchanging("singa_sparse_threshold", {{"spars", "0.05"}});
}
absl::StatusOr<TrainingPrograms> Half() { return Exchanging("singa_half", {{"clip", "1"}}); }
// Between two broadcasts.
absl::StatusOr<TrainingPrograms> Broadcasting() {
  return Exchanging("megengine", {{"reduce_method", "sum"}, {"bcast_period", "3"}});
}
absl::StatusOr<TrainingPrograms> Summed() {
  return Exchanging("mindspore_reducer", {{"accumulate_type", "native"}});
}
absl::StatusOr<TrainingPrograms> Plain() { return Exchanging("singa_plain", {}); }
absl::StatusOr<TrainingPrograms> Gathered() {
  WEFT_ASSIGN_OR_RETURN(TrainingPrograms programs, Dropout());
  TranspileOptions options;
  options.mode = "multi_thread";
  options.mode_flags = {{"trans_mode", "all_gather"}};
  options.cluster.nranks = 3;
  ProgramPair pair{&programs.main, &programs.startup};
  WEFT_RETURN_IF_ERROR(Transpile(options, pair).status());
  return programs;
}
// Momentum and learning rate depend on the step.
absl::StatusOr<TrainingPrograms> Scheduled() {
  WEFT_ASSIGN_OR_RETURN(TrainingPrograms programs, Dropout());
  TranspileOptions options;
  options.passes =
      "set-optimizer{lr=exp(0.1:2:0.5:staircase),momentum=exp(0.9:3:0.8)},comm-init,"
      "broadcast-params,grad-all-reduce{buckets=bytes}";
  ProgramPair pair{&programs.main, &programs.startup};
  WEFT_RETURN_IF_ERROR(Transpile(options, pair).status());
  return programs;
}
// The third rank trains its parameter alone.
absl::StatusOr<TrainingPrograms> Grouped() {
  WEFT_ASSIGN_OR_RETURN(TrainingPrograms programs, Dropout());
  TranspileOptions options;
  options.mode = "grad_allreduce";
  options.param_attrs["w"].group = RankGroup{"g0", {0, 1}};
  ProgramPair pair{&programs.main, &programs.startup};
  WEFT_RETURN_IF_ERROR(Transpile(options, pair).status());
  return programs;
}
absl::StatusOr<TrainingPrograms> Last() {
  WEFT_ASSIGN_OR_RETURN(TrainingPrograms programs, FromText(kLast, kLastStartup));
  programs.feeds = {{"x"}, [](int64_t step) {
                      std::vector<Tensor> tensors(1);
                      tensors[0].Resize(DType::kFloat32, {1});
                      const auto x = static_cast<float>(step + 1);
                      *tensors[0].data<float>() = step % 3 == 0 ? x : -x;
                      return tensors;
                    }};
  return programs;
}

class TrainCheckpointTest : public ::testing::TestWithParam<Case> {};

TEST_P(TrainCheckpointTest, RunGoesOnWithTheSameBitsFromEveryStep) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs, GetParam().programs());
  Trainer through(&programs, GetParam().nranks);
  WEFT_ASSERT_OK(through.Run().status());
  ASSERT_THAT(through.files, SizeIs(1));  // at the end
  const std::string end = through.files.at(kSteps);

  Trainer saving(&programs, GetParam().nranks);
  saving.options.checkpoint_every = 1;
  // Before step 0, too.
  saving.options.steps = 0;
  WEFT_ASSERT_OK(saving.Run().status());
  std::map<int64_t, std::string> files = saving.files;
  saving.options.steps = kSteps;
  WEFT_ASSERT_OK(saving.Run().status());
  EXPECT_EQ(saving.losses, through.losses);
  EXPECT_EQ(saving.files.at(kSteps), end);
  files.insert(saving.files.begin(), saving.files.end());
  ASSERT_THAT(files, SizeIs(kSteps + 1));

  bool differs = false;
  for (const auto& [step, file] : files) {
    for (const auto& own : Parse(file).own) differs = differs || !own.empty();
    Trainer resumed(&programs, GetParam().nranks);
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, resumed.Resume(file));
    EXPECT_EQ(result.end_step, kSteps);
    const auto rest = through.losses.begin() + step * GetParam().nranks;
    EXPECT_EQ(resumed.losses, std::vector<std::string>(rest, through.losses.end())) << step;
    EXPECT_EQ(resumed.files.at(kSteps), end) << step;
  }
  EXPECT_EQ(differs, GetParam().differs);
}

INSTANTIATE_TEST_SUITE_P(
    All, TrainCheckpointTest,
    ::testing::Values(
        Case{"Dropout", Dropout, 1, false}, Case{"DropoutOn3Ranks", ParallelDropout, 3, false},
        Case{"GradientMerge", OneMerged, 1, false},
        Case{"GradientMergeOn3Ranks", ParallelMerged, 3, true},
        Case{"Accumulated", OneAccumulated, 1, false},
        Case{"AccumulatedOn3Ranks", ParallelAccumulated, 3, true},
        Case{"LocalSgd", LocalSgd, 1, false}, Case{"LocalSgdOn3Ranks", LocalSgd, 3, true},
        Case{"OuterNesterovOn3Ranks", Outer, 3, true},
        Case{"StreamingOn2Ranks", Streaming, 2, true}, Case{"GroupsOn4Ranks", InGroups, 4, true},
        Case{"PartialUpdate", PartialUpdate, 1, false},
        Case{"PartialUpdateOn3Ranks", PartialUpdate, 3, true}, Case{"TopKOn3Ranks", TopK, 3, true},
        Case{"ThresholdOn3Ranks", Threshold, 3, true}, Case{"HalfOn3Ranks", Half, 3, false},
        Case{"BroadcastingOn3Ranks", Broadcasting, 3, false},
        Case{"SummedOn3Ranks", Summed, 3, false}, Case{"PlainOn3Ranks", Plain, 3, false},
        Case{"GatheredOn3Ranks", Gathered, 3, false},
        Case{"ScheduledOn3Ranks", Scheduled, 3, false}, Case{"GroupedOn3Ranks", Grouped, 3, true},
        Case{"ValueOfAnEarlierStep", Last, 1, false}),
    [](const auto& info) { return info.param.name; });

TEST(CheckpointOfARunTest, HoldsBf16AndWhatIsNotPersistableButReadLater) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs, Last());
  Trainer trainer(&programs, 1);
  WEFT_ASSERT_OK(trainer.Run().status());
  const Checkpoint checkpoint = Parse(trainer.files.at(kSteps));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : checkpoint.shared) names.push_back(name);
  EXPECT_THAT(names, ElementsAre(::testing::MatchesRegex("@step/[0-9]+/last"), "w"));
  EXPECT_EQ(checkpoint.shared.at("w").dtype(), DType::kBFloat16);
  EXPECT_THAT(checkpoint.random, ElementsAre(""));
}

TEST(CheckpointOfARunTest, AnotherNumberOfRanksGoesOnWhereRanksAreEqual) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs, LocalSgd());
  Trainer trainer(&programs, 3);
  trainer.options.checkpoint_every = 1;
  WEFT_ASSERT_OK(trainer.Run().status());
  Trainer resumed(&programs, 2);
  EXPECT_THAT(resumed.Resume(trainer.files.at(4)).status(),
              IsFailedPrecondition("checkpoint: expected 3 ranks, as when it was written, found 2: "
                                   "variable m1 differs between the ranks;"));
  EXPECT_THAT(resumed.losses, IsEmpty());

  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms parallel, ParallelDropout());
  Trainer equal(&parallel, 3);
  equal.options.checkpoint_every = 4;
  WEFT_ASSERT_OK(equal.Run().status());
  Trainer fewer(&parallel, 2);
  WEFT_ASSERT_OK(fewer.Resume(equal.files.at(4)).status());
  EXPECT_THAT(fewer.losses, SizeIs(2 * 3));
  equal.options.steps = 0;
  WEFT_ASSERT_OK(equal.Run().status());
  EXPECT_THAT(fewer.Resume(equal.files.at(0)).status(), IsFailedPrecondition("random numbers"));
}

TEST(CheckpointOfARunTest, AnotherProgramIsRefused) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs, Dropout());
  Trainer trainer(&programs, 1);
  WEFT_ASSERT_OK(trainer.Run().status());
  const std::string file = trainer.files.at(kSteps);
  const auto error = [&](const std::string& from, const std::string& to) {
    const auto other =
        FromText(absl::StrReplaceAll(kDropout, {{from, to}}), kDropoutStartup).value();
    return Trainer(&other, 1).Resume(file).status();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(error("var lr : fp32[1] persistable", "var lr : fp32[-1] persistable"), IsOk());
  EXPECT_THAT(error("var m1,", "var more : fp32[1] persistable\n    var m1,"),
              StatusIs(kInvalid,
                       "checkpoint: variable more: the program has it, but the checkpoint "
                       "does not"));
  EXPECT_THAT(error("m1", "m3"),
              StatusIs(kInvalid,
                       "checkpoint: variable m1: the program has no persistable variable "
                       "of that name"));
  EXPECT_THAT(error("var lr : fp32[1]", "var lr : fp32[1, 1]"),
              StatusIs(kInvalid, "checkpoint: variable lr: expected fp32[1, 1], found fp32[1]"));

  Trainer later(&programs, 1);
  later.options.begin_step = 3;
  const Checkpoint checkpoint = Parse(file);
  EXPECT_THAT(later.Run(&checkpoint).status(),
              StatusIs(kInvalid, "begin_step: expected the step of the checkpoint, 7, found 3"));
}

// Ranks without collectives are in different steps.
TEST(CheckpointOfARunTest, StopEndsTheRunBeforeTheSameStepOnAllRanks) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs, Dropout());
  for (int nranks : {1, 3}) {
    Trainer trainer(&programs, nranks);
    trainer.options.allow_unsynchronized = true;
    trainer.options.steps = 100'000;
    std::atomic<bool> stops{false};
    trainer.options.stop_requested = [&] { return stops.load(); };
    trainer.on_step = [&](int64_t step) { stops = step >= 5; };
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, trainer.Run());
    EXPECT_GE(result.end_step, 6);
    EXPECT_LT(result.end_step, 100);
    EXPECT_THAT(trainer.losses, SizeIs(nranks * result.end_step));
    ASSERT_THAT(trainer.files, SizeIs(1));
    const Checkpoint checkpoint = Parse(trainer.files.begin()->second);
    EXPECT_EQ(checkpoint.step, result.end_step);
    EXPECT_EQ(checkpoint.end_step, 100'000);
  }
}

TEST(CheckpointOfARunTest, RunThatFailsEndsWhileOtherRanksWaitWithTheirState) {
  WEFT_ASSERT_OK_AND_ASSIGN(TrainingPrograms programs, Dropout());
  Trainer trainer(&programs, 3);
  trainer.options.allow_unsynchronized = true;
  trainer.options.checkpoint_every = 2;
  trainer.options.timeout_s = 5;
  // A loss of rank 1 is infinite in step 3.
  programs.feeds.read = [read = programs.feeds.read](int64_t step) {
    auto batch = read(step);
    if (step == 3) (*batch)[0].data<float>()[5 * 4] = 1e30f;
    return batch;
  };
  EXPECT_THAT(trainer.Run().status(), IsFailedPrecondition("step 3, rank 1: loss"));
  EXPECT_THAT(trainer.files, SizeIs(1));
}

TEST(CheckpointOfARunTest, ErrorOfTheReceiverEndsTheRun) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs, ParallelDropout());
  RunOptions options = Trainer(&programs, 3).options;
  options.checkpoint_every = 2;
  int calls = 0;
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.feeds = programs.feeds;
  inputs.on_checkpoint = [&](const Checkpoint&) {
    return ++calls == 2 ? absl::UnavailableError("disk") : absl::OkStatus();
  };
  EXPECT_THAT(RunProgram(inputs, options).status(),
              StatusIs(absl::StatusCode::kUnavailable, "disk"));
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace weft::testing
