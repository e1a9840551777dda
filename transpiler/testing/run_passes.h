// Runs passes on programs in tests, for what program text before and after does not show: statuses,
// notes, programs that are not whole (transpiler/testing/expect_rewrite.h for the rest).
#ifndef WEFT_TRANSPILER_TESTING_RUN_PASSES_H_
#define WEFT_TRANSPILER_TESTING_RUN_PASSES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/program.h"
#include "transpiler/pipeline/pass.h"

namespace weft::testing {

// A context for `nranks` ranks with endpoints 127.0.0.1:6170, ... ; rank 0.
PassContext ContextWithEndpoints(int nranks, Dialect dialect = Dialect::kWeft);
// A context that knows the number of ranks only, or, 0, not even that.
PassContext ContextWithRanks(int nranks);
// A context of the paddle dialect for trainers that drive several devices each, or one that is
// alone; rank 0.
PassContext ContextWithDevices(const std::vector<std::string>& endpoints,
                               absl::optional<std::vector<int>> devices);

// Runs built-in passes, given as text, on the programs. In the weft dialect, an error, too, where
// the verifier finds errors of structure, types or races in the result and found none before.
absl::Status RunPasses(absl::string_view pipeline, PassContext context, Program* main,
                       Program* startup = nullptr);

}  // namespace weft::testing

#endif  // WEFT_TRANSPILER_TESTING_RUN_PASSES_H_
