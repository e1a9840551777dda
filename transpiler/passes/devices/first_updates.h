// Where ops that prepare gradients for updates can be.
#ifndef WEFT_TRANSPILER_PASSES_DEVICES_FIRST_UPDATES_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_FIRST_UPDATES_H_

#include "absl/container/flat_hash_map.h"
#include "proto/program.h"

namespace weft {

// For each update of the root block, the first one before which its gradients, parameters and
// master weights are what it reads. O(arguments).
absl::flat_hash_map<OpId, OpId> FindFirstUpdates(const Program& program);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_FIRST_UPDATES_H_
