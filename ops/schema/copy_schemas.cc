// Copies, also to another element type or memory.
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferCast(InferContext& context, const TensorType& x) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeFromAttr(context, "out_dtype"));
  context.SetOutput("Out", {dtype, x.dims, x.kind});
  return absl::OkStatus();
}

}  // namespace

void AddCopySchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("cast", "X -> Out")
                   .RequiredAttr("in_dtype", kFp32)
                   .RequiredAttr("out_dtype", kFp32)
                   .With(Trait::kElementwise, Trait::kRowSplittable)
                   .Infer(IfKnown("X", InferCast))
                   .Algebra(Algebra::kCast)
                   .Pir("{dtype=out_dtype}"));
  schemas->Add(OpSchema("assign", "X? -> Out")
                   .With(Trait::kElementwise, Trait::kLinear, Trait::kRowSplittable)
                   .Infer(OutputsLike("X"))
                   .Algebra(Algebra::kCopy)
                   .Pir("(x!)")
                   .Pir("assign_out_(x!, output:-)")
                   // Of all elements, also of those that were set, as Paddle has it.
                   .Pir("set_value_grad(out_grad:X!) -> x_grad:Out"));
  // Copies to another place (0 host memory, 1 device memory, ...).
  schemas->Add(OpSchema("memcpy", "X -> Out")
                   .RequiredAttr("dst_place_type", 0)
                   .With(Trait::kElementwise, Trait::kLinear, Trait::kRowSplittable)
                   .Infer(OutputsLike("X"))
                   .Algebra(Algebra::kCopy)
                   .Pir());
  // Between the memories of two devices (ops/schema/device_ops.h). In Paddle, dst_place_type is
  // that of memcpy; Weft ignores it.
  for (const char* type : {"memcpy_d2h", "memcpy_h2d"}) {
    schemas->Add(OpSchema(type, "X -> Out")
                     .Attr("dst_place_type", 0)
                     .With(Trait::kElementwise, Trait::kLinear, Trait::kRowSplittable)
                     .Infer(OutputsLike("X"))
                     .Algebra(Algebra::kCopy));
  }
  // Out is X, after what writes Dep: Paddle's executor orders ops by variables.
  schemas->Add(
      OpSchema("depend", "Dep*, X -> Out=X")
          .With(Trait::kLinear)
          .Algebra(Algebra::kCopy)
          .Batch({[](BatchContext& context) { context.SetAll(context.In("X")); }, Powers::kOwn}));
}

}  // namespace weft
