// What differs between two programs, op by op and variable by variable.
#ifndef WEFT_PROTO_DIFF_PROGRAM_DIFF_H_
#define WEFT_PROTO_DIFF_PROGRAM_DIFF_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/program.h"

namespace weft {

// One aspect of a pair that differs: a type, a flag, a slot, an attribute.
struct DifferenceDetail {
  std::string what;  // "attr ring_id", "input X", "type", "persistable"
  std::string a;     // as in program text; "(none)" where that side does not have it
  std::string b;
};

struct Difference {
  enum class Kind { kRemoved, kAdded, kChanged };  // only in a; only in b; in both
  enum class Subject { kProgram, kBlock, kVar, kOp };
  Kind kind;
  Subject subject;
  int block = -1;  // its number; -1 for the program
  // Positions in the block, counted from 0; -1 where that side does not have it. Ops and variables.
  int a_index = -1;
  int b_index = -1;
  std::string name;  // the type of an op, the name of a variable
  // The line of program text, in short, of what was removed or added.
  std::string text;
  std::vector<DifferenceDetail> details;  // of what changed; never empty there
};

// Blocks are compared by number, variables by name. Ops are aligned as lines of a text are, first
// by all they say, then, in between, by type and outputs, then by type: an op that moved is removed
// at its old place and added at the new one. Reports every difference of the messages but for the
// order of variables, which means nothing; programs without any give an empty list. In the order:
// program; then for each block itself, its variables (in the order of a, then those of b alone),
// its ops.
//
// O(n log n) for n ops; only ops whose bytes the other program does not have are decoded.
std::vector<Difference> DiffPrograms(const Program& a, const Program& b);

// For people, one line each, under a heading for each block:
//   block 0
//   - var x : fp32[1]
//   + op 14: Out=[y : fp32[1]] = scale(X=[x]) role=backward {...}
//   ~ op 15 -> 16 (c_allreduce_sum): attr ring_id: 0 -> 1; input X: [a] -> [b]
// Empty where there is no difference.
std::string DifferencesText(absl::Span<const Difference> differences);

}  // namespace weft

#endif  // WEFT_PROTO_DIFF_PROGRAM_DIFF_H_
