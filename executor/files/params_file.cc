#include "executor/files/params_file.h"

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "executor/files/checkpoint.h"
#include "executor/files/npy.h"
#include "executor/files/pickle.h"
#include "executor/files/safetensors.h"
#include "nlohmann/json.hpp"
#include "proto/framework.pb.h"

namespace weft {
namespace {

using TensorDesc = ::paddle::framework::proto::VarType::TensorDesc;

// Consumes values from the front of the file's bytes.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : rest_(bytes) {}

  bool AtEnd() const { return rest_.empty(); }

  absl::StatusOr<absl::string_view> Bytes(uint64_t size, absl::string_view what) {
    if (size > rest_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("truncated: ", what, " takes ", size,
                                                     " bytes, but ", rest_.size(), " are left"));
    }
    const absl::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  template <typename T>
  absl::StatusOr<T> Number(absl::string_view what) {
    WEFT_ASSIGN_OR_RETURN(const absl::string_view bytes, Bytes(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

 private:
  absl::string_view rest_;
};

// A tensor as stored in the file.
struct Entry {
  DType dtype;
  Dims dims;
  absl::string_view data;
};

absl::Status ReadVersion(Reader& reader, absl::string_view of) {
  WEFT_ASSIGN_OR_RETURN(const uint32_t version,
                        reader.Number<uint32_t>(absl::StrCat("the version of the ", of)));
  if (version == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("version ", version, " of the ", of,
                                                 "; expected 0 (is this a save_combine file?)"));
}

absl::Status SkipLod(Reader& reader) {
  WEFT_ASSIGN_OR_RETURN(const uint64_t levels, reader.Number<uint64_t>("the number of LoD levels"));
  // No real file nests sequences this deeply. SelectedRows have their number of rows at this
  // position.
  constexpr uint64_t kMaxLevels = 16;
  if (levels > kMaxLevels) {
    return absl::InvalidArgumentError(absl::StrCat(
        levels, " LoD levels; expected a dense tensor (SelectedRows are not supported)"));
  }
  for (uint64_t level = 0; level < levels; ++level) {
    WEFT_ASSIGN_OR_RETURN(const uint64_t bytes, reader.Number<uint64_t>("the size of a LoD level"));
    WEFT_RETURN_IF_ERROR(reader.Bytes(bytes, "a LoD level").status());
  }
  return absl::OkStatus();
}

absl::StatusOr<Entry> EntryType(const TensorDesc& desc) {
  const absl::optional<DType> dtype =
      desc.has_data_type() ? DTypeFromProto(desc.data_type()) : absl::nullopt;
  if (!dtype) {
    return absl::InvalidArgumentError(
        desc.has_data_type()
            ? absl::StrCat("element type ", desc.data_type(), " is not supported")
            : "the description has no element type, or one that this version does not know");
  }
  Entry entry{*dtype, Dims(desc.dims().begin(), desc.dims().end()), {}};
  if (NumElements(entry.dims) < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("dimensions ", DimsToString(entry.dims), " are not all known"));
  }
  return entry;
}

absl::StatusOr<Entry> ReadEntry(Reader& reader) {
  WEFT_RETURN_IF_ERROR(ReadVersion(reader, "entry"));
  WEFT_RETURN_IF_ERROR(SkipLod(reader));
  WEFT_RETURN_IF_ERROR(ReadVersion(reader, "tensor"));
  WEFT_ASSIGN_OR_RETURN(const int32_t desc_bytes,
                        reader.Number<int32_t>("the size of the description"));
  if (desc_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("description of ", desc_bytes, " bytes"));
  }
  WEFT_ASSIGN_OR_RETURN(const absl::string_view desc_text,
                        reader.Bytes(desc_bytes, "the description"));
  TensorDesc desc;
  // Parses partially: a newer element type must not look like a broken file.
  if (!desc.ParsePartialFromArray(desc_text.data(), static_cast<int>(desc_text.size()))) {
    return absl::InvalidArgumentError("the description is not a TensorDesc");
  }
  WEFT_ASSIGN_OR_RETURN(Entry entry, EntryType(desc));
  WEFT_ASSIGN_OR_RETURN(const size_t data_bytes, ArrayBytes(entry.dtype, entry.dims));
  WEFT_ASSIGN_OR_RETURN(entry.data,
                        reader.Bytes(data_bytes, absl::StrCat("data of ", DTypeName(entry.dtype),
                                                              DimsToString(entry.dims))));
  return entry;
}

// Reads all entries. An error names the affected variable if the names reach that far.
absl::StatusOr<std::vector<Entry>> ReadEntries(absl::string_view bytes,
                                               absl::Span<const std::string> names) {
  Reader reader(bytes);
  std::vector<Entry> entries;
  while (!reader.AtEnd()) {
    absl::StatusOr<Entry> entry = ReadEntry(reader);
    if (!entry.ok()) {
      const size_t i = entries.size();
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", i, i < names.size() ? absl::StrCat(" (", names[i], ")") : "",
                       ": ", entry.status().message()));
    }
    entries.push_back(*std::move(entry));
  }
  return entries;
}

absl::Status CheckNames(absl::Span<const std::string> names) {
  std::set<absl::string_view> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) {
      return absl::InvalidArgumentError(absl::StrCat("variable '", name, "' is named twice"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, Tensor>> ParseSaveCombine(absl::string_view bytes,
                                                               absl::Span<const std::string> names,
                                                               const TensorCheck& check) {
  WEFT_RETURN_IF_ERROR(CheckNames(names));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Entry> entries, ReadEntries(bytes, names));
  if (entries.size() != names.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the file holds ", entries.size(), " tensors, but there are ", names.size(), " names"));
  }
  for (size_t i = 0; i < names.size() && check; ++i) {
    WEFT_RETURN_IF_ERROR(check(names[i], {entries[i].dtype, entries[i].dims}));
  }
  std::map<std::string, Tensor> tensors;
  for (size_t i = 0; i < names.size(); ++i) {
    Tensor& tensor = tensors[names[i]];
    tensor.Resize(entries[i].dtype, entries[i].dims);
    if (!entries[i].data.empty()) {
      std::memcpy(tensor.raw(), entries[i].data.data(), entries[i].data.size());
    }
  }
  return tensors;
}

template <typename T>
void AppendNumber(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

absl::Status WriteEntry(const Tensor& tensor, AtomicFile* file) {
  TensorDesc desc;
  desc.set_data_type(
      static_cast<::paddle::framework::proto::VarType::Type>(static_cast<int>(tensor.dtype())));
  for (int64_t dim : tensor.dims()) desc.add_dims(dim);
  const std::string desc_bytes = desc.SerializeAsString();
  std::string head;
  AppendNumber<uint32_t>(&head, 0);
  AppendNumber<uint64_t>(&head, 0);  // no LoD
  AppendNumber<uint32_t>(&head, 0);
  AppendNumber<int32_t>(&head, static_cast<int32_t>(desc_bytes.size()));
  head += desc_bytes;
  const absl::string_view pieces[] = {head,
                                      {static_cast<const char*>(tensor.raw()), tensor.bytes()}};
  return file->Write(pieces);
}

absl::StatusOr<std::vector<std::string>> ParseJsonNames(absl::string_view text) {
  const nlohmann::json json =
      nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  const absl::Status bad =
      absl::InvalidArgumentError("expected a JSON list of names, or one name per line");
  if (!json.is_array()) return bad;
  std::vector<std::string> names;
  for (const nlohmann::json& name : json) {
    if (!name.is_string()) return bad;
    names.push_back(name.get<std::string>());
  }
  return names;
}

enum class Format { kSaveCombine, kNpz, kSafetensors, kPickle };

Format FormatByName(absl::string_view path) {
  if (absl::EndsWith(path, ".npz")) return Format::kNpz;
  if (absl::EndsWith(path, ".safetensors")) return Format::kSafetensors;
  const bool is_pickle = absl::EndsWith(path, ".pdparams") || absl::EndsWith(path, ".pdopt");
  return is_pickle ? Format::kPickle : Format::kSaveCombine;
}

// Of a file that exists: by its first bytes, and by its name if they do not tell.
Format FormatOf(const std::string& path) {
  constexpr size_t kLengthBytes = 8;  // of the header of .safetensors, which begins with {
  char head[kLengthBytes + 1] = {};
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return FormatByName(path);
  std::ifstream(path, std::ios::binary).read(head, sizeof(head));
  const absl::string_view bytes(head, sizeof(head));
  if (absl::StartsWith(bytes, "PK\x03\x04")) return Format::kNpz;
  if (bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5) return Format::kPickle;
  const bool has_header =
      absl::EndsWith(bytes, "{") && bytes.substr(4, 4) == absl::string_view("\0\0\0\0", 4);
  return has_header ? Format::kSafetensors : FormatByName(path);
}

// Of a .pdparams file and the .pdopt file beside it, or of one file.
absl::StatusOr<std::map<std::string, Tensor>> ReadPickles(const std::string& path,
                                                          const TensorCheck& check,
                                                          std::set<std::string>* of_pdopt) {
  WEFT_ASSIGN_OR_RETURN(auto tensors, ReadPickle(path, check));
  const std::string beside = PdoptBeside(path);
  if (beside.empty() || access(beside.c_str(), F_OK) != 0) return tensors;
  WEFT_ASSIGN_OR_RETURN(auto others, ReadPickle(beside, check));
  for (auto& [name, tensor] : others) {
    if (tensors.emplace(name, std::move(tensor)).second && of_pdopt != nullptr) {
      of_pdopt->insert(name);
    }
  }
  return tensors;
}

bool IsFolder(absl::string_view path) {
  std::error_code ignored;
  return std::filesystem::is_directory(std::string(path), ignored);
}

// The files of a folder, those of its folders too (a variable may be called "encoder/w_0").
absl::StatusOr<std::set<std::string>> FilesIn(const std::string& folder) {
  std::set<std::string> files;
  std::error_code error;
  auto entry = std::filesystem::recursive_directory_iterator(folder, error);
  for (; !error && entry != std::filesystem::recursive_directory_iterator();
       entry.increment(error)) {
    const bool is_hidden = absl::StartsWith(entry->path().filename().string(), ".");
    if (entry->is_directory(error)) {
      if (is_hidden) entry.disable_recursion_pending();
    } else if (!is_hidden) {
      files.insert(entry->path().lexically_relative(folder).string());
    }
    if (error) break;
  }
  if (error) return absl::UnavailableError(absl::StrCat(folder, ": ", error.message()));
  files.erase("__model__");
  return files;
}

absl::StatusOr<std::map<std::string, Tensor>> ReadFolder(const std::string& folder,
                                                         const TensorCheck& check) {
  WEFT_ASSIGN_OR_RETURN(const std::set<std::string> names, FilesIn(folder));
  if (names.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": expected a file for each variable, found an empty folder"));
  }
  std::map<std::string, Tensor> tensors;
  for (const std::string& name : names) {
    WEFT_ASSIGN_OR_RETURN(auto tensor,
                          ReadSaveCombine(absl::StrCat(folder, "/", name), {name}, check));
    tensors.merge(tensor);
  }
  return tensors;
}

}  // namespace

absl::StatusOr<std::map<std::string, Tensor>> ReadSaveCombine(const std::string& path,
                                                              absl::Span<const std::string> names,
                                                              const TensorCheck& check) {
  absl::StatusOr<FileBytes> file = ReadFile(path);
  if (!file.ok()) return Annotate(path, file.status());
  absl::StatusOr<std::map<std::string, Tensor>> tensors =
      ParseSaveCombine(file->bytes, names, check);
  if (!tensors.ok()) return Annotate(path, tensors.status());
  return tensors;
}

absl::StatusOr<std::vector<std::string>> ReadNameList(const std::string& path) {
  absl::StatusOr<FileBytes> file = ReadFile(path);
  if (!file.ok()) return Annotate(path, file.status());
  const absl::string_view text = absl::StripAsciiWhitespace(file->bytes);
  if (absl::StartsWith(text, "[")) {
    absl::StatusOr<std::vector<std::string>> names = ParseJsonNames(text);
    if (!names.ok()) return Annotate(path, names.status());
    return names;
  }
  std::vector<std::string> names;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!line.empty()) names.emplace_back(line);
  }
  return names;
}

bool HasNames(absl::string_view path) {
  return IsFolder(path) || FormatOf(std::string(path)) != Format::kSaveCombine;
}

std::string PdoptBeside(const std::string& path) {
  absl::string_view stem = path;
  return absl::ConsumeSuffix(&stem, ".pdparams") ? absl::StrCat(stem, ".pdopt") : "";
}

absl::StatusOr<std::map<std::string, Tensor>> LoadParams(const std::string& path,
                                                         const std::string& names_path,
                                                         const TensorCheck& check,
                                                         std::set<std::string>* of_pdopt) {
  const Format format = FormatOf(path);
  if (HasNames(path) && !names_path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        IsFolder(path)              ? ": the files of a folder have the names of the variables"
        : format == Format::kNpz    ? ": an .npz file has the names of its arrays"
        : format == Format::kPickle ? ": the file has the names of its arrays"
                                    : ": a .safetensors file has the names of its tensors",
        "; it takes no list of names"));
  }
  if (IsFolder(path)) return ReadFolder(path, check);
  if (format == Format::kNpz) return ReadNpz(path, check);
  if (format == Format::kPickle) return ReadPickles(path, check, of_pdopt);
  if (format == Format::kSafetensors) {
    WEFT_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
    if (IsCheckpoint(file)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path,
          ": expected parameters, found a checkpoint of weft run, which option:resume reads"));
    }
    return ReadSafetensors(path, check);
  }
  if (names_path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a save_combine file needs a list of its names"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ReadNameList(names_path));
  return ReadSaveCombine(path, names, check);
}

absl::Status SaveParams(const std::string& path, const std::map<std::string, Tensor>& tensors) {
  const Format format = FormatByName(path);
  if (format == Format::kNpz) return WriteNpz(path, tensors);
  if (format == Format::kPickle) return WritePickles({{path, &tensors}});
  if (format == Format::kSafetensors) return WriteSafetensors(path, tensors);
  return Annotate(path, [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
    for (const auto& [name, tensor] : tensors) {
      if (!tensor.allocated()) {
        return absl::InvalidArgumentError(absl::StrCat("variable '", name, "' has no value"));
      }
      if (tensor.is_rows()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "variable '", name, "' holds SelectedRows; only dense tensors can be written"));
      }
      WEFT_RETURN_IF_ERROR(WriteEntry(tensor, &file));
    }
    return file.Commit();
  }());
}

}  // namespace weft
