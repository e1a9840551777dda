#include "transpiler/pipeline/registry.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_join.h"
#include "base/annotate.h"

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
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown pass ", spec.name, "; expected one of: ",
        absl::StrJoin(entries_, ", ",
                      [](std::string* out, const auto& entry) { out->append(entry.first); })));
  }
  absl::StatusOr<std::unique_ptr<Pass>> pass = it->second.create(spec);
  WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("pass ", spec.name), pass.status()));
  return pass;
}

}  // namespace weft
