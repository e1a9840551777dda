// The attributes of an op, decoded once, with the defaults of its schema.
#ifndef WEFT_OPS_SCHEMA_OP_ATTRS_H_
#define WEFT_OPS_SCHEMA_OP_ATTRS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

// For how many ranks an op was written. Collectives have it in their schema; passes write it on
// other ops, too, that are right for one number of ranks only.
inline constexpr absl::string_view kNumRanksAttr = "nranks";

// Values by name, for all attributes of the schema, which must outlive them (those of FindOpSchema
// live forever). Attributes that the schema does not name (op_role, op_callstack, ...) are left
// out.
class OpAttrs {
 public:
  // InvalidArgument, naming op and attribute, where a value has another type than the schema says
  // and is not one that converts without loss (INT for LONG, INTS for LONGS, FLOAT for FLOAT64, an
  // integer that fits the other way), or a required attribute is missing.
  static absl::StatusOr<OpAttrs> Decode(const Op& op, const OpSchema& schema);
  // The defaults, replaced by `values`. For tests and for ops that are not in a program. Dies on a
  // name or type that the schema does not have.
  static OpAttrs Make(const OpSchema& schema,
                      std::vector<std::pair<std::string, AttrValue>> values = {});

  // For an op of another schema: the values of attributes of the same name, which must be of the
  // same type, and its defaults.
  OpAttrs For(const OpSchema& schema) const;

  // Another value for an attribute: of its type, or of a wider one that is read alike (LONG for
  // INT, FLOAT64 for FLOAT, and lists of them). Dies where the schema has no such attribute.
  void Set(absl::string_view name, AttrValue value);

  // Each dies where the schema has no such attribute, or has it with another type: a mistake of
  // the caller, not of the program. Int and Ints read INT and LONG alike, Float reads FLOAT and
  // FLOAT64.
  int64_t Int(absl::string_view name) const;
  double Float(absl::string_view name) const;
  bool Bool(absl::string_view name) const;
  const std::string& String(absl::string_view name) const;
  std::vector<int64_t> Ints(absl::string_view name) const;
  std::vector<double> Floats(absl::string_view name) const;
  const std::vector<std::string>& Strings(absl::string_view name) const;
  int Block(absl::string_view name) const;
  // Whether the schema has such an attribute. An attribute that is required is always there.
  bool Has(absl::string_view name) const;

 private:
  const AttrValue& Get(absl::string_view name) const;

  const OpSchema* schema_ = nullptr;
  std::vector<AttrValue> values_;  // one for each of schema_->attrs()
};

// An attribute in the format's own form, of the type that the alternative of `value` stands for.
pb::OpDesc::Attr MakeAttr(absl::string_view name, const AttrValue& value);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_OP_ATTRS_H_
