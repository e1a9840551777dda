// Programs on two devices train to the bits of one device: pass hetero-partition, the executor, and
// the simulated accelerator.
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "executor/checkpoint.h"
#include "executor/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/device_placement.h"
#include "ops/analysis/streams.h"
#include "ops/kernel.h"
#include "ops/schema/device_ops.h"
#include "proto/rewriter.h"
#include "proto/text/program_text.h"
#include "tests/training_programs.h"
#include "tests/training_spec.h"
#include "transpiler/transpile.h"
#include "transpiler/verify/verify.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::Activation;
using ::weft::testing::BuildPrograms;
using ::weft::testing::ClipKind;
using ::weft::testing::LossKind;
using ::weft::testing::OptimizerKind;
using ::weft::testing::StatusIs;
using ::weft::testing::TrainingPrograms;
using ::weft::testing::TrainingSpec;

constexpr int64_t kSteps = 4;
// With fused gradient buffers.
constexpr char kDataParallel[] =
    "comm-init,broadcast-params,scale-loss-grad,grad-all-reduce{buckets=bytes}";

// The bits of all losses, by step and rank, and then those of the parameters.
using Bits = std::map<std::string, std::string>;

std::string BitsOf(const Tensor& tensor) {
  return std::string(static_cast<const char*>(tensor.raw()), tensor.bytes());
}

struct Trained {
  Bits bits;
  ValueMemory memory;
};

absl::StatusOr<Trained> Train(const TrainingPrograms& programs, int ranks, RunOptions options = {},
                              RunInputs inputs = {}) {
  options.kernels = &CpuKernels();
  options.nranks = ranks;
  if (options.steps == 1) options.steps = kSteps;
  Trained trained;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.feeds = programs.feeds;
  inputs.on_result = [&trained](const StepResult& result) {
    for (size_t v = 0; v < result.values.size(); ++v) {
      const std::string key = absl::StrCat(result.step, "/", result.rank, "/", v);
      trained.bits[key] = BitsOf(result.values[v]);
    }
    return absl::OkStatus();
  };
  WEFT_ASSIGN_OR_RETURN(const RunResult result, RunProgram(inputs, options));
  for (const std::string& name : programs.parameters) {
    trained.bits[name] = BitsOf(result.persistables.at(name));
  }
  trained.memory = result.memory;
  return trained;
}

absl::Status Rewrite(const std::string& passes, int ranks, TrainingPrograms* programs) {
  TranspileOptions options;
  options.passes = passes;
  options.cluster.nranks = ranks;
  ProgramPair pair{&programs->main, &programs->startup};
  return Transpile(options, pair).status();
}

TrainingSpec Layers() {
  TrainingSpec spec;
  spec.layers = {{8, Activation::kTanh, /*bias=*/true},
                 {6, Activation::kRelu, /*bias=*/true},
                 {3, Activation::kNone, /*bias=*/true}};
  spec.head.layer = 3;  // on top of them
  return spec;
}

struct Case {
  const char* name;
  TrainingSpec spec;
  const char* place;
};

std::vector<Case> Cases() {
  TrainingSpec adam = Layers();
  adam.weights_by = adam.biases_by = OptimizerKind::kAdam;
  TrainingSpec clipped = Layers();
  clipped.weights_by = OptimizerKind::kMomentum;
  clipped.clip = ClipKind::kByGlobalNorm;
  TrainingSpec merged = adam;
  merged.merged_steps = 2;
  TrainingSpec lookups = Layers();
  lookups.lookups = 2;
  lookups.sparse = true;
  return {
      {"Adam", adam, "type:adam=cpu"},
      {"ClippedMomentum", clipped, "type:momentum=cpu,type:sgd=cpu"},
      {"ClippingOnTheHost", clipped, "type:momentum=cpu,type:s*=cpu,type:elementwise_mul=cpu"},
      {"ActivationsOnTheHost", adam, "type:tanh*=cpu,type:relu*=cpu"},
      {"GradientsOnTheHost", adam, "type:elementwise_add_grad=cpu"},
      {"BackwardOnTheHost", clipped, "type:*_grad=cpu"},
      {"MergedGradients", merged, "type:conditional_block=cpu"},
      {"SparseLookups", lookups, "type:lookup_table*=cpu,type:sgd=cpu"},
      {"ForwardOnTheAcceleratorOnly", adam, "type:mul=sim,type:tanh=sim"},
  };
}

class TrainPlaced : public ::testing::TestWithParam<Case> {};

TEST_P(TrainPlaced, HasTheBitsOfOneDevice) {
  for (const int ranks : {1, 2}) {
    TrainingPrograms programs = BuildPrograms(GetParam().spec);
    if (ranks > 1) {
      WEFT_ASSERT_OK(Rewrite(kDataParallel, ranks, &programs));
    }
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(programs, ranks));
    for (const char* order : {"early_start", "few_switches", "early_start,staging=double"}) {
      TrainingPrograms placed = programs;
      WEFT_ASSERT_OK(Rewrite(
          absl::StrCat("hetero-partition{order=", order, ",place=\"", GetParam().place, "\"}"),
          ranks, &placed));
      ASSERT_TRUE(IsOnTwoDevices(placed.main));
      WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(placed, ranks));
      EXPECT_EQ(trained.bits, expected.bits) << order << ", " << ranks << " ranks";
    }
  }
}

Program Placed(const Case& of, int ranks) {
  TrainingPrograms programs = BuildPrograms(of.spec);
  if (ranks > 1) {
    WEFT_EXPECT_OK(Rewrite(kDataParallel, ranks, &programs));
  }
  const std::string passes = absl::StrCat("hetero-partition{place=\"", of.place, "\"}");
  WEFT_EXPECT_OK(Rewrite(passes, ranks, &programs));
  return programs.main;
}

TEST_P(TrainPlaced, ResumesWithTheSameBits) {
  constexpr int kRanks = 2;
  constexpr int64_t kHalf = kSteps / 2;
  TrainingPrograms programs = BuildPrograms(GetParam().spec);
  WEFT_ASSERT_OK(Rewrite(kDataParallel, kRanks, &programs));
  const TrainingPrograms on_one_device = programs;
  for (const char* staging : {"all", "double"}) {
    SCOPED_TRACE(staging);
    programs = on_one_device;
    const std::string passes =
        absl::StrCat("hetero-partition{place=\"", GetParam().place, "\",staging=", staging, "}");
    WEFT_ASSERT_OK(Rewrite(passes, kRanks, &programs));
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained whole, Train(programs, kRanks));

    const std::string file = absl::StrCat(::testing::TempDir(), "/placed_", GetParam().name);
    RunOptions half;
    half.steps = kHalf;
    RunInputs writes;
    writes.on_checkpoint = [&file](Checkpoint checkpoint) {
      return WriteCheckpoint(file, checkpoint);
    };
    WEFT_ASSERT_OK(Train(programs, kRanks, half, writes).status());
    WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, ReadCheckpoint(file));
    RunInputs resumes;
    resumes.resume = &checkpoint;
    half.begin_step = kHalf;
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained resumed, Train(programs, kRanks, half, resumes));
    for (const auto& [name, bits] : resumed.bits) EXPECT_EQ(bits, whole.bits.at(name)) << name;
  }
}

// Mutants: the verifier finds each wait that is missing, and each op on the wrong device.
TEST_P(TrainPlaced, EveryWaitIsNeeded) {
  for (const int ranks : {1, 2}) {
    const Program placed = Placed(GetParam(), ranks);
    int num_waits = 0;
    for (OpId id : placed.block(0).ops()) {
      if (placed.op(id).type() != "stream_wait") continue;
      Program mutant = placed;
      Rewriter rewriter(&mutant);
      rewriter.Erase(id);
      WEFT_ASSERT_OK(rewriter.Commit());
      EXPECT_FALSE(AnalyzeStreams(mutant).races.empty()) << placed.op(id).DebugName();
      ++num_waits;
    }
    EXPECT_GT(num_waits, 0);
  }
}

TEST_P(TrainPlaced, EveryCopyIsNeeded) {
  const TrainingPrograms original = BuildPrograms(GetParam().spec);
  const Program placed = Placed(GetParam(), 1);
  VerifyOptions options;
  options.nranks = 1;
  options.original = {&original.main, &original.startup};
  EXPECT_FALSE(Verify({{&placed, &original.startup}}, options).HasErrors());
  int num_copies = 0;
  for (OpId id : placed.block(0).ops()) {
    if (!CopiesFrom(placed.op(id).type()).has_value()) continue;
    Program mutant = placed;
    Rewriter rewriter(&mutant);
    rewriter.Erase(id);
    WEFT_ASSERT_OK(rewriter.Commit());
    EXPECT_TRUE(Verify({{&mutant, &original.startup}}, options).HasErrors())
        << placed.op(id).DebugName();
    ++num_copies;
  }
  EXPECT_GT(num_copies, 0);
}

TEST_P(TrainPlaced, OpOnTheOtherDeviceIsFound) {
  const Program placed = Placed(GetParam(), 1);
  for (OpId id : placed.block(0).ops()) {
    pb::OpDesc desc = placed.op(id).ToProto();
    if (placed.op(id).StringAttr("op_device") != "cpu") continue;
    for (pb::OpDesc::Attr& attr : *desc.mutable_attrs()) {
      if (attr.name() == "op_device") attr.set_s("sim");
    }
    Program mutant = placed;
    Rewriter rewriter(&mutant);
    rewriter.Replace(id, desc);
    WEFT_ASSERT_OK(rewriter.Commit());
    const DevicePlacement placement(mutant);
    EXPECT_FALSE(placement.clashes().empty() && placement.strays().empty())
        << placed.op(id).DebugName();
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, TrainPlaced, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// y = tanh(h) tanh(h) in every second step, and its gradient: the loss is the sum of y.
constexpr char kBranch[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var w : fp32[4] parameter persistable
    var odd : bool[1] persistable
    var lr : fp32[1] persistable
    var h : fp32[4]
    var y : fp32[4]
    var scope : step_scopes
    var y@GRAD : fp32[4]
    var g : fp32[4]
    var w@GRAD : fp32[4]
    Out=[odd] = logical_not(X=[odd])
    Out=[h] = scale(X=[w]) {scale=0.5}
    Out=[y], Scope=[scope] = conditional_block(Cond=[odd], Input=[h]) {is_scalar_condition=true, sub_block=block(1)}
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[4], dtype=5, value=1.0}
    Input@GRAD=[g] = conditional_block_grad(Cond=[odd], Input=[h], Out@GRAD=[y@GRAD], Scope=[scope]) role=backward {is_scalar_condition=true, sub_block=block(2)}
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=0.5}
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
  }
  block 1 parent=0 {
    var t : fp32[4]
    Out=[t] = tanh(X=[h])
    Out=[y] = elementwise_mul(X=[t], Y=[t]) {axis=-1}
  }
  block 2 parent=0 forward=1 {
    var left : fp32[4]
    var right : fp32[4]
    var t@GRAD : fp32[4]
    var h@GRAD : fp32[4]
    X@GRAD=[left], Y@GRAD=[right] = elementwise_mul_grad(Out@GRAD=[y@GRAD], X=[t], Y=[t]) role=backward {axis=-1}
    Out=[t@GRAD] = sum(X=[left, right]) role=backward
    X@GRAD=[h@GRAD] = tanh_grad(Out=[t], Out@GRAD=[t@GRAD]) role=backward
  }
})";
constexpr char kBranchStartup[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var w : fp32[4] persistable
    var odd : bool[1] persistable
    var lr : fp32[1] persistable
    Out=[w] = uniform_random() {shape=longs[4], dtype=5, min=0.5, max=2.0, seed=1}
    Out=[odd] = fill_constant() {shape=longs[1], dtype=0, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
  }
})";

TEST(TrainPlacedBlocks, BranchAndItsGradientHaveTheBitsOfOneDevice) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program main, ParseProgramText(kBranch));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program startup, ParseProgramText(kBranchStartup));
  const TrainingPrograms programs{main, startup, {}, {"w"}, {}};
  std::vector<Bits> after;  // so many steps
  for (int64_t steps = 2; steps <= kSteps; ++steps) {
    RunOptions options;
    options.steps = steps;
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(programs, /*ranks=*/1, options));
    after.push_back(trained.bits);
  }
  // The branch runs in steps 0 and 2, and not in step 3.
  ASSERT_NE(after[1].at("w"), after[0].at("w"));
  ASSERT_EQ(after[2].at("w"), after[1].at("w"));
  for (const char* rule : {"type:tanh_grad=cpu", "type:tanh=cpu", "type:scale=cpu"}) {
    for (const char* order : {"early_start", "few_switches", "early_start,staging=double"}) {
      TrainingPrograms placed = programs;
      WEFT_ASSERT_OK(
          Rewrite(absl::StrCat("hetero-partition{place=\"", rule, "\",order=", order, "}"),
                  /*ranks=*/1, &placed));
      ASSERT_TRUE(IsOnTwoDevices(placed.main));
      WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(placed, /*ranks=*/1));
      EXPECT_EQ(trained.bits, after.back()) << rule << " " << order;
    }
  }
}

TEST(TrainPlacedBuffers, CollectivesOnTheHostHaveTheBitsOfOneDevice) {
  constexpr int kRanks = 2;
  TrainingPrograms programs = BuildPrograms(Layers());
  WEFT_ASSERT_OK(Rewrite(kDataParallel, kRanks, &programs));
  ASSERT_THAT(ProgramText(programs.main), HasSubstr("coalesce_tensor"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(programs, kRanks));
  WEFT_ASSERT_OK(Rewrite("hetero-partition{place=\"type:c_allreduce*=cpu,type:tanh_grad=cpu\"}",
                         kRanks, &programs));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(programs, kRanks));
  EXPECT_EQ(trained.bits, expected.bits);
}

// --- Buckets on their way to the host ------------------------------------------------------------

// All layers but the first and the last have the same sizes.
TrainingSpec EqualLayers() {
  TrainingSpec spec;
  for (int i = 0; i < 8; ++i) spec.layers.push_back({6, Activation::kTanh, /*bias=*/true});
  spec.layers.push_back({3, Activation::kNone, /*bias=*/true});
  spec.head.layer = static_cast<int>(spec.layers.size());
  spec.weights_by = spec.biases_by = OptimizerKind::kAdam;
  return spec;
}

// Two ranks that update on the host, with so many gradients in a bucket.
TrainingPrograms Buckets(absl::string_view staging, int count) {
  TrainingPrograms programs = BuildPrograms(EqualLayers());
  const std::string passes = absl::StrCat(
      "comm-init,broadcast-params,scale-loss-grad,grad-all-reduce{buckets=\"count{count=", count,
      "}\"},hetero-partition{place=\"type:adam=cpu\",staging=", staging, "}");
  WEFT_EXPECT_OK(Rewrite(passes, /*ranks=*/2, &programs));
  return programs;
}

int CountOps(const Program& program, absl::string_view type) {
  int count = 0;
  for (OpId id : program.block(0).ops()) count += program.op(id).type() == type ? 1 : 0;
  return count;
}

// Of a coalesce_tensor as text.
std::vector<std::string> SlicesIn(absl::string_view line) {
  line.remove_prefix(line.find("Input=[") + 7);
  return absl::StrSplit(line.substr(0, line.find(']')), ", ");
}

TEST(TrainPlacedBuckets, EachIsOneCopy) {
  for (const char* staging : {"all", "double"}) {
    const TrainingPrograms programs = Buckets(staging, 2);
    EXPECT_EQ(CountOps(programs.main, "c_allreduce_sum"), 10);
    EXPECT_EQ(CountOps(programs.main, "memcpy_d2h"), 10);
    EXPECT_EQ(CountOps(programs.main, "coalesce_tensor"), 20);
  }
}

// Clipping by the global norm changes gradients one by one after they are reduced, in place.
TEST(TrainPlacedBuckets, EachIsOneCopyAlsoIfGradientsAreClipped) {
  constexpr int kRanks = 2;
  TrainingSpec spec = EqualLayers();
  spec.clip = ClipKind::kByGlobalNorm;
  TrainingPrograms programs = BuildPrograms(spec);
  std::vector<std::string> lines;
  const std::string text = ProgramText(programs.main);
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const bool declares_clipped =
        absl::StartsWith(line, "    var ") && absl::StrContains(line, "@GRAD@CLIP_0 :");
    if (!declares_clipped) lines.push_back(absl::StrReplaceAll(line, {{"@GRAD@CLIP_0", "@GRAD"}}));
  }
  WEFT_ASSERT_OK_AND_ASSIGN(programs.main, ParseProgramText(absl::StrJoin(lines, "\n")));
  WEFT_ASSERT_OK(Rewrite(
      "comm-init,broadcast-params,scale-loss-grad,grad-all-reduce{buckets=\"count{count=2}\"}",
      kRanks, &programs));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(programs, kRanks));
  for (const char* options : {"order=early_start", "order=few_switches", "staging=double"}) {
    TrainingPrograms placed = programs;
    WEFT_ASSERT_OK(Rewrite(absl::StrCat("hetero-partition{place=\"type:adam=cpu\",", options, "}"),
                           kRanks, &placed));
    EXPECT_EQ(CountOps(placed.main, "memcpy_d2h"), 10) << options;
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(placed, kRanks));
    EXPECT_EQ(trained.bits, expected.bits) << options;
  }
}

TEST(TrainPlacedBuckets, TakingTurnsNeedTheMemoryOfTwo) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained all, Train(Buckets("all", 2), /*ranks=*/2));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained two, Train(Buckets("double", 2), /*ranks=*/2));
  EXPECT_EQ(two.bits, all.bits);
  constexpr int64_t kBucket = 2 * 256;  // 6 x 6 and 6 elements, aligned
  EXPECT_GE(all.memory.host_live, 10 * kBucket);
  EXPECT_LE(two.memory.host_live, 3 * kBucket);
  EXPECT_LE(two.memory.live, all.memory.live - 2 * kBucket);
  EXPECT_EQ(two.memory.host_kept, all.memory.host_kept);
}

// Every second batch has half of its rows.
FeedSource WithHalfBatches(FeedSource feeds) {
  feeds.types = nullptr;
  feeds.read = [read = feeds.read](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> batch, read(step));
    if (step % 2 == 0) return batch;
    for (Tensor& tensor : batch) {
      Dims dims = tensor.dims();
      dims[0] /= 2;
      Tensor half;
      half.Resize(tensor.dtype(), dims);
      std::memcpy(half.raw(), tensor.raw(), half.bytes());
      tensor = std::move(half);
    }
    return batch;
  };
  return feeds;
}

// Buffers of two devices lie in arenas, which steps of two sizes share.
TEST(TrainPlacedBuckets, BatchesOfTwoSizesHaveTheBitsOfOneDevice) {
  constexpr int kRanks = 2;
  TrainingPrograms whole = BuildPrograms(EqualLayers());
  WEFT_ASSERT_OK(Rewrite(
      "comm-init,broadcast-params,scale-loss-grad,grad-all-reduce{buckets=\"count{count=2}\"}",
      kRanks, &whole));
  whole.feeds = WithHalfBatches(whole.feeds);
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(whole, kRanks));
  for (const char* staging : {"all", "double"}) {
    TrainingPrograms placed = Buckets(staging, 2);
    placed.feeds = WithHalfBatches(placed.feeds);
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(placed, kRanks));
    EXPECT_EQ(trained.bits, expected.bits) << staging;
  }
}

// Mutants: the verifier finds buffers of the host whose slices are not those of the accelerator.
TEST(TrainPlacedBuckets, BufferOnTheHostHasTheSlicesOfTheOther) {
  const TrainingPrograms original = BuildPrograms(EqualLayers());
  const TrainingPrograms programs = Buckets("double", 4);
  VerifyOptions options;
  options.nranks = 2;
  options.original = {&original.main, &original.startup};
  const std::string text = ProgramText(programs.main);
  const auto has_errors = [&](const std::string& mutant) {
    const absl::StatusOr<Program> main = ParseProgramText(mutant);
    WEFT_EXPECT_OK(main.status());
    return main.ok() && Verify({{&*main, &programs.startup}}, options).HasErrors();
  };
  EXPECT_FALSE(has_errors(text));
  const size_t begin = text.find("FusedOutput=[fused_gradient_2@CPU");
  ASSERT_NE(begin, std::string::npos);
  const std::string line = text.substr(begin, text.find('\n', begin) - begin);
  const auto with = [&](const std::string& other) {
    EXPECT_NE(other, line);
    return absl::StrReplaceAll(text, {{line, other}});
  };
  EXPECT_TRUE(has_errors(with("")));
  EXPECT_TRUE(has_errors(with(absl::StrReplaceAll(line, {{"size=256", "size=128"}}))));
  EXPECT_TRUE(has_errors(with(absl::StrReplaceAll(line, {{"[6, 6", "[6, 3"}}))));
  EXPECT_TRUE(has_errors(with(absl::StrReplaceAll(line, {{", op_device=\"cpu\"", ""}}))));
  // Two gradients of the same size change places.
  const std::vector<std::string> names = SlicesIn(line);
  ASSERT_EQ(names.size(), 4);
  EXPECT_TRUE(
      has_errors(with(absl::StrReplaceAll(line, {{names[0], names[2]}, {names[2], names[0]}}))));
}

TEST(TrainPlacedMemory, StatesLeaveTheAccelerator) {
  TrainingSpec spec = Cases()[0].spec;
  for (size_t i = 0; i < 2; ++i) spec.layers[i].width = 96;  // parameters outweigh activations
  TrainingPrograms programs = BuildPrograms(spec);
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained whole, Train(programs, 1));
  WEFT_ASSERT_OK(Rewrite("hetero-partition{place=\"type:adam=cpu\"}", 1, &programs));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained placed, Train(programs, 1));
  EXPECT_FALSE(whole.memory.on_two_devices);
  ASSERT_TRUE(placed.memory.on_two_devices);
  EXPECT_LT(placed.memory.kept, whole.memory.kept / 10);
  EXPECT_LT(static_cast<double>(placed.memory.kept + placed.memory.arena),
            0.8 * static_cast<double>(whole.memory.kept + whole.memory.arena));
  EXPECT_GT(placed.memory.host_kept, 0);
}

TEST(TrainPlacedMemory, ProgramThatDoesNotFitIsRefused) {
  TrainingPrograms programs = BuildPrograms(Cases()[0].spec);
  WEFT_ASSERT_OK(Rewrite("hetero-partition{place=\"type:adam=cpu\"}", 1, &programs));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained placed, Train(programs, 1));
  RunOptions options;
  options.sim.memory_bytes = 512;
  EXPECT_THAT(Train(programs, 1, options).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("out of memory")));
}

// One device with a memory of that size.
TEST(TrainPlacedMemory, ProgramOnOneDeviceHasToFitToo) {
  TrainingPrograms programs = BuildPrograms(Cases()[0].spec);
  WEFT_ASSERT_OK(Rewrite(kDataParallel, 2, &programs));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained whole, Train(programs, 2));
  RunOptions options;
  options.sim.memory_bytes = whole.memory.kept + whole.memory.arena + 4096;
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained fits, Train(programs, 2, options));
  EXPECT_EQ(fits.bits, whole.bits);
  options.sim.memory_bytes = whole.memory.kept + whole.memory.arena - 4096;
  EXPECT_THAT(
      Train(programs, 2, options).status(),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("bytes kept between steps")));
}

// Two chains of products that do not depend on each other.
constexpr char kChains[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var a : fp32[512, 512] persistable
    var b : fp32[512, 512] persistable
    var a1 : fp32[512, 512]
    var a2 : fp32[512, 512]
    var b1 : fp32[512, 512]
    var b2 : fp32[512, 512]
    Out=[a1] = mul(X=[a], Y=[a])
    Out=[a2] = mul(X=[a1], Y=[a])
    Out=[a1] = mul(X=[a2], Y=[a])
    Out=[a2] = mul(X=[a1], Y=[a])
    Out=[b1] = mul(X=[b], Y=[b])
    Out=[b2] = mul(X=[b1], Y=[b])
    Out=[b1] = mul(X=[b2], Y=[b])
    Out=[b2] = mul(X=[b1], Y=[b])
    Out=[a1] = elementwise_add(X=[a2], Y=[b2])
  }
})";
constexpr char kChainsStartup[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var a : fp32[512, 512] persistable
    var b : fp32[512, 512] persistable
    Out=[a] = fill_constant() {shape=longs[512, 512], dtype=5, value=0.01}
    Out=[b] = fill_constant() {shape=longs[512, 512], dtype=5, value=0.02}
  }
})";

TEST(TrainPlacedTrace, IndependentSegmentsRunAtTheSameTime) {
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, ParseProgramText(kChains));
  WEFT_ASSERT_OK_AND_ASSIGN(Program startup, ParseProgramText(kChainsStartup));
  TrainingPrograms programs{main, startup, {}, {}, {}};
  WEFT_ASSERT_OK(Rewrite("hetero-partition{place=\"name:b*=cpu\"}", 1, &programs));
  bool overlap = false;
  RunInputs inputs;
  inputs.on_trace = [&overlap](const StepTrace& trace) {
    std::map<std::string, const std::vector<OpSpan>*> spans;
    for (size_t s = 0; s < trace.spans.size(); ++s) {
      spans[trace.plan->stream_names[s]] = &trace.spans[s];
    }
    const std::vector<OpSpan>&compute = *spans.at("compute"), &host = *spans.at("cpu");
    EXPECT_EQ(compute.size(), 5);
    EXPECT_EQ(host.size(), 4);
    EXPECT_EQ(spans.at("h2d")->size(), 1);
    EXPECT_EQ(spans.at("d2h")->size(), 0);
    overlap |= host.front().begin < compute[3].end && compute.front().begin < host.back().end;
    return absl::OkStatus();
  };
  RunOptions options;
  options.fetch = {"a1"};
  WEFT_ASSERT_OK(Train(programs, 1, options, inputs).status());
  EXPECT_TRUE(overlap);
}

TEST(TrainPlacedErrors, OpThatUsesTheOtherMemoryIsNamed) {
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, ParseProgramText(kChains));
  WEFT_ASSERT_OK_AND_ASSIGN(Program startup, ParseProgramText(kChainsStartup));
  TrainingPrograms programs{main, startup, {}, {}, {}};
  WEFT_ASSERT_OK(Rewrite("hetero-partition{place=\"name:b*=cpu\"}", 1, &programs));
  // The sum reads the mirror; now the host's variable.
  const std::string text = ProgramText(programs.main);
  const std::string wrong = absl::StrReplaceAll(text, {{"Y=[b2@SIM]", "Y=[b2]"}});
  ASSERT_NE(wrong, text);
  WEFT_ASSERT_OK_AND_ASSIGN(programs.main, ParseProgramText(wrong));
  EXPECT_THAT(Train(programs, 1).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("(elementwise_add) input b2: expected a variable in the memory of "
                                 "the accelerator, found one in that of the host")));
}

}  // namespace
}  // namespace weft
