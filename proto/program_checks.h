// Checks of the blocks, sub-blocks and names of a program.
#ifndef WEFT_PROTO_PROGRAM_CHECKS_H_
#define WEFT_PROTO_PROGRAM_CHECKS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/program.h"

namespace weft {

// InvalidArgument if there is no block, if the root has a parent, or if the parents of a block are
// missing, form a cycle or are more than Program::kMaxBlockDepth. O(blocks).
absl::Status CheckParents(const Program& program);

// InvalidArgument if a sub-block of these ops does not exist, is the root, contains itself directly
// or indirectly, or is nested too deep. `ops_with_sub_blocks` are all such ops of the program.
// O(blocks + sub-blocks).
absl::Status CheckSubBlocks(const Program& program, absl::Span<const OpId> ops_with_sub_blocks);

// InvalidArgument if a name is not UTF-8. O(length).
absl::Status CheckName(absl::string_view name);

}  // namespace weft

#endif  // WEFT_PROTO_PROGRAM_CHECKS_H_
