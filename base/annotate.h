// Prefixes the message of an error with its subject.
#ifndef WEFT_BASE_ANNOTATE_H_
#define WEFT_BASE_ANNOTATE_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft {

// "in.pb: <message>", with the same code. OK stays OK.
inline absl::Status Annotate(absl::string_view subject, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(subject, ": ", status.message()));
}

}  // namespace weft

#endif  // WEFT_BASE_ANNOTATE_H_
