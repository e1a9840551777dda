// Ops of Paddle 3's format that have no translation: proto/formats/pir/importer.h.
#ifndef WEFT_PROTO_UNTRANSLATED_OP_H_
#define WEFT_PROTO_UNTRANSLATED_OP_H_

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft {

// What its types begin with.
inline constexpr absl::string_view kUntranslatedPrefix = "pd_op.";

// What to do about an op that stands in the way, to be appended to a message; empty for others.
inline std::string UntranslatedOpAdvice(absl::string_view type) {
  if (!absl::StartsWith(type, kUntranslatedPrefix)) return std::string();
  return absl::StrCat(
      "; ", type,
      " is not in docs/reference/pir_ops.md; if Paddle still builds the program in its old "
      "format (FLAGS_enable_pir_api=0 before `import paddle`), write that");
}

}  // namespace weft

#endif  // WEFT_PROTO_UNTRANSLATED_OP_H_
