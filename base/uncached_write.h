// Writes large new files, bypassing the page cache.
#ifndef WEFT_BASE_UNCACHED_WRITE_H_
#define WEFT_BASE_UNCACHED_WRITE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

// Writes the concatenated pieces to an empty file, and moves its offset to their end. Uses the page
// cache if the file system requires it; the result is the same. A writer of a large file that waits
// for the disk would spend most of its time on filling cache pages. Takes 16 MiB of memory.
absl::Status WriteUncached(int fd, absl::Span<const absl::string_view> pieces);

}  // namespace weft

#endif  // WEFT_BASE_UNCACHED_WRITE_H_
