// Zip archives, opened for reading.
#ifndef WEFT_BASE_ZIP_ARCHIVE_H_
#define WEFT_BASE_ZIP_ARCHIVE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file.h"

namespace weft {

// An entry while it is read.
class ZipEntry {
 public:
  virtual ~ZipEntry() = default;
  // Of the entry, uncompressed. Deflated data may be a thousand times as large as the file.
  virtual uint64_t size() const = 0;
  // Reads exactly `bytes` bytes. InvalidArgument: fewer are left, or the data are damaged.
  virtual absl::Status Read(void* to, uint64_t bytes) = 0;
  // After the last byte: compares the checksum.
  virtual absl::Status Finish() = 0;
};

// Entries are stored or deflated. Errors do not name the path. InvalidArgument if the bytes are not
// those of a zip archive, or an entry is encrypted or claims more bytes than its data can give.
// Copies share the archive. Thread-safe; reads are serialized.
class ZipArchive {
 public:
  // Reads the directory. O(entries).
  static absl::StatusOr<ZipArchive> Open(FileBytes file);

  uint64_t num_entries() const;
  std::string NameOf(uint64_t entry) const;
  absl::Status Visit(uint64_t entry, absl::FunctionRef<absl::Status(ZipEntry&)> visit) const;

 private:
  struct Impl;
  explicit ZipArchive(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// The archive with these entries, by name: each replaces the one of its name, or comes last. They
// are stored, and dated 1980-01-01. Other entries keep their data. O(bytes) memory.
absl::StatusOr<std::string> WithEntries(absl::string_view archive,
                                        const std::map<std::string, std::string>& entries);

}  // namespace weft

#endif  // WEFT_BASE_ZIP_ARCHIVE_H_
