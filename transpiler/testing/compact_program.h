// Programs of a few lines, for tests.
#ifndef WEFT_TRANSPILER_TESTING_COMPACT_PROGRAM_H_
#define WEFT_TRANSPILER_TESTING_COMPACT_PROGRAM_H_

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
// An op without a role has role forward. Variables that no line declares are declared as fp32[2, 2]
// in block 0, with the flags that their use tells:
//   - in slot Param of an optimizer, or the first of a pair: a persistable parameter
//   - read by an optimizer and written by no other op: persistable (learning rates and powers of
//     beta, fp32[1])
//   - read before an op writes it: data (need_check_feed)
//   - NAME@GRAD: as NAME is
//
// InvalidArgument as ParseProgramText.
absl::StatusOr<pb::ProgramDesc> ParseCompactProgram(absl::string_view text);
// The same, but for undeclared variables: they are as `declarations` has them, by block, and what
// it does not have stays undeclared.
absl::StatusOr<pb::ProgramDesc> ParseCompactProgram(absl::string_view text,
                                                    const pb::ProgramDesc& declarations);

// The first as a program. CHECK-fails if the text is none.
Program CompactProgram(absl::string_view text);

// What tests of rewrites compare: a text without what a program can leave out. Attributes with
// their default value, attributes that change no result (IsMinorAttr) and empty slots are omitted;
// slots, attributes and variables are sorted by name.
std::string CanonicalText(const pb::ProgramDesc& program);

}  // namespace weft::testing

#endif  // WEFT_TRANSPILER_TESTING_COMPACT_PROGRAM_H_
