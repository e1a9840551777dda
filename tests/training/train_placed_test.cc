// Programs on two devices train to the bits of one device: pass hetero-partition, the executor, and
// the simulated accelerator.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "executor/files/checkpoint.h"
#include "executor/run/runner.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/analysis/streams/streams.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/schema/device_ops.h"
#include "proto/rewriter.h"
#include "proto/text/program_text.h"
#include "tests/training/placed_training.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

struct Case {
  const char* name;
  TrainingSpec spec;
  const char* place;
};

std::vector<Case> Cases() {
  const auto [adam, clipped, merged, lookups] = SpecsToPlace();
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
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, TrainOnHost(programs, ranks));
    for (const char* order : {"early_start", "few_switches", "early_start,staging=double"}) {
      TrainingPrograms placed = programs;
      WEFT_ASSERT_OK(Rewrite(
          absl::StrCat("hetero-partition{order=", order, ",place=\"", GetParam().place, "\"}"),
          ranks, &placed));
      ASSERT_TRUE(IsOnTwoDevices(placed.main));
      WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, TrainOnHost(placed, ranks));
      EXPECT_EQ(trained.bits(), expected.bits()) << order << ", " << ranks << " ranks";
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
  constexpr int64_t kHalf = kHostSteps / 2;
  TrainingPrograms programs = BuildPrograms(GetParam().spec);
  WEFT_ASSERT_OK(Rewrite(kDataParallel, kRanks, &programs));
  const TrainingPrograms on_one_device = programs;
  for (const char* staging : {"all", "double"}) {
    SCOPED_TRACE(staging);
    programs = on_one_device;
    const std::string passes =
        absl::StrCat("hetero-partition{place=\"", GetParam().place, "\",staging=", staging, "}");
    WEFT_ASSERT_OK(Rewrite(passes, kRanks, &programs));
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained whole, TrainOnHost(programs, kRanks));

    const std::string file = absl::StrCat(::testing::TempDir(), "/placed_", GetParam().name);
    RunOptions half;
    half.steps = kHalf;
    RunInputs writes;
    writes.on_checkpoint = [&file](Checkpoint checkpoint) {
      return WriteCheckpoint(file, checkpoint);
    };
    WEFT_ASSERT_OK(TrainOnHost(programs, kRanks, half, writes).status());
    WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, ReadCheckpoint(file));
    RunInputs resumes;
    resumes.resume = &checkpoint;
    half.begin_step = kHalf;
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained resumed, TrainOnHost(programs, kRanks, half, resumes));
    for (const auto& [name, bits] : resumed.bits()) EXPECT_EQ(bits, whole.bits().at(name)) << name;
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
  options.setting.nranks = 1;
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

INSTANTIATE_TEST_SUITE_P(Placements, TrainPlaced, ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// y = tanh(h) tanh(h) in every second step, and its gradient: the loss is the sum of y.
constexpr char kBranch[] = R"(
    var w : fp32[4] parameter persistable
    var odd : bool[1] persistable
    var lr : fp32[1] persistable
    Out=[odd] = logical_not(X=[odd])
    Out=[h] = scale(X=[w]) {scale=0.5}
    Out=[y], Scope=[scope] = conditional_block(Cond=[odd], Input=[h]) {is_scalar_condition=true, sub_block=block(1)}
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[4], dtype=5, value=1.0}
    Input@GRAD=[g] = conditional_block_grad(Cond=[odd], Input=[h], Out@GRAD=[y@GRAD], Scope=[scope]) role=backward {is_scalar_condition=true, sub_block=block(2)}
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=0.5}
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize
    block 1:
    var t : fp32[4]
    Out=[t] = tanh(X=[h])
    Out=[y] = elementwise_mul(X=[t], Y=[t]) {axis=-1}
    block 2 parent=0 forward=1:
    var left, right, t@GRAD, h@GRAD : fp32[4]
    X@GRAD=[left], Y@GRAD=[right] = elementwise_mul_grad(Out@GRAD=[y@GRAD], X=[t], Y=[t]) role=backward {axis=-1}
    Out=[t@GRAD] = sum(X=[left, right]) role=backward
    X@GRAD=[h@GRAD] = tanh_grad(Out=[t], Out@GRAD=[t@GRAD]) role=backward
)";
constexpr char kBranchStartup[] = R"(
    var w : fp32[4] persistable
    var odd : bool[1] persistable
    var lr : fp32[1] persistable
    Out=[w] = uniform_random() {shape=longs[4], dtype=5, min=0.5, max=2.0, seed=1}
    Out=[odd] = fill_constant() {shape=longs[1], dtype=0, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.1}
)";

TEST(TrainPlacedBlocks, BranchAndItsGradientHaveTheBitsOfOneDevice) {
  const Program main = testing::CompactProgram(kBranch);
  const Program startup = testing::CompactProgram(kBranchStartup);
  const TrainingPrograms programs{main, startup, {}, {"w"}, {}};
  std::vector<std::map<std::string, std::string>> after;  // so many steps
  for (int64_t steps = 2; steps <= kHostSteps; ++steps) {
    RunOptions options;
    options.steps = steps;
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, TrainOnHost(programs, /*ranks=*/1, options));
    after.push_back(trained.bits());
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
      WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, TrainOnHost(placed, /*ranks=*/1));
      EXPECT_EQ(trained.bits(), after.back()) << rule << " " << order;
    }
  }
}

// Gradients that a branch updates by, merged over two steps, are merged on its device.
TEST(TrainPlacedBlocks, MergedGradientsTravelOnceAStep) {
  for (const int ranks : {1, 2}) {
    TrainingPrograms programs = BuildPrograms(SpecsToPlace().merged);
    if (ranks > 1) {
      WEFT_ASSERT_OK(Rewrite(kDataParallel, ranks, &programs));
    }
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, TrainOnHost(programs, ranks));
    WEFT_ASSERT_OK(
        Rewrite("optimizer-offload,hetero-partition{place=op_device}", ranks, &programs));
    // Parameters go to the accelerator, gradients and the condition of the branch to the host.
    const auto num_parameters = static_cast<int>(programs.parameters.size());
    EXPECT_EQ(CountOps(programs.main, "memcpy_h2d"), num_parameters);
    EXPECT_EQ(CountOps(programs.main, "memcpy_d2h"), num_parameters + 1);
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, TrainOnHost(programs, ranks));
    EXPECT_EQ(trained.bits(), expected.bits()) << ranks << " ranks";
  }
}

TEST(TrainPlacedMemory, StatesLeaveTheAccelerator) {
  TrainingSpec spec = Cases()[0].spec;
  for (size_t i = 0; i < 2; ++i) spec.layers[i].width = 96;  // parameters outweigh activations
  TrainingPrograms programs = BuildPrograms(spec);
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained whole, TrainOnHost(programs, 1));
  WEFT_ASSERT_OK(Rewrite("hetero-partition{place=\"type:adam=cpu\"}", 1, &programs));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained placed, TrainOnHost(programs, 1));
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
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained placed, TrainOnHost(programs, 1));
  RunOptions options;
  options.sim.memory_bytes = 512;
  EXPECT_THAT(TrainOnHost(programs, 1, options).status(), IsResourceExhausted("out of memory"));
}

// One device with a memory of that size.
TEST(TrainPlacedMemory, ProgramOnOneDeviceHasToFitToo) {
  TrainingPrograms programs = BuildPrograms(Cases()[0].spec);
  WEFT_ASSERT_OK(Rewrite(kDataParallel, 2, &programs));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained whole, TrainOnHost(programs, 2));
  RunOptions options;
  options.sim.memory_bytes = whole.memory.kept + whole.memory.arena + 4096;
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained fits, TrainOnHost(programs, 2, options));
  EXPECT_EQ(fits.bits(), whole.bits());
  options.sim.memory_bytes = whole.memory.kept + whole.memory.arena - 4096;
  EXPECT_THAT(TrainOnHost(programs, 2, options).status(),
              IsResourceExhausted("bytes kept between steps"));
}

// Two chains of products that do not depend on each other.
constexpr char kChains[] = R"(
    var a, b : fp32[512, 512] persistable
    Out=[a1] = mul(X=[a], Y=[a])
    Out=[a2] = mul(X=[a1], Y=[a])
    Out=[a1] = mul(X=[a2], Y=[a])
    Out=[a2] = mul(X=[a1], Y=[a])
    Out=[b1] = mul(X=[b], Y=[b])
    Out=[b2] = mul(X=[b1], Y=[b])
    Out=[b1] = mul(X=[b2], Y=[b])
    Out=[b2] = mul(X=[b1], Y=[b])
    Out=[a1] = elementwise_add(X=[a2], Y=[b2])
)";
constexpr char kChainsStartup[] = R"(
    var a, b : fp32[512, 512] persistable
    Out=[a] = fill_constant() {shape=longs[512, 512], dtype=5, value=0.01}
    Out=[b] = fill_constant() {shape=longs[512, 512], dtype=5, value=0.02}
)";

TEST(TrainPlacedTrace, IndependentSegmentsRunAtTheSameTime) {
  Program main = testing::CompactProgram(kChains);
  Program startup = testing::CompactProgram(kChainsStartup);
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
  WEFT_ASSERT_OK(TrainOnHost(programs, 1, options, inputs).status());
  EXPECT_TRUE(overlap);
}

// Two chains that each visit the host.
constexpr char kCrossing[] = R"(
    var a, b : fp32[512, 512] persistable
    Out=[a1] = mul(X=[a], Y=[a])
    Out=[h1] = tanh(X=[a1])
    Out=[a1] = mul(X=[h1], Y=[a])
    Out=[b1] = mul(X=[b], Y=[b])
    Out=[g1] = tanh(X=[b1])
    Out=[b1] = mul(X=[g1], Y=[b])
    Out=[a] = elementwise_add(X=[a1], Y=[b1])
)";

TEST(TrainPlacedOrder, ChainsThatCrossHaveTheBitsOfOneDevice) {
  Program main = testing::CompactProgram(kCrossing);
  Program startup = testing::CompactProgram(kChainsStartup);
  const TrainingPrograms programs{main, startup, {}, {"a"}, {}};
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, TrainOnHost(programs, /*ranks=*/1));
  for (const char* order : {"early_start", "few_switches"}) {
    TrainingPrograms placed = programs;
    WEFT_ASSERT_OK(
        Rewrite(absl::StrCat("hetero-partition{place=\"type:tanh=cpu\",order=", order, "}"),
                /*ranks=*/1, &placed));
    WEFT_ASSERT_OK_AND_ASSIGN(const Trained trained, TrainOnHost(placed, /*ranks=*/1));
    EXPECT_EQ(trained.bits(), expected.bits()) << order;
  }
}

TEST(TrainPlacedErrors, OpThatUsesTheOtherMemoryIsNamed) {
  Program main = testing::CompactProgram(kChains);
  Program startup = testing::CompactProgram(kChainsStartup);
  TrainingPrograms programs{main, startup, {}, {}, {}};
  WEFT_ASSERT_OK(Rewrite("hetero-partition{place=\"name:b*=cpu\"}", 1, &programs));
  // The sum reads the mirror; now the host's variable.
  const std::string text = ProgramText(programs.main);
  const std::string wrong = absl::StrReplaceAll(text, {{"Y=[b2@SIM]", "Y=[b2]"}});
  ASSERT_NE(wrong, text);
  programs.main = testing::CompactProgram(wrong);
  EXPECT_THAT(TrainOnHost(programs, 1).status(),
              IsInvalidArgument("(elementwise_add) input b2: expected a variable in the memory of "
                                "the accelerator, found one in the memory of the host"));
}

}  // namespace
}  // namespace weft::testing
