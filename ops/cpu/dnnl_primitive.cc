#include "ops/cpu/dnnl_primitive.h"

#include <omp.h>
#include <sys/mman.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "ops/threads.h"

namespace weft {
namespace {

using dnnl::memory;

constexpr size_t kAlignment = 64;

// A scratch buffer of at least this many bytes: the same one in every call of this thread until a
// larger one is requested.
char* ThreadMemory(size_t bytes) {
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  static thread_local std::unique_ptr<char, Free> memory;
  static thread_local size_t size = 0;
  if (bytes > size) {
    memory.reset();
    size = 0;
    memory.reset(static_cast<char*>(std::aligned_alloc(kAlignment, bytes)));
    if (memory == nullptr) throw std::bad_alloc();
    size = bytes;
  }
  return memory.get();
}

// Throws std::bad_alloc where the address space has no room for the code of a primitive: oneDNN
// writes that code without a look at whether it got memory for it.
void RequireRoomForCode() {
  constexpr size_t kMostCode = 16 << 20;
  void* const room = mmap(nullptr, kMostCode, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) throw std::bad_alloc();
  munmap(room, kMostCode);
}

}  // namespace

const dnnl::engine& DnnlCpuEngine() {
  static const dnnl::engine* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

bool HasBFloat16Products() {
  // The sets of instructions are sets of bits.
  constexpr auto kNeeded = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
}

memory::desc DnnlImage(const Dims& dims, bool channels_last, memory::data_type type) {
  using Tag = memory::format_tag;
  const bool flat = dims.size() == 4;
  const Tag tag = channels_last ? (flat ? Tag::acdb : Tag::acdeb) : (flat ? Tag::abcd : Tag::abcde);
  return memory::desc({dims.begin(), dims.end()}, type, tag);
}

memory::desc DnnlImageInBlocks(const Dims& dims) {
  using Tag = memory::format_tag;
  return memory::desc({dims.begin(), dims.end()}, memory::data_type::f32,
                      dims.size() == 4 ? Tag::aBcd8b : Tag::aBcde8b);
}

dnnl::primitive_attr DnnlAttributes() {
  RequireRoomForCode();
  omp_set_num_threads(KernelThreads());  // of this thread
  // The library's own scratchpad belongs to the thread that made the primitive.
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

DnnlPrimitive::DnnlPrimitive(dnnl::primitive primitive, const memory::desc& scratchpad,
                             const std::vector<Argument>& inputs,
                             const std::vector<Argument>& outputs)
    : stream_(DnnlCpuEngine()) {
  Arguments arguments;
  for (const Argument& input : inputs) AddOperand(input, /*is_input=*/true, &arguments);
  for (const Argument& output : outputs) AddOperand(output, /*is_input=*/false, &arguments);
  steps_.push_back(MakeStep(std::move(primitive), scratchpad, std::move(arguments)));
  for (size_t i = 0; i < outputs.size(); ++i) AddResult(outputs[i], operands_[inputs.size() + i]);
  ThreadMemory(bytes_);
}

DnnlPrimitive::DnnlPrimitive(WorkspaceMaker before, dnnl::primitive primitive,
                             const memory::desc& scratchpad, const std::vector<Argument>& inputs,
                             const Argument& output)
    : stream_(DnnlCpuEngine()) {
  const memory destination = Keep(before.destination), workspace = Keep(before.workspace);
  Arguments arguments = {{DNNL_ARG_DST, destination.get()}, {DNNL_ARG_WORKSPACE, workspace.get()}};
  AddOperand(before.source, /*is_input=*/true, &arguments);
  steps_.push_back(MakeStep(std::move(before.primitive), before.scratchpad, std::move(arguments)));
  arguments = {{DNNL_ARG_WORKSPACE, workspace.get()}};
  for (const Argument& input : inputs) AddOperand(input, /*is_input=*/true, &arguments);
  AddOperand(output, /*is_input=*/false, &arguments);
  steps_.push_back(MakeStep(std::move(primitive), scratchpad, std::move(arguments)));
  AddResult(output, operands_.back());
  ThreadMemory(bytes_);
}

const memory& DnnlPrimitive::Keep(const memory::desc& desc) {
  Operand operand;
  operand.own = memory(desc, DnnlCpuEngine(), nullptr);
  operand.offset = Reserve(desc.get_size());
  kept_.push_back(std::move(operand));
  return kept_.back().own;
}

size_t DnnlPrimitive::Reserve(size_t bytes) {
  const size_t offset = bytes_;
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

void DnnlPrimitive::AddOperand(const Argument& argument, bool is_input, Arguments* arguments) {
  Operand operand;
  operand.caller = memory(argument.caller, DnnlCpuEngine(), nullptr);
  operand.own = operand.caller;
  operand.is_kept = argument.own != argument.caller || !argument.is_wanted;
  if (operand.is_kept) {
    operand.own = memory(argument.own, DnnlCpuEngine(), nullptr);
    operand.offset = Reserve(argument.own.get_size());
    if (is_input) AddCopy(operand.caller, operand.own);
  }
  arguments->push_back({argument.name, operand.own.get()});
  operands_.push_back(std::move(operand));
}

void DnnlPrimitive::AddResult(const Argument& output, const Operand& operand) {
  if (operand.is_kept && output.is_wanted) AddCopy(operand.own, operand.caller);
}

void DnnlPrimitive::AddCopy(const memory& from, const memory& to) {
  const dnnl::reorder::primitive_desc description(DnnlCpuEngine(), from.get_desc(), DnnlCpuEngine(),
                                                  to.get_desc(), DnnlAttributes());
  steps_.push_back(MakeStep(dnnl::reorder(description), description.scratchpad_desc(),
                            {{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}}));
}

DnnlPrimitive::Step DnnlPrimitive::MakeStep(dnnl::primitive primitive,
                                            const memory::desc& scratchpad, Arguments arguments) {
  Step step;
  step.primitive = std::move(primitive);
  step.arguments = std::move(arguments);
  step.scratchpad = memory(scratchpad, DnnlCpuEngine(), nullptr);
  step.scratchpad_offset = Reserve(scratchpad.get_size());
  step.arguments.push_back({DNNL_ARG_SCRATCHPAD, step.scratchpad.get()});
  return step;
}

void DnnlPrimitive::Step::Run(const dnnl::stream& stream, char* memory) {
  scratchpad.set_data_handle(memory + scratchpad_offset);
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(primitive.get(), stream.get(), static_cast<int>(arguments.size()),
                             arguments.data()),
      "could not execute a primitive");
}

void DnnlPrimitive::Run(absl::Span<const void* const> inputs, absl::Span<void* const> outputs) {
  omp_set_num_threads(KernelThreads());  // of this thread
  char* const memory = ThreadMemory(bytes_);
  for (size_t i = 0; i < operands_.size(); ++i) {
    // oneDNN's inputs are pointers to mutable memory, but it does not write them.
    operands_[i].caller.set_data_handle(i < inputs.size() ? const_cast<void*>(inputs[i])
                                                          : outputs[i - inputs.size()]);
    if (operands_[i].is_kept) operands_[i].own.set_data_handle(memory + operands_[i].offset);
  }
  for (Operand& operand : kept_) operand.own.set_data_handle(memory + operand.offset);
  for (Step& step : steps_) step.Run(stream_, memory);
  stream_.wait();
}

}  // namespace weft
