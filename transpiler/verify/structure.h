// Layer 1: is this a program at all?
//
// What Program::Parse refuses does not come here: bytes that are no program, blocks whose parents
// are missing or form a cycle, a variable declared twice in a block, sub-blocks that do not exist.
#ifndef WEFT_TRANSPILER_VERIFY_STRUCTURE_H_
#define WEFT_TRANSPILER_VERIFY_STRUCTURE_H_

#include "absl/status/status.h"
#include "proto/program.h"
#include "transpiler/verify/finding.h"

namespace weft {

// Checks
// - that every variable that an op names is declared in its block or an ancestor (for blocks of
//   backward: or in those of the forward block);
// - op types that have a schema: every input that it requires is there, no slot for one variable
//   holds several, every attribute that it requires is there and has its type;
// - that every variable that an op reads holds something by then. It does from the start if it is
//   persistable, data (need_check_feed), or no tensor (an array, a scope); else an op before the
//   reader must write it: in its block, in an enclosing block before the op that runs the block,
//   or, where that op is a loop, anywhere in the body. What a branch writes counts as written
//   behind it, as if it were taken. A member of a fused buffer (Trait::kAlias) loses what it held
//   unless it is copied; the buffer holds something when all of its members do, and they do when it
//   is written. Synchronization reads and writes nothing.
//   Paddle before 2.0 does not mark all data. A variable that no op makes (writes, but not in
//   place) may be unmarked data only where it takes no gradient (data stops gradients) and where
//   neither backward nor an optimizer is the first to read it (data is fed into the model):
//   anything else has lost its producer. Where it may be, that is a warning if other data is
//   marked, and nothing if none is.
//
// Attribute values are not decoded, but for those of fused buffers. O(arguments), and the depth of
// the block for each.
void CheckStructure(const Program& program, ProgramRef ref, Findings* findings);

// InvalidArgument for the first finding of CheckStructure, whatever its severity, but for W106 and
// W107: what an op needs to be one, wherever it stands.
absl::Status VerifyStructure(const Program& program);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFY_STRUCTURE_H_
