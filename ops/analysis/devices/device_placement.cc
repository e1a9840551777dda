#include "ops/analysis/devices/device_placement.h"

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/block_names.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"

namespace weft {

bool IsOnTwoDevices(const Program& program) {
  const Symbol wait = program.FindSymbol(StreamSyncOpType(StreamSync::kStreamWaitsForStream));
  return wait.valid() &&
         absl::c_any_of(AllOps(program), [&](const Op& op) { return op.type_symbol() == wait; });
}

DevicePlacement::DevicePlacement(const Program& program)
    : on_two_devices_(IsOnTwoDevices(program)) {
  if (!on_two_devices_) return;
  FindBlocksThatRun(program);
  FindDevices(program);
  FindMemories(program);
  FindStrays(program);
}

void DevicePlacement::FindBlocksThatRun(const Program& program) {
  runs_.resize(program.num_blocks(), false);
  std::vector<int> found = {0};
  while (!found.empty()) {
    const int block = found.back();
    found.pop_back();
    if (runs_[block]) continue;
    runs_[block] = true;
    for (OpId id : program.block(block).ops()) {
      for (int inner : program.op(id).SubBlocks()) found.push_back(inner);
    }
  }
}

void DevicePlacement::FindDevices(const Program& program) {
  device_of_op_.resize(program.op_id_limit(), DeviceKind::kAccelerator);
  for (const Op& op : AllOps(program)) {
    const absl::optional<DeviceKind> from = CopiesFrom(op.type());
    if (from.has_value()) {
      device_of_op_[op.id().value()] = *from;
    } else if (op.StringAttr(kOpDeviceAttr) == kHostDeviceName) {
      device_of_op_[op.id().value()] = DeviceKind::kHost;
    }
  }
}

// Calls visit(op, variable, whether it is an input, memory).
template <typename Visit>
void DevicePlacement::VisitAccesses(const Program& program, Visit visit) const {
  OpTraits traits(program);
  for (const Op& op : AllOps(program)) {
    if (!runs_[op.block()]) continue;
    if (traits.Has(op, Trait::kStreamSync) || traits.Has(op, Trait::kRingSetup)) continue;
    if (IsFeed(op.type()) || IsFetch(op.type())) continue;  // the host gives and takes any memory
    const DeviceKind device = DeviceOf(op.id());
    const DeviceKind to = CopiesFrom(op.type()).has_value() ? OtherDevice(device) : device;
    for (Symbol name : op.input_args()) {
      const VarId var = ResolveArgument(program, op.block(), name);
      if (var.valid()) visit(op, var, /*is_input=*/true, device);
    }
    for (Symbol name : op.output_args()) {
      const VarId var = ResolveArgument(program, op.block(), name);
      if (var.valid()) visit(op, var, /*is_input=*/false, to);
    }
  }
}

void DevicePlacement::FindMemories(const Program& program) {
  struct Access {
    OpId op;
    bool is_input = true;
  };
  std::vector<Access> by(program.var_id_limit());  // the op that decides
  memory_of_var_.resize(program.var_id_limit(), DeviceKind::kHost);
  VisitAccesses(program, [&](const Op& op, VarId var, bool is_input, DeviceKind memory) {
    Access& access = by[var.value()];
    if (access.op.valid() && (is_input || !access.is_input)) return;
    access = {op.id(), is_input};
    memory_of_var_[var.value()] = memory;
  });
  VisitAccesses(program, [&](const Op& op, VarId var, bool is_input, DeviceKind memory) {
    if (memory == memory_of_var_[var.value()]) return;
    const bool is_known =
        !clashes_.empty() && clashes_.back().op == op.id() && clashes_.back().var == var;
    if (!is_known) clashes_.push_back({op.id(), var, is_input, memory, by[var.value()].op});
  });
}

void DevicePlacement::FindStrays(const Program& program) {
  for (const Op& holder : AllOps(program)) {
    if (!runs_[holder.block()]) continue;
    for (int inner : holder.SubBlocks()) {
      for (OpId op : program.block(inner).ops()) {
        if (DeviceOf(op) != DeviceOf(holder.id())) strays_.push_back({op, holder.id()});
      }
    }
  }
}

std::string ToString(const Program& program, const DevicePlacement::Clash& clash) {
  const Op op = program.op(clash.op);
  return absl::StrCat(op.DebugName(), clash.is_input ? " input " : " output ",
                      absl::CEscape(program.var(clash.var).name()),
                      ": expected a variable in the memory of ", DeviceKindName(clash.expected),
                      ", found one in the memory of ", DeviceKindName(OtherDevice(clash.expected)),
                      ", where ", program.op(clash.other).DebugName(), " uses it; insert ",
                      CopyOpType(OtherDevice(clash.expected)), ", as pass hetero-partition does");
}

std::string ToString(const Program& program, const DevicePlacement& placement,
                     const DevicePlacement::Stray& stray) {
  return absl::StrCat(program.op(stray.op).DebugName(), ": expected an op of ",
                      DeviceKindName(placement.DeviceOf(stray.holder)), ", as ",
                      program.op(stray.holder).DebugName(), " runs its block, found one of ",
                      DeviceKindName(placement.DeviceOf(stray.op)));
}

}  // namespace weft
