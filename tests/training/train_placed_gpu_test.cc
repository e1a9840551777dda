// Programs on the host and a GPU train as on the host and the simulated accelerator. The GPU is a
// fake one, whose streams and memory are apart from the host's; in train_placed_cuda_test, that of
// the machine.
#include <algorithm>
#include <cstdint>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/files/checkpoint.h"
#include "executor/run/runner.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/kernel.h"
#include "proto/testing/block_text.h"
#include "tests/support/rounding.h"
#include "tests/support/training_programs.h"
#include "tests/support/training_spec.h"
#include "tests/training/placed_gpu.h"
#include "tests/training/placed_training.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

constexpr int64_t kSteps = 3;

// Losses, by step and rank, and parameters.
using Values = std::map<std::string, Tensor>;

absl::StatusOr<Values> Train(const TrainingPrograms& programs, RunOptions options,
                             RunInputs inputs = {}) {
  if (options.steps == 1) options.steps = kSteps;
  WEFT_ASSIGN_OR_RETURN(Trained trained, TrainPrograms(programs, options, std::move(inputs)));
  return std::move(trained.values);
}

bool HasSameNumbers(const Tensor& a, const Tensor& b) {
  return a.dtype() == DType::kFloat32 && b.dtype() == a.dtype() && a.dims() == b.dims() &&
         std::equal(a.data<float>(), a.data<float>() + a.size(), b.data<float>());
}

class PlacedOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<PlacedGpu> gpu = NewPlacedGpu();
    if (!gpu.ok()) GTEST_SKIP() << gpu.status();
    gpu_ = *std::move(gpu);
  }

  RunOptions OnGpus(int ranks) const {
    RunOptions options;
    options.nranks = ranks;
    options.kernels = gpu_.kernels;
    options.host_kernels = gpu_.host_kernels;
    options.new_device = gpu_.new_device;
    options.new_group = gpu_.new_group;
    options.ranks_share_device = true;
    return options;
  }
  RunOptions Simulated(int ranks) const {
    RunOptions options;
    options.nranks = ranks;
    options.kernels = gpu_.simulated;
    options.host_kernels = &CpuKernels();
    return options;
  }
  // Of runs with these options on GPUs. Other kernels may round otherwise.
  void ExpectSame(const Values& found, const Values& expected, const TrainingPrograms& programs,
                  RunOptions options) const {
    ASSERT_EQ(found.size(), expected.size());
    if (gpu_.has_same_bits) {
      for (const auto& [name, value] : expected) {
        EXPECT_TRUE(HasSameNumbers(found.at(name), value)) << name;
      }
      return;
    }
    const auto train = [&](const TrainingInputs& from) -> absl::StatusOr<TrainingResults> {
      RunOptions simulated = Simulated(options.nranks);
      simulated.kernels = simulated.host_kernels = from.kernels;
      simulated.steps = options.steps;
      simulated.fetch = options.fetch;
      TrainingPrograms moved = programs;
      moved.feeds = from.feeds;
      WEFT_ASSIGN_OR_RETURN(Values values, Train(moved, simulated));
      return TrainingResults{{}, std::move(values)};
    };
    WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds,
                              RoundingBounds::Measure({{}, programs.feeds}, train));
    for (const auto& [name, value] : expected) {
      bounds.ExpectState(name, found.at(name), value);
    }
  }

  PlacedGpu gpu_;
};

// With two ranks, gradients are reduced. No rules: the mode places ops.
absl::StatusOr<TrainingPrograms> Placed(const TrainingSpec& spec, absl::string_view mode,
                                        absl::string_view rules, int ranks = 1) {
  TrainingPrograms programs = BuildPrograms(spec);
  TranspileOptions options;
  options.mode = std::string(mode);
  options.placement.place = std::string(rules);
  if (ranks > 1) options.cluster.nranks = ranks;
  ProgramPair pair{&programs.main, &programs.startup};
  WEFT_RETURN_IF_ERROR(Transpile(options, pair).status());
  return programs;
}

struct Case {
  const char* name;
  TrainingSpec spec;
  const char* mode;
  const char* rules;
  int ranks = 1;

  friend void PrintTo(const Case& of, std::ostream* out) { *out << of.name; }
};

std::vector<Case> Cases() {
  const auto [adam, clipped, merged, lookups] = SpecsToPlace();
  return {
      {"Adam", adam, "none", "type:adam=cpu"},
      {"ActivationsOnTheHost", adam, "none", "type:tanh*=cpu,type:relu*=cpu"},
      {"ClippingOnTheHost", clipped, "none",
       "type:momentum=cpu,type:s*=cpu,type:elementwise_mul=cpu"},
      {"BackwardOnTheHost", clipped, "none", "type:*_grad=cpu"},
      // GPUs have no kernel for integers.
      {"MergedGradients", merged, "none", "type:conditional_block=cpu,type:elementwise_mod=cpu"},
      {"SparseLookups", lookups, "none", "type:lookup_table*=cpu,type:sgd=cpu"},
      {"RowsToTheHost", lookups, "none", "type:sgd=cpu"},
      {"RowsFromTheHost", lookups, "none", "type:lookup_table*_grad=cpu"},
      {"AdamOfRanks", adam, "grad_allreduce", "type:adam=cpu", 2},
      {"ClippedOfRanks", clipped, "grad_allreduce", "type:momentum=cpu,type:sgd=cpu", 2},
      {"OffloadedOptimizer", adam, "optimizer_offload", ""},
  };
}

class TrainPlacedOnGpu : public PlacedOnGpu, public ::testing::WithParamInterface<Case> {};

TEST_P(TrainPlacedOnGpu, IsAsOnTheSimulatedAccelerator) {
  const auto& [name, spec, mode, rules, ranks] = GetParam();
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms placed, Placed(spec, mode, rules, ranks));
  ASSERT_TRUE(IsOnTwoDevices(placed.main));
  WEFT_ASSERT_OK_AND_ASSIGN(const Values expected, Train(placed, Simulated(ranks)));
  WEFT_ASSERT_OK_AND_ASSIGN(const Values found, Train(placed, OnGpus(ranks)));
  ExpectSame(found, expected, placed, OnGpus(ranks));
  RunOptions checked = OnGpus(ranks);
  checked.check_nan = true;
  WEFT_ASSERT_OK_AND_ASSIGN(const Values also, Train(placed, checked));
  ExpectSame(also, expected, placed, checked);
}

INSTANTIATE_TEST_SUITE_P(Placements, TrainPlacedOnGpu, ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST_F(PlacedOnGpu, TracesHaveTheOpsOfAllStreams) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs,
                            Placed(ThreeLayers(), "none", "type:tanh*=cpu"));
  std::set<std::string> streams;
  RunInputs inputs;
  inputs.on_trace = [&streams](const StepTrace& trace) {
    for (size_t s = 0; s < trace.spans.size(); ++s) {
      if (!trace.spans[s].empty()) streams.insert(trace.plan->stream_names[s]);
    }
    return absl::OkStatus();
  };
  WEFT_ASSERT_OK(Train(programs, OnGpus(1), inputs).status());
  EXPECT_THAT(streams, ElementsAre("compute", "cpu", "d2h", "h2d"));
}

TEST_F(PlacedOnGpu, SizesOfTheSimulatedAcceleratorAreRefused) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs,
                            Placed(ThreeLayers(), "none", "type:sgd=cpu"));
  RunOptions options = OnGpus(1);
  options.sim.memory_bytes = 1 << 20;
  EXPECT_THAT(Train(programs, options).status(), IsInvalidArgument("simulated accelerator"));
}

TEST_F(PlacedOnGpu, CollectivesOnTheHostAreRefused) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      const TrainingPrograms programs,
      Placed(ThreeLayers(), "grad_allreduce", "type:c_allreduce*=cpu,type:sgd=cpu", /*ranks=*/2));
  EXPECT_THAT(Train(programs, OnGpus(2)).status(),
              IsUnimplemented("expected a collective on variables of the accelerator"));
}

// In the memory of any process, from which a device copies only when the host has computed them.
TEST_F(PlacedOnGpu, ValuesOfTheHostAreFetched) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs,
                            Placed(ThreeLayers(), "none", "type:tanh*=cpu,type:relu*=cpu"));
  std::vector<std::string> fetch;
  for (OpId id : programs.main.block(0).ops()) {
    const Op op = programs.main.op(id);
    if (op.type() == "tanh") fetch.emplace_back(programs.main.name(op.Output("Out")[0]));
  }
  ASSERT_EQ(fetch.size(), 1);
  RunOptions on_gpu = OnGpus(1), simulated = Simulated(1);
  on_gpu.fetch = simulated.fetch = fetch;
  WEFT_ASSERT_OK_AND_ASSIGN(const Values expected, Train(programs, simulated));
  WEFT_ASSERT_OK_AND_ASSIGN(const Values found, Train(programs, on_gpu));
  ExpectSame(found, expected, programs, on_gpu);
}

TEST_F(PlacedOnGpu, BatchesOfTwoSizesTakeTurns) {
  WEFT_ASSERT_OK_AND_ASSIGN(TrainingPrograms programs,
                            Placed(SpecsToPlace().adam, "none", "type:tanh*=cpu,type:adam=cpu"));
  programs.feeds = WithHalfBatches(programs.feeds);
  RunOptions on_gpu = OnGpus(1), simulated = Simulated(1);
  on_gpu.steps = simulated.steps = 5;
  WEFT_ASSERT_OK_AND_ASSIGN(const Values expected, Train(programs, simulated));
  WEFT_ASSERT_OK_AND_ASSIGN(const Values found, Train(programs, on_gpu));
  ExpectSame(found, expected, programs, on_gpu);
}

TEST_F(PlacedOnGpu, RunsResume) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs,
                            Placed(SpecsToPlace().adam, "optimizer_offload", ""));
  const std::string file = absl::StrCat(::testing::TempDir(), "/placed_on_gpu");
  RunOptions whole = OnGpus(1), half = OnGpus(1);
  whole.steps = 4;
  half.steps = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(const Values expected, Train(programs, whole));
  RunInputs writes;
  writes.on_checkpoint = [&file](Checkpoint checkpoint) {
    return WriteCheckpoint(file, checkpoint);
  };
  WEFT_ASSERT_OK(Train(programs, half, writes).status());
  WEFT_ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, ReadCheckpoint(file));
  RunInputs resumes;
  resumes.resume = &checkpoint;
  half.begin_step = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(const Values found, Train(programs, half, resumes));
  Values of_whole;
  for (const auto& [name, value] : found) of_whole[name] = expected.at(name);
  ExpectSame(found, of_whole, programs, whole);
}

// Also when the devices are gone.
TEST_F(PlacedOnGpu, ParametersOfARunBeginAnother) {
  WEFT_ASSERT_OK_AND_ASSIGN(const TrainingPrograms programs,
                            Placed(SpecsToPlace().adam, "optimizer_offload", ""));
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.feeds = programs.feeds;
  WEFT_ASSERT_OK_AND_ASSIGN(const RunResult first, RunProgram(inputs, OnGpus(1)));
  for (const auto& [name, value] : first.persistables) {
    EXPECT_EQ(value.memory(), HostMemory()) << name;
  }
  inputs.startup = nullptr;
  inputs.params = &first.persistables;
  WEFT_EXPECT_OK(RunProgram(inputs, OnGpus(1)).status());
}

// Else the startup program would be what fails: its gather has no such row.
TEST_F(PlacedOnGpu, MissingKernelsAreReportedBeforeTheStartupProgramRuns) {
  const Program startup = BlockProgram(R"(
    var x : fp32[4] persistable
    var i : int64[1]
    var y : fp32[1]
    Out=[x] = fill_constant() {dtype=5, shape=longs[4], value=0.5}
    Out=[i] = fill_constant() {dtype=3, shape=longs[1], value=7.0}
    Out=[y] = gather(X=[x], Index=[i])
  )");
  const Program main = BlockProgram(R"(
    var x : fp32[4] persistable
    var n : int64[4]
    Out=[x] = scale(X=[x]) {scale=2.0}
    Out=[n] = randint() {dtype=3, shape=longs[4], low=0, high=9}
  )");
  RunInputs inputs;
  inputs.main = &main;
  inputs.startup = &startup;
  RunOptions options = OnGpus(1);
  options.fetch = {"x"};
  EXPECT_THAT(RunProgram(inputs, options).status(),
              IsUnimplemented("no kernel for 1 op type: randint (1 op, first op 1); the CPU has "
                              "kernels: run the program with option:device cpu, or rewrite it "
                              "with transpile option:place type:randint=cpu"));
}

// An error on the host's thread ends the step, with the name of its op.
TEST_F(PlacedOnGpu, ErrorsOnTheHostAreReported) {
  TrainingSpec spec = ThreeLayers();
  spec.lookups = 1;
  spec.sparse = true;
  WEFT_ASSERT_OK_AND_ASSIGN(TrainingPrograms programs,
                            Placed(spec, "none", "type:lookup_table*=cpu,type:sgd=cpu"));
  programs.feeds.read = [read = programs.feeds.read](int64_t step) {
    absl::StatusOr<std::vector<Tensor>> batch = read(step);
    if (!batch.ok() || step == 0) return batch;
    for (Tensor& tensor : *batch) {
      if (tensor.dtype() == DType::kInt64) *tensor.data<int64_t>() = -7;
    }
    return batch;
  };
  for (const bool check_nan : {false, true}) {
    RunOptions options = OnGpus(1);
    options.check_nan = check_nan;
    EXPECT_THAT(Train(programs, options).status().message(),
                AllOf(HasSubstr("step 1, rank 0"), HasSubstr("lookup_table")));
  }
}

}  // namespace
}  // namespace weft::testing
