// Rules by which Paddle's servers admit rows to a table.
#ifndef WEFT_OPS_SCHEMA_TABLE_ENTRIES_H_
#define WEFT_OPS_SCHEMA_TABLE_ENTRIES_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "proto/program.h"

namespace weft {

// What to say of a lookup with such a rule (static.nn.sparse_embedding, entry): Paddle's servers
// admit a row when it has been asked for often enough, or by chance. Here a table has all of its
// rows. None: there is no rule.
inline absl::optional<std::string> NoteOnEntries(const Op& op) {
  const std::string entry = op.StringAttr("entry").value_or("");
  if (entry.empty() || entry == "none") return absl::nullopt;
  return absl::StrCat(op.DebugName(), ", attribute entry ", entry,
                      ": not followed: all rows of the table are there from the start, and train");
}

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_TABLE_ENTRIES_H_
