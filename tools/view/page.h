// The page of a program: one HTML file that needs nothing else.
#ifndef WEFT_TOOLS_VIEW_PAGE_H_
#define WEFT_TOOLS_VIEW_PAGE_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/view/program_view.h"

namespace weft {

// The data of the page, packed (PackedColumns). tools/view/data.js reads it.
absl::StatusOr<std::string> PackView(const ProgramView& view);

// The page: tools/view/page.html with its style, its script, and the data in base64. Only that
// depends on the program, so no name in a program can be markup. A content security policy forbids
// any other script, and every connection. Equal views give equal pages. O(view).
absl::StatusOr<std::string> ViewPage(const ProgramView& view);

}  // namespace weft

#endif  // WEFT_TOOLS_VIEW_PAGE_H_
