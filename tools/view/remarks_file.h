// The file that `transpile --remarks` writes.
#ifndef WEFT_TOOLS_VIEW_REMARKS_FILE_H_
#define WEFT_TOOLS_VIEW_REMARKS_FILE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// A remark, as transpiler/pipeline/pass.h has it.
struct FileRemark {
  std::string pass, subject, what, why;
  std::vector<std::pair<std::string, std::string>> details;
};

// InvalidArgument, naming the key, for other text. O(text).
absl::StatusOr<std::vector<FileRemark>> ParseRemarks(absl::string_view json);

}  // namespace weft

#endif  // WEFT_TOOLS_VIEW_REMARKS_FILE_H_
