#include "executor/step/bound_step.h"

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <numeric>
#include <type_traits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
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

// Whether the kernel can be prepared.
bool Prepare(BoundKernel* kernel) {
  try {
    return kernel->Prepare().ok();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    return false;
  }
}

// Decides which values lie in the arena, and which of them share a place.
class PlaceFinder {
 public:
  PlaceFinder(const StepResources& resources, const StepTypes& types,
              absl::Span<const BoundKernel> kernels)
      : plan_(*resources.plan),
        accesses_(*resources.accesses),
        types_(types),
        kernels_(kernels),
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
      const Plan::PlanOp& op = plan_.ops[index];
      const BoundKernel& kernel = kernels_[index];
      if (!types_.is_static[index] || kernel.kernel().views.empty() || kernel.has_temporaries())
        continue;
      std::vector<bool> is_done(op.outputs.size());
      for (size_t o = 0; o < is_done.size(); ++o) {
        const int out = op.outputs[o];
        is_done[o] = out < 0 || NumElements(types_.variables[out]->dims) == 0;
      }
      for (const auto& [out, in] : kernel.kernel().views) {
        if (!IsView(op.outputs[out], op.inputs[in])) continue;
        Join(op.inputs[in], op.outputs[out]);
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
      const Plan::PlanOp& op = plan_.ops[index];
      if (!types_.is_static[index] || op.factory() == nullptr || is_removed_[index]) continue;
      for (size_t o = 0; o < op.outputs.size(); ++o) {
        const int out = op.outputs[o];
        if (!MayShare(out) || lives_[Place(out)].first != static_cast<int>(i)) continue;
        for (int in : op.inputs) {
          if (!EndsAt(in, static_cast<int>(i)) || !CanTake(index, static_cast<int>(o), in))
            continue;
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
    const bool shares = op.factory() != nullptr && !op.reads_inputs;
    const auto add = [&](int v) {
      if (v < 0) return;
      lives_[v].Add(LivesOn(plan_.variables[v].memory)[i]);
      if ((shares && !is_in_buffer_[v]) || accesses_.in_block[i]) in_arena_[v] = false;
    };
    for (size_t in = 0; in < op.inputs.size(); ++in) {
      // Its variable has a type to the end of the step, but need not keep its memory.
      const bool is_unread = types_.is_static[index] && kernels_[index].IsUnread(in);
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
  bool CanTake(int index, int o, int in) const {
    const Plan::PlanOp& op = plan_.ops[index];
    const int out = op.outputs[o];
    if (plan_.variables[in].memory != plan_.variables[out].memory) return false;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const bool is_there = op.inputs[i] >= 0 && Place(op.inputs[i]) == Place(in);
      if (is_there && !kernels_[index].CanShare(o, static_cast<int>(i))) return false;
    }
    return absl::c_none_of(op.outputs, [&](int v) { return v >= 0 && Place(v) == Place(in); });
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
  const absl::Span<const BoundKernel> kernels_;                        // by op
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
  Parts parts;
  for (const Kernel& kernel : resources_.kernels) parts.kernels.emplace_back(kernel);
  types_ = FindStepTypes(resources_, absl::MakeSpan(parts.kernels));
  FindEntries();
  PlaceValues(&parts);
  MakeCalls(std::move(parts));
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

void BoundStep::AddAddresses(std::vector<const void*>* addresses) const {
  for (const Entry& entry : entries_) addresses->push_back(entry.tensor->raw());
  for (const auto& [tensor, type] : owned_) addresses->push_back(tensor->raw());
  for (const Buffer& buffer : buffers_) addresses->push_back(buffer.tensors[0]->raw());
}

absl::Status BoundStep::ClearNewBuffers() {
  constexpr size_t kPart = size_t{1} << 16;
  static const char zeros[kPart] = {};
  for (Buffer& buffer : buffers_) {
    if (!buffer.is_new) continue;
    Tensor* const tensor = buffer.tensors[0];
    for (size_t begin = 0; begin < tensor->bytes(); begin += kPart) {
      const size_t bytes = std::min(kPart, tensor->bytes() - begin);
      WEFT_RETURN_IF_ERROR(
          tensor->memory()->CopyFromHost(zeros, bytes, static_cast<char*>(tensor->raw()) + begin));
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

void BoundStep::PlaceValues(Parts* parts) {
  PlaceFinder finder(resources_, types_, parts->kernels);
  finder.ShareViews();
  finder.ShareInPlace();
  parts->is_removed = finder.is_removed();
  parts->input_copies.resize(plan_.ops.size(), nullptr);
  if (resources_.joins_ops) {
    parts->chains =
        FindPointwiseChains(plan_, resources_.accesses->in_block, types_, parts->kernels);
  }
  const ChainSpans spans(parts->chains, plan_.instructions.size());

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
    const int index = instruction.index;
    const Plan::PlanOp& op = plan_.ops[index];
    const Life& life = finder.LivesOn(op.device)[i];
    std::vector<ArenaValue>& of_device = values_of(op.device);
    const auto add = [&](Tensor* tensor, const TensorType& type) {
      places_.push_back({tensor, type, op.device, static_cast<int64_t>(of_device.size())});
      of_device.push_back({BytesOf(type), life.first, life.last});
    };
    const auto* const collective = std::get_if<Plan::CollectiveWork>(&op.work);
    if (collective != nullptr && NeedsCopy(collective->desc.kind) &&
        op.inputs[0] == op.outputs[0]) {
      parts->input_copies[index] = &input_copies_.emplace_back(resources_.MemoryOf(op.device));
      if (types_.is_static[index]) add(&input_copies_.back(), *types_.variables[op.inputs[0]]);
    }
    if (!types_.is_static[index] || parts->is_removed[index]) continue;
    for (BoundKernel::Temporary& temporary : parts->kernels[index].temporaries()) {
      add(&temporary.tensor, *temporary.type);
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
}

// Whether at least two of its ops run.
bool BoundStep::IsChain(const PointwiseChain& chain, const Parts& parts) const {
  int num_ops = 0;
  for (int i = chain.begin; i < chain.end; ++i) {
    if (!parts.is_removed[plan_.instructions[i].index]) ++num_ops;
  }
  return num_ops > 1;
}

// The instruction after the collectives of one op, on several variables, that begin here.
int BoundStep::EndOfGroup(int begin) const {
  const auto collective_at = [this](int i) -> const Plan::PlanOp* {
    const Plan::Instruction& instruction = plan_.instructions[i];
    if (instruction.kind != Plan::Instruction::Kind::kRunOp) return nullptr;
    const Plan::PlanOp& op = plan_.ops[instruction.index];
    const bool is_plain = op.Is<Plan::CollectiveWork>() && !op.has_rows && op.inputs.size() == 1;
    return is_plain ? &op : nullptr;
  };
  const Plan::PlanOp* const first = collective_at(begin);
  int end = begin + 1;
  if (first == nullptr) return end;
  absl::flat_hash_set<int> written = {first->outputs[0]};
  for (; end < static_cast<int>(plan_.instructions.size()); ++end) {
    const Plan::PlanOp* const next = collective_at(end);
    if (next == nullptr || next->name != first->name) break;
    if (next->ring_work()->ring != first->ring_work()->ring) break;
    // A variable that comes twice is reduced twice, one time after the other.
    if (!written.insert(next->outputs[0]).second) break;
  }
  return end;
}

void BoundStep::MakeCalls(Parts parts) {
  const int size = static_cast<int>(plan_.instructions.size());
  std::vector<int> new_position;
  auto chain = parts.chains.begin();
  for (int i = 0; i < size;) {
    new_position.resize(i + 1, static_cast<int>(calls_.size()));
    const Plan::Instruction& instruction = plan_.instructions[i];
    while (chain != parts.chains.end() && chain->end <= i) ++chain;
    const bool in_chain = chain != parts.chains.end() && chain->begin <= i;
    const bool is_op = instruction.kind == Plan::Instruction::Kind::kRunOp;
    if (is_op && parts.is_removed[instruction.index]) {
      ++i;
    } else if (in_chain && IsChain(*chain, parts)) {
      ChainCall joined;
      joined.size = chain->size;
      for (; i < chain->end; ++i) {
        if (parts.is_removed[plan_.instructions[i].index]) continue;
        StepCall op = MakeCall(plan_.instructions[i], &parts);
        joined.ops.push_back(std::get<KernelCall>(std::move(op.work)));
      }
      calls_.push_back({instruction.stream, 0, false, std::move(joined)});
    } else if (is_op && EndOfGroup(i) > i + 1) {
      GroupCall group;
      for (const int end = EndOfGroup(i); i < end; ++i) {
        StepCall op = MakeCall(plan_.instructions[i], &parts);
        group.ops.push_back(std::get<CollectiveOpCall>(std::move(op.work)));
      }
      calls_.push_back({instruction.stream, 0, false, std::move(group)});
    } else {
      calls_.push_back(MakeCall(instruction, &parts));
      ++i;
    }
  }
  new_position.resize(size + 1, static_cast<int>(calls_.size()));
  branches_ = plan_.branches;
  MoveBranches(new_position, &branches_);
  DivideIntoTasks();
}

// Consecutive ops of a stream are one task, unless a branch begins, ends or goes on between them.
void BoundStep::DivideIntoTasks() {
  std::vector<bool> is_target(calls_.size() + 1, false);
  for (const Plan::Branch& branch : branches_) {
    is_target[branch.begin] = is_target[branch.end] = is_target[branch.next] = true;
  }
  const int size = static_cast<int>(calls_.size());
  for (int i = size - 1; i >= 0; --i) {
    StepCall& call = calls_[i];
    call.end_of_task = i + 1;
    if (FirstOp(call) == nullptr || i + 1 == size || is_target[i + 1]) continue;
    const StepCall& next = calls_[i + 1];
    if (FirstOp(next) != nullptr && next.stream == call.stream) call.end_of_task = next.end_of_task;
  }
}

OpCall BoundStep::ArgumentsOf(int op) const {
  OpCall call;
  call.op = &plan_.ops[op];
  call.index = op;
  call.is_static = types_.is_static[op];
  for (int v : call.op->inputs) call.inputs.push_back(v < 0 ? nullptr : resources_.tensors[v]);
  for (int v : call.op->outputs) {
    call.outputs.push_back(v < 0 ? nullptr : resources_.tensors[v]);
    call.output_types.push_back(v < 0 ? absl::nullopt : types_.variables[v]);
  }
  return call;
}

template <typename Call>
Call BoundStep::OnRing(const Plan::RingWork& work, int stream, int op) const {
  Call made;
  static_cast<OpCall&>(made) = ArgumentsOf(op);
  const int variable = made.inputs.empty() ? made.op->outputs[0] : made.op->inputs[0];
  made.communicator = resources_.communicators[work.ring];
  made.call.desc = work.desc;
  made.call.op = made.op->name;
  made.call.variable = plan_.variables[variable].name;
  made.call.stream = resources_.native_streams[stream];
  if (made.is_static) SetType(*types_.variables[variable], &made.call);
  return made;
}

StepCall BoundStep::MakeCall(const Plan::Instruction& instruction, Parts* parts) const {
  using Kind = Plan::Instruction::Kind;
  StepCall call;
  call.stream = instruction.stream;
  const int index = instruction.index;
  switch (instruction.kind) {
    case Kind::kRecord:
      call.work = RecordCall{index};
      return call;
    case Kind::kWait:
      call.work = WaitCall{index};
      return call;
    case Kind::kSynchronize:
      call.work = SynchronizeCall();
      return call;
    case Kind::kBranch:
      call.work = BranchCall{index};
      return call;
    case Kind::kRunOp:
      break;
  }
  const Plan::PlanOp& op = plan_.ops[index];
  if (const auto* const message = std::get_if<Plan::MessageWork>(&op.work)) {
    call.work = OnRing<MessageCall>(*message, call.stream, index);
  } else if (const auto* const collective = std::get_if<Plan::CollectiveWork>(&op.work)) {
    if (op.has_rows) {
      call.work = OnRing<RowsCall>(*collective, call.stream, index);
    } else {
      auto made = OnRing<CollectiveOpCall>(*collective, call.stream, index);
      made.input_copy = parts->input_copies[index];
      call.work = std::move(made);
    }
  } else if (op.Is<Plan::ServerWork>()) {
    call.work = ServerCall{ArgumentsOf(index)};
  } else if (op.Is<Plan::ControlWork>()) {
    ControlCall made{ArgumentsOf(index), std::move(parts->kernels[index]), {}, {}};
    for (int v : op.inputs) made.input_values.push_back(v < 0 ? nullptr : resources_.values[v]);
    for (int v : op.outputs) made.output_values.push_back(v < 0 ? nullptr : resources_.values[v]);
    call.work = std::move(made);
  } else {
    KernelCall made{ArgumentsOf(index), std::move(parts->kernels[index])};
    if (op.Is<Plan::CopyWork>()) {
      call.work = CopyCall{std::move(made)};
    } else {
      call.work = std::move(made);
    }
  }
  return call;
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
  for (StepCall& call : calls_) {
    ForEachOp(call, [&](auto& op) {
      if constexpr (std::is_base_of_v<KernelCall, std::decay_t<decltype(op)>>) {
        // A kernel that does not take the types says so in the step.
        if (op.is_static) op.is_static = Prepare(&op.kernel);
        // Of a kernel that finds types in the step, only the arguments are fixed.
        if (!op.is_static && op.kernel.kernel().types == nullptr &&
            op.kernel.Bind(resources_.ContextOf(op.index, op.inputs, op.outputs, call.stream), {})
                .ok()) {
          Prepare(&op.kernel);
        }
      }
    });
    auto* const chain = std::get_if<ChainCall>(&call.work);
    if (chain == nullptr) continue;
    chain->in_parts = absl::c_all_of(chain->ops, [](const KernelCall& op) { return op.is_static; });
  }
}

}  // namespace weft
