// The parameters that share a bucket, and the variables that hold a part of it on each rank.
#ifndef WEFT_TRANSPILER_PASSES_SHARDING_SHARED_BUCKET_H_
#define WEFT_TRANSPILER_PASSES_SHARDING_SHARED_BUCKET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"
#include "transpiler/passes/sharding/update_chains.h"
#include "transpiler/passes/support/fused_buffer.h"

namespace weft {

struct SharedBucket {
  // Of equal signature, in the order in which gradients are complete.
  std::vector<const UpdateChain*> chains;
  int nranks = 1;
  int64_t padding = 0;              // elements after the last parameter
  int64_t elements = 0;             // with the padding: a multiple of nranks
  std::vector<std::string> shares;  // by UpdateChain::tensors: what each rank has of these

  std::vector<std::string> partials;  // by UpdateChain::partials: the same

  int64_t share() const { return elements / nranks; }
  const UpdateChain& first() const { return *chains[0]; }
};

// Elements that fill a bucket up, so that each rank has equally many, or one whole parameter.
inline int64_t PaddingOf(absl::Span<const UpdateChain* const> chains, int nranks) {
  const int64_t first = NumElements(chains[0]->dims);
  if (chains[0]->needs_whole) return (nranks - static_cast<int64_t>(chains.size())) * first;
  int64_t elements = 0;
  for (const UpdateChain* chain : chains) elements += NumElements(chain->dims);
  return (nranks - elements % nranks) % nranks;
}

// Of no gaps between tensors, so that padding is at the end alone.
inline int DenseAlignment(const FusedTensors& tensors) {
  return static_cast<int>(SizeOf(tensors.dtype));
}

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_SHARDING_SHARED_BUCKET_H_
