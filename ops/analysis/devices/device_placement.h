// Where the ops of a program on two devices run, and where its variables lie.
#ifndef WEFT_OPS_ANALYSIS_DEVICES_DEVICE_PLACEMENT_H_
#define WEFT_OPS_ANALYSIS_DEVICES_DEVICE_PLACEMENT_H_

#include <string>
#include <vector>

#include "ops/schema/device_ops.h"
#include "proto/program.h"

namespace weft {

// What ops/schema/device_ops.h says, for one program. A variable lies in the memory of the first op
// that writes it; if none does, of the first that reads it; if no op accesses it, on the host.
// Synchronizations access nothing, nor do ops of blocks that no op runs, which Paddle's
// recomputation leaves in programs.
//
// O(arguments), and O(attributes) if the program is on two devices.
class DevicePlacement {
 public:
  explicit DevicePlacement(const Program& program);

  // False: one device runs all ops and has all variables; the others return the accelerator.
  bool on_two_devices() const { return on_two_devices_; }
  // Of a copy, the device from which it copies.
  DeviceKind DeviceOf(OpId op) const {
    return on_two_devices_ ? device_of_op_[op.value()] : DeviceKind::kAccelerator;
  }
  DeviceKind MemoryOf(VarId var) const {
    return on_two_devices_ ? memory_of_var_[var.value()] : DeviceKind::kAccelerator;
  }

  // `op` expects `var` in the memory `expected`; `other` accesses it in the other one.
  struct Clash {
    OpId op;
    VarId var;
    bool is_input;
    DeviceKind expected;
    OpId other;
  };
  // In program order, one for an op and a variable.
  const std::vector<Clash>& clashes() const { return clashes_; }

  // `op` is in a block that `holder` runs on another device.
  struct Stray {
    OpId op, holder;
  };
  const std::vector<Stray>& strays() const { return strays_; }

 private:
  template <typename Visit>
  void VisitAccesses(const Program& program, Visit visit) const;
  void FindBlocksThatRun(const Program& program);
  void FindDevices(const Program& program);
  void FindMemories(const Program& program);
  void FindStrays(const Program& program);

  bool on_two_devices_;
  std::vector<bool> runs_;  // by block
  std::vector<DeviceKind> device_of_op_;
  std::vector<DeviceKind> memory_of_var_;
  std::vector<Clash> clashes_;
  std::vector<Stray> strays_;
};

// Whether the program has a stream_wait. O(ops) if a name says that it may.
bool IsOnTwoDevices(const Program& program);

// "op 5 (relu) input h: expected a variable in the memory of the accelerator, found one in that of
// the host, where op 3 (sgd) uses it; insert memcpy_h2d, as pass hetero-partition does"
std::string ToString(const Program& program, const DevicePlacement::Clash& clash);
std::string ToString(const Program& program, const DevicePlacement& placement,
                     const DevicePlacement::Stray& stray);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_DEVICES_DEVICE_PLACEMENT_H_
