#include "ops/analysis/devices/device_memory.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/numeric/int128.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/core/type_flow.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/analysis/streams/stream_survey.h"
#include "ops/analysis/training/data_variables.h"
#include "ops/analysis/training/losses.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

using Bytes = absl::int128;

// Values lie apart from each other.
constexpr int64_t kAlignment = 64, kApart = 320;

constexpr DeviceStream kHostStream{DeviceStream::Kind::kHost, -1};

int64_t Clamp(Bytes bytes) {
  return static_cast<int64_t>(std::min<Bytes>(bytes, std::numeric_limits<int64_t>::max()));
}

bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// Positions in the root block, both included.
struct Life {
  int first = std::numeric_limits<int>::max();
  int last = -1;

  bool empty() const { return last < 0; }
  void Add(const Life& other) {
    first = std::min(first, other.first);
    last = std::max(last, other.last);
  }
};

// By position in the root block, when ops may run, on the timeline of a stream
// (executor/step/step_lives.h).
class OpLives {
 public:
  OpLives(const Program& program, const StreamSurvey& survey, int timeline)
      : timeline_(timeline),
        num_ops_(static_cast<int>(program.block(0).ops().size())),
        lives_(num_ops_),
        clocks_(survey.num_streams(), std::vector<int>(survey.num_streams(), 0)),
        running_(survey.num_streams()) {
    const auto special = survey.special(0);
    size_t next = 0;
    for (int i = 0; i < num_ops_; ++i) {
      const bool is_special = next < special.size() && special[next].position == uint32_t(i);
      using Kind = StreamSurvey::SpecialOp::Kind;
      if (!is_special) {
        Run(0, i);
      } else if (special[next].kind == Kind::kSync) {
        Wait(survey.syncs()[special[next].index]);
      } else if (special[next].kind == Kind::kRingSetup) {
        WaitAll(0);
      } else {
        Run(special[next].index, i);
      }
      if (is_special) ++next;
      Finish(i);
    }
  }

  const Life& Of(int position) const { return lives_[position]; }

 private:
  void Run(int stream, int i) {
    clocks_[stream][stream] = i + 1;
    lives_[i] = {i, i};
    if (stream == timeline_) return;
    lives_[i] = {clocks_[stream][timeline_], num_ops_};
    running_[stream].push_back(i);
  }

  void Wait(const StreamSurvey::Sync& sync) {
    if (sync.awaited < 0) return;
    switch (sync.sync) {
      case StreamSync::kAllWaitForCompute:
      case StreamSync::kAllWaitForRing:
        return WaitAll(sync.awaited);
      default:
        if (sync.waiting >= 0) Merge(sync.awaited, sync.waiting);
    }
  }

  void WaitAll(int awaited) {
    for (size_t s = 0; s < clocks_.size(); ++s) Merge(awaited, static_cast<int>(s));
  }

  void Merge(int from, int to) {
    for (size_t s = 0; s < clocks_.size(); ++s) {
      clocks_[to][s] = std::max(clocks_[to][s], clocks_[from][s]);
    }
  }

  // Ends lives of ops that the timeline has waited for.
  void Finish(int position) {
    for (size_t s = 0; s < running_.size(); ++s) {
      while (!running_[s].empty() && running_[s].front() < clocks_[timeline_][s]) {
        lives_[running_[s].front()].last = position;
        running_[s].pop_front();
      }
    }
  }

  const int timeline_;
  const int num_ops_;
  std::vector<Life> lives_;
  std::vector<std::vector<int>> clocks_;  // by stream: ops of each stream before this are done
  std::vector<std::deque<int>> running_;
};

class Estimator {
 public:
  Estimator(const ProgramFacts& facts, const FeedLayouts& feeds, int64_t batch)
      : facts_(facts),
        program_(facts.program()),
        batch_(batch),
        traits_(facts.Get<OpTraits>()),
        storage_(facts.Get<Storage>()),
        placement_(facts.Get<DevicePlacement>()),
        survey_(facts.Get<StreamSurvey>()),
        lives_of_ops_{OpLives(program_, survey_, 0),
                      OpLives(program_, survey_, std::max(0, survey_.StreamOf(kHostStream)))},
        types_(program_),
        vars_(program_.var_id_limit()) {
    for (VarId id : facts.Get(FindData)) AddData(id, feeds);
  }

  DeviceMemories Estimate() {
    changes_.resize(kNumDeviceKinds);
    for (auto& of_device : changes_) of_device.resize(program_.block(0).ops().size() + 2, 0);
    types_.Run(0, [this](const TypeFlow::Step& step) {
      VisitTypes(step);
      return true;
    });
    for (const Op& op : AllOps(program_)) AddAccesses(op);
    for (Symbol loss : facts_.Get(FindLosses)) Keep(program_.block(0).FindVar(loss));
    JoinSlices();
    for (const Var& var : AllVars(program_)) AddVariable(var.id());
    DeviceMemories memories;
    memories.num_unknown = num_unknown_;
    for (int d = 0; d < kNumDeviceKinds; ++d) {
      Bytes now = 0, most = 0;
      for (Bytes change : changes_[d]) most = std::max(most, now += change);
      memories.of[d] = {Clamp(kept_[d]), Clamp(most + most / Gaps())};
    }
    return memories;
  }

 private:
  // What values take besides for each part of this size. On two devices, lives are long and overlap
  // more: their layout has more gaps.
  int Gaps() const { return placement_.on_two_devices() ? 4 : 8; }

  struct Variable {
    Life life;
    absl::optional<int64_t> bytes;  // the most that any value takes
    int64_t rows_bytes = 0;         // of row-sparse values
    bool is_rows = false;
    bool is_kept = false;
    bool is_named = false;
    bool is_written = false;
    bool is_fused = false;  // a buffer, whose members have no other memory
    int num_makers = 0;     // of the buffers that it is in
  };

  void AddData(VarId id, const FeedLayouts& feeds) {
    const Var var = program_.var(id);
    Keep(id);
    absl::optional<TensorType> type = DeclaredType(var);
    if (!type.has_value()) return;
    const auto layout = feeds.find(std::string(var.name()));
    const absl::optional<int> axis = layout == feeds.end() ? 0 : layout->second.axis;
    if (axis.has_value() && *axis < static_cast<int>(type->dims.size()) && type->dims[*axis] < 0) {
      type->dims[*axis] = batch_;
    }
    types_.Assume(id, *type);
    SetBytes(id, type);
  }

  void Keep(VarId id) {
    if (id.valid()) vars_[id.value()].is_kept = true;
  }

  static int64_t BytesOf(const TensorType& type) {
    const int64_t elements = NumElements(type.dims);
    return elements < 0 ? -1 : Clamp(Bytes(elements) * static_cast<int64_t>(SizeOf(type.dtype)));
  }

  void SetBytes(VarId id, const absl::optional<TensorType>& type) {
    if (!type.has_value() || BytesOf(*type) < 0) return;
    Variable& variable = vars_[id.value()];
    variable.bytes = std::max(variable.bytes.value_or(0), BytesOf(*type));
  }

  void VisitTypes(const TypeFlow::Step& step) {
    for (size_t i = 0; i < step.inferred.size(); ++i) {
      const VarId out = step.outputs[i];
      if (!out.valid()) continue;
      const absl::optional<TensorType>& type = types_.types().type(step.inferred[i]);
      if (!type.has_value()) continue;
      if (type->kind == TensorType::Kind::kSelectedRows) vars_[out.value()].is_rows = true;
      SetBytes(out, type);
    }
    AddRows(step.op);
    AddConversions(step);
  }

  // The rows of a gradient are as many as it gets from its output, or those of the inputs together.
  void AddRows(const Op& op) {
    const Block block = program_.block(op.block());
    int64_t bytes = 0;
    for (Symbol name : op.input_args()) {
      const VarId in = block.Resolve(name);
      if (!in.valid()) continue;
      const Variable& variable = vars_[in.value()];
      if (IsRows(in)) {
        bytes = Clamp(Bytes(bytes) + variable.rows_bytes);
      } else if (!program_.var(in).persistable()) {
        bytes = Clamp(Bytes(bytes) + variable.bytes.value_or(0));
      }
    }
    for (Symbol name : op.output_args()) {
      const VarId out = block.Resolve(name);
      if (!out.valid() || !IsRows(out)) continue;
      int64_t& rows = vars_[out.value()].rows_bytes;
      rows = std::max(rows, bytes);
    }
  }

  bool IsRows(VarId id) const {
    return vars_[id.value()].is_rows || program_.var(id).type() == pb::VarType::SELECTED_ROWS;
  }

  // A kernel may convert arguments in half precision, and copy an input that an output replaces.
  void AddConversions(const TypeFlow::Step& step) {
    const Op& op = step.op;
    if (op.block() != 0) return;
    Bytes bytes = 0;
    for (TypeId id : step.inputs) bytes += Converted(types_.types().type(id));
    if (bytes > 0) {
      for (TypeId id : step.inferred) bytes += Converted(types_.types().type(id));
    }
    const OpSchema* const schema = traits_.SchemaOf(op);
    for (size_t i = 0; schema != nullptr && bytes == 0 && i < step.outputs.size(); ++i) {
      const Symbol name = op.output_args()[i];
      if (!step.outputs[i].valid() || IsInPlace(*schema, op, name)) continue;
      if (std::find(op.input_args().begin(), op.input_args().end(), name) ==
          op.input_args().end()) {
        continue;
      }
      bytes += vars_[step.outputs[i].value()].bytes.value_or(0);
    }
    const DeviceKind device = placement_.DeviceOf(op.id());
    AddChange(device, LifeOn(device, op), bytes);
  }

  static Bytes Converted(const absl::optional<TensorType>& type) {
    return type.has_value() && IsHalf(type->dtype) ? Bytes(2) * std::max<int64_t>(BytesOf(*type), 0)
                                                   : Bytes(0);
  }

  static bool IsInPlace(const OpSchema& schema, const Op& op, Symbol name) {
    for (const SlotSchema& slot : schema.outputs()) {
      if (slot.in_place_of.empty()) continue;
      const auto outputs = op.Output(slot.name), inputs = op.Input(slot.in_place_of);
      const auto has = [&](absl::Span<const Symbol> all) {
        return std::find(all.begin(), all.end(), name) != all.end();
      };
      if (has(outputs) && has(inputs)) return true;
    }
    return false;
  }

  void AddAccesses(const Op& op) {
    if (traits_.Has(op, Trait::kStreamSync) || traits_.Has(op, Trait::kRingSetup)) return;
    const bool is_plain = op.block() == 0 && op.SubBlocks().empty() && traits_.IsRegistered(op);
    const Storage::Buffer* const made = storage_.MadeBy(op.id());
    const bool makes_buffer = made != nullptr;
    const bool lays_out_first = makes_buffer && is_plain && LaysOutFirst(*made);
    const bool places_buffer = lays_out_first && placement_.on_two_devices();
    const bool keeps = !is_plain || (makes_buffer && !places_buffer) || IsFetch(op.type());
    if (places_buffer) buffers_.push_back(made);
    const Block block = program_.block(op.block());
    const auto visit = [&](Symbol name, bool writes) {
      const VarId id = block.Resolve(name);
      if (!id.valid()) return;
      Variable& variable = vars_[id.value()];
      if (op.block() == 0) variable.life.Add(LifeOn(placement_.MemoryOf(id), op));
      variable.is_named = true;
      if (makes_buffer && writes && ++variable.num_makers > 1) variable.is_kept = true;
      // One that a step begins with.
      if (keeps || (!writes && !variable.is_written && !makes_buffer)) variable.is_kept = true;
      variable.is_written |= writes;
    };
    for (Symbol name : op.input_args()) visit(name, false);
    for (Symbol name : op.output_args()) visit(name, true);
    if (lays_out_first && made->var.valid()) vars_[made->var.value()].is_fused = true;
  }

  // Whether the executor lays out the buffer before the parts have memory
  // (executor/step/placed_buffers.h). Else both exist when the op runs.
  bool LaysOutFirst(const Storage::Buffer& buffer) const {
    const auto is_persistable = [&](VarId id) { return program_.var(id).persistable(); };
    return !buffer.has_values() && !(buffer.var.valid() && is_persistable(buffer.var)) &&
           absl::c_none_of(buffer.part_vars, is_persistable);
  }

  // A buffer and its slices live together, or all of them are kept.
  void JoinSlices() {
    for (const Storage::Buffer* buffer : buffers_) {
      std::vector<VarId> together = buffer->part_vars;
      if (buffer->var.valid()) together.push_back(buffer->var);
      Life life;
      bool is_kept = false;
      for (VarId var : together) {
        life.Add(vars_[var.value()].life);
        is_kept |= vars_[var.value()].is_kept || program_.var(var).persistable();
      }
      for (VarId var : together) {
        vars_[var.value()].life = life;
        vars_[var.value()].is_kept = is_kept;
      }
    }
  }

  const Life& LifeOn(DeviceKind device, const Op& op) const {
    return lives_of_ops_[static_cast<int>(device)].Of(static_cast<int>(op.position()));
  }

  void AddVariable(VarId id) {
    const Variable& variable = vars_[id.value()];
    const Var var = program_.var(id);
    if (!variable.is_named && !variable.is_kept && !var.persistable()) return;
    if (variable.is_fused) return;  // its members count
    const DeviceKind device = placement_.MemoryOf(id);
    const absl::optional<int64_t> bytes = SizeOfVar(var, variable);
    if (!bytes.has_value()) {
      num_unknown_ += device == DeviceKind::kAccelerator ? 1 : 0;
      return;
    }
    if (var.persistable() || variable.is_kept || IsRows(id)) {
      kept_[static_cast<int>(device)] += *bytes;
    } else {
      AddChange(device, variable.life, *bytes);
    }
  }

  absl::optional<int64_t> SizeOfVar(const Var& var, const Variable& variable) const {
    if (IsRows(var.id())) return variable.rows_bytes;
    absl::optional<int64_t> bytes = variable.bytes;
    absl::optional<TensorType> declared = DeclaredType(var);
    if (declared.has_value() && (!bytes.has_value() || var.persistable())) {
      for (int64_t& dim : declared->dims) dim = dim < 0 ? batch_ : dim;
      bytes = std::max(bytes.value_or(0), BytesOf(*declared));
    }
    return bytes;
  }

  void AddChange(DeviceKind device, const Life& life, Bytes bytes) {
    if (life.empty() || bytes == 0) return;
    const Bytes room = (bytes + kAlignment - 1) / kAlignment * kAlignment + kApart;
    std::vector<Bytes>& changes = changes_[static_cast<int>(device)];
    changes[life.first] += room;
    changes[std::min<size_t>(life.last + 1, changes.size() - 1)] -= room;
  }

  const ProgramFacts& facts_;
  const Program& program_;
  const int64_t batch_;
  const OpTraits& traits_;
  const Storage& storage_;
  const DevicePlacement& placement_;
  const StreamSurvey& survey_;
  const std::array<OpLives, kNumDeviceKinds> lives_of_ops_;  // by device
  TypeFlow types_;
  std::vector<Variable> vars_;                   // by VarId
  std::vector<const Storage::Buffer*> buffers_;  // those that are placed
  std::vector<std::vector<Bytes>> changes_;  // by device, at each op of the root block, and after
  std::array<Bytes, kNumDeviceKinds> kept_{};
  int64_t num_unknown_ = 0;
};

}  // namespace

int64_t DeviceMemory::bytes() const { return Clamp(Bytes(kept) + step); }

DeviceMemories EstimateDeviceMemory(const ProgramFacts& facts, const FeedLayouts& feeds,
                                    int64_t batch) {
  return Estimator(facts, feeds, batch).Estimate();
}

}  // namespace weft
