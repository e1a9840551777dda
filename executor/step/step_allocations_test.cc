// A bound step does not allocate. Counts the calls of operator new in a test of its own, because it
// replaces the operator. What oneDNN allocates in each of its calls does not count.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/rewrites/rewrites.h"
#include "executor/run/feed_sources.h"
#include "executor/step/plan_executor.h"
#include "executor/streams/thread_stream.h"
#include "ops/kernel.h"
#include "proto/formats/program_file.h"
#include "proto/text/program_text.h"

namespace {

std::atomic<int64_t> num_allocations{0};

bool IsOfDnnl(const void* caller) {
  Dl_info library;
  return dladdr(caller, &library) != 0 && std::strstr(library.dli_fname, "libdnnl") != nullptr;
}

void* Allocate(size_t bytes, size_t alignment, const void* caller) {
  if (!IsOfDnnl(caller)) num_allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) {
  return Allocate(bytes, alignof(std::max_align_t), __builtin_return_address(0));
}
void* operator new[](size_t bytes) {
  return Allocate(bytes, alignof(std::max_align_t), __builtin_return_address(0));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace weft::testing {
namespace {

// A plan with an executor on the persistable variables of `scope`.
class Rank {
 public:
  Rank(const Program& program, const std::vector<std::string>& fed, Scope* scope)
      : device_(NewHostDevice()), random_(RandomState::Seeded(0, 0)) {
    PlanOptions plan_options;
    plan_options.kernels = &CpuKernels();
    plan_ = *Plan::Build(program, plan_options);
    PlanExecutorOptions options;
    options.plan = &plan_;
    options.scope = scope;
    options.device = device_.get();
    options.random = &random_;
    for (const std::string& name : fed) options.accessed.push_back(plan_.FindVariable(name));
    RewritePlan(CpuKernels(), {options.accessed}, &plan_);
    executor_ = *PlanExecutor::Create(options);
  }

  Tensor& operator[](const std::string& name) {
    return *executor_->tensor(plan_.FindVariable(name));
  }
  absl::Status RunStep() { return executor_->RunStep(); }
  ValueMemory memory() const { return executor_->memory(); }
  // Of the third step.
  int64_t CountAllocations() {
    WEFT_EXPECT_OK(RunStep());
    WEFT_EXPECT_OK(RunStep());
    const int64_t before = num_allocations.load();
    const absl::Status status = RunStep();
    const int64_t after = num_allocations.load();
    WEFT_EXPECT_OK(status);
    return after - before;
  }

 private:
  std::unique_ptr<Device> device_;
  RandomState random_;
  Plan plan_;
  std::unique_ptr<PlanExecutor> executor_;
};

TEST(StepAllocationsTest, TheCounterCounts) {
  const int64_t before = num_allocations.load();
  const auto number = std::make_unique<int>(1);
  EXPECT_EQ(num_allocations.load() - before, *number);
}

TEST(StepAllocationsTest, AChainOfElementwiseOpsAllocatesNothing) {
  Scope scope;
  Rank rank(*ParseProgramText(R"(program {
block 0 parent=-1 {
    var x : fp32[8, 8]
    var a : fp32[8, 8]
    var b : fp32[8, 8]
    var y : fp32[8, 8]
    Out=[a] = relu(X=[x])
    Out=[b] = relu(X=[a])
    Out=[y] = relu(X=[b])
}
}
)"),
            {"x"}, &scope);
  rank["x"].Resize(DType::kFloat32, {8, 8});
  EXPECT_EQ(rank.CountAllocations(), 0);
}

class ModelAllocationsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ModelAllocationsTest, ATrainingStepAllocatesNothingAndFillsItsArena) {
  const std::string folder = absl::StrCat("tests/data/", GetParam());
  const Program main = *ReadProgram(folder + "/main.pb");
  const FeedSource feeds = *FeedsFromFile(folder + "/feeds.npz");
  Scope scope;
  WEFT_ASSERT_OK(Rank(*ReadProgram(folder + "/startup.pb"), {}, &scope).RunStep());
  Rank rank(main, feeds.variables, &scope);
  const std::vector<Tensor> batch = *feeds.read(0);
  for (size_t i = 0; i < batch.size(); ++i) {
    WEFT_ASSERT_OK(rank[feeds.variables[i]].CopyFrom(batch[i]));
  }
  EXPECT_EQ(rank.CountAllocations(), 0);
  // No arena is smaller than what lives at once.
  EXPECT_GT(rank.memory().live, 0);
  EXPECT_LE(static_cast<double>(rank.memory().arena), 1.1 * rank.memory().live);
}

INSTANTIATE_TEST_SUITE_P(Models, ModelAllocationsTest,
                         ::testing::Values("mlp_adam", "lenet_momentum", "resnet18_cifar",
                                           "bert_tiny", "wide_deep"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace weft::testing
