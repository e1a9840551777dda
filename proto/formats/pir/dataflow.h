// Who makes the values of a file, and who needs them.
#ifndef WEFT_PROTO_FORMATS_PIR_DATAFLOW_H_
#define WEFT_PROTO_FORMATS_PIR_DATAFLOW_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/formats/pir/document.h"

namespace weft::pir {

// The op that makes a value; kNoOp for arguments of blocks and for kNoValue.
uint32_t MakerOf(const Document& document, ValueIndex value);
// The name of that op; empty if there is none.
absl::string_view MakerName(const Document& document, ValueIndex value);

// kNoValue if the op has fewer operands.
ValueIndex OperandOf(const Document& document, uint32_t op, size_t operand);

// Whether the op, or one in its blocks, reads one of `values`, by value.
bool ReadsAny(const Document& document, uint32_t op, const std::vector<bool>& values);

// By value: whether it is one of `values`, or is needed to compute one. What an update of a
// parameter makes needs no gradient. O(operands).
std::vector<bool> NeededFor(const Document& document, const std::vector<ValueIndex>& values);

// The parameter that an op reads or overwrites: the value, or what a few ops in place have made it
// from. kNoValue: none. O(1).
ValueIndex ParameterOf(const Document& document, ValueIndex value);
// The elements of the list that 0.combine has made; the value itself where it is none.
std::vector<ValueIndex> ElementsOf(const Document& document, ValueIndex value);
// Whether an op overwrites its first operand, a parameter or a list of them, by gradients.
bool IsUpdate(const Document& document, uint32_t op);

// Whether the op gives a stop_gradient of true to the value that it makes. O(bytes of the op).
absl::StatusOr<bool> StopsGradient(const Document& document, ValueIndex value);

// Whether it is a 1.full_like of 0. O(bytes of the constant).
bool IsZeros(const Document& document, ValueIndex value);

// The value of a 1.full; InvalidArgument if another op makes it. O(bytes of the op).
absl::StatusOr<double> ConstantOf(const Document& document, ValueIndex value);

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_DATAFLOW_H_
