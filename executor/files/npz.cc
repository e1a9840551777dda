#include "executor/files/npz.h"

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/available_memory.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/zip_archive.h"
#include "executor/files/npy.h"

namespace weft {
namespace {

constexpr absl::string_view kSuffix = ".npy";

absl::Status ArrayError(const std::string& path, absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": array '", absl::CHexEscape(name), "': ", what));
}

// Leaves `file` at the first element.
absl::StatusOr<NpyHeader> ReadHeader(ZipEntry& file) {
  const uint64_t size = file.size();
  std::string bytes(std::min<uint64_t>(size, kNpyPrefixBytes), '\0');
  WEFT_RETURN_IF_ERROR(file.Read(&bytes[0], bytes.size()));
  WEFT_ASSIGN_OR_RETURN(const size_t header_bytes, NpyHeaderBytes(bytes));
  bytes.resize(header_bytes);
  WEFT_RETURN_IF_ERROR(file.Read(&bytes[kNpyPrefixBytes], header_bytes - kNpyPrefixBytes));
  WEFT_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(bytes));
  if (size - header.header_bytes != header.data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shape ", DimsToString(header.dims), " of ", DTypeName(header.dtype), " takes ",
        header.data_bytes, " bytes, but ", size - header.header_bytes, " are present"));
  }
  return header;
}

absl::StatusOr<Tensor> ReadArray(ZipEntry& file) {
  WEFT_ASSIGN_OR_RETURN(const NpyHeader header, ReadHeader(file));
  Tensor tensor;
  tensor.Resize(header.dtype, header.dims);
  char* data = static_cast<char*>(tensor.raw());
  std::vector<char> fortran(header.is_fortran_order ? header.data_bytes : 0);
  WEFT_RETURN_IF_ERROR(
      file.Read(header.is_fortran_order ? fortran.data() : data, header.data_bytes));
  if (header.is_fortran_order) {
    CopyFromFortranOrder(fortran.data(), header.dims, SizeOf(header.dtype), data);
  }
  WEFT_RETURN_IF_ERROR(file.Finish());
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
  Impl(std::string path, ZipArchive archive) : path(std::move(path)), archive(std::move(archive)) {}

  // Opens the entry of an array.
  absl::Status Visit(absl::string_view name,
                     absl::FunctionRef<absl::Status(ZipEntry&)> visit) const {
    const auto found = index.find(name);
    if (found == index.end()) {
      return absl::NotFoundError(
          absl::StrCat(path, ": array '", absl::CHexEscape(name), "' is not in the archive"));
    }
    const absl::Status status = archive.Visit(found->second, visit);
    return status.ok() ? status : ArrayError(path, name, status.message());
  }

  std::string path;
  ZipArchive archive;
  std::vector<std::string> names;
  absl::flat_hash_map<std::string, uint64_t> index;
};

const std::string& NpzFile::path() const { return impl_->path; }
const std::vector<std::string>& NpzFile::names() const { return impl_->names; }

absl::StatusOr<NpzFile> NpzFile::Open(const std::string& path) {
  absl::StatusOr<FileBytes> file = ReadFile(path);
  WEFT_RETURN_IF_ERROR(Annotate(path, file.status()));
  absl::StatusOr<ZipArchive> archive = ZipArchive::Open(*std::move(file));
  WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat(path, ": not an .npz archive"), archive.status()));
  auto impl = std::make_shared<Impl>(path, *std::move(archive));
  for (uint64_t i = 0; i < impl->archive.num_entries(); ++i) {
    const std::string entry = impl->archive.NameOf(i);
    absl::string_view name = entry;
    if (!absl::ConsumeSuffix(&name, kSuffix)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": entry '", absl::CHexEscape(name),
                                                     "': expected a name that ends in .npy"));
    }
    if (!impl->index.emplace(name, i).second) return ArrayError(path, name, "it occurs twice");
    impl->names.emplace_back(name);
  }
  std::sort(impl->names.begin(), impl->names.end());
  return NpzFile(std::move(impl));
}

absl::StatusOr<TensorType> NpzFile::Type(absl::string_view name) const {
  TensorType type;
  WEFT_RETURN_IF_ERROR(impl_->Visit(name, [&](ZipEntry& file) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(NpyHeader header, ReadHeader(file));
    type.dtype = header.dtype;
    type.dims = std::move(header.dims);
    return absl::OkStatus();
  }));
  return type;
}

absl::StatusOr<Tensor> NpzFile::Read(absl::string_view name) const {
  Tensor tensor;
  WEFT_RETURN_IF_ERROR(impl_->Visit(name, [&](ZipEntry& file) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(tensor, ReadArray(file));
    return absl::OkStatus();
  }));
  return tensor;
}

absl::StatusOr<std::map<std::string, Tensor>> ReadNpz(const std::string& path,
                                                      const TensorCheck& check) {
  WEFT_ASSIGN_OR_RETURN(const NpzFile file, NpzFile::Open(path));
  uint64_t bytes = 0;
  for (const std::string& name : file.names()) {
    WEFT_ASSIGN_OR_RETURN(const TensorType type, file.Type(name));
    if (check) WEFT_RETURN_IF_ERROR(Annotate(path, check(name, type)));
    bytes += static_cast<uint64_t>(NumElements(type.dims)) * SizeOf(type.dtype);
  }
  WEFT_RETURN_IF_ERROR(
      Annotate(path, CheckFitsMemory("the sum of the arrays", bytes, AvailableMemory())));
  std::map<std::string, Tensor> tensors;
  for (const std::string& name : file.names()) {
    WEFT_ASSIGN_OR_RETURN(tensors[name], file.Read(name));
  }
  return tensors;
}

struct NpzWriter::Impl {
  // An unfinished archive gets no end record, which could go to a pipe.
  ~Impl() { discards = true; }

  // `data` is this. Errors are kept in `failure` and hidden from libarchive, which leaks memory if
  // it is abandoned after an error.
  static la_ssize_t Write(struct archive* archive, void* data, const void* bytes, size_t size) {
    Impl* impl = static_cast<Impl*>(data);
    if (!impl->discards && impl->failure.ok()) {
      impl->failure = impl->file->Write(absl::string_view(static_cast<const char*>(bytes), size));
    }
    return static_cast<la_ssize_t>(size);
  }

  absl::Status WriteArray(const std::string& name, const Tensor& tensor) {
    if (!tensor.allocated()) return absl::InvalidArgumentError("has no value");
    if (tensor.is_rows()) {
      return absl::InvalidArgumentError("holds SelectedRows; only dense tensors can be written");
    }
    WEFT_ASSIGN_OR_RETURN(const std::string header, NpyHeaderFor(tensor.dtype(), tensor.dims()));
    archive_entry* const entry = archive_entry_new();
    absl::Cleanup free = [entry] { archive_entry_free(entry); };
    archive_entry_set_pathname(entry, absl::StrCat(name, kSuffix).c_str());
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, static_cast<la_int64_t>(header.size() + tensor.bytes()));
    // No modification time, so that equal arrays give equal bytes.
    // libarchive expects names in the encoding of the thread's locale; these are UTF-8.
    const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    const locale_t previous = uselocale(utf8);  // null: unchanged
    absl::Cleanup restore = [&] {
      uselocale(previous);
      if (utf8 != nullptr) freelocale(utf8);
    };
    if (archive_write_header(archive.get(), entry) != ARCHIVE_OK || !failure.ok()) return Error();
    WEFT_RETURN_IF_ERROR(WriteData(header.data(), header.size()));
    return WriteData(tensor.raw(), tensor.bytes());
  }

  absl::Status WriteData(const void* data, size_t size) {
    const la_ssize_t written = archive_write_data(archive.get(), data, size);
    const bool done = written == static_cast<la_ssize_t>(size) && failure.ok();
    return done ? absl::OkStatus() : Error();
  }

  absl::Status Error() const {
    if (!failure.ok()) return failure;
    const char* const reason = archive_error_string(archive.get());
    return absl::InternalError(
        absl::StrCat("cannot write the archive: ", reason == nullptr ? "unknown" : reason));
  }

  absl::Status WithPath(const absl::Status& status) const { return Annotate(path, status); }

  std::string path;
  absl::optional<AtomicFile> file;
  absl::Status failure;
  bool discards = false;
  std::unique_ptr<struct archive, int (*)(struct archive*)> archive{nullptr, archive_write_free};
};

absl::StatusOr<NpzWriter> NpzWriter::Create(const std::string& path) {
  auto impl = std::make_shared<Impl>();
  impl->path = path;
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) return impl->WithPath(file.status());
  impl->file = *std::move(file);
  impl->archive.reset(archive_write_new());
  struct archive* const archive = impl->archive.get();
  if (archive == nullptr) return absl::ResourceExhaustedError(path + ": out of memory");
  if (archive_write_set_format_zip(archive) != ARCHIVE_OK ||
      archive_write_zip_set_compression_store(archive) != ARCHIVE_OK ||
      archive_write_set_bytes_in_last_block(archive, 1) != ARCHIVE_OK ||
      archive_write_open(archive, impl.get(), nullptr, Impl::Write, nullptr) != ARCHIVE_OK) {
    return impl->WithPath(impl->Error());
  }
  return NpzWriter(std::move(impl));
}

absl::Status NpzWriter::Add(const std::string& name, const Tensor& tensor) {
  const absl::Status status = impl_->WriteArray(name, tensor);
  if (!impl_->failure.ok()) return impl_->WithPath(status);
  return impl_->WithPath(Annotate(absl::StrCat("array '", absl::CHexEscape(name), "'"), status));
}

absl::Status NpzWriter::Finish() {
  if (archive_write_close(impl_->archive.get()) != ARCHIVE_OK || !impl_->failure.ok()) {
    return impl_->WithPath(impl_->Error());
  }
  return impl_->WithPath(impl_->file->Commit());
}

absl::Status WriteNpz(const std::string& path, const std::map<std::string, Tensor>& tensors) {
  WEFT_ASSIGN_OR_RETURN(NpzWriter writer, NpzWriter::Create(path));
  for (const auto& [name, tensor] : tensors) WEFT_RETURN_IF_ERROR(writer.Add(name, tensor));
  return writer.Finish();
}

}  // namespace weft
