// What is wrong with gradients that are reduced as Paddle does it.
#ifndef WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_WARNINGS_H_
#define WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_WARNINGS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// Where Paddle's classes put what exchanges gradients.
enum class PaddleExchange {
  kOneByOne,  // each behind its op; one wait for all before the first op of optimize role
  kBeforeFirstOptimize,  // all before the first op of optimize role
  kBehindLastGradient,   // all behind the last op that names a pair
};

// Warns, in the name of `pass`, of everything for which grad-all-reduce refuses a program, and of
// what it mends: a gradient that is SelectedRows, that is reduced twice, before it is complete or
// after its use, that is not waited for, that is accumulated over several steps and reduced in
// each, or that is not reduced for want of an op of optimize role. One warning of each kind at
// most. O(arguments).
absl::Status WarnAboutReduction(absl::string_view pass, const Program& program,
                                PaddleExchange exchange, PassContext& context);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_PADDLE_PADDLE_WARNINGS_H_
