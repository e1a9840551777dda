#include "executor/step/bound_step.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "absl/algorithm/container.h"
#include "base/status_macros.h"
#include "executor/plan/instructions.h"
#include "executor/step/arena.h"
#include "executor/step/placed_buffers.h"
#include "executor/step/step_lives.h"

namespace weft {
namespace {

// Whether a collective needs a copy of an input that its output replaces.
bool NeedsCopy(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || SplitsInput(kind);
}

bool HasType(const Tensor& tensor, const absl::optional<TensorType>& type) {
  if (!type.has_value()) return !tensor.allocated() || tensor.is_rows();
  return tensor.allocated() && !tensor.is_rows() && tensor.dtype() == type->dtype &&
         tensor.dims() == type->dims;
}

int64_t BytesOf(const TensorType& type) {
  return NumElements(type.dims) * static_cast<int64_t>(SizeOf(type.dtype));
}

// By device, on the timeline of its compute stream.
std::array<std::vector<Life>, kNumDeviceKinds> LivesOfDevices(const Plan& plan,
                                                              const std::vector<bool>& in_block) {
  std::array<std::vector<Life>, kNumDeviceKinds> lives = {LivesOfOps(plan, in_block), {}};
  if (!plan.on_two_devices) return lives;
  const auto host =
      absl::c_find(plan.stream_names, DeviceStreamName(ComputeStreamOf(DeviceKind::kHost)));
  lives[static_cast<int>(DeviceKind::kHost)] =
      LivesOfOps(plan, in_block, static_cast<int>(host - plan.stream_names.begin()));
  return lives;
}

// Decides which values lie in the arena, and which of them share a place.
class PlaceFinder {
 public:
  PlaceFinder(const StepResources& resources, const StepTypes& types,
              const std::vector<BoundOp>& ops)
      : plan_(*resources.plan),
        accesses_(*resources.accesses),
        types_(types),
        ops_(ops),
        lives_of_ops_(LivesOfDevices(plan_, accesses_.in_block)),
        lives_(plan_.variables.size()),
        writes_(plan_.variables.size(), 0),
        in_arena_(plan_.variables.size()),
        place_(plan_.variables.size()),
        is_in_buffer_(plan_.variables.size(), false),
        offset_in_place_(plan_.variables.size(), 0),
        is_removed_(plan_.ops.size(), false) {
    for (size_t v = 0; v < in_arena_.size(); ++v) {
      const Plan::Variable& variable = plan_.variables[v];
      in_arena_[v] = types_.variables[v].has_value() && !variable.persistable &&
                     !variable.is_array && !accesses_.is_entry[v] && !accesses_.is_loose[v] &&
                     !resources.is_accessed[v];
    }
    std::iota(place_.begin(), place_.end(), 0);
    std::vector<PlacedBuffer> buffers = FindPlacedBuffers(resources, types);
    // What lies in gaps travels, too: where nothing clears it in a step, it is cleared once.
    if (!plan_.on_two_devices) {
      buffers.erase(std::remove_if(buffers.begin(), buffers.end(),
                                   [](const PlacedBuffer& buffer) { return buffer.has_gaps; }),
                    buffers.end());
    }
    for (const PlacedBuffer& buffer : buffers) {
      for (int v : buffer.variables) is_in_buffer_[v] = true;
    }
    for (size_t i = 0; i < plan_.instructions.size(); ++i) {
      if (plan_.instructions[i].kind == Plan::Instruction::Kind::kRunOp) AddAccesses(i);
    }
    for (const Plan::Branch& branch : plan_.branches) {
      for (int v : branch.conditions) in_arena_[v] = false;
    }
    for (const PlacedBuffer& buffer : buffers) PlaceSlices(buffer);
  }

  void ShareViews() {
    for (size_t i = 0; i < plan_.instructions.size(); ++i) {
      if (plan_.instructions[i].kind != Plan::Instruction::Kind::kRunOp) continue;
      const int index = plan_.instructions[i].index;
      const BoundOp& op = ops_[index];
      if (!op.is_static || op.kernel.kernel().views.empty() || op.kernel.has_temporaries())
        continue;
      std::vector<bool> is_done(op.op->outputs.size());
      for (size_t o = 0; o < is_done.size(); ++o) {
        const int out = op.op->outputs[o];
        is_done[o] = out < 0 || NumElements(types_.variables[out]->dims) == 0;
      }
      for (const auto& [out, in] : op.kernel.kernel().views) {
        if (!IsView(op.op->outputs[out], op.op->inputs[in])) continue;
        Join(op.op->inputs[in], op.op->outputs[out]);
        is_done[out] = true;
      }
      is_removed_[index] = !absl::c_linear_search(is_done, false);
    }
  }

  // Writes outputs over inputs that nobody reads later.
  void ShareInPlace() {
    for (size_t i = 0; i < plan_.instructions.size(); ++i) {
      if (plan_.instructions[i].kind != Plan::Instruction::Kind::kRunOp) continue;
      const int index = plan_.instructions[i].index;
      const BoundOp& op = ops_[index];
      if (!op.is_static || op.communicator != nullptr || is_removed_[index]) continue;
      for (size_t o = 0; o < op.op->outputs.size(); ++o) {
        const int out = op.op->outputs[o];
        if (!MayShare(out) || lives_[Place(out)].first != static_cast<int>(i)) continue;
        for (int in : op.op->inputs) {
          if (!EndsAt(in, static_cast<int>(i)) || !CanTake(op, static_cast<int>(o), in)) continue;
          Join(in, out);
          break;
        }
      }
    }
  }

  bool IsInArena(int v) const { return v >= 0 && in_arena_[v]; }
  const std::vector<bool>& in_arena() const { return in_arena_; }  // by variable
  int Place(int v) const {
    while (place_[v] != v) v = place_[v];
    return v;
  }
  // Of a slice of a fused buffer, in bytes; of other variables, 0.
  int64_t OffsetInPlace(int v) const { return offset_in_place_[v]; }
  // Of a place: all its variables.
  const Life& LifeOf(int place) const { return lives_[place]; }
  // By instruction, on the timeline of the device.
  const std::vector<Life>& LivesOn(DeviceKind device) const {
    return lives_of_ops_[static_cast<int>(device)];
  }
  const std::vector<bool>& is_removed() const { return is_removed_; }

 private:
  void AddAccesses(size_t i) {
    const int index = plan_.instructions[i].index;
    const Plan::PlanOp& op = plan_.ops[index];
    const bool shares = op.make_kernel != nullptr && !op.reads_inputs;
    const auto add = [&](int v) {
      if (v < 0) return;
      lives_[v].Add(LivesOn(plan_.variables[v].memory)[i]);
      if ((shares && !is_in_buffer_[v]) || accesses_.in_block[i]) in_arena_[v] = false;
    };
    for (size_t in = 0; in < op.inputs.size(); ++in) {
      // Its variable has a type to the end of the step, but need not keep its memory.
      const bool is_unread = ops_[index].is_static && ops_[index].kernel.IsUnread(in);
      if (!is_unread || shares || accesses_.in_block[i]) add(op.inputs[in]);
    }
    for (int v : op.outputs) {
      add(v);
      if (v >= 0) ++writes_[v];
    }
  }

  // The slices of a buffer that is in the arena share its place.
  void PlaceSlices(const PlacedBuffer& buffer) {
    if (!absl::c_all_of(buffer.variables, [this](int v) { return IsInArena(v); })) {
      for (int v : buffer.variables) in_arena_[v] = false;
      return;
    }
    for (size_t k = 0; k < buffer.variables.size(); ++k) {
      Join(buffer.variables[0], buffer.variables[k]);
      offset_in_place_[buffer.variables[k]] = buffer.offsets[k];
    }
  }

  // A variable whose place may be that of another, too.
  bool MayShare(int v) const { return IsInArena(v) && !is_in_buffer_[v]; }

  // Whether an output may share the memory of the input of which it is a view.
  bool IsView(int out, int in) const {
    return MayShare(in) && MayShare(out) && in != out && writes_[in] == 1 && writes_[out] == 1 &&
           plan_.variables[in].memory == plan_.variables[out].memory &&
           types_.variables[in]->dtype == types_.variables[out]->dtype &&
           NumElements(types_.variables[in]->dims) == NumElements(types_.variables[out]->dims);
  }

  bool EndsAt(int v, int position) const {
    return MayShare(v) && lives_[Place(v)].last == position;
  }

  // Whether output o may take the place of the variable `in`, which other inputs and outputs of the
  // op may have too.
  bool CanTake(const BoundOp& op, int o, int in) const {
    const int out = op.op->outputs[o];
    if (plan_.variables[in].memory != plan_.variables[out].memory) return false;
    for (size_t i = 0; i < op.op->inputs.size(); ++i) {
      const bool is_there = op.op->inputs[i] >= 0 && Place(op.op->inputs[i]) == Place(in);
      if (is_there && !op.kernel.CanShare(o, static_cast<int>(i))) return false;
    }
    return absl::c_none_of(op.op->outputs, [&](int v) { return v >= 0 && Place(v) == Place(in); });
  }

  void Join(int a, int b) {
    a = Place(a);
    b = Place(b);
    if (a == b) return;
    place_[b] = a;
    lives_[a].Add(lives_[b]);
  }

  const Plan& plan_;
  const PlanAccesses& accesses_;
  const StepTypes& types_;
  const std::vector<BoundOp>& ops_;
  const std::array<std::vector<Life>, kNumDeviceKinds> lives_of_ops_;  // by device
  std::vector<Life> lives_;                                            // by variable
  std::vector<int> writes_;                                            // by variable: ops
  std::vector<bool> in_arena_;                                         // by variable
  std::vector<int> place_;                // by variable: another one at the same place, or itself
  std::vector<bool> is_in_buffer_;        // by variable
  std::vector<int64_t> offset_in_place_;  // by variable
  std::vector<bool> is_removed_;          // by op
};

// When values of chains live: the parts of all ops of a chain take turns.
class ChainSpans {
 public:
  ChainSpans(const std::vector<PointwiseChain>& chains, size_t num_instructions)
      : first_(num_instructions + 1), last_(num_instructions + 1) {
    std::iota(first_.begin(), first_.end(), 0);
    std::iota(last_.begin(), last_.end(), 0);
    for (const PointwiseChain& chain : chains) {
      std::fill(first_.begin() + chain.begin, first_.begin() + chain.end, chain.begin);
      std::fill(last_.begin() + chain.begin, last_.begin() + chain.end, chain.end - 1);
    }
  }

  // Of a value that lives from, or to, this instruction.
  int first(int position) const { return first_[position]; }
  int last(int position) const { return last_[position]; }

 private:
  std::vector<int> first_, last_;
};

}  // namespace

BoundStep::BoundStep(const StepResources& resources)
    : resources_(resources), plan_(*resources.plan) {
  BindOps();
  if (resources_.groups_collectives) GroupCollectives();
  FindEntries();
  PlaceValues();
}

void BoundStep::BindOps() {
  std::vector<BoundKernel> kernels;
  kernels.reserve(plan_.ops.size());
  for (const Kernel& kernel : resources_.kernels) kernels.emplace_back(kernel);
  types_ = FindStepTypes(resources_, absl::MakeSpan(kernels));
  ops_.resize(plan_.ops.size());
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Plan::PlanOp& op = plan_.ops[i];
    BoundOp& bound = ops_[i];
    bound.op = &op;
    bound.is_static = types_.is_static[i];
    bound.kernel = std::move(kernels[i]);
    for (int v : op.inputs) bound.inputs.push_back(v < 0 ? nullptr : resources_.tensors[v]);
    for (int v : op.outputs) {
      bound.outputs.push_back(v < 0 ? nullptr : resources_.tensors[v]);
      bound.output_types.push_back(v < 0 ? absl::nullopt : types_.variables[v]);
    }
    if (op.control) {
      for (int v : op.inputs) bound.input_values.push_back(v < 0 ? nullptr : resources_.values[v]);
      for (int v : op.outputs) {
        bound.output_values.push_back(v < 0 ? nullptr : resources_.values[v]);
      }
    }
    if (op.ring >= 0) {
      bound.communicator = resources_.communicators[op.ring];
      if (op.has_rows) bound.rows = std::make_unique<RowsAllReduce>();
      if (NeedsCopy(op.desc.kind) && bound.inputs[0] == bound.outputs[0]) {
        bound.input_copy = std::make_unique<Tensor>(resources_.MemoryOf(op.device));
      }
    }
  }
  for (const Plan::Instruction& instruction : plan_.instructions) {
    if (instruction.kind != Plan::Instruction::Kind::kRunOp) continue;
    ops_[instruction.index].stream = instruction.stream;
  }
}

// The collectives of one op, on several variables, start together.
void BoundStep::GroupCollectives() {
  const auto collective_at = [this](size_t i) -> BoundOp* {
    if (plan_.instructions[i].kind != Plan::Instruction::Kind::kRunOp) return nullptr;
    BoundOp& op = ops_[plan_.instructions[i].index];
    return op.communicator != nullptr && op.rows == nullptr && op.inputs.size() == 1 ? &op
                                                                                     : nullptr;
  };
  for (size_t begin = 0, end = 0; begin < plan_.instructions.size(); begin = end) {
    end = begin + 1;
    BoundOp* const first = collective_at(begin);
    if (first == nullptr) continue;
    std::vector<BoundOp*> group = {first};
    for (; end < plan_.instructions.size(); ++end) {
      BoundOp* const next = collective_at(end);
      if (next == nullptr || next->op->name != first->op->name) break;
      // A variable that comes twice is reduced twice, one time after the other.
      const bool is_new = absl::c_none_of(
          group, [&](const BoundOp* op) { return op->outputs[0] == next->outputs[0]; });
      if (!is_new || next->communicator != first->communicator) break;
      group.push_back(next);
    }
    if (group.size() < 2) continue;
    for (BoundOp* op : group) op->in_group = true;
    group.front()->opens_group = group.back()->ends_group = true;
  }
}

void BoundStep::FindEntries() {
  std::vector<int> written;
  for (const Plan::PlanOp& op : plan_.ops) {
    for (int v : op.outputs) {
      if (v >= 0) written.push_back(v);
    }
  }
  std::vector<bool> is_written(plan_.variables.size(), false);
  for (int v : written) is_written[v] = true;
  for (size_t v = 0; v < plan_.variables.size(); ++v) {
    if (!resources_.accesses->is_entry[v]) continue;
    Tensor* const tensor = resources_.tensors[v];
    Entry entry{tensor, absl::nullopt, is_written[v] && types_.variables[v].has_value()};
    if (tensor->allocated() && !tensor->is_rows()) {
      entry.type = TensorType{tensor->dtype(), tensor->dims()};
    }
    // Without a value, an op reads it first: the step says so.
    entry.is_written = entry.is_written && entry.type.has_value();
    entries_.push_back(std::move(entry));
  }
}

bool BoundStep::Fits() const {
  return absl::c_all_of(entries_,
                        [](const Entry& entry) { return HasType(*entry.tensor, entry.type); });
}

void BoundStep::OwnValues() {
  for (const Entry& entry : entries_) {
    if (entry.is_written) entry.tensor->Resize(entry.type->dtype, entry.type->dims);
  }
  for (const auto& [tensor, type] : owned_) tensor->Resize(type.dtype, type.dims);
  for (Buffer& buffer : buffers_) {
    const char* const raw = static_cast<const char*>(buffer.tensors[0]->raw());
    bool is_laid_out = true;
    for (size_t k = 0; k < buffer.tensors.size(); ++k) {
      const Tensor& tensor = *buffer.tensors[k];
      is_laid_out = is_laid_out && HasType(tensor, buffer.types[k]) &&
                    static_cast<const char*>(tensor.raw()) == raw + buffer.offsets[k];
    }
    if (is_laid_out) continue;
    Memory* const place = buffer.tensors[0]->memory();
    // First: old and new memory need not exist at the same time.
    for (Tensor* tensor : buffer.tensors) *tensor = Tensor(place);
    auto memory = std::make_shared<Tensor>(place);
    memory->Resize(buffer.types[0].dtype, buffer.types[0].dims);
    char* const begin = static_cast<char*>(memory->raw());
    for (size_t k = 0; k < buffer.tensors.size(); ++k) {
      *buffer.tensors[k] = Tensor::Wrap(buffer.types[k].dtype, buffer.types[k].dims, memory,
                                        begin + buffer.offsets[k], place);
    }
    buffer.is_new = true;
  }
}

absl::Status BoundStep::ClearNewBuffers() {
  std::vector<char> zeros;
  for (Buffer& buffer : buffers_) {
    if (!buffer.is_new) continue;
    constexpr size_t kPart = size_t{1} << 20;
    zeros.resize(kPart);
    Tensor* const tensor = buffer.tensors[0];
    for (size_t begin = 0; begin < tensor->bytes(); begin += kPart) {
      const size_t bytes = std::min(kPart, tensor->bytes() - begin);
      WEFT_RETURN_IF_ERROR(tensor->memory()->CopyFromHost(
          zeros.data(), bytes, static_cast<char*>(tensor->raw()) + begin));
    }
    buffer.is_new = false;
  }
  return absl::OkStatus();
}

// Returns which variables are in buffers_.
std::vector<bool> BoundStep::FindBuffers(const std::vector<bool>& in_arena) {
  std::vector<bool> is_in_buffer(plan_.variables.size(), false);
  for (const PlacedBuffer& placed : FindPlacedBuffers(resources_, types_)) {
    const bool is_own = absl::c_all_of(placed.variables, [&](int v) {
      return !in_arena[v] && !plan_.variables[v].persistable && !resources_.accesses->is_entry[v];
    });
    if (!is_own) continue;
    Buffer& buffer = buffers_.emplace_back();
    buffer.offsets = placed.offsets;
    for (int v : placed.variables) {
      is_in_buffer[v] = true;
      buffer.tensors.push_back(resources_.tensors[v]);
      buffer.types.push_back(*types_.variables[v]);
    }
  }
  return is_in_buffer;
}

void BoundStep::PlaceValues() {
  PlaceFinder finder(resources_, types_, ops_);
  finder.ShareViews();
  finder.ShareInPlace();
  std::vector<PointwiseChain> chains;
  if (resources_.joins_ops) {
    const auto kernel_of = [this](int op) -> const BoundKernel& { return ops_[op].kernel; };
    chains = FindPointwiseChains(plan_, resources_.accesses->in_block, types_, kernel_of);
  }
  const ChainSpans spans(chains, plan_.instructions.size());

  std::array<std::vector<ArenaValue>, kNumDeviceKinds> values;  // by device
  const auto values_of = [&values](DeviceKind device) -> std::vector<ArenaValue>& {
    return values[static_cast<int>(device)];
  };
  std::vector<int> value_of_place(plan_.variables.size(), -1);
  const int num_variables = static_cast<int>(plan_.variables.size());
  const std::vector<bool> is_in_buffer = FindBuffers(finder.in_arena());
  for (int v = 0; v < num_variables; ++v) {
    const absl::optional<TensorType>& type = types_.variables[v];
    if (!finder.IsInArena(v)) {
      if (type.has_value() && !resources_.accesses->is_entry[v] && !is_in_buffer[v]) {
        owned_.push_back({resources_.tensors[v], *type});
      }
      continue;
    }
    const int place = finder.Place(v);
    const Life& life = finder.LifeOf(place);
    if (life.empty()) continue;
    const DeviceKind device = plan_.variables[v].memory;
    std::vector<ArenaValue>& of_device = values_of(device);
    if (value_of_place[place] < 0) {
      value_of_place[place] = static_cast<int>(of_device.size());
      of_device.push_back({0, spans.first(life.first), spans.last(life.last)});
    }
    ArenaValue& value = of_device[value_of_place[place]];
    value.bytes = std::max(value.bytes, BytesOf(*type));
    // The number of the value until there are offsets.
    places_.push_back(
        {resources_.tensors[v], *type, device, value_of_place[place], finder.OffsetInPlace(v)});
  }
  for (size_t i = 0; i < plan_.instructions.size(); ++i) {
    const Plan::Instruction& instruction = plan_.instructions[i];
    if (instruction.kind != Plan::Instruction::Kind::kRunOp) continue;
    BoundOp& op = ops_[instruction.index];
    if (!op.is_static || finder.is_removed()[instruction.index]) continue;
    const Life& life = finder.LivesOn(op.op->device)[i];
    std::vector<ArenaValue>& of_device = values_of(op.op->device);
    for (BoundKernel::Temporary& temporary : op.kernel.temporaries()) {
      places_.push_back({&temporary.tensor, *temporary.type, op.op->device,
                         static_cast<int64_t>(of_device.size())});
      of_device.push_back({BytesOf(*temporary.type), life.first, life.last});
    }
  }
  for (int d = 0; d < kNumDeviceKinds; ++d) {
    const ArenaLayout layout = PlaceInArena(values[d]);
    for (Place& place : places_) {
      if (static_cast<int>(place.device) != d) continue;
      place.offset = layout.offsets[place.offset] + place.offset_in_value;
    }
    arena_bytes_[d] = layout.bytes;
    live_bytes_[d] = layout.live_bytes;
  }
  std::vector<bool> is_removed = finder.is_removed();
  JoinChains(chains, &is_removed);
  instructions_ = plan_.instructions;
  branches_ = plan_.branches;
  RemoveOps(is_removed, &instructions_, &branches_);
}

// `is_removed`: ops that do not run by themselves.
void BoundStep::JoinChains(const std::vector<PointwiseChain>& chains,
                           std::vector<bool>* is_removed) {
  for (const PointwiseChain& chain : chains) {
    std::vector<int> joined;
    for (int i = chain.begin; i < chain.end; ++i) {
      const int op = plan_.instructions[i].index;
      if (!(*is_removed)[op]) joined.push_back(op);
    }
    if (joined.size() < 2) continue;
    for (size_t k = 1; k < joined.size(); ++k) (*is_removed)[joined[k]] = true;
    BoundOp& first = ops_[joined[0]];
    first.chain = std::move(joined);
    first.chain_size = chain.size;
  }
}

void BoundStep::Enter(StepArenas* arenas) {
  for (int d = 0; d < kNumDeviceKinds; ++d) {
    Arena& arena = (*arenas)[d];
    if (arena_bytes_[d] <= arena.bytes) continue;
    arena.memory = nullptr;  // first: the two need not exist at the same time
    arena.memory = resources_.arena_memories[d]->Allocate(arena_bytes_[d]);
    arena.bytes = arena_bytes_[d];
  }
  for (const Place& place : places_) {
    const Arena& arena = (*arenas)[static_cast<int>(place.device)];
    *place.tensor = Tensor::Wrap(place.type.dtype, place.type.dims, arena.memory,
                                 static_cast<char*>(arena.memory.get()) + place.offset,
                                 resources_.MemoryOf(place.device));
  }
  OwnValues();
  if (!is_prepared_) PrepareKernels();
  is_prepared_ = true;
}

void BoundStep::Leave() {
  for (const Place& place : places_) *place.tensor = Tensor(resources_.MemoryOf(place.device));
}

void BoundStep::PrepareKernels() {
  for (BoundOp& op : ops_) {
    // A kernel that does not take the types says so in the step.
    if (op.is_static && op.communicator == nullptr && !op.kernel.Prepare().ok()) {
      op.is_static = false;
    }
  }
}

}  // namespace weft
