#include "transpiler/reference_program.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_join.h"

namespace weft {

absl::optional<ReferenceProgram> MakeReference(const Pipeline& pipeline, const PassContext& context,
                                               const ProgramPair& programs) {
  if (pipeline.NumChangingFirst(context) > 0) return absl::nullopt;
  PassContext quiet = context;
  quiet.sink = Sink();
  std::vector<std::string> changes;
  ReferenceProgram reference{*programs.main, absl::nullopt, ""};
  if (programs.startup != nullptr) reference.startup = *programs.startup;
  for (size_t i = 0; i < pipeline.passes().size(); ++i) {
    const Pass& pass = *pipeline.passes()[i];
    if (pass.claims(context).computation == Claims::Computation::kPreserved) continue;
    if (!pass.HasTrait(PassTrait::kChangesAnyProgram)) return absl::nullopt;
    ProgramPair pair = reference.pair();
    if (!pass.Run(quiet, pair).ok()) return absl::nullopt;
    changes.push_back(pipeline.texts()[i]);
  }
  if (changes.empty()) return absl::nullopt;
  reference.passes = absl::StrJoin(changes, ",");
  return reference;
}

}  // namespace weft
