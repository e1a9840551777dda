#include "executor/npz.h"

#include <zip.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "executor/npy.h"

namespace weft {
namespace {

constexpr absl::string_view kSuffix = ".npy";
// Deflate never shrinks by more: two bits, at best, stand for 258 bytes.
constexpr uint64_t kMaxDeflateRatio = 1032;

absl::Status ArrayError(const std::string& path, absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": array '", absl::CHexEscape(name), "': ", what));
}

absl::StatusOr<zip_t*> OpenArchive(const std::string& path, absl::string_view bytes) {
  zip_error_t error;
  zip_error_init(&error);
  absl::Cleanup fini = [&error] { zip_error_fini(&error); };
  zip_t* archive = nullptr;
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  if (source != nullptr) {
    archive = zip_open_from_source(source, ZIP_RDONLY, &error);
    if (archive == nullptr) zip_source_free(source);
  }
  // libzip takes no bytes at all for an archive without entries.
  if (archive != nullptr && !bytes.empty()) return archive;
  if (archive != nullptr) zip_discard(archive);
  return absl::InvalidArgumentError(absl::StrCat(
      path,
      ": no .npz archive: ", bytes.empty() ? "the file is empty" : zip_error_strerror(&error)));
}

// Reads exactly `size` bytes.
absl::Status ReadExactly(zip_file_t* file, void* to, uint64_t size) {
  char* at = static_cast<char*>(to);
  while (size > 0) {
    const zip_int64_t n = zip_fread(file, at, size);
    if (n < 0) return absl::InvalidArgumentError(zip_file_strerror(file));
    if (n == 0) return absl::InvalidArgumentError("truncated");
    at += n;
    size -= n;
  }
  return absl::OkStatus();
}

// What the directory says of an entry, checked as far as that is possible without reading it: what
// is allocated below is bounded by it.
absl::Status CheckEntry(const zip_stat_t& stat, uint64_t archive_bytes) {
  if (stat.encryption_method != ZIP_EM_NONE) {
    return absl::InvalidArgumentError("it is encrypted");
  }
  const bool stored = stat.comp_method == ZIP_CM_STORE;
  if (!stored && stat.comp_method != ZIP_CM_DEFLATE) {
    return absl::InvalidArgumentError(absl::StrCat("compression method ", stat.comp_method,
                                                   "; expected stored or deflated data"));
  }
  if (stat.comp_size > archive_bytes ||
      (stored ? stat.size != stat.comp_size : stat.size / kMaxDeflateRatio > stat.comp_size)) {
    return absl::InvalidArgumentError(absl::StrCat("the archive says ", stat.size, " bytes, from ",
                                                   stat.comp_size, " bytes of ", archive_bytes));
  }
  return absl::OkStatus();
}

// Leaves `file` at the first element.
absl::StatusOr<NpyHeader> ReadHeader(zip_file_t* file, uint64_t size) {
  std::string bytes(std::min<uint64_t>(size, kNpyPrefixBytes), '\0');
  WEFT_RETURN_IF_ERROR(ReadExactly(file, &bytes[0], bytes.size()));
  WEFT_ASSIGN_OR_RETURN(const size_t header_bytes, NpyHeaderBytes(bytes));
  bytes.resize(header_bytes);
  WEFT_RETURN_IF_ERROR(ReadExactly(file, &bytes[kNpyPrefixBytes], header_bytes - kNpyPrefixBytes));
  WEFT_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(bytes));
  if (size - header.header_bytes != header.data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shape ", DimsToString(header.dims), " of ", DTypeName(header.dtype), " takes ",
        header.data_bytes, " bytes, but ", size - header.header_bytes, " are there"));
  }
  return header;
}

absl::StatusOr<Tensor> ReadArray(zip_file_t* file, uint64_t size) {
  WEFT_ASSIGN_OR_RETURN(const NpyHeader header, ReadHeader(file, size));
  Tensor tensor;
  tensor.Resize(header.dtype, header.dims);
  char* data = static_cast<char*>(tensor.raw());
  WEFT_RETURN_IF_ERROR(ReadExactly(file, data, header.data_bytes));
  // The checksum is compared at the end of the data.
  char more;
  if (zip_fread(file, &more, 1) < 0) return absl::InvalidArgumentError(zip_file_strerror(file));
  if (header.dtype == DType::kBool) {
    for (size_t i = 0; i < header.data_bytes; ++i) {
      if (static_cast<uint8_t>(data[i]) > 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("element ", i, " is neither true nor false"));
      }
    }
  }
  return tensor;
}

}  // namespace

struct NpzFile::Impl {
  ~Impl() {
    if (archive != nullptr) zip_discard(archive);
  }

  // Calls visit(file, size) with the entry of an array, opened.
  absl::Status Visit(absl::string_view name,
                     absl::FunctionRef<absl::Status(zip_file_t*, uint64_t)> visit);

  std::string path;
  FileBytes file;
  std::mutex mutex;  // libzip does not lock
  zip_t* archive = nullptr;
  std::vector<std::string> names;
  absl::flat_hash_map<std::string, zip_uint64_t> index;
};

NpzFile::NpzFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NpzFile::NpzFile(NpzFile&&) noexcept = default;
NpzFile& NpzFile::operator=(NpzFile&&) noexcept = default;
NpzFile::~NpzFile() = default;

const std::string& NpzFile::path() const { return impl_->path; }
const std::vector<std::string>& NpzFile::names() const { return impl_->names; }
bool NpzFile::Contains(absl::string_view name) const { return impl_->index.contains(name); }

absl::StatusOr<NpzFile> NpzFile::Open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  absl::StatusOr<FileBytes> file = ReadFile(path);
  if (!file.ok()) {
    return absl::Status(file.status().code(), absl::StrCat(path, ": ", file.status().message()));
  }
  impl->file = *std::move(file);
  WEFT_ASSIGN_OR_RETURN(impl->archive, OpenArchive(path, impl->file.bytes));

  const zip_int64_t entries = zip_get_num_entries(impl->archive, 0);
  for (zip_int64_t i = 0; i < entries; ++i) {
    const char* entry = zip_get_name(impl->archive, i, ZIP_FL_ENC_RAW);
    absl::string_view name = entry == nullptr ? "" : entry;
    if (!absl::ConsumeSuffix(&name, kSuffix)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": entry '", absl::CHexEscape(name),
                                                     "': expected a name that ends in .npy"));
    }
    if (!impl->index.emplace(name, i).second) return ArrayError(path, name, "it is there twice");
    impl->names.emplace_back(name);
  }
  std::sort(impl->names.begin(), impl->names.end());
  return NpzFile(std::move(impl));
}

absl::Status NpzFile::Impl::Visit(absl::string_view name,
                                  absl::FunctionRef<absl::Status(zip_file_t*, uint64_t)> visit) {
  const auto found = index.find(name);
  if (found == index.end()) {
    return absl::NotFoundError(
        absl::StrCat(path, ": array '", absl::CHexEscape(name), "' is not in the archive"));
  }
  std::lock_guard<std::mutex> lock(mutex);
  zip_stat_t stat;
  if (zip_stat_index(archive, found->second, 0, &stat) != 0) {
    return ArrayError(path, name, zip_strerror(archive));
  }
  absl::Status status = CheckEntry(stat, file.bytes.size());
  if (!status.ok()) return ArrayError(path, name, status.message());
  zip_file_t* entry = zip_fopen_index(archive, found->second, 0);
  if (entry == nullptr) return ArrayError(path, name, zip_strerror(archive));
  absl::Cleanup close = [entry] { zip_fclose(entry); };
  status = visit(entry, stat.size);
  return status.ok() ? status : ArrayError(path, name, status.message());
}

absl::StatusOr<TensorType> NpzFile::Type(absl::string_view name) const {
  TensorType type;
  WEFT_RETURN_IF_ERROR(impl_->Visit(name, [&](zip_file_t* file, uint64_t size) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(NpyHeader header, ReadHeader(file, size));
    type.dtype = header.dtype;
    type.dims = std::move(header.dims);
    return absl::OkStatus();
  }));
  return type;
}

absl::StatusOr<Tensor> NpzFile::Read(absl::string_view name) const {
  Tensor tensor;
  WEFT_RETURN_IF_ERROR(impl_->Visit(name, [&](zip_file_t* file, uint64_t size) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(tensor, ReadArray(file, size));
    return absl::OkStatus();
  }));
  return tensor;
}

absl::StatusOr<std::map<std::string, Tensor>> ReadNpz(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const NpzFile file, NpzFile::Open(path));
  std::map<std::string, Tensor> tensors;
  for (const std::string& name : file.names()) {
    WEFT_ASSIGN_OR_RETURN(tensors[name], file.Read(name));
  }
  return tensors;
}

namespace {

// An archive that is being written to memory.
class ZipWriter {
 public:
  ZipWriter() {
    zip_error_init(&error_);
    target_ = zip_source_buffer_create(nullptr, 0, 0, &error_);
    if (target_ == nullptr) return;
    zip_source_keep(target_);  // zip_close drops a reference; the bytes are read after it
    archive_ = zip_open_from_source(target_, ZIP_CREATE | ZIP_TRUNCATE, &error_);
    if (archive_ == nullptr) zip_source_free(target_);  // the reference that it did not take
  }
  ~ZipWriter() {
    if (archive_ != nullptr) zip_discard(archive_);
    if (target_ != nullptr) zip_source_free(target_);
    zip_error_fini(&error_);
  }
  ZipWriter(const ZipWriter&) = delete;
  ZipWriter& operator=(const ZipWriter&) = delete;

  // Both pieces of memory must live until Finish.
  absl::Status Add(const std::string& name, absl::string_view header, absl::string_view data) {
    if (archive_ == nullptr) return Error(zip_error_strerror(&error_));
    zip_buffer_fragment_t pieces[2] = {
        {reinterpret_cast<zip_uint8_t*>(const_cast<char*>(header.data())), header.size()},
        {reinterpret_cast<zip_uint8_t*>(const_cast<char*>(data.data())), data.size()}};
    zip_source_t* source = zip_source_buffer_fragment(archive_, pieces, data.empty() ? 1 : 2, 0);
    if (source == nullptr) return Error(zip_strerror(archive_));
    const zip_int64_t index =
        zip_file_add(archive_, (name + std::string(kSuffix)).c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      return Error(zip_strerror(archive_));
    }
    // 1 January 1980, the first day that the format has: the time of writing must not show.
    constexpr zip_uint16_t kFirstDay = 1 << 5 | 1;
    if (zip_set_file_compression(archive_, index, ZIP_CM_STORE, 0) != 0 ||
        zip_file_set_dostime(archive_, index, 0, kFirstDay, 0) != 0) {
      return Error(zip_strerror(archive_));
    }
    return absl::OkStatus();
  }

  // Closes the archive and hands its bytes to `file`.
  absl::Status Finish(AtomicFile* file) {
    if (archive_ == nullptr) return Error(zip_error_strerror(&error_));
    if (zip_close(archive_) != 0) return Error(zip_strerror(archive_));
    archive_ = nullptr;
    if (zip_source_open(target_) != 0) return SourceError();
    absl::Cleanup close = [this] { zip_source_close(target_); };
    std::string chunk(size_t{1} << 20, '\0');
    while (true) {
      const zip_int64_t n = zip_source_read(target_, &chunk[0], chunk.size());
      if (n < 0) return SourceError();
      if (n == 0) return absl::OkStatus();
      WEFT_RETURN_IF_ERROR(file->Write(absl::string_view(chunk.data(), n)));
    }
  }

 private:
  static absl::Status Error(absl::string_view what) {
    return absl::InternalError(absl::StrCat("cannot write the archive: ", what));
  }
  absl::Status SourceError() { return Error(zip_error_strerror(zip_source_error(target_))); }

  zip_error_t error_;
  zip_source_t* target_ = nullptr;
  zip_t* archive_ = nullptr;
};

absl::Status WriteArchive(const std::map<std::string, Tensor>& tensors, AtomicFile* file) {
  // An archive without entries is its end record alone; libzip would write nothing.
  if (tensors.empty()) return file->Write(absl::string_view("PK\5\6" + std::string(18, '\0')));
  std::vector<std::string> headers;
  headers.reserve(tensors.size());  // their bytes must stay where they are
  ZipWriter writer;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.allocated()) {
      return absl::InvalidArgumentError(absl::StrCat("array '", name, "' holds nothing"));
    }
    absl::StatusOr<std::string> header = NpyHeaderFor(tensor.dtype(), tensor.dims());
    if (!header.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("array '", name, "': ", header.status().message()));
    }
    headers.push_back(*std::move(header));
    WEFT_RETURN_IF_ERROR(
        writer.Add(name, headers.back(),
                   absl::string_view(static_cast<const char*>(tensor.raw()), tensor.bytes())));
  }
  return writer.Finish(file);
}

}  // namespace

absl::Status WriteNpz(const std::string& path, const std::map<std::string, Tensor>& tensors) {
  absl::Status status = [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
    WEFT_RETURN_IF_ERROR(WriteArchive(tensors, &file));
    return file.Commit();
  }();
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

}  // namespace weft
