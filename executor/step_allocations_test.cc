// A bound step does not allocate. Counts the calls of operator new in a test of its own, because it
// replaces the operator.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "executor/plan_executor.h"
#include "executor/thread_stream.h"
#include "gtest/gtest.h"
#include "ops/kernel.h"
#include "proto/text/program_text.h"

namespace {

std::atomic<int64_t> num_allocations{0};

void* Allocate(size_t bytes, size_t alignment) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new[](size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace weft {
namespace {

// The allocations of the third step of a program whose variable x holds ones.
int64_t AllocationsOf(const std::string& block) {
  PlanOptions plan_options;
  plan_options.kernels = &CpuKernels();
  const Plan plan = *Plan::Build(
      *ParseProgramText(absl::StrCat("program {\nblock 0 parent=-1 {\n", block, "}\n}\n")),
      plan_options);
  const std::unique_ptr<Device> device = NewHostDevice();
  Scope scope;
  RandomState random = RandomState::Seeded(0, 0);
  PlanExecutorOptions options;
  options.plan = &plan;
  options.scope = &scope;
  options.device = device.get();
  options.random = &random;
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    if (plan.variables[v].first_reader >= 0) options.accessed.push_back(static_cast<int>(v));
  }
  const std::unique_ptr<PlanExecutor> executor = *PlanExecutor::Create(options);
  for (int v : options.accessed) {
    Tensor& tensor = *executor->tensor(v);
    tensor.Resize(DType::kFloat32, plan.variables[v].declared->dims);
    std::fill_n(tensor.data<float>(), tensor.size(), 1.0F);
  }
  WEFT_EXPECT_OK(executor->RunStep());
  WEFT_EXPECT_OK(executor->RunStep());
  const int64_t before = num_allocations.load();
  const absl::Status status = executor->RunStep();
  const int64_t after = num_allocations.load();
  WEFT_EXPECT_OK(status);
  return after - before;
}

TEST(StepAllocationsTest, TheCounterCounts) {
  const int64_t before = num_allocations.load();
  const auto number = std::make_unique<int>(1);
  EXPECT_EQ(num_allocations.load() - before, *number);
}

TEST(StepAllocationsTest, AChainOfElementwiseOpsAllocatesNothing) {
  EXPECT_EQ(AllocationsOf(R"(
    var x : fp32[8, 8]
    var a : fp32[8, 8]
    var b : fp32[8, 8]
    var y : fp32[8, 8]
    Out=[a] = relu(X=[x])
    Out=[b] = relu(X=[a])
    Out=[y] = relu(X=[b])
)"),
            0);
}

}  // namespace
}  // namespace weft
