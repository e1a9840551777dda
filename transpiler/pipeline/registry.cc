#include "transpiler/pipeline/registry.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/similar_name.h"

namespace weft {

void PassRegistry::AddEntry(Entry entry) {
  const std::string name = entry.name;
  if (!entries_.emplace(name, std::move(entry)).second) {
    std::fprintf(stderr, "PassRegistry: two passes are called %s\n", name.c_str());
    std::abort();
  }
}

absl::StatusOr<std::unique_ptr<Pass>> PassRegistry::Create(const Spec& spec) const {
  const auto it = entries_.find(spec.name);
  if (it == entries_.end()) {
    std::vector<absl::string_view> names;
    for (const auto& [name, entry] : entries_) names.push_back(name);
    return absl::InvalidArgumentError(
        absl::StrCat("unknown pass ", spec.name, "; expected one of: ", absl::StrJoin(names, ", "),
                     DidYouMean(spec.name, names)));
  }
  absl::StatusOr<std::unique_ptr<Pass>> pass = it->second.create(spec);
  WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("pass ", spec.name), pass.status()));
  return pass;
}

}  // namespace weft
