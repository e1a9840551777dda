#include "transpiler/passes/device_values.h"

namespace weft {

DeviceValues::DeviceValues(const Program& program, const DeviceAccesses& accesses,
                           absl::Span<const DeviceStep> steps)
    : accesses_(accesses),
      steps_(steps),
      home_(program.var_id_limit(), DeviceKind::kAccelerator),
      values_(program.var_id_limit()),
      copies_(steps.size() + 1) {
  FindHomes();
  FindCopies();
}

absl::Span<const VarId> DeviceValues::PartsOf(const VarId& var) const {
  const SlicedBuffer* const buffer = accesses_.FindBuffer(var);
  if (buffer == nullptr) return absl::MakeConstSpan(&var, 1);
  return buffer->slices;
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
        for (VarId part : PartsOf(access.var)) write(part, step.device);
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
      for (VarId part : PartsOf(access.var)) Provide(part, step.device, i);
    }
    for (const DeviceAccess& access : accesses) {
      if (!access.writes) continue;
      for (VarId part : PartsOf(access.var)) Write(part, step.device, i);
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

}  // namespace weft
