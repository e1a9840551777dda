// What is wrong with gradients that are reduced as Paddle does it.
#ifndef WEFT_TRANSPILER_PASSES_PADDLE_WARNINGS_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_WARNINGS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Warns, in the name of `pass`, of everything for which grad-all-reduce refuses a program, and of
// what it mends wherever gradients are exchanged: a gradient that is SelectedRows, or that is
// reduced twice. One warning of each kind at most. O(arguments).
absl::Status WarnOfGradients(absl::string_view pass, const Program& program, PassContext& context);

// The same, and what goes wrong where gradients travel one by one and are waited for before the
// first op of optimize role: a gradient that is not waited for, or that is accumulated over several
// steps and reduced in each.
absl::Status WarnOfReduction(absl::string_view pass, const Program& program, PassContext& context);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_WARNINGS_H_
