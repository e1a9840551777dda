#include "transpiler/verifier/structure/arguments.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace weft {

std::string SlotOfArgument(const Op& op, size_t i) {
  for (const auto* slots : {&op.signature().inputs, &op.signature().outputs}) {
    for (const OpSignature::Slot& slot : *slots) {
      if (i < slot.first || i >= slot.first + slot.count) continue;
      return absl::StrCat(slots == &op.signature().inputs ? "input " : "output ",
                          absl::CEscape(op.program().name(slot.name)));
    }
  }
  return "argument";
}

}  // namespace weft
