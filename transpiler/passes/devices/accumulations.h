// Gradients that are merged over steps.
#ifndef WEFT_TRANSPILER_PASSES_DEVICES_ACCUMULATIONS_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_ACCUMULATIONS_H_

#include <vector>

#include "proto/program.h"
#include "transpiler/passes/support/device_accesses.h"

namespace weft {

// The ops of a root block that add a value to what is kept for a branch: a dense persistable
// variable that only the op and the branch use, also in a fused buffer of the branch.
//
//   Out=[w@MERGED] = elementwise_add(X=[w@MERGED], Y=[w@GRAD])
//   conditional_block(Input=[w@MERGED, ...])     updates by w@MERGED, and sets it to 0
//
// They should run on the device of the branch: w@GRAD is then copied, instead of w@MERGED there and
// back. Not those whose op_device names a device.
class Accumulations {
 public:
  // O(arguments).
  explicit Accumulations(const Program& program);

  // Those for a branch of the root block, in the order of its arguments. O(accesses of the branch).
  std::vector<OpId> Of(OpId branch) const;

 private:
  bool AddsTo(VarId kept, OpId op) const;

  const Program& program_;
  const DeviceAccesses accesses_;
  std::vector<std::vector<OpId>> users_;  // by variable, in order
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_ACCUMULATIONS_H_
