#include "base/testing/archive.h"

#include <archive.h>
#include <archive_entry.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft::testing {
namespace {

absl::StatusOr<std::string> ReadEntry(archive* reader) {
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const auto size = archive_read_data(reader, buffer, sizeof(buffer));
    if (size < 0) return absl::DataLossError(archive_error_string(reader));
    if (size == 0) return content;
    content.append(buffer, size);
  }
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> ReadTarXz(const std::string& path) {
  const std::unique_ptr<archive, int (*)(archive*)> reader(archive_read_new(), archive_read_free);
  archive_read_support_filter_xz(reader.get());
  archive_read_support_format_tar(reader.get());
  if (archive_read_open_filename(reader.get(), path.c_str(), 1 << 16) != ARCHIVE_OK) {
    return absl::NotFoundError(absl::StrCat(path, ": ", archive_error_string(reader.get())));
  }
  std::map<std::string, std::string> files;
  for (;;) {
    archive_entry* entry = nullptr;
    const int result = archive_read_next_header(reader.get(), &entry);
    if (result == ARCHIVE_EOF) return files;
    if (result != ARCHIVE_OK) {
      return absl::DataLossError(absl::StrCat(path, ": ", archive_error_string(reader.get())));
    }
    if (archive_entry_filetype(entry) != AE_IFREG) continue;
    absl::StatusOr<std::string> content = ReadEntry(reader.get());
    if (!content.ok()) {
      return absl::DataLossError(absl::StrCat(path, ": ", content.status().message()));
    }
    files[archive_entry_pathname(entry)] = *std::move(content);
  }
}

}  // namespace weft::testing
