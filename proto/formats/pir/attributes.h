// Attributes and types of ops in a PIR file, decoded.
#ifndef WEFT_PROTO_FORMATS_PIR_ATTRIBUTES_H_
#define WEFT_PROTO_FORMATS_PIR_ATTRIBUTES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/value_type.h"
#include "proto/framework.pb.h"

namespace weft::pir {

// {"N": name, "AT": {"#": kind, "D": data}}.
struct Attribute {
  absl::string_view name;
  absl::string_view kind;  // "0.a_bool", "1.a_intarray", ...
  absl::string_view data;  // JSON; empty: none
};

// Of "A" or "OA" of any op but a parameter. InvalidArgument for a name or a key that comes twice.
// O(bytes), but for the order of the names.
absl::StatusOr<std::vector<Attribute>> ReadAttributes(absl::string_view json);
// The attribute of that name; null if there is none.
const Attribute* FindAttribute(absl::string_view name, const std::vector<Attribute>& attributes);

// The data. InvalidArgument, naming the attribute, if it is another. Double also takes integers.
absl::StatusOr<bool> BoolOf(const Attribute& attribute);
absl::StatusOr<int64_t> IntOf(const Attribute& attribute);
absl::StatusOr<double> DoubleOf(const Attribute& attribute);
absl::StatusOr<std::string> StringOf(const Attribute& attribute);
// A number or boolean of any kind, as an integer of that type or as a bool (0, 1). InvalidArgument
// if it has a fraction or does not fit.
absl::StatusOr<int64_t> IntegerOf(const Attribute& attribute, pb::VarType::Type dtype);
absl::StatusOr<std::vector<int64_t>> IntegersOf(const Attribute& attribute,
                                                pb::VarType::Type dtype);
// An array of numbers of any kind.
absl::StatusOr<std::vector<double>> DoublesOf(const Attribute& attribute);
// Of "OA": a flag of every result.
absl::StatusOr<std::vector<bool>> FlagsOf(const Attribute& attribute);
// Of 1.a_dtype: "float32". None for "Undefined(ALL_DTYPE)".
absl::StatusOr<absl::optional<pb::VarType::Type>> DTypeOf(const Attribute& attribute);

// As an attribute of a ProgramDesc; none for a place, which such programs do not keep.
absl::StatusOr<absl::optional<pb::OpDesc::Attr>> ToAttr(const Attribute& attribute);

// {"#":"p","A":[is_distributed, is_parameter, need_clip, name],"OA":[persistable, stop_gradient,
// trainable]}.
struct Parameter {
  bool is_distributed = false, is_parameter = false, need_clip = false;
  std::string name;
  bool persistable = false, stop_gradient = false, trainable = false;
};
absl::StatusOr<Parameter> ReadParameter(const DocumentOp& op);

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_ATTRIBUTES_H_
