// Files: read without a copy, written atomically.
#ifndef WEFT_BASE_FILE_H_
#define WEFT_BASE_FILE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

// The bytes of a file; `owner` keeps them alive.
struct FileBytes {
  std::shared_ptr<const void> owner;
  absl::string_view bytes;
  bool is_mapped = false;

  // Gives the memory that a mapped file takes in the process back. Who reads the bytes later gets
  // them from the system's cache, or from the disk: a page fault every few pages.
  void Unload() const;
};

// Reads a file; "-" is standard input. Maps a regular file, which nobody may shorten meanwhile.
// Reads a pipe, a terminal or a socket to its end. InvalidArgument for a device or a directory;
// NotFound, PermissionDenied, ... with the system's reason, without the path; ResourceExhausted for
// more than `max_bytes`, or 2 GiB of a stream.
absl::StatusOr<FileBytes> ReadFile(const std::string& path, size_t max_bytes = size_t{1} << 40);

// A file that is written next to its target, and then replaces it in one step.
//
//   WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
//   WEFT_RETURN_IF_ERROR(file.Write(bytes));
//   WEFT_RETURN_IF_ERROR(file.Commit());
//
// Until Commit, and after an error, the target is unchanged and no other file remains. The next
// AtomicFile in the directory removes the temporary file of a killed process. Symbolic links are
// followed. "-" is standard output. Targets that exist but are not regular files, such as devices
// and pipes, are written directly.
class AtomicFile {
 public:
  static absl::StatusOr<AtomicFile> Create(const std::string& path);

  // True if bytes for this path go straight to it, and cannot be taken back: "-", and what exists
  // but is no regular file. Create may wait then, for a reader of a pipe.
  static bool WritesDirectly(const std::string& path);

  AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  absl::Status Write(absl::string_view bytes) { return Write(absl::MakeConstSpan(&bytes, 1)); }
  absl::Status Write(absl::Span<const absl::string_view> pieces);

  // Makes the bytes durable (fsync), as Commit does. To write several files together, sync all
  // first: then Commit hardly fails.
  absl::Status Sync();
  absl::Status Commit();

  // The two halves of Commit, for files that change together: if one cannot be replaced, those that
  // were get their old contents back at the end of their objects. (Not where the file system cannot
  // exchange two names.)
  absl::Status Replace();
  void Keep();

 private:
  AtomicFile() = default;
  void Discard();
  // Gives the target what it was before Replace.
  void PutBack();

  int fd_ = -1;
  bool direct_ = false;
  bool synced_ = false;
  bool is_replaced_ = false;  // and not kept yet
  bool has_old_ = false;      // the old target has the temporary name
  bool was_missing_ = false;  // there was no target
  std::string temporary_;     // empty: written directly
  int temporary_slot_ = -1;   // for RemoveTemporaryFiles
  std::string target_;
};

// Commits files that change together, by the path that errors begin with. After an error none
// changes, as far as AtomicFile::Replace can.
absl::Status ReplaceTogether(std::vector<std::pair<std::string, AtomicFile>> files);

// Removes the temporary files of all AtomicFiles that are being written, at most 64, before a
// signal ends the process. Async-signal-safe. These files cannot be committed afterwards.
void RemoveTemporaryFiles();

absl::Status WriteFile(const std::string& path, absl::string_view bytes);

// True if both paths lead to the same file, or if neither exists and writing would create one file.
bool IsSameFile(const std::string& a, const std::string& b);

}  // namespace weft

#endif  // WEFT_BASE_FILE_H_
