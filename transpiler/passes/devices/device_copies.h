// Copies between the memories of two devices, and the waits that order them.
#ifndef WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_COPIES_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_COPIES_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "ops/schema/device_ops.h"
#include "proto/program.h"
#include "transpiler/passes/devices/device_values.h"
#include "transpiler/passes/support/device_accesses.h"
#include "transpiler/passes/support/new_variables.h"

namespace weft {

// Decides what the ops of a program on two devices, in their final order, name, and which copies
// and waits they need.
//
// A variable keeps its name at home (DeviceValues). What the other device accesses is a mirror,
// w@SIM or w@CPU. The copy of a value that a step begins with waits for nothing: its stream runs
// ahead.
//
// The synchronizations of the program stay, and count. Where a stream needs more, stream_wait is
// added: also for rings, whose collectives may work in either memory. It waits for all that the
// other stream has been given, so it stands as early as it delays no other op: after what is
// needed, and after the last op of the stream that waits.
//
// The mirror of a buffer is a buffer of its own, fused@CPU, that a coalesce_tensor on the host
// makes. If values take turns (staging_slots.h), copies after a turn wait until the host is done
// with the turns before, and ops of the accelerator that follow the copy which ends a turn, until
// all copies before that are done: then other values may have the memory.
class DeviceCopies {
 public:
  // `accelerator` names its mirrors. The pointers must outlive the object.
  DeviceCopies(const Program& program, const DeviceAccesses& accesses,
               absl::Span<const DeviceStep> steps, const std::string& accelerator, Staging staging,
               UniqueNames* names);

  // What to insert before step i; at steps.size(), at the end.
  std::vector<pb::OpDesc> Before(size_t i) const;
  // The names of variables that ops of a device do not call by their own name.
  const absl::flat_hash_map<VarId, std::string>& Renamed(DeviceKind device) const {
    return mirrors_[static_cast<int>(device)];
  }
  const std::vector<pb::VarDesc>& new_vars() const { return new_vars_; }
  int num_copies() const { return num_copies_; }

 private:
  // DeviceStream::Kind, or kFirstRing and more for the streams of rings_.
  using Stream = int;
  static constexpr Stream kFirstRing = static_cast<Stream>(DeviceStream::Kind::kRing);

  // Memory of a variable on one device: the times of the last write, and of the last read by each
  // stream that reads it.
  struct Memory {
    int64_t written = 0;
    Stream writer = 0;
    std::map<Stream, int64_t> read;
  };

  void FindRings();
  Stream StreamOfRing(const Op& op) const;  // -1: it has none
  Stream StreamOf(const DeviceStep& step) const;
  std::string StreamName(Stream stream) const;
  void Write();
  void WriteCopy(const DeviceCopy& copy, size_t i);
  // Those of the turn. Returns the last one; empty: there is none.
  std::string MakeMirroredBuffers(int turn, size_t i);
  void WaitForAll(Stream waiting, Stream awaited, const std::string& variable, size_t i);
  // Counts an op of the stream.
  void Issue(Stream stream);
  // The number of the last op that the stream was given up to that time; 0: none.
  int64_t LastUpTo(int64_t time, Stream stream) const;
  // What an op that synchronizes streams orders.
  void Synchronize(const DeviceStep& step);
  void Join(Stream waiting, Stream awaited);
  // Work of a stream that an op must come after, for the sake of a variable.
  struct Need {
    Stream awaited;
    int64_t time;
    std::string variable;
  };

  void AddNeeds(DeviceKind device, VarId var, bool reads, bool writes, std::vector<Need>* needs);
  void WaitFor(Stream waiting, std::vector<Need> needs, size_t i);
  void Touch(Stream stream, DeviceKind device, VarId var, bool reads, bool writes);
  Memory& MemoryOf(DeviceKind device, VarId var) { return memory_[static_cast<int>(device)][var]; }
  std::string NameOn(DeviceKind device, VarId var);

  const Program& program_;
  const DeviceAccesses& accesses_;
  const absl::Span<const DeviceStep> steps_;
  const DeviceValues values_;
  const std::string accelerator_;
  UniqueNames& names_;
  std::array<absl::flat_hash_map<VarId, std::string>, kNumDeviceKinds> mirrors_;
  std::array<absl::flat_hash_map<VarId, Memory>, kNumDeviceKinds> memory_;
  int64_t time_ = 0;
  std::vector<int64_t> last_;          // by stream: the time of the last op
  std::vector<int64_t> last_work_;     // of the last one that takes time: no mirrored buffer
  std::vector<int64_t> synchronized_;  // before which the program had it wait last
  // What was given to a stream at a time from 1 on.
  struct Issued {
    Stream stream = 0;
    std::vector<int64_t> known;     // known_ of the stream
    std::vector<pb::OpDesc> waits;  // that stand after it
  };
  std::vector<Issued> issued_;               // by time - 1
  std::vector<std::vector<int64_t>> times_;  // by stream
  std::vector<int64_t> step_times_;          // of steps that are issued; 0: of others
  std::vector<int> rings_;                   // with a stream, by number
  // By waiting and awaited stream: up to when the second is known to be done.
  std::vector<std::vector<int64_t>> known_;
  struct Inserted {
    pb::OpDesc op;
    int64_t time;  // 0: it is not issued
  };
  std::vector<std::vector<Inserted>> before_;  // by step
  std::vector<pb::VarDesc> new_vars_;
  size_t num_made_ = 0;  // mirrored buffers
  int num_copies_ = 0;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_DEVICE_COPIES_H_
