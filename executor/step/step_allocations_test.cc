// A step does not allocate once it is bound, not even the first one. Counts the calls of operator
// new in a test of its own, because it replaces the operator. What oneDNN allocates in each of its
// calls does not count.
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/communicators/local_communicator.h"
#include "executor/rewrites/rewrites.h"
#include "executor/run/feed_sources.h"
#include "executor/step/plan_executor.h"
#include "executor/streams/thread_stream.h"
#include "ops/kernel.h"
#include "proto/formats/program_file.h"
#include "proto/text/program_text.h"
#include "transpiler/transpile.h"

namespace {

std::atomic<int64_t> num_allocations{0};

// By kernel: the type of its op, and the calls of operator new while it ran. The first one stands
// for everything else.
constexpr char kStepItself[] = "the step itself";
constexpr int kMostOps = 1024;
struct OpAllocations {
  std::atomic<const char*> op{nullptr};
  std::atomic<int64_t> count{0};
};
OpAllocations of_ops[kMostOps];
thread_local const char* running_op = kStepItself;

void Count() {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  for (OpAllocations& each : of_ops) {
    const char* free = nullptr;
    if (each.op.load() == running_op || each.op.compare_exchange_strong(free, running_op) ||
        free == running_op) {
      each.count.fetch_add(1);
      return;
    }
  }
}

bool IsIn(const char* library, const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && std::strstr(info.dli_fname, library) != nullptr;
}

// By itself, or by a string or container.
bool IsOfDnnl(const void* caller) {
  if (!IsIn("libstdc++", caller)) return IsIn("libdnnl", caller);
  void* frames[8];
  const int count = backtrace(frames, 8);
  return std::any_of(frames, frames + count, [](void* each) { return IsIn("libdnnl", each); });
}

void* Allocate(size_t bytes, size_t alignment, const void* caller) {
  if (!IsOfDnnl(caller)) Count();
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

using Counts = std::map<std::string, int64_t>;

void ForgetAllocations() {
  for (OpAllocations& each : of_ops) each.count = 0;
}

Counts AllocationsByOp() {
  Counts counts;
  for (OpAllocations& each : of_ops) {
    const int64_t count = each.count;
    if (count > 0) counts[each.op.load()] += count;
  }
  return counts;
}

// The kernels for CPUs, which say whose allocations count.
const KernelTable& CountedKernels() {
  static const KernelTable* const counted = [] {
    auto* const table = new KernelTable();
    const auto wrap = [](const KernelFactory& factory, const std::string& name) {
      const char* const type = (new std::string(name))->c_str();
      return [&factory, type](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
        WEFT_ASSIGN_OR_RETURN(Kernel kernel, factory(spec));
        kernel.prepare = [prepare = std::move(kernel.prepare),
                          type](const KernelContext& ctx) -> absl::StatusOr<KernelStep> {
          WEFT_ASSIGN_OR_RETURN(KernelStep step, prepare(ctx));
          return KernelStep([step = std::move(step), type](const KernelContext& now) {
            running_op = type;
            absl::Status status = step(now);
            running_op = kStepItself;
            return status;
          });
        };
        return kernel;
      };
    };
    for (const std::string& type : CpuKernels().op_types()) {
      table->Add(type, wrap(*CpuKernels().Find(type), type));
    }
    for (const std::string& type : CpuKernels().op_types_for_rows()) {
      table->AddForRows(type, wrap(*CpuKernels().FindForRows(type), type));
    }
    return table;
  }();
  return *counted;
}

// A rank with an executor on the persistable variables of `scope`.
class Rank {
 public:
  Rank(const Program& program, const std::vector<std::string>& fed, Scope* scope, int rank = 0,
       CommunicatorGroup* group = nullptr)
      : device_(NewHostDevice(group == nullptr ? HostMemory() : MemoryOf(group))),
        random_(RandomState::Seeded(0, rank)) {
    PlanOptions plan_options;
    plan_options.kernels = &CountedKernels();
    plan_options.nranks = group == nullptr ? 1 : 2;
    plan_ = *Plan::Build(program, plan_options);
    PlanExecutorOptions options;
    options.plan = &plan_;
    options.scope = scope;
    options.device = device_.get();
    options.group = group;
    options.rank = rank;
    options.random = &random_;
    for (const std::string& name : fed) options.accessed.push_back(plan_.FindVariable(name));
    RewritePlan(CountedKernels(), {options.accessed}, &plan_);
    executor_ = *PlanExecutor::Create(options);
  }

  Tensor& operator[](const std::string& name) {
    return *executor_->tensor(plan_.FindVariable(name));
  }
  absl::Status Bind() { return executor_->Bind(); }
  absl::Status RunStep() { return executor_->RunStep(); }
  ValueMemory memory() const { return executor_->memory(); }

 private:
  static Memory* MemoryOf(CommunicatorGroup* group) {
    return group->host_memory() == nullptr ? HostMemory() : group->host_memory();
  }

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
  WEFT_ASSERT_OK(rank.Bind());
  ForgetAllocations();
  const absl::Status status = rank.RunStep();
  EXPECT_EQ(AllocationsByOp(), Counts());
  WEFT_EXPECT_OK(status);
}

struct Case {
  const char* model;
  int ranks;

  friend void PrintTo(const Case& one, std::ostream* out) {
    *out << one.model << " on " << one.ranks;
  }
};

class ModelAllocationsTest : public ::testing::TestWithParam<Case> {};

TEST_P(ModelAllocationsTest, ATrainingStepAllocatesNothingAndFillsItsArena) {
  const auto [model, num_ranks] = GetParam();
  const std::string folder = absl::StrCat("tests/data/", model);
  Program main = *ReadProgram(folder + "/main.pb");
  Program startup = *ReadProgram(folder + "/startup.pb");
  const FeedSource feeds = *FeedsFromFile(folder + "/feeds.npz");
  if (num_ranks > 1) {
    TranspileOptions options;
    options.mode = "grad_allreduce";
    options.cluster.nranks = num_ranks;
    ProgramPair programs{&main, &startup};
    WEFT_ASSERT_OK(Transpile(options, programs).status());
  }
  GroupOptions group_options;
  group_options.nranks = num_ranks;
  const std::unique_ptr<CommunicatorGroup> group = NewLocalGroup(group_options);
  std::vector<Scope> scopes(num_ranks);
  std::vector<std::unique_ptr<Rank>> ranks(num_ranks);
  CommunicatorGroup* const ring = num_ranks > 1 ? group.get() : nullptr;
  const std::vector<Tensor> batch = *feeds.read(0);
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, nullptr, num_ranks);
  const auto run = [&](int index) -> absl::Status {
    WEFT_RETURN_IF_ERROR(Rank(startup, {}, &scopes[index], index, ring).RunStep());
    ranks[index] = std::make_unique<Rank>(main, feeds.variables, &scopes[index], index, ring);
    Rank& rank = *ranks[index];
    for (size_t i = 0; i < batch.size(); ++i) {
      WEFT_RETURN_IF_ERROR(rank[feeds.variables[i]].CopyFrom(batch[i]));
    }
    absl::Status status = rank.Bind();
    for (int step = 0; step < 3; ++step) {
      pthread_barrier_wait(&barrier);
      if (index == 0) ForgetAllocations();
      pthread_barrier_wait(&barrier);
      status.Update(rank.RunStep());
      pthread_barrier_wait(&barrier);
      if (index == 0) {
        EXPECT_EQ(AllocationsByOp(), Counts()) << "step " << step;
      }
      pthread_barrier_wait(&barrier);
    }
    return status;
  };
  std::vector<std::thread> threads;
  for (int index = 1; index < num_ranks; ++index) {
    threads.emplace_back([&run, index] { WEFT_EXPECT_OK(run(index)); });
  }
  WEFT_EXPECT_OK(run(0));
  for (std::thread& thread : threads) thread.join();
  pthread_barrier_destroy(&barrier);
  // No arena is smaller than what lives at once.
  const ValueMemory memory = ranks[0]->memory();
  EXPECT_GT(memory.live, 0);
  EXPECT_LE(static_cast<double>(memory.arena), 1.1 * memory.live);
}

constexpr Case kCases[] = {{"mlp_adam", 1},       {"mlp_adam", 2},       {"lenet_momentum", 1},
                           {"lenet_momentum", 2}, {"resnet18_cifar", 1}, {"resnet18_cifar", 2},
                           {"bert_tiny", 1},      {"bert_tiny", 2},      {"wide_deep", 1}};

INSTANTIATE_TEST_SUITE_P(Models, ModelAllocationsTest, ::testing::ValuesIn(kCases),
                         [](const auto& one) {
                           return absl::StrCat(one.param.model, "_ranks_", one.param.ranks);
                         });

}  // namespace
}  // namespace weft::testing
