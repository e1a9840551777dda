// The differences between two programs, op by op and variable by variable.
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
  std::string a;     // as in program text; "(none)" if that side does not have it
  std::string b;
};

struct Difference {
  enum class Kind { kRemoved, kAdded, kChanged };  // only in a; only in b; in both
  enum class Subject { kProgram, kBlock, kVar, kOp };
  Kind kind;
  Subject subject;
  int block = -1;  // its number; -1 for the program
  // Positions of an op or variable in the block; -1 if that side does not have it.
  int a_index = -1;
  int b_index = -1;
  std::string name;  // the type of an op, the name of a variable
  // The line of program text, in short, of a removed or added op, variable or block.
  std::string text;
  std::vector<DifferenceDetail> details;  // of a change; not empty
};

// Compares blocks by number and variables by name. Aligns ops like the lines of a text: first by
// all their content, then between these by type and outputs, then by type. An op that moved is
// removed at its old position and added at the new one. Reports every difference of the messages
// except the order of variables, which has no meaning. The order is: the program; then each block,
// its variables (those of a, then those of b only), and its ops.
//
// O(n log n) for n ops. Decodes only ops whose bytes the other program does not have.
std::vector<Difference> DiffPrograms(const Program& a, const Program& b);

// One line for each difference, under a heading for each block:
//   block 0
//   - var x : fp32[1]
//   + op 14: Out=[y : fp32[1]] = scale(X=[x]) role=backward {...}
//   ~ op 15 -> 16 (c_allreduce_sum): attr ring_id: 0 -> 1; input X: [a] -> [b]
// Empty if there is no difference.
std::string DifferencesText(absl::Span<const Difference> differences);

}  // namespace weft

#endif  // WEFT_PROTO_DIFF_PROGRAM_DIFF_H_
