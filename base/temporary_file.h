// Files that a process writes before they take the place of their target. Used by AtomicFile only.
//
// They are called TARGET.weft.PROCESS.NUMBER.tmp and locked (flock) while they are written, so that
// what a killed process leaves behind can be told from the files of processes that run.
#ifndef WEFT_BASE_TEMPORARY_FILE_H_
#define WEFT_BASE_TEMPORARY_FILE_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"

namespace weft {

// Of the file, as written: "." for a name alone.
std::string DirectoryOf(const std::string& path);

struct TemporaryFile {
  int fd = -1;  // open for writing
  std::string path;
  int slot = -1;  // among those that RemoveTemporaryFiles removes
};

// Creates an empty file of this mode beside `target`, after RemoveStaleTemporaryFiles there.
absl::StatusOr<TemporaryFile> CreateTemporaryFile(const std::string& target, mode_t mode);

// Does without the file in RemoveTemporaryFiles: it has been removed, or has become its target.
void ForgetTemporaryFile(int slot);

// Removes files with such a name in a directory whose process is gone: there is none of that number
// here, and nobody holds the lock (a process of another container or host may). O(names).
void RemoveStaleTemporaryFiles(const std::string& directory);

}  // namespace weft

#endif  // WEFT_BASE_TEMPORARY_FILE_H_
