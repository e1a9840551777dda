// Programs of a few lines, for tests.
#ifndef WEFT_OPS_ANALYSIS_TESTING_COMPACT_PROGRAM_H_
#define WEFT_OPS_ANALYSIS_TESTING_COMPACT_PROGRAM_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"

namespace weft::testing {

// Program text (docs/program_text.md), or the lines of block 0 alone, in which a line "block 1:"
// begins another block, with parent 0 ("block 2 parent=1:" names another):
//
//   Out=[y] = mul(X=[x], Y=[w])
//   Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
//   Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
//   ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
//
// The default role is forward. "var a, b : fp32[3]" declares two variables. Those without a
// declaration are declared in block 0, as follows from their use:
//   - in slot Param of an optimizer, or the first of a pair: a persistable parameter
//   - read by an optimizer and written by no other op: persistable (learning rates and powers of
//     beta: fp32[1])
//   - read before an op writes it: a feed variable (need_check_feed)
//   - others have the type that the first op that writes them infers
// Where none is known, the type of NAME@GRAD is that of NAME, and others are fp32[2, 2].
//
// InvalidArgument as ParseProgramText.
absl::StatusOr<pb::ProgramDesc> ParseCompactProgram(absl::string_view text);
// Takes missing declarations from `declarations`, by block, and makes up none.
absl::StatusOr<pb::ProgramDesc> ParseCompactProgram(absl::string_view text,
                                                    const pb::ProgramDesc& declarations);

// CHECK-fails for a malformed text.
Program CompactProgram(absl::string_view text);

// A text for comparisons. Omits attributes with their default value, attributes that change no
// result (IsMinorAttr) and empty slots. Sorts slots, attributes and variables by name.
std::string CanonicalText(const pb::ProgramDesc& program);

}  // namespace weft::testing

#endif  // WEFT_OPS_ANALYSIS_TESTING_COMPACT_PROGRAM_H_
