// Attributes of an op of ProgramDesc, from those of an op of PIR and from the constants that it
// reads.
#ifndef WEFT_PROTO_FORMATS_PIR_DESC_ATTRIBUTES_H_
#define WEFT_PROTO_FORMATS_PIR_DESC_ATTRIBUTES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/formats/pir/attributes.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/op_table.h"

namespace weft::pir {

// The layer that made an op: op_namescope in ProgramDesc.
inline constexpr absl::string_view kStructName = "struct_name";

class DescAttributes {
 public:
  // Adds to `desc`. Both must outlive it.
  DescAttributes(const Document& document, pb::OpDesc* desc) : document_(document), desc_(desc) {}

  // A new attribute, without a value.
  pb::OpDesc::Attr* Add(absl::string_view name, pb::AttrType type);
  // An attribute of the op of PIR, under the name that the rule gives; null: under its own. None
  // for struct_name, and for op_role, which the import finds itself.
  absl::Status Convert(const Attribute& attribute, const OpRule* rule);
  // The value of a constant that the op reads.
  absl::Status AddConstant(ValueIndex value, const OperandRule& operand);
  // What ProgramDesc has, and PIR derives from other things.
  absl::Status Derive(uint32_t op, const OpRule& rule, const std::vector<Attribute>& attributes);

  // The values of a 1.full_int_array of one result.
  absl::StatusOr<std::vector<int64_t>> IntegersOf(uint32_t maker) const;

 private:
  // Of a constant: its attribute value.
  absl::StatusOr<Attribute> ValueAttribute(uint32_t maker) const;
  // Unimplemented for a constant of an integer type that a float does not hold.
  absl::Status CheckExact(ValueIndex value, const OperandRule& operand) const;
  absl::Status AddGumbelAttributes(uint32_t op);
  absl::Status AddFill(uint32_t op);
  absl::Status AddValues(uint32_t op, const std::vector<Attribute>& attributes);
  // The same as numbers of any type, as set_value has them.
  absl::Status AddScalars(uint32_t op, const std::vector<Attribute>& attributes);
  absl::Status FillIfKnown(uint32_t op);
  absl::StatusOr<ValueType> TypeOf(ValueIndex value) const {
    return ReadType(document_.value(value).type);
  }

  const Document& document_;
  pb::OpDesc* const desc_;
};

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_DESC_ATTRIBUTES_H_
