#include "proto/formats/pir/value_type.h"

#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "proto/formats/pir/json_cursor.h"

namespace weft::pir {
namespace {

struct DTypeRow {
  absl::string_view type;       // "0.t_f32"
  absl::string_view attribute;  // "float32"
  pb::VarType::Type dtype;
};

constexpr DTypeRow kDTypes[] = {
    {"0.t_bool", "bool", pb::VarType::BOOL},
    {"0.t_i8", "int8", pb::VarType::INT8},
    {"0.t_ui8", "uint8", pb::VarType::UINT8},
    {"0.t_i16", "int16", pb::VarType::INT16},
    {"0.t_i32", "int32", pb::VarType::INT32},
    {"0.t_i64", "int64", pb::VarType::INT64},
    {"0.t_f16", "float16", pb::VarType::FP16},
    {"0.t_bf16", "bfloat16", pb::VarType::BF16},
    {"0.t_f32", "float32", pb::VarType::FP32},
    {"0.t_f64", "float64", pb::VarType::FP64},
    {"0.t_c64", "complex64", pb::VarType::COMPLEX64},
    {"0.t_c128", "complex128", pb::VarType::COMPLEX128},
};

// Types of values that begin with an element type and dimensions.
struct ContainerRow {
  absl::string_view kind;
  pb::VarType::Type variable;
};
constexpr ContainerRow kContainers[] = {
    {"0.t_dtensor", pb::VarType::LOD_TENSOR},
    {"1.t_dense_tensor_array", pb::VarType::LOD_TENSOR_ARRAY},
    {"1.t_sparse_coo_tensor", pb::VarType::SPARSE_COO},
    {"1.t_sparse_csr_tensor", pb::VarType::SPARSE_CSR},
};

const ContainerRow* FindContainer(absl::string_view kind) {
  const auto* const row = absl::c_find_if(
      kContainers, [&](const ContainerRow& container) { return container.kind == kind; });
  return row == std::end(kContainers) ? nullptr : row;
}

absl::Status Expected(absl::string_view what, absl::string_view found) {
  return absl::InvalidArgumentError(absl::StrCat("type: expected ", what, ", found ",
                                                 absl::Utf8SafeCHexEscape(found.substr(0, 64))));
}

absl::StatusOr<pb::VarType::Type> ElementType(absl::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.type == name) return row.dtype;
  }
  return Expected("an element type such as 0.t_f32", name);
}

}  // namespace

bool ReadTyped(JsonCursor* in, absl::string_view* kind, absl::string_view* data) {
  bool seen_kind = false, seen_data = false;
  return in->ReadObject([&](absl::string_view key) {
    if (key == "#") return in->Once(&seen_kind) && in->ReadString(kind);
    if (key == "D") return in->Once(&seen_data) && in->SkipValue(data);
    if (key == "VD") {  // a number that JSON does not have
      const bool is_read = in->Once(&seen_data) && in->ReadString(data);
      const bool is_known = is_read && (*data == "INF" || *data == "-INF" || *data == "NaN");
      return is_known || in->Fail("INF, -INF or NaN (VD)");
    }
    return in->SkipValue();
  });
}

absl::StatusOr<ValueType> ReadType(absl::string_view json) {
  ValueType type;
  absl::string_view kind, data, dtype, unused;
  JsonCursor in(json);
  if (!ReadTyped(&in, &kind, &data)) return Expected("an object of # and D, once each", json);
  if (kind == "NULL") {
    type.kind = ValueType::Kind::kNull;
  } else if (kind == "0.t_vec") {
    type.kind = ValueType::Kind::kList;
    JsonCursor list(data);
    list.ReadArray([&] {
      ++type.list_size;
      return list.SkipValue();
    });
    if (!list.ok()) return Expected("a list of types", json);
  } else if (const ContainerRow* const row = FindContainer(kind)) {
    type.variable = row->variable;
    if (row->variable == pb::VarType::LOD_TENSOR) type.kind = ValueType::Kind::kTensor;
    JsonCursor list(data);
    int i = 0;
    list.ReadArray([&] {
      ++i;
      if (i == 1) return ReadTyped(&list, &dtype, &unused);
      if (i != 2) return list.SkipValue();
      return list.ReadArray([&] { return list.ReadInteger(&type.dims.emplace_back()); });
    });
    if (!list.ok() || i < 2) return Expected("element type and dimensions", json);
    WEFT_ASSIGN_OR_RETURN(type.dtype, ElementType(dtype));
  }
  return type;
}

absl::StatusOr<std::string> TensorTypeJson(pb::VarType::Type dtype,
                                           const std::vector<int64_t>& dims) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype != dtype) continue;
    return absl::StrCat(R"({"#":"0.t_dtensor","D":[{"#":")", row.type, R"("},[)",
                        absl::StrJoin(dims, ","), R"(],"NCHW",[],0]})");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected an element type that PIR files name, found ", dtype));
}

std::string ListTypeJson(absl::Span<const std::string> types) {
  return absl::StrCat(R"({"#":"0.t_vec","D":[)", absl::StrJoin(types, ","), "]}");
}

absl::StatusOr<absl::string_view> DTypeName(pb::VarType::Type dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype == dtype) return row.attribute;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected an element type that PIR files name, found ", dtype));
}

absl::optional<pb::VarType::Type> DTypeOfName(absl::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.attribute == name) return row.dtype;
  }
  return absl::nullopt;
}

bool IsIntegerType(pb::VarType::Type dtype) {
  return dtype == pb::VarType::INT8 || dtype == pb::VarType::UINT8 || dtype == pb::VarType::INT16 ||
         dtype == pb::VarType::INT32 || dtype == pb::VarType::INT64;
}

}  // namespace weft::pir
