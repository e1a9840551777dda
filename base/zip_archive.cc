#include "base/zip_archive.h"

#include <zip.h>

#include <mutex>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {
namespace {

// The largest ratio of Deflate: at best, two bits encode 258 bytes.
constexpr uint64_t kMaxDeflateRatio = 1032;

absl::StatusOr<zip_t*> OpenZip(absl::string_view bytes) {
  zip_error_t error;
  zip_error_init(&error);
  absl::Cleanup fini = [&error] { zip_error_fini(&error); };
  zip_t* archive = nullptr;
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  if (source != nullptr) {
    archive = zip_open_from_source(source, ZIP_RDONLY, &error);
    if (archive == nullptr) zip_source_free(source);
  }
  // libzip rejects an empty file, which is an archive without entries.
  if (archive != nullptr && !bytes.empty()) return archive;
  if (archive != nullptr) zip_discard(archive);
  return absl::InvalidArgumentError(bytes.empty() ? "the file is empty"
                                                  : zip_error_strerror(&error));
}

// Checks the directory entry as far as possible without reading the data: allocations of callers
// are bounded by it.
absl::Status CheckEntry(const zip_stat_t& stat, uint64_t archive_bytes) {
  if (stat.encryption_method != ZIP_EM_NONE) return absl::InvalidArgumentError("it is encrypted");
  const bool stored = stat.comp_method == ZIP_CM_STORE;
  if (!stored && stat.comp_method != ZIP_CM_DEFLATE) {
    return absl::InvalidArgumentError(absl::StrCat("compression method ", stat.comp_method,
                                                   "; expected stored or deflated data"));
  }
  if (stat.comp_size > archive_bytes ||
      (stored ? stat.size != stat.comp_size : stat.size / kMaxDeflateRatio > stat.comp_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the entry claims ", stat.size, " bytes from ", stat.comp_size,
                     " compressed bytes in an archive of ", archive_bytes));
  }
  return absl::OkStatus();
}

class OpenEntry : public ZipEntry {
 public:
  OpenEntry(zip_file_t* file, uint64_t size) : file_(file), size_(size) {}

  uint64_t size() const override { return size_; }
  absl::Status Read(void* to, uint64_t bytes) override {
    char* at = static_cast<char*>(to);
    while (bytes > 0) {
      const zip_int64_t n = zip_fread(file_, at, bytes);
      if (n < 0) return absl::InvalidArgumentError(zip_file_strerror(file_));
      if (n == 0) return absl::InvalidArgumentError("truncated");
      at += n;
      bytes -= n;
    }
    return absl::OkStatus();
  }
  absl::Status Finish() override {
    char more;
    if (zip_fread(file_, &more, 1) >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(zip_file_strerror(file_));
  }

 private:
  zip_file_t* file_;
  uint64_t size_;
};

}  // namespace

struct ZipArchive::Impl {
  ~Impl() {
    if (archive != nullptr) zip_discard(archive);
  }
  FileBytes file;
  std::mutex mutex;  // libzip does not lock
  zip_t* archive = nullptr;
};

absl::StatusOr<ZipArchive> ZipArchive::Open(FileBytes file) {
  auto impl = std::make_shared<Impl>();
  impl->file = std::move(file);
  WEFT_ASSIGN_OR_RETURN(impl->archive, OpenZip(impl->file.bytes));
  return ZipArchive(std::move(impl));
}

uint64_t ZipArchive::num_entries() const { return zip_get_num_entries(impl_->archive, 0); }

std::string ZipArchive::NameOf(uint64_t entry) const {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  const char* const name = zip_get_name(impl_->archive, entry, ZIP_FL_ENC_RAW);
  return name == nullptr ? "" : name;
}

absl::Status ZipArchive::Visit(uint64_t entry,
                               absl::FunctionRef<absl::Status(ZipEntry&)> visit) const {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  zip_stat_t stat;
  if (zip_stat_index(impl_->archive, entry, 0, &stat) != 0) {
    return absl::InvalidArgumentError(zip_strerror(impl_->archive));
  }
  WEFT_RETURN_IF_ERROR(CheckEntry(stat, impl_->file.bytes.size()));
  zip_file_t* const file = zip_fopen_index(impl_->archive, entry, 0);
  if (file == nullptr) return absl::InvalidArgumentError(zip_strerror(impl_->archive));
  absl::Cleanup close = [file] { zip_fclose(file); };
  OpenEntry open(file, stat.size);
  return visit(open);
}

namespace {

constexpr zip_uint16_t kFirstDate = 1 << 5 | 1;  // 1980-01-01, the first that an archive can say

absl::Status PutEntry(zip_t* archive, const std::string& name, const std::string& bytes) {
  zip_source_t* const source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
  const zip_int64_t entry =
      source == nullptr ? -1 : zip_file_add(archive, name.c_str(), source, ZIP_FL_OVERWRITE);
  if (entry < 0 && source != nullptr) zip_source_free(source);
  if (entry >= 0 && zip_set_file_compression(archive, entry, ZIP_CM_STORE, 0) == 0 &&
      zip_file_set_dostime(archive, entry, 0, kFirstDate, 0) == 0) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("entry ", name, ": ", zip_strerror(archive)));
}

absl::StatusOr<std::string> BytesOf(zip_source_t* source) {
  zip_stat_t stat;
  if (zip_source_stat(source, &stat) != 0 || zip_source_open(source) != 0) {
    return absl::InternalError(zip_error_strerror(zip_source_error(source)));
  }
  absl::Cleanup close = [source] { zip_source_close(source); };
  std::string bytes(stat.size, '\0');
  if (zip_source_read(source, bytes.data(), bytes.size()) !=
      static_cast<zip_int64_t>(bytes.size())) {
    return absl::InternalError(zip_error_strerror(zip_source_error(source)));
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> WithEntries(absl::string_view archive,
                                        const std::map<std::string, std::string>& entries) {
  zip_error_t error;
  zip_error_init(&error);
  absl::Cleanup fini = [&error] { zip_error_fini(&error); };
  zip_source_t* const source = zip_source_buffer_create(archive.data(), archive.size(), 0, &error);
  if (source == nullptr) return absl::InternalError(zip_error_strerror(&error));
  absl::Cleanup free = [source] { zip_source_free(source); };
  zip_source_keep(source);  // closing the archive gives up one of two
  zip_t* const zip = zip_open_from_source(source, 0, &error);
  if (zip == nullptr) {
    zip_source_free(source);
    return absl::InvalidArgumentError(zip_error_strerror(&error));
  }
  absl::Cleanup discard = [zip] { zip_discard(zip); };
  for (const auto& [name, bytes] : entries) WEFT_RETURN_IF_ERROR(PutEntry(zip, name, bytes));
  if (zip_close(zip) != 0) return absl::InternalError(zip_strerror(zip));
  std::move(discard).Cancel();
  return BytesOf(source);
}

}  // namespace weft
