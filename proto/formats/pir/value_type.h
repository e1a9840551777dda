// Types of values in a PIR file.
#ifndef WEFT_PROTO_FORMATS_PIR_VALUE_TYPE_H_
#define WEFT_PROTO_FORMATS_PIR_VALUE_TYPE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/formats/pir/json_cursor.h"
#include "proto/framework.pb.h"

namespace weft::pir {

namespace pb = ::paddle::framework::proto;

struct ValueType {
  enum class Kind { kNull, kTensor, kList, kOther };
  Kind kind = Kind::kOther;
  // Of a variable that holds the value: LOD_TENSOR of kTensor; of kOther, arrays and sparse tensors
  // have types of their own, and what is not known is RAW.
  pb::VarType::Type variable = pb::VarType::RAW;
  pb::VarType::Type dtype = pb::VarType::FP32;  // but for RAW
  std::vector<int64_t> dims;                    // but for RAW; -1: unknown
  size_t list_size = 0;                         // kList

  bool is_variable() const { return kind == Kind::kTensor || kind == Kind::kOther; }
};
absl::StatusOr<ValueType> ReadType(absl::string_view json);

// {"#":"0.t_dtensor", ...} of a dense tensor. InvalidArgument for an element type without a name.
absl::StatusOr<std::string> TensorTypeJson(pb::VarType::Type dtype,
                                           const std::vector<int64_t>& dims);
// Of a list of values of these types.
std::string ListTypeJson(absl::Span<const std::string> types);
// "float32".
absl::StatusOr<absl::string_view> DTypeName(pb::VarType::Type dtype);

// The same back: none for a name that is no element type.
absl::optional<pb::VarType::Type> DTypeOfName(absl::string_view name);

// {"#": kind, "D": data}.
bool ReadTyped(JsonCursor* in, absl::string_view* kind, absl::string_view* data);

bool IsIntegerType(pb::VarType::Type dtype);  // not of bool

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_VALUE_TYPE_H_
