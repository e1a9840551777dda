// Ops whose output is a strided view of their input, for all devices: which view it is.
#ifndef WEFT_OPS_CPU_VIEWS_H_
#define WEFT_OPS_CPU_VIEWS_H_

#include <functional>

#include "absl/types/span.h"
#include "ops/cpu/strided_view.h"
#include "ops/schema/op_attrs.h"

namespace weft {

// The view of a tensor of dims `x` that an op with output of dims `out` reads. Inference has
// checked attributes and dims.
using ViewOf = std::function<View(const Dims& x, const Dims& out)>;
using MakeView = ViewOf (*)(const OpAttrs&);

// Attributes axes, starts, ends and, unless all are 1, strides.
ViewOf SliceView(const OpAttrs& attrs);
// The dimensions of attribute axis reversed.
ViewOf FlippedView(const OpAttrs& attrs);
// x repeated along new dimensions, in front, and along those of 1.
View ExpandedView(const Dims& x, const Dims& out);

// An op Out = the view of x_slot, with a gradient op. A new one is a function that returns the
// view, and a row.
struct ViewOp {
  const char* type;
  MakeView make_view;
  const char* x_slot;
};
absl::Span<const ViewOp> ViewOps();

}  // namespace weft

#endif  // WEFT_OPS_CPU_VIEWS_H_
