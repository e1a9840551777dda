// The attributes of an op, decoded once, with the defaults of its schema.
#ifndef WEFT_OPS_SCHEMA_OP_ATTRS_H_
#define WEFT_OPS_SCHEMA_OP_ATTRS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/op_schema.h"
#include "proto/program.h"

namespace weft {

// The number of ranks that an op was written for. Collectives have it in their schema. Passes also
// write it on other ops that are right for one number of ranks only.
inline constexpr absl::string_view kNumRanksAttr = "nranks";

// Values by name, for all attributes of the schema. The schema must outlive them; those of
// FindOpSchema live forever. Attributes that the schema does not name (op_role, op_callstack, ...)
// are left out.
class OpAttrs {
 public:
  // InvalidArgument, naming op and attribute, if a required attribute is missing, or if a value
  // does not have the type in the schema and does not convert to it without loss. INT converts to
  // LONG, INTS to LONGS, FLOAT to FLOAT64, and back if the value fits.
  static absl::StatusOr<OpAttrs> Decode(const Op& op, const OpSchema& schema);
  // The defaults, replaced by `values`. For tests and for ops outside a program. Aborts on a name
  // or type that the schema does not have.
  static OpAttrs Make(const OpSchema& schema,
                      std::vector<std::pair<std::string, AttrValue>> values = {},
                      int64_t version = 0);

  // For an op of another schema: its defaults, replaced by the values of attributes of the same
  // name. Aborts if their types differ.
  OpAttrs For(const OpSchema& schema) const;

  // Sets an attribute to a value of its type, or of a wider one that is read alike (LONG for INT,
  // FLOAT64 for FLOAT, and lists of them). Aborts if the schema has no such attribute.
  void Set(absl::string_view name, AttrValue value);

  // Each aborts if the schema has no such attribute, or has it with another type: a mistake of the
  // caller, not of the program. Int and Ints read INT and LONG alike, Float reads FLOAT and
  // FLOAT64.
  int64_t Int(absl::string_view name) const;
  double Float(absl::string_view name) const;
  bool Bool(absl::string_view name) const;
  const std::string& String(absl::string_view name) const;
  std::vector<int64_t> Ints(absl::string_view name) const;
  std::vector<double> Floats(absl::string_view name) const;
  const std::vector<std::string>& Strings(absl::string_view name) const;
  const std::vector<Scalar>& Scalars(absl::string_view name) const;
  int Block(absl::string_view name) const;
  // Whether the op does what OpSchema::Since names, by the version of its program.
  bool Does(absl::string_view behavior) const;
  // That of the program of the op; 0: the op is in none, or a development build wrote it.
  int64_t version() const { return version_; }
  // Whether the schema has such an attribute.
  bool Has(absl::string_view name) const;

  // InvalidArgument if an attribute is outside its range (AttrSchema::range), but for those of
  // which `is_overridden` holds: "attribute dropout_prob: expected 0 to 1, found 1.5".
  // O(attributes).
  absl::Status CheckRanges(absl::FunctionRef<bool(absl::string_view)> is_overridden) const;

  // NaN differs from itself.
  friend bool operator==(const OpAttrs& a, const OpAttrs& b) {
    return a.schema_ == b.schema_ && a.values_ == b.values_ && a.version_ == b.version_;
  }

 private:
  const AttrValue& Get(absl::string_view name) const;

  const OpSchema* schema_ = nullptr;
  std::vector<AttrValue> values_;  // one for each of schema_->attrs()
  int64_t version_ = 0;
};

// An attribute as a message of the format, of type AttrTypeOf(value).
pb::OpDesc::Attr MakeAttr(absl::string_view name, const AttrValue& value);

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_OP_ATTRS_H_
