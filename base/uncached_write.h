// Large new files, written past the system's page cache.
#ifndef WEFT_BASE_UNCACHED_WRITE_H_
#define WEFT_BASE_UNCACHED_WRITE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

// Writes the pieces, joined, to an empty file from its beginning, and leaves its offset behind
// them. Where the file system cannot do without its cache, the cache is used: the result is the
// same. For files of many megabytes: a writer that waits until its file is on the disk spends most
// of its time on filling cache pages that it never needs. Takes 16 MiB of memory.
absl::Status WriteUncached(int fd, absl::Span<const absl::string_view> pieces);

}  // namespace weft

#endif  // WEFT_BASE_UNCACHED_WRITE_H_
