// Ops for debugging.
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {

void AddPrintSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("assert", "Cond, Data*?")
                   .Attr("summarize", int64_t{-1})
                   .With(Trait::kSideEffect)
                   .Pir());
  schemas->Add(OpSchema("print", "In -> Out~&In")
                   .Attr("first_n", -1)
                   .Attr("is_forward", true)
                   .Attr("message", "")
                   .Attr("print_phase", "BOTH", range::OneOf({"FORWARD", "BACKWARD", "BOTH"}))
                   .Attr("print_tensor_layout", true)
                   .Attr("print_tensor_lod", true)
                   .Attr("print_tensor_name", true)
                   .Attr("print_tensor_shape", true)
                   .Attr("print_tensor_type", true)
                   .Attr("summarize", 20)
                   .With(Trait::kLinear, Trait::kSideEffect)
                   .Infer(OutputsLike("In"))
                   .Algebra(Algebra::kCopy)
                   .Batch({batch::Elementwise, Powers::kTogether})
                   .Pir("(in)"));
}

}  // namespace weft
