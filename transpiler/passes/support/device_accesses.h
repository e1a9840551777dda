// What the ops of a root block read and write, blocks and buffers included.
#ifndef WEFT_TRANSPILER_PASSES_SUPPORT_DEVICE_ACCESSES_H_
#define WEFT_TRANSPILER_PASSES_SUPPORT_DEVICE_ACCESSES_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/storage.h"
#include "proto/program.h"

namespace weft {

// Whether a variable can be copied between devices: a tensor, dense or of rows.
bool IsCopied(const Var& var);

// An op's access to a variable of the root block. Neither reads nor writes: it only names it, as
// coalesce_tensor does.
struct DeviceAccess {
  VarId var;
  bool reads = false;
  bool writes = false;
};

// A buffer, as all ops that make it say.
struct SlicedBuffer {
  std::vector<OpId> made_by;  // ops of the root block
  std::vector<VarId> slices;  // each once
  bool has_values = false;    // when it is made
};

// The accesses of all ops of the root block. An op with blocks accesses what the ops in them do,
// and may leave what it writes as it was. Synchronizations and feed access nothing, fetch what it
// reads. O(arguments).
class DeviceAccesses {
 public:
  explicit DeviceAccesses(const Program& program);

  // Each variable once, in the order of the op's arguments.
  const std::vector<DeviceAccess>& Of(OpId op) const { return of_op_[op.value()]; }

  const Storage& storage() const { return storage_; }
  // Null: it is none.
  const SlicedBuffer* FindBuffer(VarId var) const;
  const std::vector<VarId>& BuffersOf(VarId slice) const;
  // The variables that share memory with `var`: the slices of a buffer, the buffers of a slice.
  const std::vector<VarId>& SharedWith(VarId var) const;
  // The slices of a buffer; of another variable, itself.
  absl::Span<const VarId> PartsOf(const VarId& var) const;

 private:
  void AddOp(const Op& op, OpId root, std::vector<DeviceAccess>* accesses);
  void Add(const Block& block, Symbol name, bool reads, bool writes,
           std::vector<DeviceAccess>* accesses) const;
  void AddBuffer(const Storage::Buffer& made, OpId root);

  const Program& program_;
  const Storage storage_;
  OpTraits traits_;
  std::vector<std::vector<DeviceAccess>> of_op_;  // by OpId
  absl::flat_hash_map<VarId, SlicedBuffer> buffers_;
  absl::flat_hash_map<VarId, std::vector<VarId>> buffers_of_;  // by slice
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SUPPORT_DEVICE_ACCESSES_H_
