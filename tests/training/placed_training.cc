#include "tests/training/placed_training.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/kernel.h"
#include "transpiler/transpile.h"

namespace weft::testing {

TrainingSpec ThreeLayers() {
  TrainingSpec spec;
  spec.layers = {{8, Activation::kTanh, /*bias=*/true},
                 {6, Activation::kRelu, /*bias=*/true},
                 {3, Activation::kNone, /*bias=*/true}};
  spec.head.layer = 3;  // on top of them
  return spec;
}

PlacedSpecs SpecsToPlace() {
  PlacedSpecs specs;
  specs.adam = specs.clipped = specs.lookups = ThreeLayers();
  specs.adam.weights_by = specs.adam.biases_by = OptimizerKind::kAdam;
  specs.clipped.weights_by = OptimizerKind::kMomentum;
  specs.clipped.clip = ClipKind::kByGlobalNorm;
  specs.merged = specs.adam;
  specs.merged.merged_steps = 2;
  specs.lookups.lookups = 2;
  specs.lookups.sparse = true;
  return specs;
}

std::map<std::string, std::string> Trained::bits() const {
  std::map<std::string, std::string> bits;
  for (const auto& [name, value] : values) {
    bits[name] = std::string(static_cast<const char*>(value.raw()), value.bytes());
  }
  return bits;
}

absl::StatusOr<Trained> TrainPrograms(const TrainingPrograms& programs, const RunOptions& options,
                                      RunInputs inputs) {
  Trained trained;
  inputs.main = &programs.main;
  if (inputs.resume == nullptr) inputs.startup = &programs.startup;
  inputs.feeds = programs.feeds;
  inputs.on_result = [&trained](const StepResult& result) {
    for (size_t v = 0; v < result.values.size(); ++v) {
      trained.values[absl::StrCat(result.step, "/", result.rank, "/", v)] =
          result.values[v].Clone();
    }
    return absl::OkStatus();
  };
  WEFT_ASSIGN_OR_RETURN(const RunResult result, RunProgram(inputs, options));
  for (const std::string& name : programs.parameters) {
    trained.values[name] = result.persistables.at(name).Clone();
  }
  trained.memory = result.memory;
  return trained;
}

absl::StatusOr<Trained> TrainOnHost(const TrainingPrograms& programs, int ranks, RunOptions options,
                                    RunInputs inputs) {
  options.kernels = &CpuKernels();
  options.nranks = ranks;
  if (options.steps == 1) options.steps = kHostSteps;
  return TrainPrograms(programs, options, std::move(inputs));
}

absl::Status Rewrite(const std::string& passes, int ranks, TrainingPrograms* programs) {
  TranspileOptions options;
  options.passes = passes;
  options.cluster.nranks = ranks;
  ProgramPair pair{&programs->main, &programs->startup};
  return Transpile(options, pair).status();
}

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

int CountOps(const Program& program, absl::string_view type) {
  int count = 0;
  for (OpId id : program.block(0).ops()) count += program.op(id).type() == type ? 1 : 0;
  return count;
}

}  // namespace weft::testing
