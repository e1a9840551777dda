#include "transpiler/changed_original.h"

#include <cstddef>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "transpiler/passes/devices/embedding_offload.h"
#include "transpiler/passes/devices/optimizer_offload.h"
#include "transpiler/passes/updates/param_options.h"

namespace weft {
namespace {

// Whether the pass changes updates of a program for one device as it does later.
bool ChangesAnyProgram(absl::string_view pass) {
  constexpr absl::string_view kPasses[] = {EmbeddingOffload::kName, OptimizerOffload::kName,
                                           ParamOptions::kName};
  return absl::c_linear_search(kPasses, pass);
}

}  // namespace

absl::optional<ChangedOriginal> ApplyChanges(const std::vector<Spec>& specs,
                                             const Pipeline& pipeline, const PassContext& context,
                                             const ProgramPair& programs) {
  if (pipeline.NumChangingFirst(context) > 0) return absl::nullopt;
  PassContext quiet = context;
  quiet.remarks = nullptr;
  quiet.messages = nullptr;
  std::vector<Spec> changes;
  ChangedOriginal changed{*programs.main, absl::nullopt, ""};
  if (programs.startup != nullptr) changed.startup = *programs.startup;
  for (size_t i = 0; i < specs.size(); ++i) {
    const Pass& pass = *pipeline.passes()[i];
    if (pass.claims(context).computation == Claims::Computation::kPreserved) continue;
    if (!ChangesAnyProgram(pass.name())) return absl::nullopt;
    ProgramPair pair = changed.pair();
    if (!pass.Run(quiet, pair).ok()) return absl::nullopt;
    changes.push_back(specs[i]);
  }
  if (changes.empty()) return absl::nullopt;
  changed.passes = ToString(changes);
  return changed;
}

}  // namespace weft
