// What a rewrite that changes the computation on purpose is compared with.
#ifndef WEFT_TRANSPILER_REFERENCE_PROGRAM_H_
#define WEFT_TRANSPILER_REFERENCE_PROGRAM_H_

#include <string>

#include "absl/types/optional.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "transpiler/pipeline/pass.h"
#include "transpiler/pipeline/pipeline.h"

namespace weft {

// The original with the changes of a pipeline, for one device.
struct ReferenceProgram {
  Program main;
  absl::optional<Program> startup;
  std::string passes;  // the passes that change it, as text

  ProgramPair pair() { return {&main, startup.has_value() ? &*startup : nullptr}; }
};

// Runs the passes that change what is computed on copies of the programs before the rewrite. None:
// no pass changes it; the first ones do, which Pipeline::Run says; passes do that lack
// PassTrait::kChangesAnyProgram; or one fails, as it will in the pipeline. O(ops).
absl::optional<ReferenceProgram> MakeReference(const Pipeline& pipeline, const PassContext& context,
                                               const ProgramPair& programs);

}  // namespace weft

#endif  // WEFT_TRANSPILER_REFERENCE_PROGRAM_H_
