#include "executor/files/pickle.h"

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/annotate.h"
#include "base/available_memory.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "executor/files/npy.h"
#include "executor/files/pickle_machine.h"

namespace weft {
namespace {

using Kind = PickleObject::Kind;

// Of a dictionary that paddle.save writes for the parameters of a layer: names in the structure of
// the layer -> names of parameters.
constexpr absl::string_view kNameTable = "StructuredToParameterName@@";
// Of a file of protocol 2 or 3 whose arrays are in slices of a gibibyte.
constexpr absl::string_view kSlices = "UnpackBigParamInfor@@";

// The entries of a dictionary by key, which must be texts.
absl::StatusOr<std::map<std::string, uint32_t>> EntriesOf(const PickleMachine& machine,
                                                          uint32_t dictionary) {
  const PickleObject& object = machine.object(dictionary);
  if (object.kind != Kind::kDict) {
    return absl::InvalidArgumentError("expected a dictionary of arrays");
  }
  std::map<std::string, uint32_t> entries;
  for (size_t i = 0; i + 1 < object.items.size(); i += 2) {
    const PickleObject& key = machine.object(object.items[i]);
    if (key.kind != Kind::kText) {
      return absl::InvalidArgumentError("expected a dictionary of arrays by name");
    }
    entries[std::string(key.text)] = object.items[i + 1];
  }
  return entries;
}

struct Arrays {
  std::map<std::string, const PickleObject*> by_name;
  uint64_t bytes = 0;
};

absl::Status AddArray(std::string name, const PickleObject& array, const TensorCheck& check,
                      Arrays* arrays) {
  if (!array.is_complete) {
    return absl::InvalidArgumentError(
        absl::StrCat("array ", absl::CHexEscape(name), " has no elements"));
  }
  if (check) WEFT_RETURN_IF_ERROR(check(name, {array.dtype, array.dims}));
  arrays->bytes += array.text.size();
  if (arrays->by_name.emplace(name, &array).second) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("two arrays are named ", absl::CHexEscape(name)));
}

absl::StatusOr<Arrays> FindArrays(const PickleMachine& machine, uint32_t root,
                                  const TensorCheck& check) {
  WEFT_ASSIGN_OR_RETURN(const auto entries, EntriesOf(machine, root));
  std::map<std::string, uint32_t> table;
  const auto has_table = entries.find(std::string(kNameTable));
  if (has_table != entries.end()) {
    WEFT_ASSIGN_OR_RETURN(table, EntriesOf(machine, has_table->second));
  }
  Arrays arrays;
  for (const auto& [key, number] : entries) {
    if (key == kSlices) {
      return absl::InvalidArgumentError(
          "arrays are in slices, as protocols 2 and 3 have them; write the file with protocol=4");
    }
    const PickleObject* value = &machine.object(number);
    std::string name = key;
    if (value->kind == Kind::kTuple && value->items.size() == 2) {
      const PickleObject& first = machine.object(value->items[0]);
      const PickleObject& second = machine.object(value->items[1]);
      if (first.kind == Kind::kText && second.kind == Kind::kArray) value = &second;
    }
    const auto renamed = table.find(key);
    if (renamed != table.end() && machine.object(renamed->second).kind == Kind::kText) {
      name = std::string(machine.object(renamed->second).text);
    }
    if (value->kind != Kind::kArray) continue;
    WEFT_RETURN_IF_ERROR(AddArray(std::move(name), *value, check, &arrays));
  }
  return arrays;
}

absl::Status CheckBools(const std::string& name, absl::string_view bytes) {
  for (const char byte : bytes) {
    if (byte == 0 || byte == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("array ", absl::CHexEscape(name), ": an element is neither true nor false"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, Tensor>> ParsePickle(absl::string_view bytes,
                                                          const TensorCheck& check) {
  if (!absl::StartsWith(bytes, "\x80")) {
    return absl::InvalidArgumentError(
        "it is no pickle of protocol 2 or later, as paddle.static.save writes it");
  }
  PickleMachine machine(bytes);
  WEFT_ASSIGN_OR_RETURN(const uint32_t root, machine.Run());
  WEFT_ASSIGN_OR_RETURN(const Arrays arrays, FindArrays(machine, root, check));
  // Arrays may share their elements, as tied weights do.
  if (arrays.bytes / 2 > bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the arrays have ", arrays.bytes,
                                                   " bytes, but the pickle has ", bytes.size()));
  }
  WEFT_RETURN_IF_ERROR(CheckFitsMemory("the sum of the arrays", arrays.bytes, AvailableMemory()));
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, array] : arrays.by_name) {
    Tensor& tensor = tensors[name];
    tensor.Resize(array->dtype, array->dims);
    if (array->dtype == DType::kBool) WEFT_RETURN_IF_ERROR(CheckBools(name, array->text));
    auto* const to = static_cast<char*>(tensor.raw());
    if (array->is_fortran_order) {
      CopyFromFortranOrder(array->text.data(), array->dims, SizeOf(array->dtype), to);
    } else if (!array->text.empty()) {
      std::memcpy(to, array->text.data(), array->text.size());
    }
  }
  return tensors;
}

template <typename T>
void AppendNumber(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendText(std::string* out, absl::string_view text) {
  *out += 'X';
  AppendNumber(out, static_cast<uint32_t>(text.size()));
  out->append(text.data(), text.size());
}

void AppendGlobal(std::string* out, absl::string_view module, absl::string_view name) {
  AppendText(out, module);
  AppendText(out, name);
  *out += '\x93';
}

void AppendInt(std::string* out, int64_t value) {
  *out += "\x8a\x08";
  AppendNumber(out, value);
}

// The name of an element type without its byte order.
absl::StatusOr<std::string> DTypeText(DType dtype) {
  if (dtype == DType::kBFloat16) return std::string("u2");
  WEFT_ASSIGN_OR_RETURN(const std::string header, NpyHeaderFor(dtype, {}));
  const size_t quote = header.find("': '");
  return header.substr(quote + 5, 2);  // of "'descr': '<f4'"
}

// What makes an array but for its elements: numpy.core.multiarray._reconstruct(ndarray, (0,),
// b'b'), and the state up to the elements.
absl::StatusOr<std::string> ArrayHead(const std::string& name, const Tensor& tensor) {
  std::string head;
  AppendText(&head, name);
  AppendGlobal(&head, "numpy.core.multiarray", "_reconstruct");
  AppendGlobal(&head, "numpy", "ndarray");
  head.append(
      "K\0\x85"
      "C\x01"
      "b\x87R(K\x01(",
      12);
  for (int64_t dim : tensor.dims()) AppendInt(&head, dim);
  head += 't';
  AppendGlobal(&head, "numpy", "dtype");
  WEFT_ASSIGN_OR_RETURN(const std::string dtype, DTypeText(tensor.dtype()));
  AppendText(&head, dtype);
  // dtype(NAME, False, True) with the state (3, '<' or '|', None, None, None, -1, -1, 0).
  head += "\x89\x88\x87R(K\x03";
  AppendText(&head, SizeOf(tensor.dtype()) == 1 ? "|" : "<");
  head.append("NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89\x8e", 19);
  AppendNumber(&head, static_cast<uint64_t>(tensor.bytes()));
  return head;
}

// Not yet in its place.
absl::StatusOr<AtomicFile> WrittenFile(const PickleFile& to) {
  WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(to.path));
  WEFT_RETURN_IF_ERROR(file.Write(absl::string_view("\x80\x04}(")));
  for (const auto& [name, tensor] : *to.tensors) {
    if (!tensor.allocated() || tensor.is_rows()) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable ", name,
                       tensor.is_rows() ? " holds SelectedRows; only dense tensors can be written"
                                        : " has no value"));
    }
    const absl::StatusOr<std::string> head = ArrayHead(name, tensor);
    if (!head.ok()) return Annotate(absl::StrCat("variable ", name), head.status());
    const absl::string_view pieces[] = {
        *head, {static_cast<const char*>(tensor.raw()), tensor.bytes()}, "tb"};
    WEFT_RETURN_IF_ERROR(file.Write(pieces));
  }
  WEFT_RETURN_IF_ERROR(file.Write(absl::string_view("u.")));
  return file;
}

}  // namespace

absl::StatusOr<std::map<std::string, Tensor>> ReadPickle(const std::string& path,
                                                         const TensorCheck& check) {
  absl::StatusOr<FileBytes> file = ReadFile(path);
  if (!file.ok()) return Annotate(path, file.status());
  absl::StatusOr<std::map<std::string, Tensor>> tensors = ParsePickle(file->bytes, check);
  if (!tensors.ok()) return Annotate(path, tensors.status());
  return tensors;
}

absl::Status WritePickles(absl::Span<const PickleFile> files) {
  std::vector<std::pair<std::string, AtomicFile>> written;
  for (const PickleFile& file : files) {
    absl::StatusOr<AtomicFile> one = WrittenFile(file);
    if (!one.ok()) return Annotate(file.path, one.status());
    written.emplace_back(file.path, *std::move(one));
  }
  return ReplaceTogether(std::move(written));
}

}  // namespace weft
