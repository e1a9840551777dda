// Where the values of a program on two devices are, and the copies that bring them where they are
// read.
#ifndef WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_VALUES_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_VALUES_H_

#include <array>
#include <cstddef>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "ops/schema/device_ops.h"
#include "proto/program.h"
#include "transpiler/passes/support/device_accesses.h"

namespace weft {

// The memory of values that go to the host.
enum class Staging {
  kAll,     // each keeps its own to the end of the step
  kDouble,  // values take turns: staging_slots.h
};

// An op of the root block on its device.
struct DeviceStep {
  OpId op;
  DeviceKind device = DeviceKind::kAccelerator;
};

// A copy of a variable, or of a buffer with all of its slices, to the other device.
struct DeviceCopy {
  VarId var;
  DeviceKind from;
  OpId reader;  // the first
  // Its turn (staging_slots.h); -1: it is in none.
  int turn = -1;
  bool ends_turn = false;
};

// A buffer whose copies arrive in a buffer of the host with the same slices.
struct MirroredBuffer {
  VarId var;
  OpId made_by;
  int turn = 0;  // the first in which something arrives there; 0, too, if that is in none
};

// A variable has its home in the memory of the device that writes it last; if no op writes it, in
// that of the host if an op there reads it. A value is copied once for each time that it is
// written, as soon as it is written, if the other device reads it before the next write. The copy
// of a value that a step begins with stands before the first op that reads it.
//
// A buffer of coalesce_tensor is what its slices are: what the other device writes into a slice is
// copied before an op uses the buffer. All ops that use the buffer must be on the device of
// coalesce_tensor; on the other one, slices are variables of their own. But where the host reads
// all slices of what the accelerator has written, at once, as a collective on the buffer does, or
// one by one, as clipping by the global norm does, before the host reads the first of them, the
// buffer is copied as a whole, and on the host, too, they are slices of a buffer.
class DeviceValues {
 public:
  // `accesses` and `steps` must outlive the object. O(arguments), and for each access to a buffer
  // O(slices).
  DeviceValues(const Program& program, const DeviceAccesses& accesses,
               absl::Span<const DeviceStep> steps, Staging staging);

  DeviceKind HomeOf(VarId var) const { return home_[var.value()]; }
  // What to copy before step i; at steps.size(), at the end.
  const std::vector<DeviceCopy>& CopiesBefore(size_t i) const { return copies_[i]; }
  int num_turns() const { return num_turns_; }
  // Each once, by turn.
  const std::vector<MirroredBuffer>& mirrored_buffers() const { return mirrored_buffers_; }

 private:
  // Of a variable that is no buffer. There since the step; 0: when a step begins.
  struct Value {
    std::array<bool, kNumDeviceKinds> is_on{};
    std::array<size_t, kNumDeviceKinds> since{};
  };

  void FindHomes();
  void FindCopies();
  // Makes one copy of those of all slices of a buffer that stand at the same place, or before the
  // host reads the first of them.
  void JoinSlices();
  // The buffer that a copy may be a part of; invalid: none.
  VarId BufferOf(const DeviceCopy& copy);
  // Whether the host may have a buffer with the same slices. O(slices).
  bool CanBeMirrored(VarId buffer) const;
  void FindMirroredBuffers();
  // Makes the value be on the device before step i.
  void Provide(VarId var, DeviceKind device, size_t i);
  void Write(VarId var, DeviceKind device, size_t i);

  const Program& program_;
  const DeviceAccesses& accesses_;
  const absl::Span<const DeviceStep> steps_;
  std::vector<DeviceKind> home_;                      // by VarId
  std::vector<Value> values_;                         // by VarId
  std::vector<std::vector<DeviceCopy>> copies_;       // by step before which they stand
  absl::flat_hash_map<VarId, bool> can_be_mirrored_;  // by buffer, once it is known
  int num_turns_ = 0;
  std::vector<MirroredBuffer> mirrored_buffers_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_VALUES_H_
