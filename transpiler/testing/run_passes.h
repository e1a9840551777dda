// Runs passes on programs in tests of statuses, remarks and incomplete programs. Prefer
// transpiler/testing/expect_rewrite.h, which compares program text.
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
// A context with the number of ranks alone; 0: unknown.
PassContext ContextWithRanks(int nranks);
// A context of the paddle dialect for rank 0 of one or more trainers that drive several devices.
PassContext ContextWithDevices(const std::vector<std::string>& endpoints,
                               absl::optional<std::vector<int>> devices);

// Runs built-in passes, given as text. In the weft dialect, new errors of structure, types or races
// in the result are an error, too.
absl::Status RunPasses(absl::string_view pipeline, PassContext context, Program* main,
                       Program* startup = nullptr);

}  // namespace weft::testing

#endif  // WEFT_TRANSPILER_TESTING_RUN_PASSES_H_
