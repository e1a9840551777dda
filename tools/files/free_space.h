// Whether a file system has room for a file that is written later.
#ifndef WEFT_TOOLS_FILES_FREE_SPACE_H_
#define WEFT_TOOLS_FILES_FREE_SPACE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/program.h"

namespace weft {

// The bytes of the persistable tensors of the root block whose dims are declared.
int64_t PersistableBytes(const Program& program);

// ResourceExhausted, naming the path, if the file system of its directory has fewer free bytes. A
// path that is no regular file, or of which nothing is known, has room.
absl::Status CheckFreeSpace(const std::string& path, int64_t bytes);

}  // namespace weft

#endif  // WEFT_TOOLS_FILES_FREE_SPACE_H_
