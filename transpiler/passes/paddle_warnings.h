// What is wrong with gradients that are reduced as Paddle does it.
#ifndef WEFT_TRANSPILER_PASSES_PADDLE_WARNINGS_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_WARNINGS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Warns, in the name of `pass`, of everything for which grad-all-reduce refuses a program, and of
// what it mends: a gradient that is SelectedRows, that is not waited for, that is reduced twice, or
// that is accumulated over several steps and reduced in each. One warning of each kind at most.
// O(arguments).
absl::Status WarnOfReduction(absl::string_view pass, const Program& program, PassContext& context);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_WARNINGS_H_
