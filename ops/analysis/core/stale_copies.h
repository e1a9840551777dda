// Where it matters that two variables share memory.
#ifndef WEFT_OPS_ANALYSIS_CORE_STALE_COPIES_H_
#define WEFT_OPS_ANALYSIS_CORE_STALE_COPIES_H_

#include <string>
#include <vector>

#include "proto/program.h"

namespace weft {

// An output that shares the memory of an input (SlotSchema::memory_of) is the input: in Paddle,
// what one name writes, the other reads. The executor, and the proofs over values, take it for a
// copy. Both are one until something writes under one name, and the other is read afterwards, or
// kept for the next step.
struct StaleCopy {
  OpId shares;  // makes `name` and the name that is written share memory
  OpId writes;  // the last one that writes under another name
  OpId reads;   // the next one that reads `name`; invalid: the next step, or the next program
  Symbol name;
};

// "op 10 (clip) writes memory that g2 shares by op 9 (share_data), and op 11 (assign) reads g2
// ...".
std::string ToString(const Program& program, const StaleCopy& copy);

// One for each write, read and name, in the order of the run: a block runs where its op does, and
// may not; a loop runs twice. O(ops); with such ops, O(arguments), and O(names that share memory)
// for each write.
std::vector<StaleCopy> FindStaleCopies(const Program& program);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_STALE_COPIES_H_
