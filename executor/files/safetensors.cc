#include "executor/files/safetensors.h"

#include <cstdint>
#include <cstring>
#include <iterator>
#include <set>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/available_memory.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "executor/files/npy.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr char kMetadataKey[] = "__metadata__";
constexpr size_t kPrefixBytes = 8;
// The limit of Hugging Face's library.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
// Of the whole header: an object of objects of lists.
constexpr int kMaxDepth = 3;

struct DTypeCode {
  DType dtype;
  absl::string_view code;
};

constexpr DTypeCode kDTypeCodes[] = {
    {DType::kBool, "BOOL"},   {DType::kUint8, "U8"},           {DType::kInt8, "I8"},
    {DType::kInt16, "I16"},   {DType::kInt32, "I32"},          {DType::kInt64, "I64"},
    {DType::kFloat16, "F16"}, {DType::kBFloat16, "BF16"},      {DType::kFloat32, "F32"},
    {DType::kFloat64, "F64"}, {DType::kFloat8E4M3, "F8_E4M3"}, {DType::kFloat8E5M2, "F8_E5M2"},
};

std::string Named(absl::string_view name) {
  return absl::StrCat("tensor '", absl::Utf8SafeCHexEscape(name), "'");
}

// Where the elements of a tensor are, counted from the end of the header.
struct Entry {
  TensorType type;
  uint64_t begin = 0, end = 0;
};

absl::StatusOr<DType> ParseCode(const std::string& code) {
  const auto* found =
      absl::c_find_if(kDTypeCodes, [&](const DTypeCode& known) { return known.code == code; });
  if (found != std::end(kDTypeCodes)) return found->dtype;
  return absl::InvalidArgumentError(
      absl::StrCat("element type ", absl::Utf8SafeCHexEscape(code), " is not supported"));
}

// A list of integers from 0 to INT64_MAX.
absl::optional<std::vector<int64_t>> ParseList(const Json& json) {
  if (!json.is_array()) return absl::nullopt;
  std::vector<int64_t> list;
  for (const Json& number : json) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() > uint64_t{INT64_MAX}) {
      return absl::nullopt;
    }
    list.push_back(number.get<int64_t>());
  }
  return list;
}

absl::StatusOr<Entry> ParseEntry(const Json& json, uint64_t data_bytes) {
  const absl::Status bad = absl::InvalidArgumentError(
      "expected {\"dtype\": ..., \"shape\": ..., \"data_offsets\": ...}");
  if (!json.is_object() || json.size() != 3) return bad;
  const auto dtype = json.find("dtype");
  const auto shape = json.find("shape");
  const auto offsets = json.find("data_offsets");
  if (dtype == json.end() || shape == json.end() || offsets == json.end()) return bad;
  if (!dtype->is_string()) return bad;
  Entry entry;
  WEFT_ASSIGN_OR_RETURN(entry.type.dtype, ParseCode(dtype->get<std::string>()));
  const auto dims = ParseList(*shape), range = ParseList(*offsets);
  if (!dims.has_value()) return absl::InvalidArgumentError("its shape is no list of sizes");
  if (!range.has_value() || range->size() != 2 || (*range)[0] > (*range)[1]) {
    return absl::InvalidArgumentError("its data_offsets are not [begin, end]");
  }
  entry.type.dims.assign(dims->begin(), dims->end());
  entry.begin = (*range)[0];
  entry.end = (*range)[1];
  if (entry.end > data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("its data end at ", entry.end,
                                                   ", but there are ", data_bytes,
                                                   " bytes (a truncated file?)"));
  }
  WEFT_ASSIGN_OR_RETURN(const size_t bytes, ArrayBytes(entry.type.dtype, entry.type.dims));
  if (bytes == entry.end - entry.begin) return entry;
  return absl::InvalidArgumentError(absl::StrCat(ToString(entry.type), " takes ", bytes,
                                                 " bytes, but its data_offsets span ",
                                                 entry.end - entry.begin));
}

// Parses the header. nlohmann::json keeps one of several values of a name, and says nothing.
absl::StatusOr<Json> ParseHeader(absl::string_view text) {
  std::vector<std::set<std::string>> names;  // of the open objects
  absl::Status bad;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) bad.Update(absl::InvalidArgumentError("its header nests too deeply"));
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!names.back().insert(name).second) {
        bad.Update(absl::InvalidArgumentError(
            absl::StrCat("its header has '", absl::Utf8SafeCHexEscape(name), "' twice")));
      }
    }
    return bad.ok();  // false: drops the value
  };
  Json json = Json::parse(text.begin(), text.end(), check, /*allow_exceptions=*/false);
  WEFT_RETURN_IF_ERROR(bad);
  if (json.is_discarded() || !json.is_object()) {
    return absl::InvalidArgumentError("its header is no JSON object");
  }
  return json;
}

absl::StatusOr<Metadata> ParseMetadata(const Json& json) {
  const absl::Status bad = absl::InvalidArgumentError("its __metadata__ is no object of texts");
  if (!json.is_object()) return bad;
  Metadata metadata;
  for (const auto& [key, text] : json.items()) {
    if (!text.is_string()) return bad;
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

// Data must fill the file without gaps: what nothing describes may be a damaged header.
absl::Status CheckCoverage(const std::map<std::string, Entry>& entries, uint64_t data_bytes) {
  std::vector<std::pair<const Entry*, const std::string*>> order;
  for (const auto& [name, entry] : entries) order.emplace_back(&entry, &name);
  absl::c_sort(order, [](const auto& a, const auto& b) {
    return std::make_pair(a.first->begin, a.first->end) <
           std::make_pair(b.first->begin, b.first->end);
  });
  uint64_t end = 0;
  for (const auto& [entry, name] : order) {
    if (entry->begin < end) {
      return absl::InvalidArgumentError(
          absl::StrCat(Named(*name), ": its data overlap another tensor"));
    }
    if (entry->begin > end) {
      return absl::InvalidArgumentError(absl::StrCat(Named(*name), ": ", entry->begin - end,
                                                     " bytes before it are of no tensor"));
    }
    end = entry->end;
  }
  if (end == data_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the last ", data_bytes - end, " bytes are of no tensor"));
}

absl::Status CheckBools(absl::string_view bytes) {
  const auto bad = absl::c_find_if(bytes, [](char c) { return static_cast<uint8_t>(c) > 1; });
  if (bad == bytes.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("element ", bad - bytes.begin(), " is neither true nor false"));
}

absl::StatusOr<absl::string_view> CodeOf(const std::string& name, const Tensor& tensor) {
  if (name == kMetadataKey) return absl::InvalidArgumentError("the name has another meaning");
  if (!tensor.allocated()) return absl::InvalidArgumentError("has no value");
  if (tensor.is_rows()) {
    return absl::InvalidArgumentError("holds SelectedRows; only dense tensors can be written");
  }
  for (const DTypeCode& known : kDTypeCodes) {
    if (known.dtype == tensor.dtype()) return known.code;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("safetensors has no element type for ", DTypeName(tensor.dtype())));
}

}  // namespace

struct SafetensorsFile::Impl {
  absl::Status Parse() {
    const absl::string_view bytes = file.bytes;
    uint64_t header_bytes = 0;
    if (bytes.size() < kPrefixBytes) {
      return absl::InvalidArgumentError(absl::StrCat("truncated: a safetensors file begins with ",
                                                     kPrefixBytes, " bytes, found ", bytes.size()));
    }
    std::memcpy(&header_bytes, bytes.data(), kPrefixBytes);
    if (header_bytes > kMaxHeaderBytes) {
      return absl::InvalidArgumentError(absl::StrCat("its header has ", header_bytes,
                                                     " bytes; expected at most ", kMaxHeaderBytes,
                                                     " (is this a safetensors file?)"));
    }
    if (header_bytes > bytes.size() - kPrefixBytes) {
      return absl::InvalidArgumentError(absl::StrCat("truncated: its header has ", header_bytes,
                                                     " bytes, but ", bytes.size() - kPrefixBytes,
                                                     " are left"));
    }
    WEFT_ASSIGN_OR_RETURN(const Json json, ParseHeader(bytes.substr(kPrefixBytes, header_bytes)));
    data = bytes.substr(kPrefixBytes + header_bytes);
    for (const auto& [name, value] : json.items()) {
      if (name == kMetadataKey) {
        WEFT_ASSIGN_OR_RETURN(metadata, ParseMetadata(value));
        continue;
      }
      absl::StatusOr<Entry> entry = ParseEntry(value, data.size());
      if (!entry.ok()) return Annotate(Named(name), entry.status());
      types[name] = entry->type;
      entries[name] = *std::move(entry);
    }
    return CheckCoverage(entries, data.size());
  }

  std::string path;
  FileBytes file;
  absl::string_view data;  // after the header
  Metadata metadata;
  std::map<std::string, TensorType> types;
  std::map<std::string, Entry> entries;
};

const std::string& SafetensorsFile::path() const { return impl_->path; }
const Metadata& SafetensorsFile::metadata() const { return impl_->metadata; }
const std::map<std::string, TensorType>& SafetensorsFile::types() const { return impl_->types; }

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  auto impl = std::make_shared<Impl>();
  impl->path = path;
  absl::StatusOr<FileBytes> file = ReadFile(path);
  if (!file.ok()) return Annotate(path, file.status());
  impl->file = *std::move(file);
  WEFT_RETURN_IF_ERROR(Annotate(path, impl->Parse()));
  return SafetensorsFile(std::move(impl));
}

absl::StatusOr<Tensor> SafetensorsFile::Read(const std::string& name) const {
  const std::string subject = absl::StrCat(impl_->path, ": ", Named(name));
  const auto found = impl_->entries.find(name);
  if (found == impl_->entries.end()) {
    return absl::NotFoundError(absl::StrCat(subject, " is not in the file"));
  }
  const Entry& entry = found->second;
  const absl::string_view bytes = impl_->data.substr(entry.begin, entry.end - entry.begin);
  if (entry.type.dtype == DType::kBool) {
    WEFT_RETURN_IF_ERROR(Annotate(subject, CheckBools(bytes)));
  }
  Tensor tensor;
  tensor.Resize(entry.type.dtype, entry.type.dims);
  if (!bytes.empty()) std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  return tensor;
}

absl::StatusOr<std::map<std::string, Tensor>> ReadSafetensors(const std::string& path,
                                                              const TensorCheck& check) {
  WEFT_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  uint64_t bytes = 0;
  for (const auto& [name, type] : file.types()) {
    if (check) WEFT_RETURN_IF_ERROR(Annotate(path, check(name, type)));
    bytes += static_cast<uint64_t>(NumElements(type.dims)) * SizeOf(type.dtype);
  }
  WEFT_RETURN_IF_ERROR(
      Annotate(path, CheckFitsMemory("the sum of the tensors", bytes, AvailableMemory())));
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, type] : file.types()) {
    WEFT_ASSIGN_OR_RETURN(tensors[name], file.Read(name));
  }
  return tensors;
}

absl::Status WriteSafetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                              const Metadata& metadata) {
  return Annotate(path, [&]() -> absl::Status {
    std::vector<const std::pair<const std::string, Tensor>*> order;
    for (const auto& named : tensors) order.push_back(&named);
    absl::c_stable_sort(order, [](const auto* a, const auto* b) {
      return SizeOf(a->second.dtype()) > SizeOf(b->second.dtype());
    });
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) header[kMetadataKey] = metadata;
    std::vector<absl::string_view> pieces(2);
    size_t end = 0;
    for (const auto* named : order) {
      const auto& [name, tensor] = *named;
      const absl::StatusOr<absl::string_view> code = CodeOf(name, tensor);
      if (!code.ok()) return Annotate(Named(name), code.status());
      const size_t begin = end;
      end += tensor.bytes();
      header[name] = {{"dtype", std::string(*code)},
                      {"shape", std::vector<int64_t>(tensor.dims().begin(), tensor.dims().end())},
                      {"data_offsets", {begin, end}}};
      pieces.emplace_back(static_cast<const char*>(tensor.raw()), tensor.bytes());
    }
    std::string text;
    try {
      text = header.dump();
    } catch (const nlohmann::json::type_error&) {
      return absl::InvalidArgumentError("the name of a tensor or the metadata are not UTF-8");
    }
    // The elements are aligned.
    text.resize((text.size() + kPrefixBytes - 1) / kPrefixBytes * kPrefixBytes, ' ');
    const uint64_t header_bytes = text.size();
    if (header_bytes > kMaxHeaderBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the header would have ", header_bytes,
                                                     " bytes, more than ", kMaxHeaderBytes));
    }
    pieces[0] = {reinterpret_cast<const char*>(&header_bytes), kPrefixBytes};
    pieces[1] = text;
    WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
    WEFT_RETURN_IF_ERROR(file.Write(pieces));
    return file.Commit();
  }());
}

}  // namespace weft
