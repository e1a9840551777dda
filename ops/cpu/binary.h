// What elementwise ops of two operands have in common.
#ifndef WEFT_OPS_CPU_BINARY_H_
#define WEFT_OPS_CPU_BINARY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ops/broadcast.h"
#include "ops/kernel.h"
#include "ops/tensor.h"

namespace weft {

// How X and Y, which must have one element type, align at `axis` (see AlignShapes).
absl::StatusOr<Broadcast> AlignOperands(const Tensor& x, const Tensor& y, int64_t axis);

// Where Out = X op Y has its operands.
struct BinaryOp {
  int x, y, out;
  int64_t axis;  // -1 where the op has no such attribute

  static absl::StatusOr<BinaryOp> Make(const KernelSpec& spec);

  // How the operands align. InvalidArgument where they do not, or where Out takes the place of an
  // operand of another shape, or element type, than the result has.
  absl::StatusOr<Broadcast> Align(const KernelContext& ctx, DType out_dtype) const;
};

}  // namespace weft

#endif  // WEFT_OPS_CPU_BINARY_H_
