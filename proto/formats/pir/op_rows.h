// The rows of the table of ops (proto/formats/pir/op_table.h) as text.
#ifndef WEFT_PROTO_FORMATS_PIR_OP_ROWS_H_
#define WEFT_PROTO_FORMATS_PIR_OP_ROWS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft::pir {

// Operands and results in the order of the file, as name:target. A target is
//   Slot    Slot*    one argument; a list
//   @attr/TYPE       an attribute that takes a constant
//   @attr/TYPE|Slot|Slots  the same, or an argument of Slot, or the numbers it is stacked from
// "?" after it: may be left out. "=operand" after a result: overwrites that operand.
// Attributes: name:name, or name:- for one without counterpart.
struct OpRow {
  absl::string_view pir, desc, operands, results, attrs;
};

absl::Span<const OpRow> OpRows();
absl::Span<const OpRow> MathRows();
absl::Span<const OpRow> ShapeRows();
absl::Span<const OpRow> RandomRows();
absl::Span<const OpRow> UpdateRows();

// What many rows have.
inline constexpr absl::string_view kX = "x:X", kXY = "x:X y:Y", kOut = "out:Out",
                                   kXGrad = "x:X out_grad:Out@GRAD",
                                   kOutGrad = "out:Out out_grad:Out@GRAD",
                                   kToXGrad = "x_grad:X@GRAD",
                                   kXYGrad = "x:X y:Y out_grad:Out@GRAD",
                                   kXYGrads = "x_grad:X@GRAD y_grad:Y@GRAD";

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_OP_ROWS_H_
