#include "transpiler/passes/devices/device_values.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "transpiler/passes/devices/staging_slots.h"

namespace weft {

DeviceValues::DeviceValues(const Program& program, const DeviceAccesses& accesses,
                           absl::Span<const DeviceStep> steps, Staging staging)
    : program_(program),
      accesses_(accesses),
      steps_(steps),
      home_(program.var_id_limit(), DeviceKind::kAccelerator),
      values_(program.var_id_limit()),
      copies_(steps.size() + 1) {
  FindHomes();
  FindCopies();
  JoinSlices();
  if (staging == Staging::kDouble) num_turns_ = TakeTurns(program, accesses, steps, &copies_);
  FindMirroredBuffers();
}

void DeviceValues::FindHomes() {
  std::vector<bool> is_written(home_.size(), false);
  const auto write = [&](VarId var, DeviceKind device) {
    home_[var.value()] = device;
    is_written[var.value()] = true;
  };
  for (const DeviceStep& step : steps_) {
    for (const DeviceAccess& access : accesses_.Of(step.op)) {
      const size_t var = access.var.value();
      if (access.writes) {
        write(access.var, step.device);
        for (VarId part : accesses_.PartsOf(access.var)) write(part, step.device);
      } else if (access.reads && step.device == DeviceKind::kHost && !is_written[var]) {
        home_[var] = DeviceKind::kHost;
      }
    }
  }
}

void DeviceValues::FindCopies() {
  for (size_t v = 0; v < values_.size(); ++v) values_[v].is_on[static_cast<int>(home_[v])] = true;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const DeviceStep& step = steps_[i];
    const std::vector<DeviceAccess>& accesses = accesses_.Of(step.op);
    for (const DeviceAccess& access : accesses) {
      if (!access.reads) continue;
      for (VarId part : accesses_.PartsOf(access.var)) Provide(part, step.device, i);
    }
    for (const DeviceAccess& access : accesses) {
      if (!access.writes) continue;
      for (VarId part : accesses_.PartsOf(access.var)) Write(part, step.device, i);
    }
  }
}

void DeviceValues::Provide(VarId var, DeviceKind device, size_t i) {
  Value& value = values_[var.value()];
  const int here = static_cast<int>(device);
  if (value.is_on[here]) return;
  const DeviceKind from = OtherDevice(device);
  const size_t ready = value.since[static_cast<int>(from)];
  // One that needs no wait stands where it is used, so that the wait for it waits for no other.
  copies_[ready == 0 ? i : ready].push_back({var, from, steps_[i].op});
  value.is_on[here] = true;
}

void DeviceValues::Write(VarId var, DeviceKind device, size_t i) {
  Value& value = values_[var.value()];
  value.is_on = {};
  value.is_on[static_cast<int>(device)] = true;
  value.since[static_cast<int>(device)] = i + 1;
}

void DeviceValues::JoinSlices() {
  struct Slices {
    size_t count = 0;  // of copies
    size_t ready = 0;  // before this step, the last one is copied
    size_t read;       // the first step that reads one
    OpId reader;
    bool each_once = true;
  };
  std::vector<size_t> step_of(program_.op_id_limit(), 0);
  for (size_t i = 0; i < steps_.size(); ++i) step_of[steps_[i].op.value()] = i;
  absl::flat_hash_map<VarId, Slices> found;  // by buffer
  absl::flat_hash_set<VarId> copied;
  for (size_t i = 0; i < copies_.size(); ++i) {
    for (const DeviceCopy& copy : copies_[i]) {
      const VarId buffer = BufferOf(copy);
      if (!buffer.valid()) continue;
      const size_t read = step_of[copy.reader.value()];
      Slices& slices = found.try_emplace(buffer, Slices{0, 0, read, copy.reader}).first->second;
      ++slices.count;
      slices.ready = i;
      slices.read = std::min(slices.read, read);
      if (!copied.insert(copy.var).second) slices.each_once = false;
    }
  }
  for (size_t i = 0; i < copies_.size(); ++i) {
    absl::flat_hash_map<VarId, size_t> num_here;  // by buffer
    for (const DeviceCopy& copy : copies_[i]) ++num_here[BufferOf(copy)];
    absl::flat_hash_set<VarId> joined;
    std::vector<DeviceCopy> left;
    for (const DeviceCopy& copy : copies_[i]) {
      const VarId buffer = BufferOf(copy);
      const size_t num_slices = buffer.valid() ? accesses_.FindBuffer(buffer)->slices.size() : 0;
      const auto slices = found.find(buffer);
      const bool join_here = buffer.valid() && num_here[buffer] == num_slices;
      const bool wait_for_last = buffer.valid() && slices->second.each_once &&
                                 slices->second.count == num_slices &&
                                 slices->second.ready <= slices->second.read;
      if (!join_here && !wait_for_last) {
        left.push_back(copy);
      } else if ((join_here || slices->second.ready == i) && joined.insert(buffer).second) {
        left.push_back({buffer, copy.from, join_here ? copy.reader : slices->second.reader});
      }
    }
    copies_[i] = std::move(left);
  }
}

VarId DeviceValues::BufferOf(const DeviceCopy& copy) {
  const std::vector<VarId>& buffers = accesses_.BuffersOf(copy.var);
  if (buffers.size() != 1 || copy.from == DeviceKind::kHost) return VarId();
  const auto [known, is_new] = can_be_mirrored_.emplace(buffers[0], false);
  if (is_new) known->second = CanBeMirrored(buffers[0]);
  return known->second ? buffers[0] : VarId();
}

bool DeviceValues::CanBeMirrored(VarId var) const {
  const Storage& storage = accesses_.storage();
  const SlicedBuffer& buffer = *accesses_.FindBuffer(var);
  // One whose slices have a value when it is made, or that is made in a block, has no mirror.
  return HomeOf(var) == DeviceKind::kAccelerator && buffer.made_by.size() == 1 &&
         !buffer.has_values && program_.op(buffer.made_by[0]).SubBlocks().empty() &&
         storage.LayoutOf(*storage.MadeBy(buffer.made_by[0])).is_known() &&
         absl::c_none_of(buffer.slices, [&](VarId slice) {
           return program_.var(slice).persistable() || accesses_.BuffersOf(slice).size() != 1;
         });
}

void DeviceValues::FindMirroredBuffers() {
  absl::flat_hash_set<VarId> known;
  for (const std::vector<DeviceCopy>& copies : copies_) {
    for (const DeviceCopy& copy : copies) {
      const SlicedBuffer* const buffer = accesses_.FindBuffer(copy.var);
      if (buffer == nullptr || !known.insert(copy.var).second) continue;
      mirrored_buffers_.push_back({copy.var, buffer->made_by.front(), std::max(copy.turn, 0)});
    }
  }
  absl::c_stable_sort(mirrored_buffers_, [](const MirroredBuffer& a, const MirroredBuffer& b) {
    return a.turn < b.turn;
  });
}

}  // namespace weft
