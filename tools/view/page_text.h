// What tools/view/embed_page.py makes of page.html, page.css and the scripts.
#ifndef WEFT_TOOLS_VIEW_PAGE_TEXT_H_
#define WEFT_TOOLS_VIEW_PAGE_TEXT_H_

#include "absl/strings/string_view.h"

namespace weft {

// The page before and after its data.
absl::string_view PageHead();
absl::string_view PageTail();

}  // namespace weft

#endif  // WEFT_TOOLS_VIEW_PAGE_TEXT_H_
