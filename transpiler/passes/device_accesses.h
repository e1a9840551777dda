// What the ops of a root block read and write, blocks and buffers included.
#ifndef WEFT_TRANSPILER_PASSES_DEVICE_ACCESSES_H_
#define WEFT_TRANSPILER_PASSES_DEVICE_ACCESSES_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/program.h"

namespace weft {

// An op's access to a variable of the root block. Neither reads nor writes: it only names it, as
// coalesce_tensor does.
struct DeviceAccess {
  VarId var;
  bool reads = false;
  bool writes = false;
};

// The accesses of all ops of the root block. An op with blocks accesses what the ops in them do,
// and may leave what it writes as it was. Synchronizations, feed and fetch access nothing.
// O(arguments).
class DeviceAccesses {
 public:
  explicit DeviceAccesses(const Program& program);

  // Each variable once, in the order of the op's arguments.
  const std::vector<DeviceAccess>& Of(OpId op) const { return of_op_[op.value()]; }

  // The variables that share memory with `var`: the slices of a buffer, the buffers of a slice.
  const std::vector<VarId>& SharedWith(VarId var) const;

 private:
  void AddOp(const Op& op, std::vector<DeviceAccess>* accesses);
  void Add(const Block& block, Symbol name, bool reads, bool writes,
           std::vector<DeviceAccess>* accesses) const;
  void AddBuffer(const Op& op);

  const Program& program_;
  std::vector<std::vector<DeviceAccess>> of_op_;  // by OpId
  absl::flat_hash_map<VarId, std::vector<VarId>> shared_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICE_ACCESSES_H_
