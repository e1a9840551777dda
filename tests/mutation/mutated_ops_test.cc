// Ops that are wrong in one way or two: each ends with a result of the inferred type or with an
// error of one line, never with a crash, a hang or memory without bound. What is changed are the
// ops that Paddle computed vectors for. More of them than in a test run, others, or those of one
// op:
//
//   bazel run --config=asan --config=ubsan //tests/mutation:mutated_ops_test -- --rounds=100
//   --seed=7
//
// docs/testing.md says more.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/plan/plan.h"
#include "executor/step/plan_executor.h"
#include "executor/streams/thread_stream.h"
#include "ops/cpu/op_vectors_testing.h"
#include "ops/kernel.h"
#include "ops/schema/infer.h"
#include "ops/schema/op_attrs.h"
#include "proto/program.h"
#include "proto/testing/program_builder.h"
#include "tests/mutation/mutated_op.h"

// Sizes that a mutation invents do not fit memory, whatever the machine has.
namespace {

constexpr size_t kMaxBytes = size_t{64} << 20;

void* AllocateOrNull(size_t bytes, size_t alignment) noexcept {
  if (bytes > kMaxBytes) return nullptr;
  return aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
}

void* AllocateOrThrow(size_t bytes, size_t alignment) {
  void* memory = AllocateOrNull(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

constexpr size_t kAlignment = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

void* operator new(size_t bytes) { return AllocateOrThrow(bytes, kAlignment); }
void* operator new[](size_t bytes) { return AllocateOrThrow(bytes, kAlignment); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return AllocateOrNull(bytes, kAlignment);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return AllocateOrNull(bytes, kAlignment);
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete[](void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete[](void* memory, size_t) noexcept { free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { free(memory); }

// Sanitizers, where the test is built with them: what they find is told of as other crashes are.
extern "C" const char* __asan_default_options() { return "abort_on_error=1"; }
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }

namespace weft::testing {
namespace {

using Json = nlohmann::json;

struct Options {
  int rounds = 5;
  uint64_t seed = 0;
  std::string op;  // empty: all
  bool print = false;
} options;

// --- What is being run, for whoever finds the process dead ---------------------------------------

char current[1000];

void SetCurrent(const std::string& text) {
  std::snprintf(current, sizeof(current), "\n--- while running %s\n", text.c_str());
  if (options.print) std::fputs(current, stderr);
}

void TellCurrentAndDie(int signal) {
  (void)!write(STDERR_FILENO, current, std::strlen(current));
  std::signal(signal, SIG_DFL);
  raise(signal);
}

// An op of small tensors that takes so long hangs.
constexpr unsigned kMaxSeconds = 30;

void TellWhatKillsTheProcess() {
  for (int signal : {SIGABRT, SIGALRM}) std::signal(signal, TellCurrentAndDie);
#ifndef __SANITIZE_ADDRESS__  // which has its own handlers for these, and then aborts
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, TellCurrentAndDie);
#endif
}

// --- Cases ---------------------------------------------------------------------------------------

struct Case {
  std::string id;
  OpOnValues op;
};

OpOnValues NewOp(const std::string& type, const Json& attrs) {
  OpOnValues op;
  op.type = type;
  for (const auto& attr : AttrsFromJson(type, attrs)) {
    op.attrs[attr.first] = MakeAttr(attr.first, attr.second);
  }
  return op;
}

void AddInput(const std::string& slot, const Json& tensor, OpOnValues* op) {
  std::vector<std::string>& variables = op->inputs[slot];
  if (tensor.is_null()) {
    variables.push_back(std::string(kEmptyVarName));
    return;
  }
  variables.push_back(absl::StrCat(slot, ".", variables.size()));
  op->values[variables.back()] = TensorFromJson(tensor);
}

void AddOutput(const std::string& slot, const Json& tensor, OpOnValues* op) {
  std::vector<std::string>& variables = op->outputs[slot];
  if (tensor.is_null()) {
    variables.push_back(std::string(kEmptyVarName));
    return;
  }
  variables.push_back(absl::StrCat("out.", slot, ".", variables.size()));
  Tensor& value = op->values[variables.back()];
  if (tensor.contains("rows")) value.ResizeRows(DType::kFloat32, {1, 1}, 0);
}

void AddSlots(const Json& inputs, const Json& outputs, OpOnValues* op) {
  for (const auto& slot : inputs.items()) {
    for (const Json& tensor : slot.value()) AddInput(slot.key(), tensor, op);
  }
  for (const auto& slot : outputs.items()) {
    for (const Json& tensor : slot.value()) AddOutput(slot.key(), tensor, op);
  }
}

OpOnValues OpOf(const Json& c) {
  OpOnValues op = NewOp(c["op"], c["attrs"]);
  AddSlots(c["inputs"], c["outputs"], &op);
  if (!c.contains("in_place")) return op;
  for (const auto& slot : c["in_place"].items()) {
    op.outputs[slot.key()] = op.inputs[slot.value().get<std::string>()];
  }
  return op;
}

OpOnValues OptimizerOf(const Json& c) {
  OpOnValues op = NewOp(c["op"], c["attrs"]);
  for (const auto& state : c["init"].items()) AddInput(state.key(), state.value(), &op);
  for (const auto& input : c["inputs"].items()) AddInput(input.key(), input.value(), &op);
  AddInput("Grad", c["steps"][0]["Grad"], &op);
  AddInput("LearningRate", c["steps"][0]["LearningRate"], &op);
  for (const auto& slot : c["in_place"].items()) {
    op.outputs[slot.key()] = op.inputs[slot.value().get<std::string>()];
  }
  return op;
}

SlotPointers Pointers(const OpOnValues::Slots& slots, OpOnValues* op) {
  SlotPointers pointers;
  for (const auto& [slot, variables] : slots) {
    pointers.emplace_back(slot, std::vector<Tensor*>());
    for (const std::string& variable : variables) {
      pointers.back().second.push_back(variable == kEmptyVarName ? nullptr
                                                                 : &op->values.at(variable));
    }
  }
  return pointers;
}

// The gradient op reads what the op writes, which vectors do not have all of.
OpOnValues RnnGradOf(const Json& c, OpOnValues op) {
  WEFT_EXPECT_OK(RunOpOn("rnn", Pointers(op.inputs, &op), AttrsFromJson("rnn", c["attrs"]),
                         Pointers(op.outputs, &op)));
  op.type = "rnn_grad";
  for (const auto& [slot, variables] : op.outputs) {
    if (FindOpSchema(op.type)->FindInput(slot) != nullptr) op.inputs[slot] = variables;
  }
  op.outputs.clear();
  AddSlots(c["gradient"]["inputs"], c["gradient"]["outputs"], &op);
  return op;
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Json& c : ReadArchivedVectors("ops.jsonl")) cases.push_back({c["id"], OpOf(c)});
  for (const char* file : {"programs.jsonl", "layers.jsonl", "math.jsonl"}) {
    for (const Json& c : ReadVectors(file)) cases.push_back({c["id"], OpOf(c)});
  }
  for (const Json& c : ReadArchivedVectors("optimizers.jsonl")) {
    cases.push_back({c["id"], OptimizerOf(c)});
  }
  for (const Json& c : ReadVectors("random.jsonl")) {
    for (const Json& step : c["ops"]) {
      OpOnValues op = NewOp(step["op"], step["attrs"]);
      if (step.contains("X")) AddInput("X", step["X"], &op);
      AddOutput("Out", step["Out"], &op);
      cases.push_back({c["id"], std::move(op)});
    }
  }
  for (const Json& c : ReadVectors("rnn.jsonl")) {
    OpOnValues op = NewOp("rnn", c["attrs"]);
    AddSlots(c["inputs"], c["outputs"], &op);
    AddOutput("Reserve", Json::object(), &op);
    cases.push_back({c["id"], op});
    if (c.contains("gradient")) {
      cases.push_back({absl::StrCat(c["id"].get<std::string>(), "/gradient"), RnnGradOf(c, op)});
    }
  }
  return cases;
}

// --- Running one ---------------------------------------------------------------------------------

enum class Declared {
  kAsTheyAre,
  kUnknownDims,    // as of what the batch or the data decide
  kAsTheyUsedToBe  // as of what other ops of the program have inferred wrongly
};

TensorType TypeOf(const Tensor& tensor) {
  if (!tensor.allocated()) return {DType::kFloat32, {1}};
  if (tensor.is_rows()) {
    return {tensor.dtype(), tensor.TallDims(), TensorType::Kind::kSelectedRows};
  }
  return {tensor.dtype(), tensor.dims()};
}

void Declare(const std::string& name, const TensorType& type, bool dims_are_known,
             ProgramBuilder* builder) {
  std::vector<int64_t> dims(type.dims.begin(), type.dims.end());
  if (!dims_are_known) dims.assign(dims.size(), -1);
  const auto dtype = static_cast<pb::VarType::Type>(type.dtype);
  if (type.kind == TensorType::Kind::kSelectedRows) {
    builder->Rows(name, dims);
    builder->last_var().mutable_type()->mutable_selected_rows()->set_data_type(dtype);
  } else {
    builder->Var(name, dims, dtype);
  }
}

Program ProgramOf(const OpOnValues& op, const OpOnValues& original, Declared declared) {
  ProgramBuilder builder;
  for (const auto& [name, value] : op.values) {
    const auto before = original.values.find(name);
    const bool as_before = declared == Declared::kAsTheyUsedToBe && before != original.values.end();
    Declare(name, TypeOf(as_before ? before->second : value), declared != Declared::kUnknownDims,
            &builder);
  }
  ProgramBuilder::Slots inputs(op.inputs.begin(), op.inputs.end());
  ProgramBuilder::Slots outputs(op.outputs.begin(), op.outputs.end());
  builder.Op(op.type, inputs, outputs);
  for (const auto& attr : op.attrs) *builder.last_op().add_attrs() = attr.second;
  return builder.Build();
}

void ExpectErrorOfOneLine(const absl::Status& status) {
  const absl::StatusCode code = status.code();
  // Not: internal, which is what exceptions that nobody expects become.
  EXPECT_TRUE(code == absl::StatusCode::kInvalidArgument ||
              code == absl::StatusCode::kFailedPrecondition ||
              code == absl::StatusCode::kUnimplemented || code == absl::StatusCode::kOutOfRange ||
              code == absl::StatusCode::kResourceExhausted)
      << status;
  EXPECT_FALSE(status.message().empty()) << status;
  EXPECT_FALSE(absl::StrContains(status.message(), "\n")) << status;
}

// The outputs are what inference says of the inputs as they were before the step. Where none is
// wanted, nothing is computed or checked.
void ExpectInferredTypes(const Program& program, const std::map<std::string, TensorType>& before,
                         const Plan& plan, PlanExecutor* executor) {
  const Op op = program.op(program.block(0).ops()[0]);
  const auto lookup = [&](Symbol symbol) -> absl::optional<TensorType> {
    const auto it = before.find(std::string(program.name(symbol)));
    if (it == before.end()) return absl::nullopt;
    return it->second;
  };
  const auto outputs = op.output_args();
  if (std::all_of(outputs.begin(), outputs.end(),
                  [&](Symbol symbol) { return program.name(symbol) == kEmptyVarName; })) {
    return;
  }
  const auto types = InferOutputs(op, lookup);
  ASSERT_TRUE(types.ok()) << types.status();
  for (size_t i = 0; i < types->size(); ++i) {
    const absl::optional<TensorType>& inferred = (*types)[i];
    const absl::string_view name = program.name(outputs[i]);
    if (!inferred.has_value() || name == kEmptyVarName) continue;
    if (std::count(outputs.begin(), outputs.end(), outputs[i]) > 1) continue;  // of which one?
    const Tensor& found = *executor->tensor(plan.FindVariable(name));
    if (!found.allocated()) continue;  // what is not wanted
    bool fits = found.dtype() == inferred->dtype;
    const Dims dims = found.is_rows() ? found.TallDims() : found.dims();
    fits = fits && dims.size() == inferred->dims.size();
    for (size_t d = 0; fits && d < dims.size(); ++d) {
      fits = inferred->dims[d] == -1 || inferred->dims[d] == dims[d];
    }
    EXPECT_TRUE(fits) << name << ": inferred " << ToString(*inferred) << ", found "
                      << ToString(TypeOf(found));
  }
}

// What the run ends with. The first step has the tensors of `first`, the second one those of `op`.
absl::Status RunTwice(const OpOnValues& op, const OpOnValues& first, const Program& program) {
  PlanOptions plan_options;
  plan_options.kernels = &CpuKernels();
  WEFT_ASSIGN_OR_RETURN(const Plan plan, Plan::Build(program, plan_options));
  Scope scope;
  RandomState random = RandomState::Seeded(0, 0);
  const auto device = NewHostDevice();
  PlanExecutorOptions executor_options;
  executor_options.plan = &plan;
  executor_options.scope = &scope;
  executor_options.device = device.get();
  executor_options.random = &random;
  executor_options.accessed.resize(plan.variables.size());
  std::iota(executor_options.accessed.begin(), executor_options.accessed.end(), 0);
  WEFT_ASSIGN_OR_RETURN(const auto executor, PlanExecutor::Create(executor_options));
  for (const OpOnValues* step : {&first, &op}) {
    std::map<std::string, TensorType> before;
    for (const auto& [name, value] : step->values) {
      if (!value.allocated()) continue;
      *executor->tensor(plan.FindVariable(name)) = value.Clone();
      before[name] = TypeOf(value);
    }
    WEFT_RETURN_IF_ERROR(executor->RunStep());
    ExpectInferredTypes(program, before, plan, executor.get());
  }
  return absl::OkStatus();
}

bool HaveTheSameSlots(const OpOnValues& a, const OpOnValues& b) {
  return a.inputs == b.inputs && a.outputs == b.outputs;
}

// Draws a mutant of the case, or two changes at once, and how it is declared and run.
absl::Status RunMutant(const Case& c, Draws draws) {
  OpOnValues op = c.op;
  std::string text = c.id;
  do {
    absl::StrAppend(&text, ", ", Mutate(&op, &draws));
  } while (draws.OneIn(3));
  const auto declared = static_cast<Declared>(draws.Below(3));
  const bool changes = HaveTheSameSlots(op, c.op) && draws.OneIn(2);
  if (declared == Declared::kUnknownDims) absl::StrAppend(&text, "; with unknown dims");
  if (declared == Declared::kAsTheyUsedToBe) absl::StrAppend(&text, "; declared as before");
  if (changes) absl::StrAppend(&text, "; in the second step");
  SetCurrent(text);
  SCOPED_TRACE(text);
  alarm(kMaxSeconds);
  const absl::Status status = RunTwice(op, changes ? c.op : op, ProgramOf(op, c.op, declared));
  alarm(0);
  if (!status.ok()) ExpectErrorOfOneLine(status);
  if (options.print) std::fprintf(stderr, "    %s\n", status.ToString().c_str());
  return status;
}

TEST(MutatedOpsTest, EndInAResultOrAnError) {
  TellWhatKillsTheProcess();
  const std::vector<Case> cases = AllCases();
  std::map<bool, int> count;  // by whether there is a result
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < cases.size(); ++i) {
      if (!options.op.empty() && cases[i].op.type != options.op) continue;
      const Draws draws({i, static_cast<uint64_t>(round), options.seed});
      ++count[RunMutant(cases[i], draws).ok()];
    }
  }
  std::printf("%d results, %d errors\n", count[true], count[false]);
  // Mutations that make nothing right, or nothing wrong, would test little.
  if (!options.op.empty()) return;
  EXPECT_GT(count[true], 100);
  EXPECT_GT(count[false], 100);
}

// The cases are what they say before they are changed: they have a result.
TEST(MutatedOpsTest, HaveAResultUnchanged) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(c.id);
    SetCurrent(c.id);
    const absl::Status status = RunTwice(c.op, c.op, ProgramOf(c.op, c.op, Declared::kAsTheyAre));
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace weft::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  weft::testing::Options& options = weft::testing::options;
  for (int i = 1; i < argc; ++i) {
    absl::string_view value = argv[i];
    bool is_valid = true;
    if (value == "--print") {
      options.print = true;
    } else if (absl::ConsumePrefix(&value, "--rounds=")) {
      is_valid = absl::SimpleAtoi(value, &options.rounds);
    } else if (absl::ConsumePrefix(&value, "--seed=")) {
      is_valid = absl::SimpleAtoi(value, &options.seed);
    } else if (absl::ConsumePrefix(&value, "--op=")) {
      options.op = std::string(value);
    } else {
      is_valid = false;
    }
    if (is_valid) continue;
    std::fprintf(stderr, "%s: expected --rounds=N, --seed=N, --op=TYPE or --print\n", argv[i]);
    return 2;
  }
  return RUN_ALL_TESTS();
}
