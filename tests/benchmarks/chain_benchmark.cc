// What does an op of a step cost besides its kernel? Runs a chain of tiny ops, and the kernels of
// the same ops alone:
//
//   bazel run -c opt --config=nocuda //tests/benchmarks:chain_benchmark -- [--ops 10000]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "executor/step/plan_executor.h"
#include "executor/streams/thread_stream.h"
#include "ops/kernel.h"
#include "ops/make_kernel.h"
#include "proto/testing/program_builder.h"

namespace weft {
namespace {

constexpr int kRounds = 41;
const Dims& SmallDims() {
  static const auto* const dims = new Dims{4};
  return *dims;
}

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "chain_benchmark: error: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}
void OrDie(const absl::Status& status) {
  if (!status.ok()) Die(status);
}
template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  if (!value.ok()) Die(value.status());
  return *std::move(value);
}

// The median time of run(), in ns, for each of `count` ops.
template <typename Run>
double NsPerOp(int64_t count, Run run) {
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    times.push_back(time.count() / static_cast<double>(count));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

std::string Name(int64_t i) { return absl::StrCat("x", i); }

Plan ChainOf(int64_t count) {
  testing::ProgramBuilder builder;
  for (int64_t i = 0; i <= count; ++i) {
    builder.Var(Name(i), {SmallDims().begin(), SmallDims().end()});
  }
  for (int64_t i = 0; i < count; ++i) {
    builder.Op("relu", {{"X", {Name(i)}}}, {{"Out", {Name(i + 1)}}});
  }
  PlanOptions options;
  options.kernels = &CpuKernels();
  return ValueOrDie(Plan::Build(builder.Build(), options));
}

double StepNs(const Plan& plan, int64_t count) {
  const std::unique_ptr<Device> device = NewHostDevice();
  Scope scope;
  RandomState random = RandomState::Seeded(0, 0);
  PlanExecutorOptions options;
  options.plan = &plan;
  options.scope = &scope;
  options.device = device.get();
  options.random = &random;
  const int first = plan.FindVariable(Name(0)), last = plan.FindVariable(Name(count));
  options.accessed = {first, last};
  const std::unique_ptr<PlanExecutor> executor = ValueOrDie(PlanExecutor::Create(options));
  executor->tensor(first)->Resize(DType::kFloat32, SmallDims());
  std::fill_n(executor->tensor(first)->data<float>(), executor->tensor(first)->size(), 1.0F);
  OrDie(executor->RunStep());
  return NsPerOp(count, [&] { OrDie(executor->RunStep()); });
}

double KernelNs(const Plan& plan, int64_t count) {
  std::vector<Tensor> tensors(count + 1);
  for (Tensor& tensor : tensors) {
    tensor.Resize(DType::kFloat32, SmallDims());
    std::fill_n(tensor.data<float>(), tensor.size(), 1.0F);
  }
  std::vector<KernelStep> steps;
  std::vector<const Tensor*> inputs;
  std::vector<Tensor*> outputs;
  for (int64_t i = 0; i < count; ++i) {
    inputs.push_back(&tensors[i]);
    outputs.push_back(&tensors[i + 1]);
  }
  std::vector<KernelContext> contexts(count);
  for (int64_t i = 0; i < count; ++i) {
    contexts[i].inputs = absl::MakeConstSpan(&inputs[i], 1);
    contexts[i].outputs = absl::MakeConstSpan(&outputs[i], 1);
    const Plan::PlanOp& op = plan.ops[i];
    const Kernel kernel = ValueOrDie(MakeKernel(*op.factory(), op.kernel_spec));
    steps.push_back(ValueOrDie(kernel.prepare(contexts[i])));
  }
  return NsPerOp(count, [&] {
    for (int64_t i = 0; i < count; ++i) OrDie(steps[i](contexts[i]));
  });
}

int Main(int argc, char** argv) {
  int64_t ops = 10'000;
  CLI::App app("Times a chain of tiny ops.");
  app.add_option("--ops", ops, "Ops of the chain")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const Plan plan = ChainOf(ops);
  const double step = StepNs(plan, ops), kernel = KernelNs(plan, ops);
  std::printf("%lld ops: %.0f ns an op; %.0f ns its kernel, %.0f ns the rest\n",
              static_cast<long long>(ops), step, kernel, step - kernel);
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
