// What passes that average parameters say of gradients.
#ifndef WEFT_TRANSPILER_PASSES_LOCAL_GRADIENTS_H_
#define WEFT_TRANSPILER_PASSES_LOCAL_GRADIENTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "ops/analysis/gradients.h"
#include "proto/program.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// A note, in the name of `pass`, for every gradient: it stays with its rank. The errors of
// FindGradientPairs. O(arguments).
inline absl::Status ExplainLocalGradients(absl::string_view pass, const Program& program,
                                          std::vector<Remark>* remarks) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<GradientPair> pairs, FindGradientPairs(program));
  for (const GradientPair& pair : pairs) {
    remarks->push_back({std::string(pass),
                        std::string(program.name(pair.grad)),
                        "not reduced",
                        "ranks update by local gradients, and average parameters",
                        {{"parameter", std::string(program.name(pair.param))}}});
  }
  return absl::OkStatus();
}

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_LOCAL_GRADIENTS_H_
