// Variables in which ranks receive what an owner of another name sends.
#ifndef WEFT_TRANSPILER_VERIFIER_OWNERS_RECEIVED_NAMES_H_
#define WEFT_TRANSPILER_VERIFIER_OWNERS_RECEIVED_NAMES_H_

#include <set>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/program.h"
#include "proto/program_pair.h"

namespace weft {

// The main program of a rank, with the names of the owners.
struct RenamedProgram {
  Program main;  // with the ops, and so the ids, of the original
  // Ops that give memory to a variable which is then received, and do nothing else.
  std::set<OpId> makes_room;
};

// Where rank r broadcasts w in block 0, other ranks may receive it in variables of their own, which
// do not persist, as Paddle's fleet has it with sharding: w@BroadCast_0, and no w. w takes their
// place. A rank reads them after a broadcast of the same step only; of several, it reads only those
// that have what r has sent last, and writes none. One for each rank; none: all ranks use the same
// names, or names do not correspond so, or a rank means another variable by one of them.
// O(arguments of all programs + names * ranks * blocks).
absl::optional<std::vector<RenamedProgram>> WithNamesOfOwners(
    absl::Span<const ConstProgramPair> ranks);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_OWNERS_RECEIVED_NAMES_H_
