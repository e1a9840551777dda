// Whole files: read without a copy, written as a whole or not at all.
#ifndef WEFT_BASE_FILE_H_
#define WEFT_BASE_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

// The bytes of a file; `owner` keeps them alive.
struct FileBytes {
  std::shared_ptr<const void> owner;
  absl::string_view bytes;
};

// Reads a file; "-" is standard input. A regular file is mapped: the pages are the file's own, and
// nobody may shorten it meanwhile. A pipe, a terminal or a socket is read until its end, 2 GiB at
// most. InvalidArgument for a device or a directory; NotFound, PermissionDenied, ... with the
// system's reason (without the path: the caller knows it); ResourceExhausted for more than
// `max_bytes`, or 2 GiB of a stream.
absl::StatusOr<FileBytes> ReadFile(const std::string& path, size_t max_bytes = size_t{1} << 40);

// A file that is being written beside its target and takes its place in one step.
//
//   WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
//   WEFT_RETURN_IF_ERROR(file.Write(bytes));
//   WEFT_RETURN_IF_ERROR(file.Commit());
//
// Until Commit, and where anything fails, the target stays as it was and no other file remains.
// What a killed process leaves is removed by the next AtomicFile in the directory. A target that is
// a symbolic link is followed. "-" is standard output, and a target that exists but is no regular
// file (a device, a pipe) is written directly: there is nothing to replace.
class AtomicFile {
 public:
  static absl::StatusOr<AtomicFile> Create(const std::string& path);

  AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  absl::Status Write(absl::string_view bytes) { return Write(absl::MakeConstSpan(&bytes, 1)); }
  absl::Status Write(absl::Span<const absl::string_view> pieces);

  // Makes the bytes durable (fsync). Commit does it too; for several files that shall appear
  // together, sync all first: what is left for Commit then hardly fails.
  absl::Status Sync();
  absl::Status Commit();

 private:
  AtomicFile() = default;
  void Discard();

  int fd_ = -1;
  bool direct_ = false;
  bool synced_ = false;
  std::string temporary_;    // empty: written directly
  int temporary_slot_ = -1;  // in what RemoveTemporaryFiles removes
  std::string target_;
};

// Removes the temporary files of all AtomicFiles that are being written, of 64 at most: what a
// process does that a signal is about to end. Async-signal-safe. Files cannot be committed after
// it.
void RemoveTemporaryFiles();

// Writes one file.
absl::Status WriteFile(const std::string& path, absl::string_view bytes);

// True where both paths lead to the same file, or, where none is there yet, writing to them would.
bool IsSameFile(const std::string& a, const std::string& b);

}  // namespace weft

#endif  // WEFT_BASE_FILE_H_
