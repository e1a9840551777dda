// Where it matters that two variables share memory.
#ifndef WEFT_OPS_ANALYSIS_CORE_SHARED_WRITES_H_
#define WEFT_OPS_ANALYSIS_CORE_SHARED_WRITES_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ops/schema/buffer_slices.h"
#include "proto/program.h"

namespace weft {

// An output that shares the memory of an input (SlotSchema::memory_of) is the input: in Paddle,
// what one name writes, the other reads. The executor, and the proofs over values, keep a copy
// under each name, and bring it up to date after the writes in SharedWrites::copies. This is a
// write of which the other name would have to learn in another way, and a read of that name
// afterwards, or the name is kept for the next step.
struct StaleCopy {
  OpId shares;  // makes `name` and the name that is written share memory
  OpId writes;  // the last one that writes under another name
  OpId reads;   // the next one that reads `name`; invalid: the next step, or the next program
  Symbol name;
};

// "op 10 (clip) writes memory that g2 shares by op 9 (share_data), and op 11 (assign) reads g2
// ...".
std::string ToString(const Program& program, const StaleCopy& copy);

struct SharedWrites {
  // By op: after it, `out` takes the value that the op has given to `in`. In all runs of the op,
  // both are whole tensors with one memory, and it runs on the compute stream.
  absl::flat_hash_map<OpId, std::vector<SharedMemory>> copies;
  // The reads of what is copied so, and is not kept only: one for each write, read and name.
  std::vector<StaleCopy> followed;
  // Of the other writes: the reads and names, likewise.
  std::vector<StaleCopy> stale;
};

// In the order of the run: a block runs where its op does, and may not; a loop runs twice. O(ops);
// with ops whose outputs share memory, O(arguments), and O(names that share memory) for each write.
SharedWrites FindSharedWrites(const Program& program);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_SHARED_WRITES_H_
