// Programs of ranks of which each updates its own part of the parameters (ZeRO), and sends them to
// the others: what ranks compute together.
#ifndef WEFT_TRANSPILER_VERIFIER_OWNERS_OWNER_UPDATES_H_
#define WEFT_TRANSPILER_VERIFIER_OWNERS_OWNER_UPDATES_H_

#include <set>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Programs for all ranks that differ in ops that only some ranks run, their owners: in block 0, or
// in a block that one branch of block 0 runs on all ranks.
struct OwnerUpdates {
  // One program for all ranks: all of them run what one of the programs has, in the order of all of
  // these, and reductions to one rank reach all ranks. Each rank computes what its own program
  // does, wherever that reads it, if `findings` has no errors: a value that only other ranks have
  // is read nowhere before a broadcast of its owner. What nobody reads on a rank may differ there.
  Program main;
  // None: not all ranks have one. What the startup program of rank 0 does, and what those of the
  // others do to variables that it does not declare.
  absl::optional<Program> startup;
  // States that some ranks do not keep. Nobody reads what they have there.
  std::set<std::string> unkept;
  // W510: ranks that read what only others have written, or have no value of a loss. W521: states
  // that some ranks do not keep.
  Findings findings;
};

// None: the programs differ otherwise, exchange messages, have no update that some ranks alone run,
// or have startup programs of which two make one variable in other ways. O(arguments of all
// programs).
absl::optional<OwnerUpdates> FindOwnerUpdates(absl::Span<const ConstProgramPair> ranks);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_OWNERS_OWNER_UPDATES_H_
